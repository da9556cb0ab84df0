"""The rules of the layout: which package may import which, pure modules, the SDK's fence, sizes and names.

Imports inside functions and for types count. A package without a row in `LAYERS` fails until it gets one.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "dragoman"

LAYERS = [
    {"visible"},
    {"errors", "struct", "suggest", "version"},
    {"display"},
    {"model"},
    {"languages"},
    {"events"},
    {"storage"},
    {"trust"},
    {"tools", "config", "observe"},
    {"server"},
    {"call"},
    {"bulk"},
    {"manager"},
    {"blocking", "testing", "agent", "diagnosis"},
    {"adapters", "gateway", "demo"},
    {"console"},
    {"cli"},
    {"__main__"},
]
"""Imports go down only. Packages in one row do not import each other."""
FACADE_READERS = {"cli", "__main__"}
"""Packages that may write `from dragoman import McpManager`, as users do; the rest name the module."""

PURE = re.compile(
    r"^(visible|errors|suggest|display|model(\..+)?|languages|events|(trust|tools|config)(\..+)?|server\.(lifecycle|protocol\.rpc))$"
)
IMPURE = {
    *("trust.gate", "trust.approval_store", "trust.inbox", "trust.pin_store", "trust.pin_checker"),
    *("tools.host", "tools.registry", "tools.view", "tools.local"),
    *("tools.search.index", "tools.search.vectors"),
    *("config.load", "config.files", "config.write", "config.evidence", "config.covered_files"),
    *("config.approvals", "config.hosts", "config.install", "config.rules", "config.skill", "config.users"),
}
EFFECTS = {
    *("asyncio", "anyio", "concurrent", "threading", "multiprocessing", "sched"),
    *("time", "random", "secrets", "socket", "socketserver", "ssl", "select", "selectors", "http", "ftplib"),
    *("urllib.request", "aiohttp", "httpx", "httpx2", "requests", "uvicorn", "starlette", "websockets"),
    *("subprocess", "signal", "watchfiles", "filelock", "mcp", "mcp_types"),
}
URL_PARSERS = {"urlsplit", "urlparse", "SplitResult"}
"""Only `trust.addresses` has these: they raise where no caller expects it. The others call its `split_url`."""
URL_READERS = {"trust.addresses"}
EFFECTFUL_CALLS = {"now", "utcnow", "today", "urandom", "uuid1", "uuid4", "getrandbits"}

SDK_USERS = re.compile(
    r"^(server\.(protocol(\..+)?|oauth(\..+)?|connection|supervisor|sharing)|demo(\..+)?)$"
)
HEAVY = re.compile(
    r"^(server\.(protocol|oauth|transports|connection)|gateway(?!\.(client|daemon|workspace)$)|console|demo)(\..+)?$"
)
"""Modules that may import the SDK as they are loaded, which costs a second. All others import these late."""
PYDANTIC_USERS = re.compile(
    r"^(server\..+|tools\.(registry|local)|trust\.policy|adapters\..+|(gateway|demo)(\..+)?)$"
)

LONGEST_FILE = 800
LONG_FILES = {}
"""Longer files, with the reason: a file is split when it has two subjects, never for its length."""
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "shared", "base", "core", "misc"}
HISTORY = re.compile(
    r"no longer|previously|(?<!is )(?<!are )(?<!be )\bused to\b|\bfixed\b(?!-)", re.IGNORECASE
)


@dataclass(frozen=True)
class Import:
    """One import of one module, wherever it stands."""

    target: str
    line: int
    late: bool


@dataclass(frozen=True)
class Module:
    """One source file; `name` is dotted and lacks the package, which is `` itself."""

    name: str
    path: Path
    source: str
    tree: ast.Module

    @property
    def unit(self) -> str:
        return self.name.partition(".")[0]

    def where(self, line: int = 1) -> str:
        return f"{self.path.name if not self.name else self.name}:{line}"


@cache
def read_package(package: Path) -> dict[str, Module]:
    modules: dict[str, Module] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        source = path.read_text("utf-8")
        modules[name] = Module(name, path, source, ast.parse(source, str(path)))
    return modules


def imports_of(module: Module, modules: dict[str, Module]) -> Iterator[Import]:
    """Find every import, by statement or by `import_module("…")`; our own modules lack the package's name."""
    for target, line, late in named_imports(module):
        yield Import(ours_or_theirs(target, modules), line, late)


@cache
def named_imports(module: Module) -> list[tuple[str, int, bool]]:
    """Return what a module imports, with the line and whether it is imported late."""
    return [
        (target, getattr(node, "lineno", 0), late)
        for node, late in walk(module.tree)
        for target in targets_of(node, module)
    ]


def walk(tree: ast.AST, *, late: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(tree):
        yield child, late
        typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        in_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from walk(child, late=late or typing_only or in_function)


def targets_of(node: ast.AST, module: Module) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        origin = node.module or ""
        if node.level:
            is_package = module.path.name == "__init__.py"
            home = ["dragoman", *module.name.split(".")] if module.name else ["dragoman"]
            home = home[: len(home) - node.level + (1 if is_package else 0)]
            origin = ".".join([*home, origin]).rstrip(".")
        return [f"{origin}.{alias.name}" for alias in node.names]
    if (
        isinstance(node, ast.Call)
        and node.args
        and ast.unparse(node.func).endswith(("import_module", "__import__"))
    ):
        first = node.args[0]
        return [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []
    return []


def ours_or_theirs(target: str, modules: dict[str, Module]) -> str:
    """Cut `dragoman.a.b.Name` to the module that holds it, `:a.b`; leave foreign names as they are."""
    if target != "dragoman" and not target.startswith("dragoman."):
        return target
    own = target.removeprefix("dragoman").removeprefix(".")
    while own and own not in modules:
        if own.partition(".")[0] == own and any(own in layer for layer in LAYERS):
            break
        own = own.rpartition(".")[0]
    return f":{own}"


def is_of(target: str, names: set[str]) -> bool:
    return any(target == name or target.startswith(f"{name}.") for name in names)


def rank(name: str, layers: list[set[str]]) -> int | None:
    return next((height for height, layer in enumerate(layers) if name in layer), None)


def own_imports(module: Module, modules: dict[str, Module]) -> Iterator[tuple[str, Import]]:
    for found in imports_of(module, modules):
        if found.target.startswith(":"):
            yield found.target[1:], found


# ── the rules: each yields one line for each violation


def check_layers(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if not module.name:
            continue
        height = rank(module.unit, LAYERS)
        if height is None:
            yield f"{module.where()}: `{module.unit}` has no layer; give it one in LAYERS"
            continue
        for target, found in own_imports(module, modules):
            unit = target.partition(".")[0]
            if unit == "":
                if module.unit not in FACADE_READERS:
                    yield f"{module.where(found.line)}: imports from `dragoman` itself; name the module"
                continue
            other = rank(unit, LAYERS)
            if unit != module.unit and (other is None or other >= height):
                yield f"{module.where(found.line)}: imports `{unit}`, which is not below `{module.unit}`"


def check_cycles(modules: dict[str, Module]) -> Iterator[str]:
    """Modules do not import each other in circles as they are loaded."""
    graph = {name: sorted(loaded_imports(module, modules) - {name}) for name, module in modules.items()}
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> Iterator[str]:
        if name in path:
            yield f"{modules[name].where()}: a circle of imports: {' → '.join([*path[path.index(name) :], name])}"
        elif name not in done:
            path.append(name)
            for other in graph[name]:
                yield from visit(other)
            done.add(path.pop())

    for name in sorted(graph):
        yield from visit(name)


def loaded_imports(module: Module, modules: dict[str, Module]) -> set[str]:
    """Return our modules that a module imports as it is loaded."""
    return {
        target
        for target, found in own_imports(module, modules)
        if not found.late and target in modules and target
    }


def check_purity(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if not is_pure(module.name):
            continue
        for node, _ in walk(module.tree):
            if isinstance(node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await):
                yield f"{module.where(node.lineno)}: async code in a pure module"
            if isinstance(node, ast.Call) and called_name(node) in EFFECTFUL_CALLS:
                yield f"{module.where(node.lineno)}: `{called_name(node)}()` in a pure module; take it as an argument"
        for found in imports_of(module, modules):
            if is_of(found.target, EFFECTS):
                yield f"{module.where(found.line)}: a pure module imports `{found.target}`"
            impure = found.target[1:] if found.target.startswith(":") else ""
            if impure in IMPURE and module.path.name != "__init__.py":
                yield f"{module.where(found.line)}: a pure module imports `{impure}`, which is not"


def is_pure(name: str) -> bool:
    return bool(PURE.match(name)) and name not in IMPURE


def called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def check_sdk_fence(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        for found in imports_of(module, modules):
            if is_of(found.target, {"mcp", "mcp_types"}) and not SDK_USERS.match(module.name):
                yield f"{module.where(found.line)}: imports `{found.target}`; only server/protocol and above may"
            if is_of(found.target, {"pydantic", "pydantic_core"}) and not PYDANTIC_USERS.match(module.name):
                yield f"{module.where(found.line)}: imports `{found.target}`; the nouns are structs"


def check_late_imports(modules: dict[str, Module]) -> Iterator[str]:
    """A module is heavy if loading it imports the SDK, by itself or through another module."""
    heavy = {
        name: "mcp"
        for name, module in modules.items()
        if any(
            is_of(found.target, {"mcp", "mcp_types"}) and not found.late
            for found in imports_of(module, modules)
        )
    }
    graph = {name: loaded_imports(module, modules) for name, module in modules.items()}
    while more := {
        name: via for name, targets in graph.items() if name not in heavy for via in targets if via in heavy
    }:
        heavy |= more
    for name, via in heavy.items():
        if not HEAVY.match(name):
            yield f"{modules[name].where()}: imports `{via}` as it is loaded, which costs a second; do it late"


def check_urls(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if module.name in URL_READERS:
            continue
        for node, _ in walk(module.tree):
            match node:
                case ast.Attribute(attr=name) | ast.alias(name=name) if name in URL_PARSERS:
                    yield f"{module.where(node.lineno)}: `{name}` raises for some texts; call `split_url`"
                case _:
                    pass


def check_sizes(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        lines = module.source.count("\n")
        if lines > LONGEST_FILE and module.name not in LONG_FILES:
            yield f"{module.where()}: {lines} lines, more than {LONGEST_FILE}; split it"


def check_names(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        for part in module.name.split("."):
            if EMPTY_NAMES & set(part.split("_")):
                yield f"{module.where()}: `{part}` says nothing; find the noun"


def check_comments(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
            if token.type == tokenize.COMMENT and HISTORY.search(token.string):
                yield f"{module.where(token.start[0])}: a comment tells history: {token.string}"


def check_dividers(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        for number, line in enumerate(module.source.splitlines(), 1):
            if line.lstrip().startswith("# ──"):
                yield f"{module.where(number)}: a divider line; a file with two subjects is split"


RULES: list[Callable[[dict[str, Module]], Iterator[str]]] = [
    check_layers,
    check_cycles,
    check_purity,
    check_sdk_fence,
    check_late_imports,
    check_urls,
    check_sizes,
    check_names,
    check_comments,
    check_dividers,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule: Callable[[dict[str, Module]], Iterator[str]]) -> None:
    modules = read_package(PACKAGE)
    assert modules
    problems = list(rule(modules))
    assert not problems, "\n".join(problems)


# ── the rules themselves are tested on small made-up trees

OFFENCES = {
    "upwards": (check_layers, {"model.py": "from dragoman.manager.manager import McpManager"}),
    "upwards in a function": (check_layers, {"model.py": "def f():\n    import dragoman.manager.manager"}),
    "upwards for types only": (
        check_layers,
        {
            "model.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dragoman.events import E"
        },
    ),
    "upwards by a relative import": (check_layers, {"trust/pins.py": "from ..config import load"}),
    "upwards by name": (
        check_layers,
        {"model.py": "import importlib\nimportlib.import_module('dragoman.cli.main')"},
    ),
    "sideways": (
        check_layers,
        {"config/merge.py": "from dragoman.tools import naming", "tools/naming.py": ""},
    ),
    "from the facade": (check_layers, {"call.py": "from dragoman import ToolResult", "__init__.py": ""}),
    "a module without a layer": (check_layers, {"novelty.py": ""}),
    "a package without a layer": (check_layers, {"novelty/thing.py": ""}),
    "a circle": (
        check_cycles,
        {
            "server/a.py": "from dragoman.server.b import x",
            "server/b.py": "from dragoman.server import c",
            "server/c.py": "import dragoman.server.a",
        },
    ),
    "async": (check_purity, {"server/protocol/rpc.py": "async def f(): ..."}),
    "a clock": (check_purity, {"trust/limits.py": "def f():\n    import time"}),
    "a clock by its name": (check_purity, {"trust/limits.py": "from time import monotonic"}),
    "today": (
        check_purity,
        {"tools/provenance.py": "import datetime\nx = datetime.datetime.now(datetime.UTC)"},
    ),
    "randomness": (check_purity, {"server/lifecycle.py": "import random"}),
    "network": (check_purity, {"config/expand.py": "import urllib.request"}),
    "an impure neighbour": (
        check_purity,
        {"config/merge.py": "from dragoman.config import files", "config/files.py": ""},
    ),
    "the SDK below its file": (
        check_sdk_fence,
        {"server/prepare.py": "def f():\n    from mcp import Client"},
    ),
    "the SDK's types": (check_sdk_fence, {"model.py": "import mcp_types"}),
    "pydantic in a noun": (check_sdk_fence, {"model.py": "from pydantic import BaseModel"}),
    "the SDK at once": (
        check_late_imports,
        {
            "server/supervisor.py": "from dragoman.server import connection",
            "server/connection.py": "import mcp",
        },
    ),
    "a second parser of URLs": (
        check_urls,
        {"config/merge.py": "from urllib.parse import quote, urlsplit as split"},
    ),
    "a second parser by its module": (
        check_urls,
        {"server/sdk.py": "import urllib.parse\nhost = urllib.parse.urlparse('').hostname"},
    ),
    "a long file": (check_sizes, {"events.py": "x = 1\n" * 801}),
    "an empty name": (check_names, {"tools/string_utils.py": ""}),
    "an empty package name": (check_names, {"tools/helpers/text.py": ""}),
    "a divider": (check_dividers, {"model.py": "x = 1\n\n# \u2500\u2500 the rest\n\ny = 2"}),
    "history": (check_comments, {"model.py": "x = 1  # this no longer happens"}),
}


def write_tree(folder: Path, files: dict[str, str]) -> dict[str, Module]:
    for name, source in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source, "utf-8")
    return read_package(folder)


@pytest.mark.parametrize("offence", OFFENCES)
def test_an_offence_is_caught(offence: str, tmp_path: Path) -> None:
    rule, files = OFFENCES[offence]
    assert len(list(rule(write_tree(tmp_path, files)))) == 1


def test_what_the_design_allows_passes_every_rule(tmp_path: Path) -> None:
    modules = write_tree(
        tmp_path,
        {
            "__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dragoman.manager.manager import M",
            "model.py": "import datetime\nimport urllib.parse\nfrom dragoman.errors import E",
            "errors.py": "# A limit is used to bound it; fixed-size.",
            "config/__init__.py": "",
            "config/files.py": "import asyncio\nfrom dragoman.config.merge import merge",
            "config/merge.py": "from dragoman.trust import masking",
            "trust/masking.py": "",
            "server/protocol/sdk.py": "import mcp\nfrom dragoman.server.transports.open_transport import open_wire",
            "server/transports/open_transport.py": "from dragoman.server.protocol.rpc import Rpc",
            "server/protocol/rpc.py": "from dragoman import errors",
            "server/supervisor.py": "def f():\n    from dragoman.server.protocol.sdk import connect",
            "manager/manager.py": "from dragoman.config.files import read\nfrom dragoman.server.supervisor import f",
            "demo/legal.py": "from mcp.server import MCPServer\nfrom pydantic import BaseModel",
            "cli/main.py": "from dragoman import McpManager\ndef f():\n    from dragoman.demo import legal",
            "__main__.py": "from dragoman.cli.main import main",
        },
    )
    assert [problem for rule in RULES for problem in rule(modules)] == []
