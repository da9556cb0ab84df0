"""What no file of the package may do: run a shell, evaluate text, unpickle, or read without a bound.

The linter sees most of this one line at a time and can be silenced there; here nothing can. An exception stands
in `ALLOWED` with its reason, and fails once it is not needed.
"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "dragoman"

SHELLS = {
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
    *("asyncio.create_subprocess_shell", "create_subprocess_shell", "subprocess_shell"),
}
EVALUATING = {"eval", "exec", "compile", "builtins.eval", "builtins.exec"}
UNPICKLING = {
    *(
        "pickle.load",
        "pickle.loads",
        "pickle.Unpickler",
        "marshal.load",
        "marshal.loads",
        "shelve.open",
        "dill.loads",
    ),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "tempfile.mktemp"),
}
READING = {"read", "readall", "readlines", "communicate"}
"""Methods that take everything a stream has, unless they are given a size."""
ANSWERING = {"text", "json", "read"}
"""The same of an HTTP answer, when awaited."""

ALLOWED = {
    ("demo/launch.py", "read"): "the log of our own demo server, after it failed to start",
    ("server/oauth/flow.py", "read"): "the body of our own request, which is in memory",
    (
        "server/transports/http_exchange.py",
        "read",
    ): "one status line with its headers; aiohttp's parser limits their number and length",
}


class Offence(NamedTuple):
    line: int
    what: str
    why: str


def offences(source: str) -> Iterator[Offence]:
    tree = ast.parse(source)
    # A class of ours may have a method of that name; what it reads from is judged where it does so.
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    awaited = {node.value for node in ast.walk(tree) if isinstance(node, ast.Await)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        last = name.rpartition(".")[2]
        for keyword in node.keywords:
            if keyword.arg == "shell" and not (
                isinstance(keyword.value, ast.Constant) and not keyword.value.value
            ):
                yield Offence(node.lineno, last, "it may run a shell")
        if name in SHELLS or last in {"create_subprocess_shell", "subprocess_shell"}:
            yield Offence(node.lineno, last, "it runs a shell")
        if name in EVALUATING:
            yield Offence(node.lineno, last, "it evaluates text")
        if name in UNPICKLING:
            yield Offence(node.lineno, last, "it builds objects, or files, from what others can write")
        if isinstance(node.func, ast.Attribute) and not has_size(node):
            if last in READING - own:
                yield Offence(node.lineno, last, "it reads without a bound")
            elif last in ANSWERING and node in awaited:
                yield Offence(node.lineno, last, "it reads an answer without a bound")


def has_size(call: ast.Call) -> bool:
    """Return whether a reading call is given a size; an encoding is none, nor is `-1`."""
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg in ("n", "size", "amt"))]
    return any(not isinstance(value, ast.Constant | ast.UnaryOp) or is_positive(value) for value in given)


def is_positive(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, int) and value.value > 0


def test_no_file_runs_a_shell_evaluates_text_or_reads_without_a_bound() -> None:
    found: list[str] = []
    used: set[tuple[str, str]] = set()
    paths = sorted(PACKAGE.rglob("*.py"))
    assert len(paths) > 50
    for path in paths:
        where = path.relative_to(PACKAGE).as_posix()
        for offence in offences(path.read_text("utf-8")):
            if (where, offence.what) in ALLOWED:
                used.add((where, offence.what))
            else:
                found.append(f"{where}:{offence.line}: `{offence.what}`: {offence.why}")
    assert found == []
    assert ALLOWED.keys() - used == set(), "these exceptions are not needed"


@pytest.mark.parametrize(
    "source",
    [
        "subprocess.run('ls', shell=True)",
        "subprocess.Popen(command, shell=wanted)",
        "os.system('ls')",
        "await asyncio.create_subprocess_shell('ls')",
        "loop.subprocess_shell(factory, 'ls')",
        "eval(text)",
        "exec(text)",
        "pickle.loads(data)",
        "yaml.load(text)",
        "process.stdout.read()",
        "process.stdout.read(-1)",
        "await stream.read()",
        "process.stderr.readlines()",
        "process.communicate()",
        "await response.text()",
        "await response.json()",
    ],
)
def test_an_offence_is_seen(source: str) -> None:
    whole = f"async def f():\n{textwrap.indent(source, '    ')}"
    assert len(list(offences(whole))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "subprocess.run(['ls'], shell=False)",
        "stream.read(65536)",
        "stream.read(LIMIT + 1)",
        "os.read(number, size)",
        "re.compile('a')",
        "cache.read(key)",
        "element.text()",
        "yaml.safe_load(text)",
        "class A:\n    def read(self): return self.file.read(9)\nA().read()",
    ],
)
def test_what_is_bounded_passes(source: str) -> None:
    assert list(offences(source)) == []
