"""Write the page api.md of the site from the sources: the public names, their signatures and docstrings.

Signatures are read from the source, not by introspection: they look the same in every Python version.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

MODULES = (
    "dragoman",
    "dragoman.manager.logins",
    "dragoman.manager.trust",
    "dragoman.manager.tasks",
    "dragoman.manager.skills",
    "dragoman.manager.apps",
    "dragoman.manager.session",
    "dragoman.manager.resources",
    "dragoman.model",
    "dragoman.agent",
    "dragoman.blocking",
    "dragoman.bulk",
    "dragoman.events",
    "dragoman.observe.metrics",
    "dragoman.diagnosis.explain",
    "dragoman.gateway",
    "dragoman.gateway.client",
    "dragoman.config.dialect",
    "dragoman.testing",
    "dragoman.tools.search",
    "dragoman.tools.export.apis.anthropic",
    "dragoman.tools.export.apis.gemini",
    "dragoman.tools.export.apis.openai",
    "dragoman.tools.export.apis.responses",
    "dragoman.adapters.langchain",
    "dragoman.adapters.langchain_middleware",
    "dragoman.adapters.pydantic_ai",
    "dragoman.adapters.openai_agents",
    "dragoman.adapters.strands",
    "dragoman.adapters.google_adk",
    "dragoman.adapters.agent_framework",
    "dragoman.adapters.smolagents",
    "dragoman.adapters.llama_index",
    "dragoman.adapters.agno",
    "dragoman.adapters.ray",
)
"""The public modules. Public names are those in `__all__`, or all names without an underscore."""
CHOSEN = {
    "dragoman.manager.skills": ["Skills"],
    "dragoman.manager.apps": ["Apps", "AppProxy"],
    "dragoman.diagnosis.explain": ["Explanation", "explain", "explain_status"],
    "dragoman.gateway.client": ["Client"],
    "dragoman.config.dialect": ["Place"],
    "dragoman.manager.resources": ["prompt_tools", "resource_tools"],
    "dragoman.tools.export.apis.anthropic": ["anthropic_content"],
    "dragoman.tools.export.apis.gemini": ["gemini_response"],
    "dragoman.tools.export.apis.openai": ["chat_content"],
    "dragoman.tools.export.apis.responses": ["responses_output"],
}
"""The public names of modules that have others for dragoman itself."""
TOLD_ELSEWHERE = {
    "dragoman.blocking": "Every method is that of the class of the same name in `dragoman`, without `await`.",
}
"""Modules whose classes are documented in another module."""
HEAD = """\
---
summary: Every public name of the library: signatures, fields, errors.
read_when: You write a program with dragoman and need the signature of a function or class.
---
# Library reference

The names on this page are public and stable. Import each from the module of its section, for example
`from dragoman import McpManager`. Everything else may change at any time.
"""
SECTION = re.compile(r"^(Args|Returns|Raises|Yields):$")
TITLES = {"Args": "", "Raises": "Raises ", "Returns": "Returns ", "Yields": "Yields "}
WIDTH = 100


def page() -> str:
    """Return the page for the current sources."""
    parts: list[str] = []
    contents = [HEAD]
    told: set[str] = set()
    for module in MODULES:
        parts += [f"## `{module}`\n", prose(ast.get_docstring(tree(module)) or "")]
        errors: list[str] = []
        shown: list[str] = []
        for name in public(module):
            home, node = find(module, name)
            key = f"{home}.{name}"
            if key in told:
                continue
            told.add(key)
            is_error = isinstance(node, ast.ClassDef) and name.endswith("Error")
            shown += [] if is_error else [f"[`{name}`](#{name.lower()})"]
            if isinstance(node, ast.ClassDef) and name.endswith("Error"):
                errors.append(error_row(home, node))
            elif module in TOLD_ELSEWHERE and isinstance(node, ast.ClassDef):
                parts += [f"### `{node.name}`\n", prose(ast.get_docstring(node) or "")]
            else:
                parts += definition(home, node)
        if module in TOLD_ELSEWHERE:
            parts.append(f"{TOLD_ELSEWHERE[module]}\n")
        if errors:
            parts += ["### Errors\n", "| error | code | means |", "| --- | --- | --- |", *errors, ""]
            shown.append("[errors](#errors)")
        # The names of the blocking module are those of the first one, so links would lead there.
        names = [] if module in TOLD_ELSEWHERE else shown
        contents += [f"- [`{module}`](#{module.replace('.', '')}){': ' if names else ''}{', '.join(names)}"]
    return "\n".join([*contents, "", *parts])


@cache
def tree(module: str) -> ast.Module:
    """Return the source of a module, parsed."""
    return ast.parse(path(module).read_text("utf-8"))


def path(module: str) -> Path:
    """Return the file of a module."""
    file = SOURCE.joinpath(*module.split("."))
    return file / "__init__.py" if file.is_dir() else file.with_suffix(".py")


def public(module: str) -> list[str]:
    """Return the public names of a module."""
    if module in CHOSEN:
        return CHOSEN[module]
    for node in tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return [name for name in names if not name.startswith("_")]
    defined = [node for node in tree(module).body if isinstance(node, ast.ClassDef | Function)]
    return list(dict.fromkeys(node.name for node in defined if not node.name.startswith("_")))


def find(module: str, name: str) -> tuple[str, ast.stmt]:
    """Return the module that a public name is defined in, and its definition, following imports."""
    for node in ast.walk(tree(module)):
        match node:
            case ast.ClassDef(name=found) | ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found):
                if found == name:
                    return module, node
            case ast.AnnAssign(target=ast.Name(id=found)) | ast.Assign(targets=[ast.Name(id=found)]):
                if found == name:
                    return module, node
            case ast.ImportFrom(module=str(origin)) if name in {one.asname or one.name for one in node.names}:
                (real,) = [one.name for one in node.names if (one.asname or one.name) == name]
                return find(origin, real)
            case _:
                pass
    msg = f"`{name}` is public in `{module}`, but its definition was not found"
    raise LookupError(msg)


def definition(module: str, node: ast.stmt) -> list[str]:
    """Describe a class, a function, or a named type."""
    match node:
        case ast.ClassDef():
            return described_class(module, node)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            overloads = [
                one for one in tree(module).body if isinstance(one, Function) and one.name == node.name
            ]
            text = prose(ast.get_docstring(overloads[-1]) or "")
            signatures = "\n".join(map(signature, overloads[:-1] or overloads))
            return [f"### `{node.name}`\n", fenced(signatures), text]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return [f"### `{name}`\n", fenced(f"{name} = {ast.unparse(value)}"), after(module, node)]
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return [f"### `{name}`\n", fenced(f"{name} = {ast.unparse(value)}"), after(module, node)]
        case _:
            return []


def described_class(module: str, node: ast.ClassDef) -> list[str]:
    """Describe a class: its constructor, fields, properties and methods."""
    parts = [f"### `{node.name}`\n"]
    bodies = [item for one in lineage(module, node) for item in one.body]
    methods = {item.name: item for item in reversed(bodies) if isinstance(item, Function)}
    if start := methods.get("__init__"):
        parts.append(fenced(signature(start, name=node.name)))
    parts.append(prose(ast.get_docstring(node) or ""))
    if start:
        # The class docstring says what the object is; this one documents the arguments.
        parts.append(prose(ast.get_docstring(start) or ""))
    if rows := fields(bodies):
        parts += ["| field | type | means |", "| --- | --- | --- |", *rows, ""]
    for item in bodies:
        if not isinstance(item, Function) or item.name.startswith("_") or methods.get(item.name) is not item:
            continue
        marks = {ast.unparse(mark) for mark in item.decorator_list}
        if any(mark.endswith((".setter", "overload")) for mark in marks):
            continue
        kind = "property" if marks & {"property", "cached_property"} else ""
        shown = f"{item.name}: {unparsed(item.returns)}" if kind else signature(item)
        parts += [f"#### `{node.name}.{item.name}`\n", fenced(shown), prose(ast.get_docstring(item) or "")]
    return parts


def lineage(module: str, node: ast.ClassDef) -> list[ast.ClassDef]:
    """Return a class and its base classes in dragoman, itself first."""
    found = [node]
    for one in node.bases:
        name = ast.unparse(one)
        try:
            home, parent = find(module, name)
        except (LookupError, FileNotFoundError):
            continue
        if isinstance(parent, ast.ClassDef) and home.startswith("dragoman"):
            found += lineage(home, parent)
    return found


def fields(body: list[ast.stmt]) -> list[str]:
    """Describe the fields of a dataclass, each with the docstring below it."""
    rows: list[str] = []
    for item, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        name, kind, declared = item.target.id, *taken_apart(item.annotation)
        if name.startswith("_") or "ClassVar" in kind:
            continue
        words = declared
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            words = " ".join(str(following.value.value).split())
        default = f" = {ast.unparse(item.value)}" if isinstance(item.value, ast.Constant) else ""
        rows.append(f"| `{name}` | {cell(f'{kind}{default}')} | {words} |")
    return rows


def taken_apart(annotation: ast.expr) -> tuple[str, str]:
    """Return a type without what `Annotated` adds to it, and the sentence of its `Key`."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, *marks])):
            said = [
                str(ast.literal_eval(mark.args[0]))
                for mark in marks
                if isinstance(mark, ast.Call) and mark.args
            ]
            return unparsed(kind), "".join(said)
        case _:
            return unparsed(annotation), ""


def after(module: str, node: ast.stmt) -> str:
    """Return the docstring below a definition."""
    body = tree(module).body
    following = body[body.index(node) + 1] if node in body and node is not body[-1] else None
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return prose(str(following.value.value))
    return ""


def error_row(module: str, node: ast.ClassDef) -> str:
    """Describe an error in one row."""
    code = getattr(getattr(importlib.import_module(module), node.name), "code", "")
    (first, *_) = (ast.get_docstring(node) or "").split("\n\n")
    shown = f"`{code}`" if isinstance(code, str) and code else ""
    return f"| `{node.name}` | {shown} | {' '.join(first.split())} |"


def signature(node: Function, *, name: str = "") -> str:
    """Return the signature of a function, on several lines if it is long."""
    arguments = node.args
    parts = [
        *_with_defaults([*arguments.posonlyargs, *arguments.args], arguments.defaults),
        *([f"*{spelled(arguments.vararg)}"] if arguments.vararg else ["*"] * bool(arguments.kwonlyargs)),
        *_with_defaults(arguments.kwonlyargs, arguments.kw_defaults),
        *([f"**{spelled(arguments.kwarg)}"] if arguments.kwarg else []),
    ]
    is_static = any(ast.unparse(mark) == "staticmethod" for mark in node.decorator_list)
    if parts and not is_static and re.match(r"(self|cls)\b", parts[0]):
        parts = parts[1:]
    is_iterated = any(isinstance(inner, ast.Yield) for inner in ast.walk(node))
    is_awaited = isinstance(node, ast.AsyncFunctionDef) and not name and not is_iterated
    start = f"{'await ' * is_awaited}{name or node.name}"
    end = "" if name or node.returns is None else f" -> {unparsed(node.returns)}"
    line = f"{start}({', '.join(parts)}){end}"
    if len(line) <= WIDTH:
        return line
    return f"{start}(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}"


def _with_defaults(arguments: list[ast.arg], defaults: list[ast.expr] | list[ast.expr | None]) -> list[str]:
    padded = [*[None] * (len(arguments) - len(defaults)), *defaults]
    return [
        spelled(argument) if default is None else f"{spelled(argument)} = {ast.unparse(default)}"
        for argument, default in zip(arguments, padded, strict=True)
    ]


def spelled(argument: ast.arg) -> str:
    """Return a parameter with its type."""
    return argument.arg if argument.annotation is None else f"{argument.arg}: {unparsed(argument.annotation)}"


def unparsed(node: ast.expr | None) -> str:
    """Return a type as written in the source, without the quotes of a forward reference."""
    if node is None:
        return "None"
    return str(node.value) if isinstance(node, ast.Constant) and node.value is not None else ast.unparse(node)


def prose(docstring: str) -> str:
    """Return a docstring as Markdown: its sections become lists."""
    parts: list[str] = []
    for block in inspect.cleandoc(docstring).split("\n\n"):
        first, _, rest = block.partition("\n")
        if section := SECTION.match(first):
            parts.append(listed(rest, TITLES[section[1]]))
        else:
            parts.append(block)
    return "\n\n".join(filter(None, parts)) + "\n"


def listed(text: str, title: str) -> str:
    """Return the entries of a section of a docstring as a list."""
    items: list[str] = []
    for line in inspect.cleandoc(text).splitlines():
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
        else:
            items.append(line)
    entries = [item.partition(": ") for item in items]
    return "\n".join(
        f"- {title}`{name}`: {words}" if words else f"- {title}{name}" for name, _, words in entries
    )


def fenced(text: str) -> str:
    """Return a fenced block."""
    return f"```text\n{text}\n```\n"


def cell(text: str) -> str:
    """Return code that is escaped for a table cell."""
    return f"`{text.replace('|', chr(92) + '|')}`"
