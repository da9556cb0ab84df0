"""Read a program without running it: what it defines and uses, and why it was refused. Pure."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from dragoman.agent.code.sandbox import BEGIN
from dragoman.struct import Struct, field
from dragoman.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dragoman.agent.code.sandbox import Problem
    from dragoman.agent.code.stubs import Function, Module

MAX_PROBLEMS = 8
LIBRARIES = "json, re, math, datetime, collections, itertools, functools, asyncio, typing"

_FUNCTION = re.compile(r"function `(\w+)`")
_MEMBER = re.compile(r"Module `([\w.]+)` has no member `(\w+)`")
_MODULE = re.compile(r"module `([\w.]+)`")
_NAME = re.compile(r"Name `(\w+)`")
_GONE = {
    "open": "files are not available: use a tool",
    "input": "a program cannot ask: put what is known into the program",
    "exec": "write the code itself",
    "compile": "write the code itself",
    "__import__": "use `import`",
}


class Outline(Struct):
    """What a program uses and defines."""

    names: set[str] = field(default_factory=set[str])
    """All names that occur in it."""
    bound: dict[str, None] = field(default_factory=dict[str, None])
    """The names that it defines for the programs after it."""
    imports: dict[str, str] = field(default_factory=dict[str, str])
    """The import statement of each name that it imports."""
    imported: set[str] = field(default_factory=set[str])
    """The modules that it imports, also inside of functions."""


def outline(code: str) -> Outline:
    """Return what a program uses and defines; nothing if it cannot be parsed."""
    found = Outline()
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.names.add(node.id)
        elif isinstance(node, ast.Import):
            found.imported.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.imported.add(node.module)
    for node in _at_top(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                found.bound[name] = None
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.bound[name] = None
            case ast.Import(names=names):
                for one in names:
                    bound = one.asname or one.name.partition(".")[0]
                    found.bound[bound] = None
                    found.imports[bound] = f"import {one.name}" + (f" as {one.asname}" if one.asname else "")
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for one in names:
                    if one.name != "*":
                        bound = one.asname or one.name
                        found.bound[bound] = None
                        alias = f" as {one.asname}" if one.asname else ""
                        found.imports[bound] = f"from {module} import {one.name}{alias}"
            case _:
                pass
    return found


def _at_top(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes whose names are the module's own."""
    waiting: list[ast.AST] = [tree]
    own = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*own, *comprehensions)):
            waiting += ast.iter_child_nodes(node)


def declared(about: Outline, *, names: Iterable[str], imports: Iterable[str], modules: Sequence[str]) -> str:
    """Return one line that declares what a program uses of earlier ones, for the type checker."""
    lines = [f"import {module}" for module in modules]
    lines += [
        line for line in imports if (words := line.split()) and words[-1].partition(".")[0] in about.names
    ]
    lines += [f"{name} = {BEGIN}()" for name in names if name in about.names and name not in modules]
    return "; ".join(dict.fromkeys(lines))


def explain(problems: Sequence[Problem], code: str, modules: Mapping[str, Module]) -> str:
    """Return why a program was refused, in the checker's words, with the fix where it is known."""
    lines = ["The program was not run, and no call was made. Fix this:"]
    hints: dict[str, None] = {}
    source = code.splitlines()
    for problem in problems[:MAX_PROBLEMS]:
        where = f"line {problem.line}: " if problem.line > 0 else ""
        lines.append(f"- {where}{problem.text} [{problem.rule}]")
        if 0 < problem.line <= len(source):
            lines.append(f"    {source[problem.line - 1].strip()[:200]}")
        for hint in _hints(problem, code, modules):
            hints.setdefault(hint)
    if len(problems) > MAX_PROBLEMS:
        lines.append(f"- and {len(problems) - MAX_PROBLEMS} more")
    return "\n".join([*lines, *hints])


def _hints(problem: Problem, code: str, modules: Mapping[str, Module]) -> Iterator[str]:
    text = problem.text
    if member := _MEMBER.search(text):
        module = modules.get(member[1])
        known = list(module.functions) if module is not None else []
        near = suggest(member[2], known)
        if module is None:
            yield f"The module `{member[1]}` has only its safe parts here."
        elif near:
            yield from (f"Did you mean: {module.functions[one].shown(member[1])}" for one in near[:2])
        else:
            yield f"Functions of `{member[1]}`: {', '.join(known[:40])}"
    elif function := _FUNCTION.search(text):
        yield from (f"Signature: {one}" for one in _signatures(function[1], code, modules))
    elif problem.rule == "unresolved-import" and (name := _MODULE.search(text)):
        near = suggest(name[1], modules)
        yield (
            f"Did you mean `{near[0]}`?"
            if near
            else f"Modules here: {', '.join([*modules][:40])}; {LIBRARIES}"
        )
    elif problem.rule == "unresolved-reference" and (name := _NAME.search(text)):
        yield from _for_name(name[1], modules)
    elif problem.rule == "unsupported-operator":
        yield "The two sides have different types: convert one with `str()`, `int()` or `float()`."
    elif "str.__getitem__" in text:
        yield "This value is a text without fields: use it as it is, or `json.loads()` it if it is JSON."
        yield from (f"Signature: {one}" for one in _used(code, modules))
    elif "`return`" in text or "return" in text.split():
        yield "Write the value as the last line, or print it."
    elif problem.rule == "unsupported":
        yield "Write it in a simpler way: build a list in place of `yield`, and use functions and loops."
    elif problem.rule in {"invalid-syntax", "syntax"}:
        yield "Check brackets, quotes, colons and indentation there."
    else:
        yield from (f"Signature: {one}" for one in _used(code, modules))


def _for_name(name: str, modules: Mapping[str, Module]) -> Iterator[str]:
    if name in _GONE:
        yield f"`{name}` does not exist here: {_GONE[name]}."
        return
    if near := suggest(name, modules, cutoff=0.7):
        yield f"Did you mean the module `{near[0]}`?"
        return
    owners = [module for module in modules.values() if name in module.functions]
    if owners:
        yield from (f"Call it as {module.functions[name].shown(module.name)}" for module in owners[:2])
    else:
        yield f"Define `{name}` first. Tools are functions of modules: {', '.join([*modules][:40])}."


def _signatures(name: str, code: str, modules: Mapping[str, Module]) -> list[str]:
    owners = [module for module in modules.values() if module.name in code and name in module.functions]
    return [module.functions[name].shown(module.name) for module in owners[:2]]


def _used(code: str, modules: Mapping[str, Module]) -> list[str]:
    found: list[tuple[Module, Function]] = [
        (module, function)
        for module in modules.values()
        if module.name in code
        for function in module.functions.values()
        if function.name in code
    ]
    return [function.shown(module.name) for module, function in found[:3]]
