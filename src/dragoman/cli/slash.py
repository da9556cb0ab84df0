"""The slash commands of the session and the dashboard, and the table `COMMANDS` at the end."""

from __future__ import annotations

import os
import shlex
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dragoman.agent.messages import Usage, encode
from dragoman.cli import arguments
from dragoman.cli.arguments import properties_of
from dragoman.cli.commands.login import open_browser
from dragoman.cli.output import one_line, safe, shorten_path
from dragoman.cli.session.conversation import as_markdown
from dragoman.cli.session.questions import YES_OR_NO, AbandonedError, ask_missing, ask_prompt_arguments
from dragoman.cli.session.render_turn import PastCall, called, short_arguments
from dragoman.cli.tables import (
    diagnosis_view,
    offers_view,
    reload_view,
    result_view,
    servers_view,
    tools_table,
)
from dragoman.config.templates import input_ids
from dragoman.errors import InvalidArgumentsError, UnknownToolError
from dragoman.manager.manager import McpManager
from dragoman.model import ServerState, Stdio
from dragoman.storage.files import private_opener
from dragoman.struct import MutableStruct, Struct, field
from dragoman.suggest import suggest
from dragoman.tools.result.render import describe, to_part

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from rich.console import RenderableType

    from dragoman.agent.messages import Message
    from dragoman.cli.session.conversation import Conversation
    from dragoman.cli.session.questions import Asker
    from dragoman.model import ProgressHandler, Prompt, Resource, ToolDef

KEPT_CALLS = 50
"""The number of recent results that `/last` can show."""


class Leave(Exception):  # noqa: N818 -- not an error: the user wants to quit
    """The user asked to end the session."""


class UsageError(Exception):
    """A command has invalid arguments; the message explains them."""


class Context(MutableStruct, kw_only=True):
    """The objects that a command may use; optional ones depend on where it runs."""

    mcp: McpManager
    conversation: Conversation | None = None
    """The conversation with a model; commands that need one fail without it."""
    asker: Asker | None = None
    """Asks the user for missing arguments; without it they are an error."""
    say: Callable[[RenderableType], None] | None = None
    """Shows output while the command is running."""
    talk: Callable[[str], Awaitable[None]] | None = None
    """Sends a text to the model and shows the answer."""
    on_progress: ProgressHandler | None = None
    """Called with the progress of a call."""
    clear: Callable[[], None] | None = None
    """Clears the screen."""
    calls: deque[PastCall] = field(default_factory=lambda: deque[PastCall](maxlen=KEPT_CALLS))
    """The latest calls, the newest last."""


Handler: TypeAlias = "Callable[[Context, str], Awaitable[RenderableType]]"


class SlashCommand(Struct):
    """One slash command."""

    name: str
    arguments: str
    help: str
    handler: Handler
    details: str = ""
    """More help, with examples on separate lines."""


def split(words: str) -> tuple[str, str]:
    """Return the first word and the rest; words are separated by any white space."""
    first, *rest = words.split(None, 1) or [""]
    return first, rest[0].strip() if rest else ""


def did_you_mean(word: str, known: Iterable[str], fallback: str) -> str:
    """Return a suggestion of similar names, or the fallback."""
    found = suggest(word, known, by_part=True)
    return f"Did you mean {' or '.join(found)}?" if found else fallback


def server_named(context: Context, name: str, command: str) -> str:
    """Check the name of a server and return it.

    Raises:
        UsageError: The name is missing or unknown.
    """
    known = list(context.mcp.status())
    listed = ", ".join(known) or "none"
    if not name:
        msg = f"Usage: {command} SERVER. Servers: {listed}"
        raise UsageError(msg)
    if name not in known:
        msg = f"Unknown server `{name}`. {did_you_mean(name, known, f'Servers: {listed}')}"
        raise UsageError(msg)
    return name


def tool_named(context: Context, name: str) -> ToolDef:
    """Return a tool by any name that `dragoman call` takes: exposed, alias, `server.tool`, or its own.

    Raises:
        UsageError: The name is unknown, or several servers have such a tool.
    """
    registry = context.mcp.registry
    try:
        return registry.resolve(name)
    except UnknownToolError as error:
        if error.is_ambiguous:
            text = str(error)
            raise UsageError(text[:1].upper() + text[1:]) from None
    names = [one for tool in registry for one in (tool.name, tool.own_name) if one]
    msg = f"Unknown tool `{name}`. {did_you_mean(name, names, '/tools lists all tools.')}"
    raise UsageError(msg)


def conversation_of(context: Context, command: str) -> Conversation:
    """Return the conversation with a model.

    Raises:
        UsageError: There is no conversation here.
    """
    if context.conversation is None:
        msg = f"{command} works only in a chat with a model. Start one with `dragoman chat`."
        raise UsageError(msg)
    return context.conversation


WHOLE = 100_000
"""The number of characters of a result that `/last` shows."""


async def call(context: Context, words: str) -> RenderableType:
    """Call a tool."""
    name, rest = split(words)
    if not name:
        msg = "Usage: /call TOOL key=value … or /call TOOL {json}. /tools lists all tools."
        raise UsageError(msg)
    second, more = split(rest)
    if name in context.mcp.status() and second and "=" not in second and not second.startswith("{"):
        # As in a shell: the server, then the tool.
        name, rest = f"{name}:{second}", more
    tool = tool_named(context, name)
    given = parse_arguments(tool, rest)
    if context.asker is not None:
        given = await ask_missing(context.asker, tool, given)
    try:
        arguments.refuse_incomplete(given, tool)
    except InvalidArgumentsError as error:
        raise _wrong(error) from None
    result = await context.mcp.call(tool.name, given, on_progress=context.on_progress)
    context.calls.append(PastCall(tool=tool.name, arguments=short_arguments(given), result=result))
    return result_view(result)


def _wrong(error: InvalidArgumentsError) -> UsageError:
    """Return the error of a wrong call as a sentence."""
    return UsageError(f"{error.message[:1].upper()}{error.message[1:]} – {error.hint}")


async def last(context: Context, words: str) -> RenderableType:
    """Show the full result of a call."""
    if words and not (words.isdecimal() and int(words) > 0):
        msg = f"Usage: /last [NUMBER], where 1 is the last call; not `{words}`"
        raise UsageError(msg)
    number = int(words) if words else 1
    if not context.calls:
        return Text("No calls yet.", style="dim")
    if number > len(context.calls):
        count = len(context.calls)
        msg = f"Only {count} call{'s' * (count != 1)} so far."
        raise UsageError(msg)
    past = context.calls[-number]
    return Group(called(past.tool, past.arguments), result_view(past.result, limit=WHOLE))


async def tasks(context: Context, words: str) -> RenderableType:
    """List the calls that servers go on with as tasks, or wait for the result of one."""
    known = await context.mcp.tasks.list()
    if words:
        names = [task.id for task in known]
        if words not in names:
            msg = f"Unknown task `{words}`. {did_you_mean(words, names, '/tasks lists them.')}"
            raise UsageError(msg)
        return result_view(await context.mcp.tasks.resume(words))
    rows: list[tuple[str, str, str]] = []
    for task in known:
        said = f": {task.message}" if task.message else ""
        about = f"{task.status}, {time.time() - task.created:.0f} s{said}"
        rows.append((task.server, f"{task.id} {task.tool}", about))
    return offers_view(rows, "tasks")


async def tools(context: Context, words: str) -> RenderableType:
    """List all tools, those of a server, or those that match all words."""
    searched = words.lower().split()
    found = [tool for tool in context.mcp.registry if tool.server == words]
    found = found or [
        tool for tool in context.mcp.registry if all(word in _words_of(tool) for word in searched)
    ]
    if not found:
        text = f"No tool matches `{words}`. /tools lists all tools." if words else "No tools."
        return Text(text, style="dim")
    many = f"{len(found)} of {len(context.mcp.registry)} tools" if searched else f"{len(found)} tools"
    return Group(tools_table(found), Text(many, style="dim"))


def _words_of(tool: ToolDef) -> str:
    return " ".join([tool.name, tool.title, tool.description, *properties_of(tool.input_schema)]).lower()


def parse_arguments(tool: ToolDef, text: str) -> dict[str, Any]:
    """Parse the arguments of a call: a JSON object, or `key=value` words.

    Raises:
        UsageError: The arguments are neither.
    """
    text = text.strip()
    try:
        words = [text] if arguments.is_object(text) else shlex.split(text)
        found = arguments.read(words, tool.input_schema)
        arguments.refuse_unknown(found, tool)
    except arguments.ArgumentError as error:
        raise UsageError(str(error)) from None
    except InvalidArgumentsError as error:
        raise _wrong(error) from None
    except ValueError as error:
        msg = f"Cannot parse the arguments: {error}"
        raise UsageError(msg) from None
    return found


LIMIT = 20_000
"""The number of characters of a resource that are shown."""


async def resources(context: Context, words: str) -> RenderableType:
    """List the resources of one server or of all servers."""
    server = server_named(context, words, "/resources") if words else None
    found = await context.mcp.resources(server)
    return offers_view([(one.server, one.uri, _about(one)) for one in found], "resources")


async def read(context: Context, words: str) -> RenderableType:
    """Read a resource."""
    uri, server = split(words)
    if not uri:
        msg = "Usage: /read URI [SERVER]. /resources lists all resources."
        raise UsageError(msg)
    if server:
        server_named(context, server, "/read")
    else:
        await _check_listed(context, uri)
    parts = await context.mcp.read(uri, server or None)
    text = "\n".join(part.text or describe(part) for part in parts)
    more = [Text(f"… ({len(text)} characters)", style="dim")] if len(text) > LIMIT else []
    return Group(Text(safe(text[:LIMIT])), *more)


async def _check_listed(context: Context, uri: str) -> None:
    """Raise an error with suggestions if no server lists a resource."""
    listed = await context.mcp.resources()
    if any(one.uri == uri for one in listed) or len(context.mcp.status()) == 1:
        return
    fallback = "Use /read URI SERVER if it is not listed."
    msg = f"No server lists `{uri}`. {did_you_mean(uri, [one.uri for one in listed], fallback)}"
    raise UsageError(msg)


async def prompts(context: Context, words: str) -> RenderableType:
    """List the prompts of one server or of all servers."""
    server = server_named(context, words, "/prompts") if words else None
    found = await context.mcp.prompts(server)
    rows = [(one.server, _signature(one), one_line(one.title or one.description)) for one in found]
    return offers_view(rows, "prompts")


async def prompt(context: Context, words: str) -> RenderableType:
    """Fill in a prompt, show it, and offer to send it to the model."""
    name, rest = split(words)
    if not name:
        msg = "Usage: /prompt NAME key=value …. /prompts lists all prompts."
        raise UsageError(msg)
    asked = _prompt_named(await context.mcp.prompts(), name)
    given = _fields(asked, rest)
    lacking = [str(one.get("name")) for one in asked.arguments if one.get("required")]
    if lacking := [one for one in lacking if one not in given]:
        if context.asker is None:
            msg = f"Missing arguments for prompt `{name}`: {', '.join(lacking)}"
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
    return Text("" if answer == "y" else "Not sent.", style="dim")


def _prompt_named(found: Sequence[Prompt], name: str) -> Prompt:
    """Return a prompt by its name, or by `server/name` if several servers have it."""
    own = [one for one in found if name in (one.name, f"{one.server}/{one.name}")]
    if len(own) == 1:
        return own[0]
    if own:
        names = " or ".join(f"{one.server}/{one.name}" for one in own)
        msg = f"Several servers have a prompt `{name}`. Use {names}"
        raise UsageError(msg)
    fallback = "/prompts lists all prompts."
    msg = f"Unknown prompt `{name}`. {did_you_mean(name, [one.name for one in found], fallback)}"
    raise UsageError(msg)


def _fields(asked: Prompt, text: str) -> dict[str, str]:
    takes = [str(one.get("name")) for one in asked.arguments]
    found: dict[str, str] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        msg = f"Cannot parse the arguments: {error}"
        raise UsageError(msg) from None
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in takes:
            what = f"Expected key=value, not `{word}`." if not equals else f"Unknown argument `{key}`."
            msg = f"{what} Parameters: {', '.join(takes) or 'none'}"
            raise UsageError(msg)
        found[key] = value
    return found


def _message(message: dict[str, Any]) -> RenderableType:
    role = one_line(str(message.get("role", "")))
    return Text.assemble((f"{role}: ", "bold"), safe(_text(message.get("content"))))


def _as_question(messages: Sequence[dict[str, Any]]) -> str:
    """Return a prompt as one message; roles are shown if there are several."""
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


LINES = 30
"""The default number of log lines."""


async def status(context: Context, words: str) -> RenderableType:
    """Show every server."""
    if words:
        word = words.split(maxsplit=1)[0]
        known = ("tools", "reload", "restart", "enable", "disable", "login", "doctor", "logs")
        guess = did_you_mean(word, known, f"Available: {', '.join(known)}")
        msg = f"Unknown command `/mcp {word}`. {guess}"
        raise UsageError(msg)
    return servers_view(context.mcp.status().values(), context.mcp.metrics(), context.mcp.settings)


async def server_tools(context: Context, words: str) -> RenderableType:
    """List the tools of one server or of all servers."""
    if words:
        server_named(context, words, "/mcp tools")
    by_server: dict[str, list[ToolDef]] = {}
    for tool in context.mcp.tools():
        if words in ("", tool.server):
            by_server.setdefault(tool.server, []).append(tool)
    if not by_server:
        return Text("No tools.", style="dim")
    shown: list[RenderableType] = []
    for server, found in sorted(by_server.items()):
        many = "1 tool" if len(found) == 1 else f"{len(found)} tools"
        shown += [Text(f"{safe(server)}: {many}", style="bold"), tools_table(found)]
    return Group(*shown)


async def reload(context: Context, words: str) -> RenderableType:
    """Reload the configuration."""
    if words:
        msg = "/mcp reload takes no arguments."
        raise UsageError(msg)
    if not context.mcp.settings.sources:
        msg = "These servers do not come from a configuration file."
        raise UsageError(msg)
    return reload_view(await context.mcp.reload())


async def restart(context: Context, words: str) -> RenderableType:
    """Restart a server."""
    name = server_named(context, words, "/mcp restart")
    await context.mcp.restart(name)
    return _one(context, name)


async def enable(context: Context, words: str) -> RenderableType:
    """Enable a server."""
    name = server_named(context, words, "/mcp enable")
    await context.mcp.enable(name)
    await context.mcp.wait_ready([name])
    return _one(context, name)


async def disable(context: Context, words: str) -> RenderableType:
    """Disable a server."""
    name = server_named(context, words, "/mcp disable")
    await context.mcp.disable(name)
    return _one(context, name)


async def login(context: Context, words: str) -> RenderableType:
    """Log in to a server."""
    given, how = split(words)
    name = server_named(context, given, "/mcp login")
    if how not in ("", "paste"):
        msg = f"Usage: /mcp login SERVER [paste]; not `{how}`. Use `paste` without a local browser."
        raise UsageError(msg)
    if await give_inputs(context, name):
        return _one(context, name)
    say = context.say
    if say is None:
        msg = f"Login needs a terminal. Run `dragoman login {shlex.quote(name)}`."
        raise UsageError(msg)

    async def open_url(url: str) -> None:
        say(Text(f"Open this URL to log in to `{name}`:\n\n  {safe(url)}\n"))
        if not how:
            await open_browser(url)

    def on_refused(why: str) -> None:
        say(Text(f"Invalid URL: {safe(why)}.", style="yellow"))

    paste = _paster(context) if how else None
    await context.mcp.auth.login(
        name, open_url=open_url, paste=paste, on_refused=on_refused, token=token_asker(context, name)
    )
    return _one(context, name)


async def give_inputs(context: Context, name: str) -> bool:
    """Ask for the inputs of a server, keep them, and connect; return whether no other login is needed."""
    from dragoman.cli.session.questions import ask_inputs

    spec = context.mcp.settings.server(name)
    if spec is None or context.asker is None or not input_ids(spec):
        return False
    await ask_inputs(context.asker, context.mcp.settings, [spec], again=True)
    await context.mcp.restart(name)
    status = context.mcp.status([name])[name]
    return isinstance(spec.transport, Stdio) or status.state is not ServerState.NEEDS_AUTH


def token_asker(context: Context, name: str) -> Callable[[], Awaitable[str]] | None:
    """Return what asks for the token of a server that offers no login by OAuth."""
    asker = context.asker
    return None if asker is None else lambda: asker.line(f"Token for {one_line(name)}", secret=True)


async def doctor(context: Context, words: str) -> RenderableType:
    """Find out why a server does not work: connect to it once more, and say what to do."""
    from dragoman.diagnosis.doctor import diagnose

    name = server_named(context, words, "/mcp doctor")
    spec = context.mcp.settings.server(name)
    assert spec is not None  # noqa: S101 -- it has a status
    return diagnosis_view(await diagnose(spec, context.mcp.settings))


def _paster(context: Context) -> Callable[[], Awaitable[str]]:
    asker = context.asker
    if asker is None:
        msg = "`paste` needs a terminal. Log in without `paste`."
        raise UsageError(msg)

    async def paste() -> str:
        return await asker.line("Paste the final URL of the browser")

    return paste


async def logs(context: Context, words: str) -> RenderableType:
    """Show the last stderr lines of a server."""
    given, count = split(words)
    name = server_named(context, given, "/mcp logs")
    if count and not (count.isdecimal() and int(count) > 0):
        msg = f"Usage: /mcp logs SERVER [LINES]; `{count}` is not a number of lines."
        raise UsageError(msg)
    found = context.mcp.logs(name, lines=int(count) if count else LINES)
    if not found:
        return Text(f"No stderr output from `{name}`.", style="dim")
    return Group(*(Text(safe(line)) for line in found))


def _one(context: Context, name: str) -> RenderableType:
    metrics = context.mcp.metrics()
    settings = context.mcp.settings.replace(problems=())
    return servers_view([context.mcp.status([name])[name]], metrics, settings)


async def model(context: Context, words: str) -> RenderableType:
    """Show the current and available models, or switch to another model."""
    talk = conversation_of(context, "/model")
    if words:
        await talk.switch(words)
        return Text.assemble(("Model: ", "dim"), one_line(talk.model))
    lines = [Text.assemble(("Model: ", "dim"), one_line(talk.model) if talk.is_open else "none")]
    lines += [
        Text.assemble(("  " + name, "cyan"), ("  " + about, "dim")) for name, about in await _available()
    ]
    return Group(*lines, Text("Switch with /model NAME.", style="dim"))


async def _available() -> list[tuple[str, str]]:
    """Return the available model names with a description."""
    from dragoman.agent.providers.open import VARIABLES, find_local

    found: list[tuple[str, str]] = []
    for api, variable in VARIABLES.items():
        there = "API key is set" if os.environ.get(variable) else f"needs {variable}, or a key in the keyring"
        found.append((f"{api}:MODEL", there))
    local = await find_local()
    if local is None:
        return [*found, ("local:MODEL", "no local Ollama, llama.cpp or LM Studio found")]
    return found + [(f"local:{one_line(name)}", f"at {local.base_url}") for name in local.models]


async def new(context: Context, words: str) -> RenderableType:
    """Start a new conversation."""
    if words:
        msg = "/new takes no arguments."
        raise UsageError(msg)
    return _forget(conversation_of(context, "/new"))


async def clear(context: Context, words: str) -> RenderableType:
    """Clear the screen, and start a new conversation if there is one."""
    if words:
        msg = "/clear takes no arguments."
        raise UsageError(msg)
    if context.clear is not None:
        context.clear()
    talk = context.conversation
    return _forget(talk) if talk is not None and talk.messages else Text("")


def _forget(talk: Conversation) -> RenderableType:
    kept = talk.forget()
    more = "" if kept is None else f" It is not saved; {shorten_path(str(kept))} keeps the previous one."
    return Text(safe(f"New conversation.{more}"), style="dim")


async def cost(context: Context, words: str) -> RenderableType:
    """Show the tokens and the cost so far."""
    if words:
        msg = "/cost takes no arguments."
        raise UsageError(msg)
    talk = conversation_of(context, "/cost")
    used = {name: one for name, one in talk.usage.items() if one != Usage()}
    if not used:
        return Text("No tokens used yet.", style="dim")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for head in ("model", "input", "cached", "output", "cost"):
        table.add_column(head, justify="left" if head == "model" else "right", no_wrap=True)
    for name, one in used.items():
        money = talk.money(name)
        table.add_row(
            one_line(name),
            f"{one.input_tokens:,}",
            f"{one.cached_tokens:,}" if one.cached_tokens else "",
            f"{one.output_tokens:,}",
            "" if money is None else f"{money:.4f}",
        )
    hint = (
        []
        if talk.money() is not None
        else [Text("Start with `dragoman chat --price IN,OUT` to see the cost.", style="dim")]
    )
    return Group(table, *hint)


async def save(context: Context, words: str) -> RenderableType:
    """Save the conversation to a new file."""
    talk = conversation_of(context, "/save")
    if not talk.messages:
        msg = "Nothing to save yet."
        raise UsageError(msg)
    path = Path(words or time.strftime("dragoman-%Y%m%d-%H%M%S.md"))
    if path.suffix not in (".md", ".jsonl"):
        msg = f"`{path.name}` must end with .md or .jsonl."
        raise UsageError(msg)
    try:
        where = _write(path, talk.messages)
    except FileExistsError:
        msg = f"`{words}` already exists. Choose another name."
        raise UsageError(msg) from None
    except OSError as error:
        msg = f"Cannot write `{words}`: {error.strerror}"
        raise UsageError(msg) from None
    many = len(talk.messages)
    return Text(safe(f"Saved {many} messages to {where}"))


def _write(path: Path, messages: Sequence[Message]) -> str:
    """Write a new file and return its path."""
    path = path.expanduser()

    lines = [f"{encode(one)}\n" for one in messages] if path.suffix == ".jsonl" else [as_markdown(messages)]
    # The conversation may be private.
    descriptor = private_opener(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write("".join(lines))
    return shorten_path(str(path.absolute()))


async def run(context: Context | McpManager, line: str) -> RenderableType:
    """Run a line such as `/mcp tools legal`.

    Args:
        context: The context, or just a manager.
        line: The line as typed.

    Raises:
        UsageError: The command is unknown, or its arguments are invalid.
        Leave: The user wants to end the session.
    """
    given = Context(mcp=context) if isinstance(context, McpManager) else context
    command, words = find_command(line)
    return await command.handler(given, words)


def find_command(line: str) -> tuple[SlashCommand, str]:
    """Return the command at the start of a line, and the words after it.

    Raises:
        UsageError: The command is unknown.
    """
    line = line.strip()
    first, *more = line.split(None, 2)
    if more and f"{first} {more[0]}" in COMMANDS:
        return COMMANDS[f"{first} {more[0]}"], more[1].strip() if len(more) > 1 else ""
    if first in COMMANDS:
        return COMMANDS[first], line[len(first) :].strip()
    tops = [name for name in COMMANDS if " " not in name]
    msg = f"Unknown command {first}. {did_you_mean(first, tops, '/help lists all commands.')}"
    raise UsageError(msg)


async def _help(_context: Context, words: str) -> RenderableType:
    if words:
        name = words if words.startswith("/") else f"/{words}"
        if name not in COMMANDS:
            msg = f"Unknown command {name}. {did_you_mean(name, COMMANDS, '/help lists all commands.')}"
            raise UsageError(msg)
        return _explained(COMMANDS[name])
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    for command in COMMANDS.values():
        table.add_row(Text(_usage(command), style="cyan"), Text(command.help))
    return table


def _explained(command: SlashCommand) -> RenderableType:
    parts: list[RenderableType] = [Text(_usage(command), style="cyan"), Text(command.help)]
    if command.details:
        parts.append(Padding(Text(command.details, style="dim"), (0, 0, 0, 2)))
    below = [other for other in COMMANDS.values() if other.name.startswith(f"{command.name} ")]
    parts += [Text.assemble((_usage(other), "cyan"), "  ", (other.help, "dim")) for other in below]
    return Group(*parts)


def _usage(command: SlashCommand) -> str:
    return f"{command.name} {command.arguments}".rstrip()


async def _quit(_context: Context, _words: str) -> RenderableType:
    raise Leave


_CALL = """\
/call search_statutes query=deposit limit=3
/call mcp_files_read_text_file {"path": "README.md"}
/call greet                       asks for missing arguments
Values are converted by the tool's schema. a.b=1 sets a value in an object, a repeated key makes a list."""
_LAST = "/last shows the last call, /last 2 the one before it."
_PROMPT = """\
/prompt describe_colour colour=blue
Asks for missing required arguments. With a model, it offers to send the prompt."""
_MODEL = """\
/model openai:gpt-5-mini, /model anthropic:claude-sonnet-4-5, /model local
The conversation continues with the new model."""
_SAVE = """\
/save                             Markdown, to a new file in the current folder
/save talk.jsonl                  JSON Lines, to continue with `dragoman chat --transcript talk.jsonl`"""

COMMANDS: dict[str, SlashCommand] = {
    command.name: command
    for command in (
        SlashCommand("/mcp", "", "Show servers: state, calls, latency, errors.", status),
        SlashCommand("/mcp tools", "[SERVER]", "List the tools of one or all servers.", server_tools),
        SlashCommand("/mcp reload", "", "Reload the configuration.", reload),
        SlashCommand("/mcp restart", "SERVER", "Restart a server.", restart),
        SlashCommand("/mcp enable", "SERVER", "Enable a server for this session.", enable),
        SlashCommand("/mcp disable", "SERVER", "Disable a server for this session.", disable),
        SlashCommand("/mcp login", "SERVER [paste]", "Log in to a server.", login),
        SlashCommand("/mcp doctor", "SERVER", "Find out why a server does not work.", doctor),
        SlashCommand("/mcp logs", "SERVER [LINES]", "Show the stderr output of a server.", logs),
        SlashCommand("/call", "TOOL [KEY=VALUE … | JSON]", "Call a tool.", call, _CALL),
        SlashCommand("/last", "[NUMBER]", "Show the full result of the last call.", last, _LAST),
        SlashCommand("/tasks", "[ID]", "List running tasks, or wait for one.", tasks),
        SlashCommand("/tools", "[WORD …]", "List or search tools, or those of a server.", tools),
        SlashCommand("/resources", "[SERVER]", "List the resources.", resources),
        SlashCommand("/read", "URI [SERVER]", "Read a resource.", read),
        SlashCommand("/prompts", "[SERVER]", "List the prompts.", prompts),
        SlashCommand("/prompt", "NAME [KEY=VALUE …]", "Fill in a prompt.", prompt, _PROMPT),
        SlashCommand("/model", "[NAME]", "Show or switch the model.", model, _MODEL),
        SlashCommand("/cost", "", "Show tokens and cost so far.", cost),
        SlashCommand("/save", "[FILE]", "Save the conversation.", save, _SAVE),
        SlashCommand("/new", "", "Start a new conversation.", new),
        SlashCommand("/clear", "", "Clear the screen and start a new conversation.", clear),
        SlashCommand("/help", "[COMMAND]", "Show this list, or explain a command.", _help),
        SlashCommand("/quit", "", "Quit (also: exit, quit, Ctrl-D).", _quit),
        SlashCommand("/exit", "", "Quit.", _quit),
    )
}
