"""Layers, purity, the SDK's fence, sizes and names, as the design has them; imports in functions count.

A module that does not exist yet breaks no rule; a module that has no place in the tables below fails until
it is given one.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "dragoman"

LAYERS = [
    {"errors", "private", "suggesting", "version"},
    {"results"},
    {"model"},
    {"events"},
    {"trust"},
    {"config", "tools", "observe", "cache", "spill"},
    {"evidence"},
    {"trust_store"},
    {"pin_store"},
    {"pinboard"},
    {"guard"},
    {"server"},
    {"wishes"},
    {"call", "offers", "reload", "resource_tools", "toolbox"},
    {"crew"},
    {"upkeep"},
    {"manager", "portal"},
    {"blocking_tools"},
    {"blocking", "testing", "agent", "adapters", "demo"},
    {"cli"},
    {"__main__"},
]
SERVER_LAYERS = [
    {"rotating", "containers", "late"},
    {"lifecycle", "backoff", "rpc", "process", "stream", "watchdog", "cleaning", "bounded"}
    | {"ledger", "watchdog_program"}
    | {"deadlines", "farewell", "pace", "auth_callback", "auth_dpop", "auth_store", "auth_turn"},
    {"trail", "lines", "event_stream", "wire", "child", "secret_sources", "http_options"},
    {"attempts", "headstart", "http_answer", "http_route", "outbox"},
    {"pipe", "http_client", "auth_fetch", "auth_secrets"},
    {
        "http",
        "sse",
        "auth_answer",
        "auth_challenge",
        "auth_revoke",
        "auth_sdk",
        "auth_visit",
        "auth_provider",
    },
    {"auth_flow"},
    {"auth"},
    {"logins"},
    {"auth_gate"},
    {"transports"},
    {"dispatcher", "listening"},
    {"session", "sdk_transports"},
    {"sdk"},
    {"handlers"},
    {"connection"},
    {"reach"},
    {"supervisor"},
    {"roster"},
]
FACADE_READERS = {"cli", "__main__"}
"""Who may write `from dragoman import McpManager`, as users do; the rest name the module."""

PURE = re.compile(
    r"^(errors|results|model|events|(trust|tools|config)(\..+)?|server\.(lifecycle|backoff|rpc|lines|event_stream|bounded|cleaning))$"
)
IMPURE = {"tools.registry", "tools.view", "tools.local", "config.discover", "config.files", "config.write"}
EFFECTS = {
    *("asyncio", "anyio", "concurrent", "threading", "multiprocessing", "sched"),
    *("time", "random", "secrets", "socket", "socketserver", "ssl", "select", "selectors", "http", "ftplib"),
    *("urllib.request", "aiohttp", "httpx", "httpx2", "requests", "uvicorn", "starlette", "websockets"),
    *("subprocess", "signal", "watchfiles", "filelock", "mcp", "mcp_types"),
}
EFFECTFUL_CALLS = {"now", "utcnow", "today", "urandom", "uuid1", "uuid4", "getrandbits"}

SDK_USERS = re.compile(
    r"^(server\.(dispatcher|listening|session|sdk_transports|sdk|auth_answer|auth_flow|auth_provider|handlers|connection|supervisor)|demo(\..+)?)$"
)
PYDANTIC_USERS = re.compile(r"^(server\..+|tools\.(registry|local)|trust\.policy|adapters\..+|demo(\..+)?)$")
HEAVY = {
    "server.dispatcher",
    "server.listening",
    "server.session",
    "server.sdk_transports",
    "server.sdk",
    "server.auth_answer",
    "server.auth_flow",
    "server.auth_provider",
    "server.handlers",
    "server.connection",
}
"""Modules that import the SDK, which costs a second: everybody above loads them late."""

LONGEST_FILE = 800
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
    for node, late in walk(module.tree):
        for target in targets_of(node, module):
            yield Import(ours_or_theirs(target, modules), node.lineno, late)


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


def check_server_layers(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if module.unit != "server" or module.name == "server":
            continue
        part = module.name.split(".")[1]
        height = rank(part, SERVER_LAYERS)
        if height is None:
            yield f"{module.where()}: `{part}` has no layer; give it one in SERVER_LAYERS"
            continue
        for target, found in own_imports(module, modules):
            if target.partition(".")[0] != "server":
                continue
            other_part = target.partition(".")[2].partition(".")[0]
            other = rank(other_part, SERVER_LAYERS)
            if other_part != part and (other is None or other >= height):
                yield f"{module.where(found.line)}: imports `{target}`, which is not below `{module.name}`"


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
                yield f"{module.where(found.line)}: imports `{found.target}`; only server/sdk.py and above may"
            if is_of(found.target, {"pydantic", "pydantic_core"}) and not PYDANTIC_USERS.match(module.name):
                yield f"{module.where(found.line)}: imports `{found.target}`; the nouns are dataclasses"


def check_late_imports(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if module.name in HEAVY or module.unit == "demo":
            continue
        for found in imports_of(module, modules):
            heavy = found.target.removeprefix(":") in HEAVY or is_of(found.target, {"mcp", "mcp_types"})
            if heavy and not found.late:
                name = found.target.removeprefix(":")
                yield f"{module.where(found.line)}: imports `{name}` at once, which costs a second; do it late"


def check_sizes(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        lines = module.source.count("\n")
        if lines > LONGEST_FILE:
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


RULES: list[Callable[[dict[str, Module]], Iterator[str]]] = [
    check_layers,
    check_server_layers,
    check_purity,
    check_sdk_fence,
    check_late_imports,
    check_sizes,
    check_names,
    check_comments,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule: Callable[[dict[str, Module]], Iterator[str]]) -> None:
    modules = read_package(PACKAGE)
    assert modules
    problems = list(rule(modules))
    assert not problems, "\n".join(problems)


# ── the rules themselves are tested on small made-up trees

OFFENCES = {
    "upwards": (check_layers, {"model.py": "from dragoman.manager import McpManager"}),
    "upwards in a function": (check_layers, {"model.py": "def f():\n    import dragoman.manager"}),
    "upwards for types only": (
        check_layers,
        {
            "model.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dragoman.events import E"
        },
    ),
    "upwards by a relative import": (check_layers, {"trust/pins.py": "from ..cache import Cache"}),
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
    "server upwards": (
        check_server_layers,
        {"server/pipe.py": "from dragoman.server import sdk", "server/sdk.py": ""},
    ),
    "server sideways": (
        check_server_layers,
        {"server/pipe.py": "from dragoman.server.http import Wire", "server/http.py": ""},
    ),
    "server without a layer": (check_server_layers, {"server/novelty.py": ""}),
    "server through its package": (
        check_server_layers,
        {"server/rpc.py": "from dragoman.server import Anything", "server/__init__.py": ""},
    ),
    "async": (check_purity, {"server/rpc.py": "async def f(): ..."}),
    "a clock": (check_purity, {"trust/limits.py": "def f():\n    import time"}),
    "a clock by its name": (check_purity, {"trust/limits.py": "from time import monotonic"}),
    "today": (
        check_purity,
        {"tools/provenance.py": "import datetime\nx = datetime.datetime.now(datetime.UTC)"},
    ),
    "randomness": (check_purity, {"server/backoff.py": "import random"}),
    "network": (check_purity, {"config/expand.py": "import urllib.request"}),
    "an impure neighbour": (
        check_purity,
        {"config/merge.py": "from dragoman.config import files", "config/files.py": ""},
    ),
    "the SDK below its file": (
        check_sdk_fence,
        {"server/transports.py": "def f():\n    from mcp import Client"},
    ),
    "the SDK's types": (check_sdk_fence, {"model.py": "import mcp_types"}),
    "pydantic in a noun": (check_sdk_fence, {"model.py": "from pydantic import BaseModel"}),
    "the SDK at once": (
        check_late_imports,
        {"server/supervisor.py": "from dragoman.server import connection", "server/connection.py": ""},
    ),
    "a long file": (check_sizes, {"model.py": "x = 1\n" * 801}),
    "an empty name": (check_names, {"tools/string_utils.py": ""}),
    "an empty package name": (check_names, {"tools/helpers/text.py": ""}),
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
            "__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dragoman.manager import M",
            "model.py": "import datetime\nimport urllib.parse\nfrom dragoman.errors import E",
            "errors.py": "# A limit is used to bound it; fixed-size.",
            "config/__init__.py": "from dragoman.config.files import read",
            "config/files.py": "import asyncio\nfrom dragoman.config.merge import merge",
            "config/merge.py": "from dragoman.trust import redact",
            "trust/redact.py": "",
            "server/sdk.py": "import mcp\nfrom dragoman.server.transports import open_wire",
            "server/transports.py": "from dragoman.server.rpc import Rpc",
            "server/rpc.py": "from dragoman import errors",
            "server/supervisor.py": "def f():\n    from dragoman.server.sdk import connect",
            "manager.py": "from dragoman.config import read\nfrom dragoman.server.supervisor import f",
            "demo/legal.py": "from mcp.server import MCPServer\nfrom pydantic import BaseModel",
            "cli/main.py": "from dragoman import McpManager\nfrom dragoman.demo import legal",
            "__main__.py": "from dragoman.cli.main import main",
        },
    )
    assert [problem for rule in RULES for problem in rule(modules)] == []
