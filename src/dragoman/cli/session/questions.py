"""Questions to a person: what can be asked anywhere, and forms, arguments and addresses made of it.

Who is asked is an `Asker`: a terminal, a dashboard, a test. Nothing here knows which.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from rich.text import Text

from dragoman.cli import arguments
from dragoman.cli.output import cut, one_line, safe
from dragoman.cli.signatures import resolved, type_name
from dragoman.tools.validation import Validators
from dragoman.trust.addresses import read_link
from dragoman.trust.redact import is_telling

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from rich.console import RenderableType

    from dragoman.agent.forms import Field, Form, Visit
    from dragoman.model import Prompt, ToolDef

T = TypeVar("T")

LONGEST_ABOUT = 240
"""Columns that a question gives to what it is about: a few lines, of which it stays in sight."""
MOST_CHOICES = 8
"""A question shows up to so many choices; more are completed only."""
YES_OR_NO = {"y": "yes", "n": "no"}


class AbandonedError(Exception):
    """The person does not want to answer."""

    def __init__(self, text: str = "not answered", *, declined: bool = False) -> None:
        super().__init__(text)
        self.declined = declined
        """Whether it is a plain no (Ctrl-D) and not the wish to stop it all (Ctrl-C)."""


class Asker(Protocol):
    """Somebody who can be asked."""

    async def line(
        self,
        label: str,
        *,
        default: str = "",
        choices: Sequence[str] = (),
        secret: bool = False,
        check: Callable[[str], object] | None = None,
    ) -> str:
        """Ask for a line; it is asked again while `check` raises a `ValueError`, whose text is shown.

        Raises:
            AbandonedError: There is no answer.
        """
        ...

    async def choose(self, label: str, choices: Mapping[str, str], *, default: str) -> str:
        """Ask for one of a few letters, each with its meaning.

        Raises:
            AbandonedError: There is no answer.
        """
        ...

    def show(self, renderable: RenderableType) -> None:
        """Show what the next question is about."""
        ...


async def ask_read(asker: Asker, label: str, read: Callable[[str], T], **how: Any) -> T:
    """Ask for a line and return what it means."""
    found: list[T] = []

    def check(text: str) -> None:
        found[:] = [read(text)]

    await asker.line(label, check=check, **how)
    return found[0]


async def ask_missing(asker: Asker, tool: ToolDef, given: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for the required arguments of a tool that were not given; return all of them."""
    found = dict(given)
    schema = tool.input_schema
    for name, wanted in arguments.missing(found, schema).items():
        found[name] = await _ask_argument(asker, name, wanted, schema)
    return found


async def _ask_argument(asker: Asker, name: str, schema: object, root: object) -> Any:
    fields = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    types = arguments.wanted_types(fields, root)
    choices = choices_of(fields, root)
    if about := one_line(str(fields.get("description") or "")):
        asker.show(Text(f"  {cut(about, LONGEST_ABOUT)}", style="dim"))
    kind = type_name(fields, root)
    shown = f", one of {', '.join(choices)}" if 0 < len(choices) <= MOST_CHOICES and kind == "str" else ""
    default = fields.get("default")
    inner = cast("dict[str, Any]", root) if isinstance(root, dict) else {}
    checker = Validators().of({**inner, "properties": {name: fields}, "required": [name]})

    def read(text: str) -> Any:
        if not text and "string" not in types and types:
            msg = f"`{name}` is required: {kind} is expected"
            raise ValueError(msg)
        value = arguments.typed(text, fields, inner)
        if problems := checker.problems({name: value}):
            raise ValueError("; ".join(problems))
        return value

    return await ask_read(
        asker,
        f"{name} ({kind}{shown})",
        read,
        default="" if default is None else default if isinstance(default, str) else json.dumps(default),
        choices=choices,
        secret=is_telling(name),
    )


def choices_of(schema: object, root: object) -> list[str]:
    """Return the values that a schema lists, as they are typed."""
    field = resolved(schema, root)
    fields = cast("dict[str, Any]", field) if isinstance(field, dict) else {}
    values = fields.get("enum")
    if isinstance(values, list):
        return [one if isinstance(one, str) else json.dumps(one) for one in cast("list[object]", values)]
    if fields.get("type") == "boolean":
        return ["true", "false"]
    for branch in fields.get("anyOf") or fields.get("oneOf") or ():
        if found := choices_of(branch, root):
            return found
    return []


async def ask_prompt_arguments(asker: Asker, prompt: Prompt, given: Mapping[str, str]) -> dict[str, str]:
    """Ask for the required arguments of a prompt that were not given; return all of them."""
    found = dict(given)
    for argument in prompt.arguments:
        name = str(argument.get("name", ""))
        if name in found or not argument.get("required"):
            continue
        if about := one_line(str(argument.get("description") or "")):
            asker.show(Text(f"  {cut(about, LONGEST_ABOUT)}", style="dim"))
        found[name] = await asker.line(name)
    return found


async def fill(asker: Asker, form: Form) -> dict[str, Any] | bool | None:
    """Have a person fill in what a server asks for; `False` declines, `None` cancels."""
    asker.show(_heading(form.server, "asks", form.message))
    if telling := [field.title for field in form.fields if is_telling(field.name)]:
        named = ", ".join(safe(title) for title in telling)
        asker.show(Text(f"  ! a server should not ask for secrets like this: {named}", style="red"))
    asker.show(Text("  Ctrl-D declines, Ctrl-C cancels.", style="dim"))
    values: dict[str, Any] = {}
    try:
        if not form.fields:
            return await asker.choose("Agree?", YES_OR_NO, default="n") == "y"
        while True:
            for field in form.fields:
                await _fill_field(asker, field, values)
            if not (problems := form.problems(values)):
                return values
            asker.show(Text(f"  ! {safe('; '.join(problems))}", style="yellow"))
    except AbandonedError as left:
        return False if left.declined else None


async def _fill_field(asker: Asker, field: Field, values: dict[str, Any]) -> None:
    if about := one_line(field.description):
        asker.show(Text(f"  {cut(about, LONGEST_ABOUT)}", style="dim"))
    choices = list(field.choices or ()) or (["yes", "no"] if field.kind == "boolean" else [])
    kind = {"choice": "one", "choices": "some, with commas"}.get(field.kind, field.kind)
    of = f" of {', '.join(choices)}" if 0 < len(choices) <= MOST_CHOICES and field.kind != "boolean" else ""
    optional = "" if field.required else ", may be empty"

    def read(text: str) -> Any:
        if not text.strip():
            if field.required:
                msg = f"`{field.title}` is required"
                raise ValueError(msg)
            return None
        return field.read(text)

    default = values.get(field.name, field.default)
    value = await ask_read(
        asker,
        f"{one_line(field.title)} ({kind}{of}{optional})",
        read,
        default=_typed_default(default),
        choices=choices,
        secret=is_telling(field.name),
    )
    if value is None:
        values.pop(field.name, None)
    else:
        values[field.name] = value


def _typed_default(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(str(one) for one in cast("list[object]", value))
        case _:
            return str(value)


async def visit(asker: Asker, asked: Visit, open_url: Callable[[str], Awaitable[object]]) -> bool | None:
    """Ask whether an address may be opened; the whole of it is shown, and its host beside it."""
    asker.show(_heading(asked.server, "wants you to open an address", asked.message))
    try:
        link = read_link(asked.url)
    except ValueError as error:
        asker.show(Text(f"  ! declined, the address is not safe to open: {safe(str(error))}", style="red"))
        return False
    asker.show(Text(f"  {link.url}", style="bold"))
    try:
        answer = await asker.choose(f"Open it? It leads to {link.host}", YES_OR_NO, default="n")
    except AbandonedError as left:
        return False if left.declined else None
    if answer != "y":
        return False
    await open_url(link.url)
    return True


def _heading(server: str, verb: str, message: str) -> Text:
    return Text.assemble(
        ("? ", "bold magenta"), (one_line(server), "bold"), f" {verb}: ", safe(message.strip())
    )


def argument_lines(given: Mapping[str, Any], limit: int) -> list[str]:
    """Return arguments for a person, one to a line; what is cut off is counted."""
    lines: list[str] = []
    for name, value in given.items():
        text = safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
        more = f" … ({len(text)} characters)" if len(text) > limit else ""
        lines.append(f"{one_line(name)} = {text[:limit]}{more}")
    return lines
