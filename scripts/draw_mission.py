"""Write the page mission.md of the site: every requirement, and the tests that prove it.

Tests name what they prove with `@pytest.mark.requirement("excel-1.2")`. Marks are read from the source, so
the result does not depend on which tests ran. tests/prove is ignored, because `make test` does not run it.
"""

from __future__ import annotations

import ast
import tomllib
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
HEAD = """\
---
summary: The requirements of the five applications that use dragoman, with the tests that prove them.
read_when: You want to know whether a feature is required, and where it is tested.
---
# Requirements

Five applications defined what they need from an MCP client, and `users` is what a program with many users
needs. Each row is one of these requirements, with the tests in `make test` that prove it.
[proof.md](proof.md) has the results of the full-size tests.
"""


class Mark(NamedTuple):
    """A test, or a file of tests, that names a requirement."""

    identifier: str
    """Empty if it is not a literal string."""
    file: str
    """Relative to the folder of the tests."""
    line: int
    test: str
    """Empty if the mark applies to the whole file."""


def read_requirements(file: Path) -> dict[str, str]:
    """Return the text of every requirement by its id, `table-key`."""
    tables = tomllib.loads(file.read_text("utf-8"))
    return {
        f"{table}-{key}": entry["says"] for table, entries in tables.items() for key, entry in entries.items()
    }


def marks_in(folder: Path) -> Iterator[Mark]:
    """Yield each `pytest.mark.requirement("…")` in the test files."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        if "prove" not in path.relative_to(folder).parts and "requirement" in text:
            yield from _marks(ast.parse(text, str(path)), path.relative_to(folder).as_posix())


def current() -> str:
    """Return the page for the current requirements and tests."""
    return page(read_requirements(TESTS / "requirements.toml"), marks_in(TESTS))


def page(requirements: dict[str, str], marks: Iterable[Mark]) -> str:
    """Return the page."""
    proofs: dict[str, dict[str, None]] = {}
    for mark in marks:
        proofs.setdefault(mark.identifier, {})[_link(mark)] = None
    lines = [HEAD]
    for application, identifiers in groupby(requirements, lambda identifier: identifier.partition("-")[0]):
        lines += [f"## {application}", "", "| id | requirement | proved by |", "| --- | --- | --- |"]
        for identifier in identifiers:
            shown = "<br>".join(proofs.get(identifier, {})) or "**nothing yet**"
            lines.append(f"| {identifier} | {requirements[identifier]} | {shown} |")
        lines.append("")
    return "\n".join(lines)


def _link(mark: Mark) -> str:
    words = mark.test.removeprefix("test_").replace("_", " ") or f"all of {Path(mark.file).name}"
    return f"[{words}](../tests/{mark.file})"


def _marks(tree: ast.Module, file: str) -> Iterator[Mark]:
    decorated: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = [part for one in node.decorator_list for part in ast.walk(one)]
            decorated |= {id(part): node.name for part in inside}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr == "requirement" and ast.unparse(node.func).endswith("mark.requirement"):
            for argument in node.args:
                written = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                name = ast.literal_eval(argument) if written else ""
                yield Mark(name, file, node.lineno, decorated.get(id(node), ""))
