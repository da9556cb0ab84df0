"""A tool that runs programs which call the others; each program has an interpreter of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dragoman.agent.code.runner import RUN_CODE, CodeRunner
from dragoman.gateway.questions import ClientExchange
from dragoman.manager.caller import caller_of
from dragoman.manager.forward import definition_of
from dragoman.manager.manager import parts_of
from dragoman.server.in_progress import current_caller
from dragoman.server.protocol.envelope import INVALID_PARAMS, MCPError, text_result
from dragoman.storage.programs import ProgramStore
from dragoman.tools.result.budget import TextBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.manager.manager import McpManager
    from dragoman.model import ToolDef, ToolResult

MOST_AT_ONCE = 4
"""Programs of all clients and endpoints that run at the same time; others wait."""
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
"""The turns of this process: a semaphore belongs to one event loop."""
RESULT_TOKENS = 25_000


class ProgramTool:
    """`run_code` over a set of tools that may change."""

    name = RUN_CODE

    def __init__(self, mcp: McpManager, tools: Callable[[], Sequence[ToolDef]]) -> None:
        """Offer the tool.

        Args:
            mcp: Makes the calls.
            tools: All tools that programs can call.

        Raises:
            AgentError: The extra `code` is not installed.
        """
        self._mcp = mcp
        self._tools = tools
        self._catalog = self._runner()
        """Knows the functions; it never runs a program."""

    async def definition(self) -> dict[str, Any]:
        """Return the definition of the tool."""
        return definition_of(await self._catalog.tool(listed=False, keeps=False))

    async def signatures(self, names: Iterable[str]) -> list[str]:
        """Return how programs call these tools."""
        return [text for name in names if (text := await self._catalog.signature(name))]

    async def run(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a program; return the result of the call.

        Raises:
            MCPError: The program is missing.
        """
        code = arguments.get("code")
        if not isinstance(code, str):
            raise MCPError(code=INVALID_PARAMS, message="`code` must be a Python program")
        # Clients share nothing: no variables stay.
        async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MOST_AT_ONCE)):
            runner = self._runner()
            try:
                result = await runner.run(code)
            finally:
                await runner.close()
        return text_result(result.text, is_error=not result.success)

    def _runner(self) -> CodeRunner:
        runner = CodeRunner(
            self._tools,
            budget=TextBudget(limit=RESULT_TOKENS, unit="tokens"),
            store=ProgramStore(user=self._mcp.user),
            words=parts_of(self._mcp).texts,
        )
        caller = caller_of(self._mcp, while_asking=runner.while_asking)

        async def call(name: str, arguments: Mapping[str, Any] | None = None, **how: Any) -> ToolResult:
            # Without an exchange of its own, a question would go to another client of that server.
            token = current_caller.set(ClientExchange())
            try:
                return await caller(name, arguments, **how)
            finally:
                current_caller.reset(token)

        runner.connect(call)
        return runner
