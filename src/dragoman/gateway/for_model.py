"""ForModel: what `serve --for-model` adds for clients that hand answers to a model.

Every answer has its sources, as in dragoman's own agent; a long one is cut, and `read_result` reads the rest.
What happened to servers since the client's last call is told with its next result. `mcp_status` says which
servers are there, and why one is not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dragoman.agent.notices import Notices, lost_servers
from dragoman.errors import ToolExecutionError
from dragoman.gateway.status import status_rows
from dragoman.manager.forward import definition_of
from dragoman.manager.manager import parts_of
from dragoman.manager.resources import result_tool
from dragoman.model import ToolDef
from dragoman.server.protocol.envelope import text_result
from dragoman.server.protocol.rounds import wants_input
from dragoman.storage.results import ResultStore, default_folder
from dragoman.tools.registry import run_builtin
from dragoman.tools.result.budget import TextBudget
from dragoman.trust.sanitizing import for_remote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.events import Event
    from dragoman.gateway.request import ClientRequest
    from dragoman.manager.manager import McpManager

RESULT_TOKENS = 25_000
"""How long a text of a result may be."""
STATUS = ToolDef(
    name="mcp_status",
    description="Say which servers are available, and why one is not.",
    input_schema={"type": "object", "properties": {}},
    annotations={"readOnlyHint": True},
    source="builtin",
)
MAX_NOTICES = 100
"""How many notices are kept for clients that have not called since."""
MAX_CLIENTS = 1_000
"""How many clients are remembered; one that is not is told which servers are down now."""


class ForModel:
    """The additions for one gateway."""

    def __init__(self, mcp: McpManager) -> None:
        self._mcp = mcp
        # Apart from what the agents of this machine keep: its clients may be on another one.
        store = ResultStore(default_folder(mcp.user) / "gateway")
        self._reader = result_tool(store)
        budget = TextBudget(limit=RESULT_TOKENS, unit="tokens")
        self.forward = parts_of(mcp).forward.for_model(budget=budget, spill=store)
        self._notices = Notices(parts_of(mcp).texts)
        self._said: list[str] = []
        """The latest notices."""
        self._first = 0
        """How many notices there were before those."""
        self._told: dict[object, int] = {}
        """How many notices each client has seen; the client that was told last comes last."""

    def definitions(self) -> list[dict[str, Any]]:
        """Return the definitions of the tools that are added."""
        return [definition_of(STATUS), definition_of(self._reader)]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of a tool that is added; `None` if it is none of them."""
        if name == STATUS.name:
            states = status_rows(self._mcp)
            text = json.dumps(states, ensure_ascii=False)
            return {**text_result(text), "structuredContent": {"servers": states}}
        if name != self._reader.name:
            return None
        try:
            return text_result(await run_builtin(self._reader, arguments))
        except ToolExecutionError as exc:
            return text_result(str(exc), is_error=True)

    def note(self, event: Event) -> None:
        """Remember what an event means for the clients."""
        self._said += self._notices.read([event])
        if len(self._said) > MAX_NOTICES:
            self._first += len(self._said) - MAX_NOTICES
            del self._said[:-MAX_NOTICES]

    def with_notices(self, request: ClientRequest, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a result with what happened to servers since the client's last one."""
        if wants_input(answer) or not isinstance(answer.get("content"), list):
            return answer
        # A modern client has no session: programs of one name and principal are told once.
        client = request.peer or (request.principal, request.client_name)
        known = self._told.pop(client, None)
        while len(self._told) >= MAX_CLIENTS:
            del self._told[next(iter(self._told))]
        self._told[client] = self._first + len(self._said)
        # A client that comes while a server is down has to know that too.
        if known is None:
            said = lost_servers(self._mcp.status(), parts_of(self._mcp).texts)
        else:
            said = self._said[max(0, known - self._first) :]
        if not said:
            return answer
        blocks = [{"type": "text", "text": f"[notice] {for_remote(text)}"} for text in said]
        return {**answer, "content": [*answer["content"], *blocks]}
