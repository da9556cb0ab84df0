"""The slash commands about resources and prompts."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, cast

from rich.console import Group
from rich.text import Text

from dragoman.cli.output import one_line, safe
from dragoman.cli.session.questions import YES_OR_NO, AbandonedError, ask_prompt_arguments
from dragoman.cli.slash.command import Context, UsageError, near, server_named, split
from dragoman.cli.tables import offers_view
from dragoman.tools.content import to_part
from dragoman.tools.rendering import describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from dragoman.model import Prompt, Resource

LIMIT = 20_000
"""Characters of a resource that are shown."""


async def resources(context: Context, words: str) -> RenderableType:
    """List the resources of one server or of all."""
    server = server_named(context, words, "/resources") if words else None
    found = await context.mcp.resources(server)
    return offers_view([(one.server, one.uri, _about(one)) for one in found], "resources")


async def read(context: Context, words: str) -> RenderableType:
    """Read a resource."""
    uri, server = split(words)
    if not uri:
        msg = "/read URI; /resources lists them"
        raise UsageError(msg)
    if server:
        server_named(context, server, "/read")
    else:
        await _insist_on_listing(context, uri)
    parts = await context.mcp.read(uri, server or None)
    text = "\n".join(part.text or describe(part) for part in parts)
    more = [Text(f"… ({len(text)} characters)", style="dim")] if len(text) > LIMIT else []
    return Group(Text(safe(text[:LIMIT])), *more)


async def _insist_on_listing(context: Context, uri: str) -> None:
    """Make sure that some server lists a resource; whose it is, is found out when it is read."""
    listed = await context.mcp.resources()
    if any(one.uri == uri for one in listed) or len(context.mcp.status()) == 1:
        return
    guess = near(uri, [one.uri for one in listed], "/read URI SERVER asks one that does not list it")
    msg = f"no server lists `{uri}`: {guess}"
    raise UsageError(msg)


async def prompts(context: Context, words: str) -> RenderableType:
    """List the prompts of one server or of all."""
    server = server_named(context, words, "/prompts") if words else None
    found = await context.mcp.prompts(server)
    rows = [(one.server, _signature(one), one_line(one.title or one.description)) for one in found]
    return offers_view(rows, "prompts")


async def prompt(context: Context, words: str) -> RenderableType:
    """Fill in a prompt, show it, and send it to the model if the person wants that."""
    name, rest = split(words)
    if not name:
        msg = "/prompt NAME key=value …; /prompts lists them"
        raise UsageError(msg)
    asked = _prompt_named(await context.mcp.prompts(), name)
    given = _fields(asked, rest)
    lacking = [str(one.get("name")) for one in asked.arguments if one.get("required")]
    if lacking := [one for one in lacking if one not in given]:
        if context.asker is None:
            msg = f"the prompt `{name}` needs {', '.join(lacking)}"
            raise UsageError(msg)
        given = await ask_prompt_arguments(context.asker, asked, given)
    messages = await context.mcp.prompt(asked.name, given, server=asked.server)
    shown = Group(*(_message(message) for message in messages))
    if context.talk is None or context.asker is None or context.say is None:
        return shown
    context.say(shown)
    try:
        answer = await context.asker.choose("Send it to the model?", YES_OR_NO, default="y")
    except AbandonedError:
        answer = "n"
    if answer == "y":
        await context.talk(_as_question(messages))
    return Text("" if answer == "y" else "not sent", style="dim")


def _prompt_named(found: Sequence[Prompt], name: str) -> Prompt:
    """Return a prompt by its name, or by `server/name` where several servers have one of that name."""
    own = [one for one in found if name in (one.name, f"{one.server}/{one.name}")]
    if len(own) == 1:
        return own[0]
    if own:
        msg = (
            f"several servers have a prompt `{name}`: say {' or '.join(f'{o.server}/{o.name}' for o in own)}"
        )
        raise UsageError(msg)
    msg = f"there is no prompt `{name}`: {near(name, [one.name for one in found], '/prompts lists them')}"
    raise UsageError(msg)


def _fields(asked: Prompt, text: str) -> dict[str, str]:
    takes = [str(one.get("name")) for one in asked.arguments]
    found: dict[str, str] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        msg = f"the arguments cannot be split into words: {error}"
        raise UsageError(msg) from None
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in takes:
            what = f"`{word}` is no key=value" if not equals else f"there is no argument `{key}`"
            msg = f"{what}; the prompt `{asked.name}` takes: {', '.join(takes) or 'nothing'}"
            raise UsageError(msg)
        found[key] = value
    return found


def _message(message: dict[str, Any]) -> RenderableType:
    role = one_line(str(message.get("role", "")))
    return Text.assemble((f"{role}: ", "bold"), safe(_text(message.get("content"))))


def _as_question(messages: Sequence[dict[str, Any]]) -> str:
    """Return a prompt as what a person says; more than one voice is told apart."""
    if all(message.get("role") == "user" for message in messages):
        return "\n\n".join(_text(message.get("content")) for message in messages)
    return "\n\n".join(f"{message.get('role')}: {_text(message.get('content'))}" for message in messages)


def _text(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(_text(one) for one in cast("list[object]", content))
    return describe(to_part(cast("dict[str, Any]", content))) if isinstance(content, dict) else str(content)


def _about(one: Resource) -> str:
    said = one.title or one.description or (one.name if one.name != one.uri else "")
    kind = "template" if one.is_template else one.mime_type
    return ", ".join(part for part in (one_line(said).rstrip("."), one_line(kind)) if part)


def _signature(one: Prompt) -> str:
    names = [f"{argument.get('name')}{'' if argument.get('required') else '?'}" for argument in one.arguments]
    return f"{one.name}({', '.join(names)})"
