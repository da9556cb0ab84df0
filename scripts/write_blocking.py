"""Write the API without `await` from the async one: src/dragoman/blocking/{manager,facets,registry,bulk}.py.

Every public method of an async class gets a method of the same name, parameters and documentation. What was
awaited runs on the loop of the manager's thread; what was not runs there too, so that nothing changes while
it reads. `blocking/lifetime.py`, `loop_thread.py` and `tool.py` are written by hand.

`--check` writes nothing, and fails if a file is out of date.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Page:
    """A file to write."""

    name: str
    says: str
    """Its docstring."""
    classes: tuple[tuple[str, str], ...]
    """The classes, each by its module and its name."""


PAGES = (
    Page(
        "manager",
        "McpManager without `await`, for scripts, notebooks and threads.",
        (("dragoman.manager.manager", "McpManager"),),
    ),
    Page(
        "facets",
        "What `McpManager` has on its facets, without `await`.",
        (
            ("dragoman.manager.logins", "Logins"),
            ("dragoman.manager.trust", "TrustDecisions"),
            ("dragoman.manager.tasks", "Tasks"),
            ("dragoman.manager.session", "SessionRequests"),
            ("dragoman.manager.skills", "Skills"),
            ("dragoman.manager.apps", "Apps"),
            ("dragoman.manager.apps", "AppProxy"),
        ),
    ),
    Page(
        "registry",
        "The registry of a blocking manager, and its views: the tools, and their calls without `await`.",
        (
            ("dragoman.tools.view", "ToolSet"),
            ("dragoman.tools.view", "ToolView"),
            ("dragoman.tools.registry", "ToolRegistry"),
        ),
    ),
    Page("bulk", "Bulk runs without `await`.", (("dragoman.bulk.run", "BulkRun"),)),
)
HEAD = """\
\"\"\"{says}

Written by scripts/write_blocking.py from the async classes; do not edit.
\"\"\"

from __future__ import annotations

"""
CONSTRUCTOR = """\
    def __init__(self, it: Async{name}, runner: BlockingRunner) -> None:
        {begin}
        self._async = it
"""
MANAGER = "McpManager"
BY_HAND = {"start", "shutdown", "close"}
"""Methods of a manager that `blocking/lifetime.py` has."""
LEFT_OUT = {"replacing", "connections"}
"""A method that works in slices between the turns of a loop, and what managers on one loop share."""
OPERATORS = {"__iter__", "__len__", "__contains__", "__aiter__"}
HOMES = {name: f"dragoman.blocking.{page.name}" for page in PAGES for _, name in page.classes}
"""Where the class of a name is, without `await`."""
WRAPPED = set(HOMES) - {MANAGER}
HAND_MADE = {"ToolDef": "dragoman.blocking.tool"}
NEW_NAMES = {"Iterator": "collections.abc", "Generator": "collections.abc", "Event": "dragoman.events"}
"""Where names are which only the written types have."""
PLAIN_FUNCTIONS = {"ProgressHandler | None", "ChangeHandler | None", "Callable[[], Awaitable[str]] | None"}
"""The types of functions that may be async: a plain one gets a thread, where it may wait and call us."""
PLAIN_NAMES = {"open_url"}
WORDS = (
    (r"`async with`", "`with`"),
    (r"`await ", "`"),
    (r"; may be async\.", "."),
    (r", even if cancelled; safe", "; safe"),
)
"""What the documentation says differently."""


def main() -> None:
    """Write the files, or check them."""
    stale: list[str] = []
    for page in PAGES:
        path = SOURCE / "dragoman" / "blocking" / f"{page.name}.py"
        text = formatted(Writer(page).text(), path)
        if "--check" not in sys.argv[1:]:
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
    if stale:
        sys.exit(f"{', '.join(stale)}: out of date; run scripts/write_blocking.py")


def formatted(text: str, path: Path) -> str:
    """Return a source with sorted imports, in the form that the linter wants."""
    for command in (
        ["check", "--quiet", "--fix-only", "--select", "I,F401"],
        ["format", "--quiet"],
    ):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"]
        done = subprocess.run(ruff, input=text.encode(), capture_output=True, check=True, cwd=ROOT)
        text = done.stdout.decode()
    return text


@cache
def tree(module: str) -> ast.Module:
    """Return the source of a module, parsed."""
    file = SOURCE.joinpath(*module.split("."))
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    return ast.parse(file.read_text("utf-8"))


@cache
def origins(module: str) -> dict[str, str]:
    """Return the module that each name comes from which a module imports or defines."""
    found: dict[str, str] = {}
    for node in ast.walk(tree(module)):
        match node:
            case ast.ImportFrom(module=str(home), names=names):
                found |= {one.name: home for one in names if one.asname is None}
            case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                found.setdefault(name, module)
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.setdefault(name, module)
            case _:
                pass
    return found


@dataclass
class Writer:
    """Writes one file."""

    page: Page
    imports: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    """What annotations need: module, name, and the name that it gets."""
    runtime: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])

    def text(self) -> str:
        """Return the whole source."""
        bodies = [self.written(module, name) for module, name in self.page.classes]
        self.imports -= self.runtime
        head = HEAD.format(says=self.page.says)
        head += "from typing import TYPE_CHECKING\n" + "".join(map(_import, sorted(self.runtime)))
        typed = "".join(f"    {_import(one)}" for one in sorted(self.imports))
        return f"{head}\nif TYPE_CHECKING:\n{typed}\n" + "\n\n".join(bodies)

    def written(self, module: str, name: str) -> str:
        """Return one class."""
        (node,) = [one for one in tree(module).body if isinstance(one, ast.ClassDef) and one.name == name]
        self.imports.add((module, name, f"Async{name}"))
        doc = docstring(node)
        if name == MANAGER:
            for needed in ("LoopManager", "ManagerInThread", "OwnThread", "in_threads"):
                self.runtime.add(("dragoman.blocking.lifetime", needed, needed))
            parts = [f"class {name}(ManagerInThread):\n{doc}"]
        else:
            self.imports.add(("dragoman.blocking.loop_thread", "BlockingRunner", "BlockingRunner"))
            inherited = [one for one in map(ast.unparse, node.bases) if one in WRAPPED]
            base = f"({inherited[0]})" if inherited else ""
            begin = "super().__init__(it, runner)" if inherited else "self._runner = runner"
            parts = [f"class {name}{base}:\n{doc}", CONSTRUCTOR.format(name=name, begin=begin)]
        overloaded: set[str] = set()
        for home, item in members(module, node):
            if "overload" in map(ast.unparse, item.decorator_list):
                overloaded.add(item.name)
            elif item.name in overloaded:
                item = _of_any_type(item)
            is_operator = item.name in OPERATORS or (item.name == "__init__" and name == MANAGER)
            is_public = not item.name.startswith("_") and item.name not in LEFT_OUT
            if (is_public or is_operator) and not (name == MANAGER and item.name in BY_HAND):
                parts.append(self.method(home, item))
        return "\n".join(parts)

    def method(self, module: str, item: Function) -> str:
        """Return one method, property or overload."""
        marks = {ast.unparse(mark) for mark in item.decorator_list}
        item = copy.deepcopy(item)
        arguments = [one for one in _all_arguments(item) if one.arg not in LEFT_OUT]
        passed = {one.arg: self.passed(one) for one in arguments}
        for one in arguments:
            one.annotation = self.parameter(one, module)
        returns = self.returned(item, module)
        if item.name == "__aiter__":
            item.name = "__iter__"
        doc = docstring(item, 2)
        signature = f"    def {item.name}({_signature(item)}) -> {returns}:\n"
        if "overload" in marks:
            self.runtime.add(("typing", "overload", "overload"))
            return f"    @overload\n{signature}        ...\n"
        if "property" in marks or "cached_property" in marks:
            return self.property(item, returns, doc)
        target = "LoopManager" if "classmethod" in marks else f"self._async.{item.name}"
        if "classmethod" in marks and not isinstance(item, ast.AsyncFunctionDef):
            target = f"LoopManager.{item.name}"
        call = f"{target}({_passed_on(item, passed)})"
        mark = "    @classmethod\n" if "classmethod" in marks else ""
        return f"{mark}{signature}{doc}{textwrap.indent(self.body(item, marks, call, returns), ' ' * 8)}\n"

    def property(self, item: Function, returns: str, doc: str) -> str:
        """Return a property."""
        value = f"self._async.{item.name}"
        mark = "property"
        if returns in WRAPPED:
            self.runtime.add(("functools", "cached_property", "cached_property"))
            mark, value = "cached_property", f"{returns}({value}, self._runner)"
        return f"    @{mark}\n    def {item.name}(self) -> {returns}:\n{doc}        return {value}\n"

    def body(self, item: Function, marks: set[str], call: str, returns: str) -> str:
        """Return what a method does."""
        if item.name == "__init__":
            arguments = call.partition("(")[2]
            return f"mcp = LoopManager({arguments}\nsuper().__init__(mcp, OwnThread(mcp, mcp.runner))"
        if "classmethod" in marks:
            return f"return cls._{'connected' if isinstance(item, ast.AsyncFunctionDef) else 'of'}({call})"
        if item.name == "__iter__":
            if returns.startswith("Generator["):
                self.runtime.add(("dragoman.blocking.loop_thread", "iterate", "iterate"))
                return "return iterate(self._async, self._runner)"
            self.runtime.add(("typing", "cast", "cast"))
            return 'return iter(cast("list[ToolDef]", self._runner.read(lambda: list(self._async))))'
        how = "run" if isinstance(item, ast.AsyncFunctionDef) else "read"
        done = f"self._runner.{how}({call.removesuffix('()') if call.endswith('()') else f'lambda: {call}'})"
        if returns in WRAPPED:
            done = f"{returns}({done}, self._runner)"
        elif returns == MANAGER:
            done = f"self._beside({done})"
        elif returns == "Iterator[Event]":
            self.runtime.add(("dragoman.blocking.loop_thread", "BlockingIterator", "BlockingIterator"))
            done = f"BlockingIterator({done}, self._runner)"
        elif re.search(r"\bToolDef\b", returns):
            self.runtime.add(("typing", "cast", "cast"))
            done = f'cast("{returns}", {done})'
        return done if returns == "None" else f"return {done}"

    def passed(self, argument: ast.arg) -> str:
        """Return what is passed on for a parameter."""
        kind = ast.unparse(argument.annotation) if argument.annotation else ""
        if kind == "Handlers | None":
            return f"in_threads({argument.arg})"
        if kind in PLAIN_FUNCTIONS or argument.arg in PLAIN_NAMES:
            self.runtime.add(("dragoman.blocking.loop_thread", "in_thread", "in_thread"))
            return f"{argument.arg} and in_thread({argument.arg})"
        return argument.arg

    def parameter(self, argument: ast.arg, module: str) -> ast.expr | None:
        """Return the type of a parameter: what the async class takes."""
        node = argument.annotation
        if node is None:
            return None
        if argument.arg not in PLAIN_NAMES and ast.unparse(node) == "Callable[[], Awaitable[str]] | None":
            node = ast.parse("Callable[[], str] | None", mode="eval").body
        return self.spelled(node, module, is_returned=False)

    def returned(self, item: Function, module: str) -> str:
        """Return the type of what a method returns, which does not need to be awaited either."""
        node = item.returns
        if node is None or (written := ast.unparse(node)) == "None":
            return "None"
        if written == "Subscription":
            node = ast.parse("Iterator[Event]", mode="eval").body
        elif written.startswith("AsyncGenerator["):
            node = ast.parse(written.removeprefix("Async"), mode="eval").body
        return ast.unparse(self.spelled(node, module, is_returned=True))

    def spelled(self, node: ast.expr, module: str, *, is_returned: bool) -> ast.expr:
        """Return a type with names that are imported here."""
        known = origins(module)
        node = copy.deepcopy(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        for inner in ast.walk(node):
            if not isinstance(inner, ast.Name) or hasattr(builtins, inner.id):
                continue
            name = inner.id
            home = HOMES.get(name) or HAND_MADE.get(name)
            if home is not None and not is_returned:
                inner.id = f"Async{name}"
                self.imports.add((known.get(name, module), name, inner.id))
            elif home is not None:
                if home != f"dragoman.blocking.{self.page.name}":
                    (self.runtime if name in WRAPPED else self.imports).add((home, name, name))
            else:
                self.imports.add((known.get(name) or NEW_NAMES[name], name, name))
        return node


def members(module: str, node: ast.ClassDef) -> list[tuple[str, Function]]:
    """Return the methods of a class and of its base classes in dragoman, each with its module.

    Those of a base class that is written, too, are left out, unless they have other parameters here.
    """
    found: list[tuple[str, Function]] = []
    taken: set[str] = set()
    written = [one for one in lineage(module, node)[1:] if one[1].name in WRAPPED]
    inherited = {_shape(item) for _, one in written for item in one.body if isinstance(item, Function)}
    for home, one in lineage(module, node):
        own = [item for item in one.body if isinstance(item, Function) and _shape(item) not in inherited]
        found += [(home, item) for item in own if item.name not in taken]
        taken |= {item.name for item in own}
    return found


def lineage(module: str, node: ast.ClassDef) -> list[tuple[str, ast.ClassDef]]:
    """Return a class and its base classes in dragoman, itself first."""
    found = [(module, node)]
    for name in map(ast.unparse, node.bases):
        home = origins(module).get(name, "")
        if home.startswith("dragoman"):
            parents = [one for one in tree(home).body if isinstance(one, ast.ClassDef) and one.name == name]
            found += [item for parent in parents for item in lineage(home, parent)]
    return found


def docstring(node: ast.ClassDef | Function, depth: int = 1) -> str:
    """Return the docstring of a definition, with the words for code that does not await."""
    text = ast.get_docstring(node)
    if text is None:
        return ""
    for pattern, words in WORDS:
        text = re.sub(pattern, words, text)
    for name in LEFT_OUT:
        text = re.sub(rf"^ *{name}: .*\n", "", text, flags=re.MULTILINE)
    end = "\n" if "\n" in text else ""
    return textwrap.indent(f'"""{text}{end}"""\n', "    " * depth, lambda line: bool(line.strip()))


def _shape(item: Function) -> tuple[str, str, str]:
    return item.name, ast.unparse(item.args), ast.unparse(item.returns) if item.returns else ""


def _of_any_type(item: Function) -> Function:
    """Return the implementation of an overloaded method with parameters of any type."""
    item = copy.deepcopy(item)
    for one in _all_arguments(item)[1:]:
        one.annotation = ast.Name("Any")
    return item


def _all_arguments(item: Function) -> list[ast.arg]:
    return [*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs]


def _signature(item: Function) -> str:
    arguments = item.args
    kept = [
        (one, default)
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if one.arg not in LEFT_OUT
    ]
    arguments.kwonlyargs = [one for one, _ in kept]
    arguments.kw_defaults = [default for _, default in kept]
    return ast.unparse(arguments)


def _passed_on(item: Function, passed: dict[str, str]) -> str:
    plain = [passed[one.arg] for one in [*item.args.posonlyargs, *item.args.args][1:]]
    return ", ".join([*plain, *(f"{one.arg}={passed[one.arg]}" for one in item.args.kwonlyargs)])


def _import(one: tuple[str, str, str]) -> str:
    module, name, shown = one
    return f"from {module} import {name}{'' if name == shown else f' as {shown}'}\n"


if __name__ == "__main__":
    main()
