"""What can be typed next: commands, servers, tools, arguments and their values, resources, prompts.

Completing never waits for a server: what servers list is asked for beforehand, and again when it changes.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion

from dragoman.cli.output import cut, one_line
from dragoman.cli.session.questions import choices_of
from dragoman.cli.signatures import description_of, properties_of, required_of, type_name
from dragoman.cli.slash import table as slash
from dragoman.errors import DragomanError
from dragoman.events import ConfigReloaded, PromptsChanged, ResourcesChanged, StateChanged
from dragoman.model import ServerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from dragoman.manager import McpManager
    from dragoman.model import Prompt, Resource, ToolDef

logger = logging.getLogger("dragoman")

LONGEST = 60
"""Characters of a description in the menu."""

Proposal = tuple[str, str]
"""A word, and what it is."""


class Listed:
    """The resources and prompts of the servers, as they were listed last."""

    def __init__(self, mcp: McpManager) -> None:
        self._mcp = mcp
        self.resources: list[Resource] = []
        self.prompts: list[Prompt] = []

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Ask the servers now, and whenever they have something else; until cancelled."""
        events = self._mcp.events()
        await self.refresh()
        async for event in events:
            match event:
                case StateChanged(after=ServerState.READY) | ResourcesChanged() | PromptsChanged():
                    await self.refresh()
                case StateChanged() | ConfigReloaded():
                    pass
                case _:
                    continue
            on_change()

    async def refresh(self) -> None:
        """Ask every connected server."""
        with suppress(DragomanError, TimeoutError):
            self.resources, self.prompts = await asyncio.gather(self._mcp.resources(), self._mcp.prompts())


class SlashCompleter(Completer):
    """Completes lines that begin with a slash."""

    def __init__(self, mcp: McpManager, listed: Listed | None = None) -> None:
        self._mcp = mcp
        self._listed = listed or Listed(mcp)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Propose what can stand where the cursor is."""
        del complete_event
        text = document.text_before_cursor.lstrip()
        if not text.startswith("/") or "\n" in text:
            return
        try:
            typed, proposals = self._proposals(text)
            # What begins with the typed word comes first, then what has it inside.
            ranked = sorted(proposals, key=lambda one: not one[0].startswith(typed))
        except Exception:
            # A schema from anywhere: the line that is being typed must not break over it.
            logger.exception("nothing can be proposed")
            return
        for word, about in ranked:
            if word.startswith(typed) or (
                len(typed) >= 3 and typed.lower() in word.lower() and "=" not in typed
            ):
                yield Completion(
                    word, -len(typed), display=one_line(word), display_meta=cut(one_line(about), LONGEST)
                )

    def _proposals(self, text: str) -> tuple[str, Iterable[Proposal]]:
        """Return the word that is being typed, and what it may become."""
        words = text.split(" ")
        command = next((name for name in (" ".join(words[:2]), words[0]) if name in slash.COMMANDS), "")
        after = words[len(command.split()) :]
        if not command or not after:
            return text, self._commands(text)
        typed, before = after[-1], after[:-1]
        found: Iterable[Proposal] = ()
        match command, before:
            case "/mcp", []:
                return text, self._commands(text)
            case ("/mcp tools" | "/resources" | "/prompts", []):
                found = self._servers()
            case (name, []) if name.startswith("/mcp ") and name != "/mcp reload":
                found = self._servers()
            case "/mcp login", [_]:
                found = [("paste", "on a machine without a browser")]
            case "/call", []:
                found = [(tool.name, tool.title or tool.description) for tool in self._mcp.registry]
            case "/call", [tool, *given]:
                found = self._arguments(tool, given)
            case "/read", []:
                found = [
                    (one.uri, one.title or one.description or one.name) for one in self._listed.resources
                ]
            case "/read", [_]:
                found = self._servers()
            case "/prompt", []:
                found = [(one.name, one.title or one.description) for one in self._listed.prompts]
            case "/prompt", [name, *given]:
                found = self._prompt_arguments(name, given)
            case "/help", []:
                found = [(one.name.removeprefix("/"), one.help) for one in slash.COMMANDS.values()]
            case _:
                pass
        return typed, found

    def _commands(self, text: str) -> Iterable[Proposal]:
        """Propose commands; those of two words once the first is there."""
        deep = " " in text
        for command in slash.COMMANDS.values():
            if (" " in command.name) == deep:
                yield command.name, f"{command.arguments}  {command.help}".strip()

    def _servers(self) -> Iterable[Proposal]:
        for name, status in self._mcp.status().items():
            yield name, f"{status.state.value}, {status.transport}"

    def _arguments(self, name: str, given: list[str]) -> Iterable[Proposal]:
        tool = self._tool(name)
        if tool is None:
            return
        schema = tool.input_schema
        required = required_of(schema)
        taken = {word.partition("=")[0] for word in given}
        for key, field in properties_of(schema).items():
            if key in taken and "list" not in type_name(field, schema):
                continue
            about = description_of(field)
            kind = f"{type_name(field, schema)}{'' if key in required else ', optional'}"
            yield f"{key}=", f"{kind}  {about}".strip()
            for choice in choices_of(field, schema):
                yield f"{key}={choice}", kind

    def _prompt_arguments(self, name: str, given: list[str]) -> Iterable[Proposal]:
        taken = {word.partition("=")[0] for word in given}
        for prompt in self._listed.prompts:
            for argument in prompt.arguments if name == prompt.name else ():
                if (key := str(argument.get("name", ""))) not in taken:
                    yield f"{key}=", str(argument.get("description") or "")

    def _tool(self, name: str) -> ToolDef | None:
        found = self._mcp.registry.get(name)
        if found is not None:
            return found
        return next((tool for tool in self._mcp.registry if tool.original_name == name), None)
