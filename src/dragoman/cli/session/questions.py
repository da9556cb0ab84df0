"""Questions to the user: arguments, forms, URLs, and consent to calls and servers.

Questions go through an `Asker`, implemented by the terminal and by the dashboard. Each names its server, and
what others wrote stands behind a bar (`Quoted`): no text of a server looks like a question of ours.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from rich.padding import Padding
from rich.text import Text

from dragoman.agent.handlers import Visit
from dragoman.cli import arguments
from dragoman.cli.arguments import resolved, type_name
from dragoman.cli.commands.login import open_browser
from dragoman.cli.output import cut, one_line, safe, shorten_path
from dragoman.config import edit
from dragoman.config.load import approvals, refused
from dragoman.config.templates import input_ids
from dragoman.config.write import add_rule
from dragoman.errors import ConfigError
from dragoman.storage.answers import keep_answers, kept_answers
from dragoman.tools.schema.validate import Validators
from dragoman.trust.addresses import read_link
from dragoman.trust.layers import answers_of, in_question, inputs_of
from dragoman.trust.masking import is_sensitive_name, mask_arguments
from dragoman.trust.policy import allowing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from dragoman.agent.handlers import Field, Form
    from dragoman.config.write import Target
    from dragoman.manager.manager import McpManager
    from dragoman.model import CallRequest, Input, Prompt, ServerSpec, Settings, ToolDef

T = TypeVar("T")

logger = logging.getLogger("dragoman")

BAR = "  │ "
LONGEST_TITLE = 60
"""Columns for the title of a field, or one of its choices, in a question."""
LONGEST_ABOUT = 240
"""Columns for a description above a question."""
MOST_CHOICES = 8
"""With more choices than this, they are completed but not shown."""
YES_OR_NO = {"y": "yes", "n": "no"}


class Quoted:
    """A text that others wrote: each of its lines on the screen, also a wrapped one, stands behind a bar."""

    def __init__(self, text: str, style: str = "") -> None:
        self._text = Text(safe(text).strip("\n"), style)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Wrap the text within the width that is left."""
        for line in self._text.wrap(console, max(1, options.max_width - len(BAR))):
            yield Text.assemble((BAR, "magenta"), line)


def complaint(text: str) -> RenderableType:
    """Return what is wrong with an answer, indented: the text may quote a schema."""
    flat = " ".join(safe(text).split())
    return Padding(Text(f"! {flat}", "yellow"), (0, 0, 0, 2), expand=False)


def in_title(text: str) -> str:
    """Return a text that others wrote for the line of a question itself."""
    return cut(one_line(text), LONGEST_TITLE)


def named(name: str) -> str:
    """Return the name of a server or a tool in quotes, which the name itself cannot close."""
    inner = in_title(name).replace('"', "'")
    return f'"{inner}"'


class AbandonedError(Exception):
    """The user does not want to answer."""

    def __init__(self, text: str = "cancelled", *, declined: bool = False) -> None:
        super().__init__(text)
        self.declined = declined
        """True for Ctrl-D (no), False for Ctrl-C (cancel)."""


class Asker(Protocol):
    """Asks the user questions."""

    async def line(
        self,
        label: str,
        *,
        default: str = "",
        choices: Sequence[str] = (),
        secret: bool = False,
        check: Callable[[str], object] | None = None,
    ) -> str:
        """Ask for a line, again while `check` raises a `ValueError`, whose text is shown.

        Raises:
            AbandonedError: The user cancelled.
        """
        ...

    async def choose(self, label: str, choices: Mapping[str, str], *, default: str) -> str:
        """Ask for one of a few letters, each with its meaning.

        Raises:
            AbandonedError: The user cancelled.
        """
        ...

    def show(self, renderable: RenderableType) -> None:
        """Show text with the next question."""
        ...


async def ask_read(asker: Asker, label: str, read: Callable[[str], T], **how: Any) -> T:
    """Ask for a line and return the parsed value."""
    found: list[T] = []

    def check(text: str) -> None:
        found[:] = [read(text)]

    await asker.line(label, check=check, **how)
    return found[0]


async def ask_missing(asker: Asker, tool: ToolDef, given: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for the missing required arguments of a tool; return all arguments."""
    found = dict(given)
    schema = tool.input_schema
    for name, inner in arguments.missing(found, schema).items():
        found[name] = await _ask_argument(asker, name, inner, schema)
    return found


async def _ask_argument(asker: Asker, name: str, schema: object, root: object) -> Any:
    fields = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    types = arguments.allowed_types(fields, root)
    choices = choices_of(fields, root)
    if about := one_line(str(fields.get("description") or "")):
        asker.show(Quoted(cut(about, LONGEST_ABOUT), "dim"))
    kind = type_name(fields, root)
    listed = ", ".join(map(in_title, choices))
    shown = f", one of {listed}" if 0 < len(choices) <= MOST_CHOICES and kind == "str" else ""
    empty_allowed = not types or "string" in types
    default = fields.get("default")
    inner = cast("dict[str, Any]", root) if isinstance(root, dict) else {}
    checker = Validators().of({**inner, "properties": {name: fields}, "required": [name]})

    def read(text: str) -> Any:
        if not text.strip():
            empty = ', or type "" for an empty text' if empty_allowed else ""
            msg = f"`{name}` is required (type: {kind}){empty}"
            raise ValueError(msg)
        value = "" if text == '""' and empty_allowed else arguments.typed(text, fields, inner)
        if problems := checker.problems({name: value}):
            raise ValueError("; ".join(problems))
        return value

    return await ask_read(
        asker,
        f"{in_title(name)} ({kind}{shown})",
        read,
        default="" if default is None else default if isinstance(default, str) else json.dumps(default),
        choices=choices,
        secret=is_sensitive_name(name),
    )


def choices_of(schema: object, root: object) -> list[str]:
    """Return the choices of a schema as text."""
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
    """Ask for the missing required arguments of a prompt; return all arguments."""
    found = dict(given)
    for argument in prompt.arguments:
        name = str(argument.get("name", ""))
        if name in found or not argument.get("required"):
            continue
        if about := one_line(str(argument.get("description") or "")):
            asker.show(Quoted(cut(about, LONGEST_ABOUT), "dim"))
        found[name] = await asker.line(in_title(name), check=_given(name))
    return found


def _given(name: str) -> Callable[[str], None]:
    """Return a check that refuses an empty answer."""

    def check(text: str) -> None:
        if not text.strip():
            msg = f"`{name}` is required"
            raise ValueError(msg)

    return check


async def fill(asker: Asker, form: Form) -> dict[str, Any] | bool | None:
    """Ask the user to fill in a form of a server; `False` declines, `None` cancels."""
    _show_heading(asker, form.server, "asks", form.message)
    if secret := [field.title for field in form.fields if _is_secret(field)]:
        names = ", ".join(map(in_title, secret))
        asker.show(Text(f"  ! Servers should not ask for secrets in a form: {names}", style="red"))
    asker.show(Text("  Ctrl-D to decline, Ctrl-C to cancel.", style="dim"))
    values: dict[str, Any] = {}
    try:
        if not form.fields:
            return await asker.choose(f"Agree to {named(form.server)}?", YES_OR_NO, default="n") == "y"
        while True:
            for field in form.fields:
                await _fill_field(asker, form.server, field, values)
            if not (problems := form.problems(values)):
                return values
            asker.show(complaint("; ".join(problems)))
    except AbandonedError as left:
        return False if left.declined else None


def _is_secret(field: Field) -> bool:
    return is_sensitive_name(field.name) or is_sensitive_name(field.title)


async def _fill_field(asker: Asker, server: str, field: Field, values: dict[str, Any]) -> None:
    if about := one_line(field.description):
        asker.show(Quoted(cut(about, LONGEST_ABOUT), "dim"))
    choices = list(field.choices or ()) or (["yes", "no"] if field.kind == "boolean" else [])
    kind = {"choice": "one", "choices": "comma-separated list"}.get(field.kind, field.kind)
    listed = ", ".join(map(in_title, choices))
    of = f" of {listed}" if 0 < len(choices) <= MOST_CHOICES and field.kind != "boolean" else ""
    optional = "" if field.required else ", optional"

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
        f"{named(server)}: {in_title(field.title)} ({kind}{of}{optional})",
        read,
        default=_typed_default(default),
        choices=choices,
        secret=_is_secret(field),
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
    """Ask whether to open a URL; the full URL and its host are shown."""
    _show_heading(asker, asked.server, "wants to open a URL", asked.message)
    try:
        link = read_link(asked.url)
    except ValueError as error:
        asker.show(Text(f"  ! Declined, the URL is not safe to open: {safe(str(error))}", style="red"))
        return False
    asker.show(Quoted(link.url, "bold"))
    try:
        wanted = f"Open {link.host} in the browser for {named(asked.server)}?"
        answer = await asker.choose(wanted, YES_OR_NO, default="n")
    except AbandonedError as left:
        return False if left.declined else None
    if answer != "y":
        return False
    await open_url(link.url)
    return True


def _show_heading(asker: Asker, server: str, verb: str, message: str) -> None:
    asker.show(Text.assemble(("? ", "bold magenta"), "Server ", (named(server), "bold"), f" {verb}:"))
    if message.strip():
        asker.show(Quoted(message.strip()))


def argument_lines(given: Mapping[str, Any], limit: int) -> list[str]:
    """Return arguments for display, one per line; secrets are masked, then long values are cut."""
    lines: list[str] = []
    for name, value in mask_arguments(given, limit=sys.maxsize).items():
        text = safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
        more = f" … ({len(text)} characters)" if len(text) > limit else ""
        lines.append(f"{one_line(name)} = {text[:limit]}{more}")
    return lines


SHOWN = 2_000
"""Characters shown of one argument."""
EXCERPT = 300

_ALWAYS = {**YES_OR_NO, "a": "always in this session"}
_ALWAYS_THIS = {**YES_OR_NO, "t": "tool", "s": "server"}
EVERY_TOOL = ""
"""Stands for all tools of a server."""


class Consent:
    """Asks for consent, and remembers "always": for the session, or as a rule in the user's configuration."""

    def __init__(self, asker: Asker, rule_file: Callable[[str], Target | None] | None = None) -> None:
        """Create it.

        Args:
            asker: Asks the user.
            rule_file: Returns the user's file for rules about a server; `None` if a rule about this server
                would not be about it alone. Without the function, a tool can be allowed for the session only.
        """
        self._asker = asker
        self._rule_file = rule_file
        self._allowed: set[tuple[str, str]] = set()
        """Servers and tools that the user always allows where no rule decides; see `EVERY_TOOL`."""
        self._calls: set[tuple[str, str, str]] = set()
        self._servers: set[str] = set()
        self._reviewed: set[tuple[str, str]] = set()
        """Changes that the user was asked about, by server and fingerprint."""
        self._turn = asyncio.Lock()
        """Only one question at a time."""

    async def approve_call(self, request: CallRequest) -> bool:
        """Ask whether to allow a call, as `Handlers.approval`."""
        async with self._turn:
            try:
                return await self._approve_call(request)
            except asyncio.CancelledError as exc:
                if exc.args:
                    self._asker.show(Text(f"  {one_line(str(exc.args[0]))}"))
                raise

    async def _approve_call(self, request: CallRequest) -> bool:
        what = (request.kind, request.server, request.original_name)
        if what in self._calls:
            return True
        # An answer where no rule decides is no answer to a rule that asks.
        is_open = bool(request.kind == "tool" and request.server and not request.rule)
        tool, server = (request.server, request.original_name), (request.server, EVERY_TOOL)
        if is_open and not self._allowed.isdisjoint((tool, server)):
            return True
        name = named(request.original_name)
        of = f" of {named(request.server)}" if request.server else ""
        why = one_line(request.reason) or (f"rule `{one_line(request.rule)}`" if request.rule else "a rule")
        verb = {"tool": "Call", "resource": "Read", "prompt": "Get", "skill": "Load"}[request.kind]
        self._asker.show(
            Text.assemble(("? ", "bold magenta"), (name, "bold"), f"{of} needs confirmation ({why})")
        )
        for line in argument_lines(request.arguments, SHOWN):
            self._asker.show(Quoted(line))
        wanted = f"{verb} {name}?"
        if is_open and self._rule_file is not None:
            return await self._ask_always(wanted, {"t": tool, "s": server}, self._rule_file(request.server))
        try:
            answer = await self._asker.choose(wanted, _ALWAYS, default="n")
        except AbandonedError:
            return False
        if answer == "a":
            self._calls.add(what)
        return answer in ("y", "a")

    async def _ask_always(
        self, wanted: str, what: Mapping[str, tuple[str, str]], target: Target | None
    ) -> bool:
        """Ask about a call that no rule decides; "always" is a rule in the user's file, if there is one."""
        rules = {letter: allowing(*names) for letter, names in what.items()}
        always = "  Always this tool (t) or always this server (s)"
        if target is None:
            self._asker.show(Text(f"{always}: until this session ends."))
        else:
            file = one_line(shorten_path(str(target.path)))
            self._asker.show(Text(f"{always} adds a rule to\n  {file}:"))
            for letter, rule in rules.items():
                self._asker.show(Quoted(f"{letter}: {one_line(edit.written(rule, target.format))}"))
        try:
            answer = await self._asker.choose(wanted, _ALWAYS_THIS, default="n")
        except AbandonedError:
            return False
        if answer in what:
            self._allowed.add(what[answer])
            if target is not None:
                await self._write(target, rules[answer])
        return answer == "y" or answer in what

    async def _write(self, target: Target, rule: Mapping[str, str]) -> None:
        try:
            await asyncio.to_thread(add_rule, target, rule)
        except ConfigError as error:
            logger.warning("the rule is not written and holds until the session ends: %s", error)

    async def approve_sampling(self, server: str, params: Mapping[str, Any]) -> bool:
        """Ask whether a server may use the model (sampling)."""
        async with self._turn:
            return await self._approve_sampling(server, params)

    async def _approve_sampling(self, server: str, params: Mapping[str, Any]) -> bool:
        if server in self._servers:
            return True
        name = named(server)
        tokens = params.get("maxTokens")
        most = f", up to {tokens} tokens" if isinstance(tokens, int) else ""
        self._asker.show(
            Text.assemble(("? ", "bold magenta"), (name, "bold"), f" wants to use the model{most}:")
        )
        for label, text in _said(params):
            excerpt = " ".join(safe(text).split())
            more = f" … ({len(excerpt)} characters)" if len(excerpt) > EXCERPT else ""
            self._asker.show(Quoted(f"{in_title(label)}: {excerpt[:EXCERPT]}{more}"))
        try:
            answer = await self._asker.choose(f"Allow {name} to use the model?", _ALWAYS, default="n")
        except AbandonedError:
            return False
        if answer == "a":
            self._servers.add(server)
        return answer in ("y", "a")

    async def review(self, mcp: McpManager) -> None:
        """Ask about withheld changes of tools, once for each change."""
        for server in mcp.status():
            async with self._turn:
                changes = mcp.trust.changes(server)
                what = (server, changes.fingerprint)
                if not changes.is_withheld or what in self._reviewed:
                    continue
                self._reviewed.add(what)
                name = named(server)
                self._asker.show(
                    Text.assemble(
                        ("? ", "bold magenta"),
                        "Tools of ",
                        (name, "bold"),
                        " changed since you approved them:",
                    )
                )
                self._asker.show(Quoted("\n".join(changes.texts)))
                try:
                    answer = await self._asker.choose(
                        f"Approve the changes of {name}?", YES_OR_NO, default="n"
                    )
                except AbandonedError:
                    continue
            if answer == "y":
                await mcp.trust.approve(server, fingerprint=changes.fingerprint)

    async def answer(self, asked: Form | Visit) -> Any:
        """Let the user answer the question of a server."""
        async with self._turn:
            if isinstance(asked, Visit):
                return await visit(self._asker, asked, open_browser)
            return await fill(self._asker, asked)


def _said(params: Mapping[str, Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if system := params.get("systemPrompt"):
        found.append(("system", str(system)))
    for message in cast("list[Mapping[str, Any]]", params.get("messages") or [])[-3:]:
        content = message.get("content")
        blocks = cast("list[Mapping[str, Any]]", content if isinstance(content, list) else [content])
        texts = [str(block.get("text") or f"[{block.get('type')}]") for block in blocks]
        found.append((str(message.get("role", "")), " ".join(texts)))
    return found


async def approve_project(asker: Asker, settings: Settings) -> None:
    """Show each unapproved server of the project in full, and ask whether to approve it."""
    from dragoman.trust.approvals import question

    root = settings.root or str(Path.cwd())
    store = approvals()
    for spec in in_question(settings) if settings.enabled else ():
        if not spec.enabled:
            continue
        look = await asyncio.to_thread(store.look, spec, root, settings.inputs)
        if look.error is None:
            continue
        asker.show(Text(question(spec, root, look.evidence, look.changes)))
        try:
            answer = await asker.choose(f"Approve {named(spec.name)}?", YES_OR_NO, default="n")
        except AbandonedError as left:
            if not left.declined:
                raise
            answer = "n"
        if answer == "y":
            # Approve what was shown, even if a file has changed since.
            store.approve(spec, root, look.evidence)


async def ask_inputs(
    asker: Asker, settings: Settings, specs: Iterable[ServerSpec], *, again: bool = False
) -> None:
    """Ask for each `${input:id}` of the servers that may start, and keep the answers.

    Those that the user declines are asked for the next time; kept ones only if `again`.
    """
    enabled = [spec for spec in specs if spec.enabled and settings.enabled]
    unapproved = await asyncio.to_thread(refused, settings, enabled)
    asked: set[tuple[str, str]] = set()
    for spec in enabled:
        defined, owner = inputs_of(spec, settings), answers_of(spec, settings, "")
        names = input_ids(spec) if again else unanswered(settings, spec)
        for name in names if spec.name not in unapproved else ():
            if (owner, name) in asked:
                continue
            asked.add((owner, name))
            try:
                answer = await _ask_input(asker, spec.name, name, defined.get(name))
            except AbandonedError as left:
                if not left.declined:
                    raise
            else:
                keep_answers({name: answer} if answer else {}, owner)


def unanswered(settings: Settings, spec: ServerSpec) -> list[str]:
    """Return the inputs of a server for which no answer is kept."""
    kept = kept_answers(answers_of(spec, settings, ""))
    return [name for name in input_ids(spec) if name not in kept]


async def _ask_input(asker: Asker, server: str, name: str, definition: Input | None) -> str:
    about = one_line(definition.description) if definition and definition.description else one_line(name)
    choices = list(definition.choices) if definition is not None else []

    def check(text: str) -> None:
        if choices and text not in choices:
            msg = f"choose one of: {', '.join(choices)}"
            raise ValueError(msg)

    return await asker.line(
        f"{about} (for {one_line(server)})",
        default=(definition.default or "") if definition is not None else "",
        choices=choices,
        # Without a definition it may be a secret, so hide it.
        secret=definition.secret if definition is not None else True,
        check=check,
    )
