"""Read how an entry changes single tools of its server: `tools.TOOL` and `tools.TOOL.arguments.ARGUMENT`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from dragoman.config.templates import PLACES, VARIABLE, is_claim, references, to_template
from dragoman.model import ArgumentTransform, ToolTransform
from dragoman.model.keys import keys
from dragoman.suggest import suggest
from dragoman.visible import is_visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.config.dialect import Dialect
    from dragoman.config.templates import VariableSyntax
    from dragoman.config.values import EntryReader

FIELD = "tools"
MAX_DEPTH = 50
"""Deepest nesting of a value."""


def read_transforms(value: object, dialect: Dialect, reader: EntryReader) -> dict[str, ToolTransform] | None:
    """Return the changes of tools by the server's names; every problem is added to the reader.

    Values are never shown in a problem: they may be secrets.
    """
    if isinstance(value, list):
        # Some hosts have a list of the allowed tools under this name.
        reader.note(
            "unused", reader.spelling(FIELD), "a list of tools is not read here: write `allowed_tools`"
        )
        return None
    found: dict[str, ToolTransform] = {}
    for tool, said in reader.mapping(FIELD, value).items():
        made = _tool(said, dialect.style_of(FIELD), lambda text, tool=tool: reader.problem(FIELD, text, tool))
        if made != ToolTransform():
            found[tool] = made
    names = [one.name or tool for tool, one in found.items() if not one.hidden]
    for name in {name for name in names if names.count(name) > 1}:
        reader.problem(FIELD, f"two tools would be named `{name}`")
    return found or None


def _tool(said: object, style: VariableSyntax, problem: Callable[[str], None]) -> ToolTransform:
    table = _table(said, ToolTransform, "", problem)
    arguments: dict[str, ArgumentTransform] = {}
    given = table.pop("arguments", {})
    if not isinstance(given, dict):
        problem("`arguments` is a table: {ARGUMENT = {…}}")
        given = {}
    for name, rules in cast("dict[str, object]", given).items():
        made = _argument(name, rules, style, problem)
        if made != ArgumentTransform():
            arguments[name] = made
    if title := table.get("title"):
        _check_visible("title", title, problem)
    _check_name("name", table, problem)
    return ToolTransform(**table, arguments=arguments)


def _argument(
    argument: str, said: object, style: VariableSyntax, problem: Callable[[str], None]
) -> ArgumentTransform:
    where = f"arguments.{argument}"
    table = _table(said, ArgumentTransform, f"{where}.", problem)
    _check_name(f"{where}.name", table, problem)
    for name in ("value", "default"):
        if name in table:
            table[name] = _value(
                table[name], style, lambda text, name=name: problem(f"`{where}.{name}`: {text}")
            )
    if "value" in table and (wrong := {"default", "name", "description"} & table.keys()):
        problem(f"`{where}`: an argument with a `value` is not shown; remove `{min(wrong)}`")
    if table.get("required") and (table.get("hidden") or {"value", "default"} & table.keys()):
        problem(
            f"`{where}`: `required` is for an argument that is shown and has neither `value` nor `default`"
        )
    return ArgumentTransform(**table)


def _table(said: object, kind: type[Any], where: str, problem: Callable[[str], None]) -> dict[str, Any]:
    """Return the known keys of a table that have values of the right type."""
    if not isinstance(said, dict):
        problem(f"`{where.rstrip('.') or FIELD}` is a table with {', '.join(keys(kind))}")
        return {}
    found: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", said).items():
        key = keys(kind).get(name)
        form = "" if key is None else key.form
        if key is None:
            near = suggest(name, keys(kind), count=1)
            guess = f"; did you mean `{near[0]}`?" if near else f"; known keys: {', '.join(keys(kind))}"
            problem(f"unknown key `{where}{name:.60}`{guess}")
        elif form in ("text", "flag") and not isinstance(value, str if form == "text" else bool):
            if value is not None:
                problem(f"`{where}{name}` must be {'a text' if form == 'text' else 'true or false'}")
        else:
            found[name] = value
    return found


def _check_name(where: str, table: dict[str, Any], problem: Callable[[str], None]) -> None:
    name = table.get("name")
    if isinstance(name, str):
        _check_visible(where, name, problem)
        if not name or name != name.strip():
            problem(f"`{where}` must be a name")


def _check_visible(where: str, text: str, problem: Callable[[str], None]) -> None:
    if not is_visible(text):
        problem(f"`{where}` has invisible characters")


def _value(
    value: object, style: VariableSyntax, problem: Callable[[str], None], depth: int = MAX_DEPTH
) -> Any:
    """Return a value whose texts are templates, if it is JSON."""
    if depth == 0:
        problem(f"it is nested more than {MAX_DEPTH} levels deep")
        return None
    if isinstance(value, str):
        text = to_template(value, style)
        for one in references(text):
            if one.body is not None and not _is_known(one.body):
                problem(
                    "only variables and claims are replaced here: `${VAR}`, `${VAR:-text}`, `${claim:NAME}`"
                )
        return text
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: _value(item, style, problem, depth - 1) for name, item in fields.items()}
    if isinstance(value, list):
        return [_value(item, style, problem, depth - 1) for item in cast("list[object]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        problem("it is not a number that JSON has")
        return None
    if value is not None and not isinstance(value, bool | int | float):
        problem(f"expected a JSON value, not a {type(value).__name__}")
        return None
    return value


def _is_known(body: str) -> bool:
    return is_claim(body) or body in PLACES or VARIABLE.fullmatch(body) is not None
