"""What nothing is done without: a person's yes to calls, to a project's servers, to the use of the model.

Also what only a person can give: answers to a server's questions, and the values of `${input:id}`. A yes that
holds for the session is forgotten with it; a yes to a project's server is remembered for that very content.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.text import Text

from dragoman.agent.forms import Visit
from dragoman.cli.logins import open_browser
from dragoman.cli.output import one_line, safe
from dragoman.cli.session.questions import YES_OR_NO, AbandonedError, argument_lines, fill, visit
from dragoman.config.expand import input_ids
from dragoman.trust.layers import answer_key, in_question, inputs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.agent.forms import Form
    from dragoman.cli.session.questions import Asker
    from dragoman.manager import McpManager
    from dragoman.model import CallRequest, Input, Settings

SHOWN = 2_000
"""Characters of one argument that a person is shown before a yes."""
EXCERPT = 300

_ALWAYS = {**YES_OR_NO, "a": "always in this session"}


class Consent:
    """Asks, and remembers what holds for the session."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._calls: set[tuple[str, str, str]] = set()
        self._servers: set[str] = set()
        self._reviewed: set[tuple[str, str]] = set()
        """Changes that were asked about, by server and fingerprint."""
        self._turn = asyncio.Lock()
        """One question after the other, each with all that belongs to it."""

    async def approve_call(self, request: CallRequest) -> bool:
        """Ask whether a call may be made, as `Handlers.approval`."""
        async with self._turn:
            return await self._approve_call(request)

    async def _approve_call(self, request: CallRequest) -> bool:
        what = (request.kind, request.server, request.original_name)
        if what in self._calls:
            return True
        name = one_line(request.original_name)
        of = f" of {one_line(request.server)}" if request.server else ""
        why = one_line(request.reason) or (f"rule `{one_line(request.rule)}`" if request.rule else "a rule")
        done, verb = {"tool": ("called", "Call"), "resource": ("read", "Read"), "prompt": ("used", "Get")}[
            request.kind
        ]
        self._asker.show(
            Text.assemble(("? ", "bold magenta"), "May ", (name, "bold"), f"{of} be {done}? ({why})")
        )
        for line in argument_lines(request.arguments, SHOWN):
            self._asker.show(Text(f"    {line}"))
        try:
            answer = await self._asker.choose(f"{verb} {name}?", _ALWAYS, default="n")
        except AbandonedError:
            return False
        if answer == "a":
            self._calls.add(what)
        return answer in ("y", "a")

    async def approve_sampling(self, server: str, params: Mapping[str, Any]) -> bool:
        """Ask whether a server may use the model."""
        async with self._turn:
            return await self._approve_sampling(server, params)

    async def _approve_sampling(self, server: str, params: Mapping[str, Any]) -> bool:
        if server in self._servers:
            return True
        name = one_line(server)
        tokens = params.get("maxTokens")
        most = f", up to {tokens} tokens" if isinstance(tokens, int) else ""
        self._asker.show(
            Text.assemble(("? ", "bold magenta"), (name, "bold"), f" wants to ask the model{most}:")
        )
        for label, text in _said(params):
            excerpt = " ".join(safe(text).split())
            more = f" … ({len(excerpt)} characters)" if len(excerpt) > EXCERPT else ""
            self._asker.show(Text(f"    {label}: {excerpt[:EXCERPT]}{more}"))
        try:
            answer = await self._asker.choose(f"Let {name} ask?", _ALWAYS, default="n")
        except AbandonedError:
            return False
        if answer == "a":
            self._servers.add(server)
        return answer in ("y", "a")

    async def review(self, mcp: McpManager) -> None:
        """Ask about what servers offer that is not as it was pinned and is withheld; once for each change."""
        for server in mcp.status():
            async with self._turn:
                changes = mcp.changes(server)
                what = (server, changes.fingerprint)
                if not changes.is_withheld or what in self._reviewed:
                    continue
                self._reviewed.add(what)
                name = one_line(server)
                self._asker.show(
                    Text.assemble(
                        ("? ", "bold magenta"), (name, "bold"), " offers something else than was pinned:"
                    )
                )
                for line in (line for text in changes.texts for line in text.splitlines()):
                    self._asker.show(Text(f"    {safe(line)}"))
                try:
                    answer = await self._asker.choose(f"Approve what {name} offers?", YES_OR_NO, default="n")
                except AbandonedError:
                    continue
            if answer == "y":
                await mcp.approve(server, fingerprint=changes.fingerprint)

    async def answer(self, asked: Form | Visit) -> Any:
        """Have a person answer a server's question, as `agent.asking` wants it."""
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
    """Show every server of the project that is not approved as it is now, whole, and ask about each."""
    from dragoman.trust.approval import question
    from dragoman.trust_store import Approvals

    root = settings.root or str(Path.cwd())
    store = Approvals()
    for spec in in_question(settings) if settings.enabled else ():
        if not spec.enabled:
            continue
        look = await asyncio.to_thread(store.look, spec, root, settings.inputs)
        if look.error is None:
            continue
        asker.show(Text(question(spec, root, look.evidence, look.changes)))
        try:
            answer = await asker.choose(f"Approve {one_line(spec.name)}?", YES_OR_NO, default="n")
        except AbandonedError as left:
            if not left.declined:
                raise
            answer = "n"
        if answer == "y":
            # What was shown, also if a file has changed since.
            store.approve(spec, root, look.evidence)


async def ask_inputs(asker: Asker, settings: Settings) -> dict[str, str]:
    """Ask for every `${input:id}` that a server needs which may start; what is not answered is left out."""
    from dragoman.cli.known import refused

    enabled = [spec for spec in settings.servers if spec.enabled and settings.enabled]
    unapproved = await asyncio.to_thread(refused, settings, enabled)
    found: dict[str, str] = {}
    for spec in enabled:
        told = inputs_of(spec, settings)
        for name in input_ids(spec) if spec.name not in unapproved else ():
            key = answer_key(spec, settings, name)
            if key in found:
                continue
            try:
                found[key] = await _ask_input(asker, spec.name, name, told.get(name))
            except AbandonedError as left:
                if not left.declined:
                    raise
    return found


async def _ask_input(asker: Asker, server: str, name: str, told: Input | None) -> str:
    about = one_line(told.description) if told is not None and told.description else one_line(name)
    choices = list(told.choices) if told is not None else []

    def check(text: str) -> None:
        if choices and text not in choices:
            msg = f"it is one of: {', '.join(choices)}"
            raise ValueError(msg)

    return await asker.line(
        f"{about} (for {one_line(server)})",
        default=(told.default or "") if told is not None else "",
        choices=choices,
        # Nobody has said what it is: rather hidden than seen.
        secret=told.secret if told is not None else True,
        check=check,
    )
