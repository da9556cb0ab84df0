"""Seed one fault at a time, and see that a test of the broken requirement fails.

`tests/mutants.toml` has the faults by requirement. A fault is applied to a copy of the repository with an
environment of its own, so that programs that a test starts run the faulty code too. Only the tests that carry
the requirement run; the working tree is never changed.

    python scripts/mutants.py                    every fault
    python scripts/mutants.py excel-1.2 otter    the faults of one requirement, and of one application
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tokenize
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    import pytest

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "tests" / "mutants.toml"
SLOWER = ("unit", "property", "behaviour", "docs", "examples", "real")
"""Folders of tests; those of a later one take longer. Tests outside them are the fastest."""
SURVIVED, CAUGHT = 0, 1
"""Exit codes of the process that runs the tests; with any other one the fault itself is wrong."""
WORKERS = len(os.sched_getaffinity(0)) + 1
"""One more than there are cores: tests often wait."""
LONGEST_TEST = 60
LONGEST_RUN = 600


class Fault(NamedTuple):
    """One change that breaks a requirement."""

    requirement: str
    number: int
    file: str
    """Relative to the repository."""
    place: str
    """The function or class that has the code, as `Class.method`; empty for code of the module itself."""
    old: str
    new: str

    @property
    def name(self) -> str:
        """The requirement and its how manieth fault this is."""
        return f"{self.requirement}#{self.number}"

    def applied(self, text: str) -> str:
        """Return the text of the file with the fault.

        Raises:
            ValueError: The fault does not fit the file.
        """
        scopes = list(scopes_of(text, self.place)) if self.file.endswith(".py") else [(0, len(text))]
        found = list(self._as_written(text, scopes)) or list(self._as_code(text, scopes))
        where = f"`{self.place}` of {self.file}" if self.place else self.file
        if len(found) != 1 or self.old == self.new:
            msg = (
                f"{self.name}: the old code must occur once in {where}, not {len(found)} times: {self.old!r}"
            )
            raise ValueError(msg)
        begin, end, new = found[0]
        changed = text[:begin] + new + text[end:]
        if self.file.endswith(".py"):
            ast.parse(changed, self.file)
        return changed

    def _as_written(self, text: str, scopes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
        """Yield where the old code is written exactly so, and the new code."""
        for begin, end in scopes:
            for found in re.compile(re.escape(self.old)).finditer(text, begin, end):
                yield *found.span(), self.new

    def _as_code(self, text: str, scopes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
        """Yield where the old code is, with other line breaks or another indentation, and the new code."""
        words = [word for word, _, _ in tokens_of(self.old.strip())] if self.file.endswith(".py") else []
        code = tokens_of(text) if words else []
        for at in range(len(code) - len(words) + 1 if words else 0):
            begin, end = code[at][1], code[at + len(words) - 1][2]
            if [word for word, _, _ in code[at : at + len(words)]] == words and any(
                first <= begin and end <= last for first, last in scopes
            ):
                yield begin, end, self._indented(begin - text.rfind("\n", 0, begin) - 1)

    def _indented(self, column: int) -> str:
        """Return the new code for a place that begins at this column."""
        first = self.old.lstrip("\n")
        shift = column - (len(first) - len(first.lstrip(" ")))
        lines = self.new.strip().split("\n")
        # An inner part of a line says nothing of its indentation.
        moved = [" " * max(0, len(one) - len(one.lstrip()) + shift) + one.lstrip() for one in lines[1:]]
        return "\n".join([lines[0], *moved]) or "pass"


def scopes_of(text: str, place: str) -> Iterator[tuple[int, int]]:
    """Yield where a function or a class begins and ends; there may be several with one name."""
    if not place:
        yield 0, len(text)
        return
    starts = line_starts(text)

    def inside(node: ast.AST, names: Sequence[str]) -> Iterator[tuple[int, int]]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from inside(child, names)
            elif child.name == names[0] and len(names) > 1:
                yield from inside(child, names[1:])
            elif child.name == names[0]:
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                yield starts[first - 1], starts[child.end_lineno or child.lineno]

    yield from inside(_parsed(text), place.split("."))


@functools.cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def line_starts(text: str) -> list[int]:
    """Return where each line begins, and where the text ends."""
    return [0, *itertools.accumulate(len(line) for line in text.splitlines(keepends=True))]


@functools.cache
def tokens_of(text: str) -> list[tuple[str, int, int]]:
    """Return the tokens of some code with their places, without comments, line breaks and last commas."""
    starts, found = line_starts(text), list[tuple[str, int, int]]()
    passed_over = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    with contextlib.suppress(tokenize.TokenError, IndentationError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in passed_over or not token.string.strip():
                continue
            if token.string in {")", "]", "}"} and found and found[-1][0] == ",":
                found.pop()
            (row, column), (last, end) = token.start, token.end
            found.append((token.string, starts[row - 1] + column, starts[last - 1] + end))
    return found


class Outcome(NamedTuple):
    """What the tests of a requirement said about a fault."""

    code: int
    seconds: float
    output: str

    @property
    def caught_by(self) -> str:
        """The test that failed first."""
        lines = [line for line in self.output.splitlines() if line.startswith("caught by ")]
        return lines[0].removeprefix("caught by ") if lines else ""


def read_faults(file: Path = FAULTS) -> list[Fault]:
    """Return all faults, in the order of the file."""
    tables = tomllib.loads(file.read_text("utf-8"))
    return [
        Fault(f"{table}-{key}", number, file, place, old, new)
        for table, entries in tables.items()
        for key, faults in entries.items()
        for number, (file, place, old, new) in enumerate(faults, 1)
    ]


def files_by_requirement(tests: Path) -> dict[str, list[str]]:
    """Return the files of the tests that carry each requirement, the fastest first."""
    sys.path.insert(0, str(ROOT))
    from scripts.draw_mission import marks_in

    files: dict[str, dict[str, None]] = {}
    for mark in marks_in(tests):
        files.setdefault(mark.identifier, {})[mark.file] = None
    return {name: sorted(found, key=_cost) for name, found in files.items()}


def _cost(file: str) -> int:
    folder = file.partition("/")[0]
    return SLOWER.index(folder) + 1 if folder in SLOWER else 0


def _skipped(folder: str, names: list[str]) -> set[str]:
    """Name what a copy goes without: the environment and the like. A `.kode.json` of an example is copied."""
    if Path(folder) == ROOT:
        return {name for name in names if name.startswith(".") or name in {"build", "dist"}}
    return {"node_modules", "__pycache__"}.intersection(names)


class Copy:
    """A copy of the repository, with an environment whose `dragoman` is the copied one."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "dragoman"
        self._files = files_by_requirement(ROOT / "tests")
        shutil.copytree(ROOT, self.root, ignore=_skipped, symlinks=True)
        # The real servers and their index are only read.
        (self.root / ".cache").symlink_to((ROOT / ".cache").resolve())
        self._python = _environment(self.root)

    @contextmanager
    def broken(self, fault: Fault) -> Generator[None]:
        """Have a fault in the copy."""
        file = self.root / fault.file
        text = file.read_text("utf-8")
        _write(file, fault.applied(text))
        try:
            yield
        finally:
            _write(file, text)

    def run(self, requirements: Sequence[str]) -> Outcome:
        """Run the tests of some requirements until one fails."""
        files = sorted(sorted({file for one in requirements for file in self._files[one]}), key=_cost)
        command = [self._python, str(self.root / "scripts" / "mutants.py"), "--tests", ",".join(requirements)]
        began = time.monotonic()
        with subprocess.Popen(
            [*command, *(f"tests/{file}" for file in files)],
            cwd=self.root,
            env=_variables(self.root),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=LONGEST_RUN * len(requirements))
                code = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, code = f"{process.communicate()[0]}\ncaught by a run without an end", CAUGHT
        return Outcome(code, time.monotonic() - began, output)


def try_faults(
    faults: Sequence[Fault], folder: Path, *, workers: int = WORKERS
) -> Iterator[tuple[Fault, Outcome]]:
    """Try faults, several at a time, each alone in a copy; yield what became of them as it is known."""
    copies = SimpleQueue[Copy]()
    for number in range(min(workers, len(faults))):
        copies.put(Copy(folder / str(number)))

    def attempt(fault: Fault) -> tuple[Fault, Outcome]:
        copy = copies.get()
        try:
            with copy.broken(fault):
                return fault, copy.run([fault.requirement])
        finally:
            copies.put(copy)

    pool = ThreadPoolExecutor(workers)
    try:
        for done in as_completed([pool.submit(attempt, fault) for fault in faults]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _write(file: Path, text: str) -> None:
    """Write a file and drop its compiled code, which knows the file only by its size and second."""
    file.write_text(text, "utf-8")
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        compiled.unlink()


def _environment(root: Path) -> str:
    """Make a virtual environment that shares everything with ours except `dragoman`; return its Python."""
    ours, copy = Path(sys.prefix), root / ".venv"
    paths = sysconfig.get_paths()
    for kind in ("purelib", "scripts"):
        source = Path(paths[kind])
        target = copy / source.relative_to(ours)
        target.mkdir(parents=True)
        for entry in source.iterdir():
            place = target / entry.name
            text = "" if entry.is_dir() or entry.is_symlink() else _text(entry)
            if str(ROOT) in text:
                place.write_text(text.replace(str(ROOT), str(root)), "utf-8")
                place.chmod(entry.stat().st_mode)
            elif entry.is_symlink():
                place.symlink_to(entry.readlink())
            else:
                place.symlink_to(entry)
    shutil.copy2(ours / "pyvenv.cfg", copy / "pyvenv.cfg")
    return str(copy / Path(paths["scripts"]).relative_to(ours) / "python")


def _text(file: Path) -> str:
    """Return a small text file, such as a starter or a path file; empty for anything else."""
    if file.stat().st_size > 100_000:
        return ""
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        return ""


def _variables(root: Path) -> Mapping[str, str]:
    """Return our variables without those that lead back to the working tree."""
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return kept | {"PATH": os.environ["PATH"].replace(str(ROOT), str(root))}


class Selection:
    """A pytest plugin: only the tests of some requirements, the fastest first."""

    def __init__(self, requirements: Iterable[str]) -> None:
        self._wanted = set(requirements)
        self.failed = ""
        self.broken = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the other tests."""
        items[:] = [item for item in items if self._wanted & set(_carried(item))]
        items.sort(key=lambda item: _cost(item.nodeid.removeprefix("tests/")))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Tell a fault that breaks the import of a test from one that a test finds."""
        if report.failed:
            self.broken = f"cannot be collected: {report.nodeid}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the first failure."""
        if report.failed:
            self.failed = self.failed or report.nodeid


def _carried(item: pytest.Item) -> Iterator[str]:
    for mark in item.iter_markers("requirement"):
        yield from mark.args


def run_tests(requirements: Sequence[str], files: Sequence[str]) -> int:
    """Run the tests of requirements in this process, and return what became of the fault."""
    import pytest

    selection = Selection(requirements)
    quiet = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options = [*quiet, "-o", f"timeout={LONGEST_TEST}", "--hypothesis-profile=mutants"]
    code = int(pytest.main([*options, *files], plugins=[selection]))
    if selection.broken or code not in {SURVIVED, CAUGHT}:
        print(selection.broken or f"pytest ended with {code}")
        return 2
    if selection.failed:
        print(f"caught by {selection.failed}")
    return code


def main(arguments: Sequence[str]) -> int:
    """Try the faults that are named, or all."""
    if arguments[:1] == ["--tests"]:
        return run_tests(arguments[1].split(","), arguments[2:])
    faults = [
        fault
        for fault in read_faults()
        if not arguments
        or {fault.requirement, fault.name, fault.requirement.partition("-")[0]} & {*arguments}
    ]
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for fault, outcome in try_faults(faults, Path(folder)):
            said = {SURVIVED: "SURVIVED", CAUGHT: "caught"}.get(outcome.code, "BROKEN")
            print(f"{fault.name:32} {said:9} {outcome.seconds:5.1f} s  {outcome.caught_by}", flush=True)
            if outcome.code != CAUGHT:
                bad.append(fault.name)
            if outcome.code not in {SURVIVED, CAUGHT}:
                print(outcome.output)
    print(f"{len(faults)} faults, {len(faults) - len(bad)} caught{': not ' if bad else ''}{', '.join(bad)}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
