"""Questions: what servers ask goes to the client whose request caused it, and the answer goes back.

A modern server asks inside the request that it answers, and so does an older one over HTTP: the task that
handles the question knows the request. An older server over stdio asks at any time and does not name the
request: the question goes to the only client that has one in progress there. It is refused if there are
several, or if one has just gone without its answer. The same holds for log messages.
"""

from __future__ import annotations

import inspect
import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from dragoman.model import Handlers, json_object
from dragoman.server.in_progress import SeveralClientsError, current_caller
from dragoman.server.protocol.envelope import INVALID_REQUEST, MCPError
from dragoman.server.protocol.rounds import ELICIT, ROOTS, SAMPLE
from dragoman.tools.export.neutral import neutral_schema
from dragoman.trust.masking import mask_arguments
from dragoman.trust.sanitizing import for_log, for_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.manager.forward import Forward
    from dragoman.model import ApprovalHandler, CallRequest, Handler

logger = logging.getLogger("dragoman")

COMPLETE = "notifications/elicitation/complete"
MAX_OPENED = 1_000
"""How many addresses that clients were asked to open are remembered."""
SHOWN_CHARS = 2_000
"""How much of a call's arguments a person is shown."""
SERVER = "dragoman/server"
"""The key in the `_meta` of a question that names the server which asks."""


def approval_form(request: CallRequest) -> dict[str, Any]:
    """Return the parameters of an elicitation that asks whether a call may be made."""
    what = {"tool": "call the tool", "prompt": "use the prompt", "resource": "read"}.get(request.kind, "use")
    # The server has chosen the name: it stays on one line and between its marks.
    name = for_log(request.shown_name or request.original_name).replace("`", "'")
    # What the configuration keeps from this client is not shown to the person at it either.
    arguments = request.arguments if request.shown_arguments is None else request.shown_arguments
    lines = [f"May this client {what} `{name}` of the server `{request.server}`?"]
    if arguments:
        text = json.dumps(mask_arguments(dict(arguments)), ensure_ascii=False, default=repr)
        rest = f" … ({len(text):,} characters)" if len(text) > SHOWN_CHARS else ""
        lines.append(f"Arguments: {text[:SHOWN_CHARS]}{rest}")
    if request.rule:
        lines.append(f"Asked because of the rule: {request.rule}")
    if request.reason:
        lines.append(request.reason)
    allow = {"type": "boolean", "title": "Allow", "default": False}
    return {
        "mode": "form",
        "message": for_model("\n".join(lines)),
        "requestedSchema": {"type": "object", "properties": {"allow": allow}, "required": ["allow"]},
    }


def says_yes(answer: object) -> bool:
    """Return whether the answer to an approval form is a clear yes."""
    given = json_object(answer)
    return given.get("action") == "accept" and json_object(given.get("content")).get("allow") is True


def framed(method: str, params: Mapping[str, Any], server: str) -> Mapping[str, Any]:
    """Return the parameters of a server's question with the server's name outside of the server's own words.

    A server could copy the words of dragoman's own question: its lines are quoted, and ours are not.
    """
    named = {**json_object(params.get("_meta")), SERVER: server}
    if method != ELICIT:
        return {**params, "_meta": named}
    lines = for_model(str(params.get("message", ""))).splitlines() or [""]
    said = f"The server `{for_model(server)}` asks:" + "".join(f"\n> {line}" for line in lines)
    shown = {**params, "message": said, "_meta": named}
    if "requestedSchema" in params:
        shown["requestedSchema"] = neutral_schema(params["requestedSchema"])
    return shown


def _without_hidden(value: Any) -> Any:
    """Return data of a server without hidden text, in keys and values."""
    if isinstance(value, str):
        return for_model(value)
    if isinstance(value, list):
        return [_without_hidden(one) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return {for_model(key): _without_hidden(one) for key, one in table.items()}
    return value


class ClientExchange:
    """One request of a client in progress: as it is here, that of a program, which cannot be asked."""

    def __init__(self, client: object = None) -> None:
        # Not the request itself: whose it was is remembered for longer than what it said.
        self.client: object = client or object()
        """Equal for requests of the same client; by default the request is one of its own."""

    @property
    def name(self) -> str:
        """What the client calls itself."""
        return ""

    @property
    def principal(self) -> str:
        """Whom its token stands for."""
        return ""

    async def ask(self, method: str, params: Mapping[str, Any], server: str) -> Mapping[str, Any]:  # noqa: ARG002 -- of those who can ask
        """Ask the client what a server asks, and return its answer.

        Raises:
            MCPError: The client cannot be asked, or answered with an error.
        """
        msg = f"a program cannot answer {method}: call the tool itself"
        raise MCPError(code=INVALID_REQUEST, message=msg)

    async def approve(self, call: CallRequest) -> bool | None:  # noqa: ARG002 -- as above
        """Ask the person at the client whether a call may be made; only a clear yes is true.

        `None` says that the client cannot be asked.
        """
        return None

    def log(self, params: Mapping[str, Any]) -> None:
        """Send a log message to the client, if it wants it."""

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, if the client's protocol has it outside of requests."""


class Questions:
    """Finds the client that a server's question is for. Make the manager with `handlers()`."""

    def __init__(self) -> None:
        self._forward: Forward | None = None
        self._opened: dict[tuple[str, str], ClientExchange] = {}
        """Who was asked to open an address, by server and the id of the question."""
        self._listeners: set[Callable[[str, Mapping[str, Any]], None]] = set()

    def handlers(self, given: Handlers | None = None) -> Handlers:
        """Return handlers for the manager: they ask the clients, and the given ones if no client is meant."""
        given = given or Handlers()
        return given.replace(
            elicitation=self._handler(ELICIT, given.elicitation),
            sampling=self._handler(SAMPLE, given.sampling),
            list_roots=self._handler(ROOTS, given.list_roots),
            elicitation_complete=self._complete,
            logging=self._log(given.logging),
            approval=self._approval(given.approval),
        )

    def connect(self, forward: Forward) -> None:
        """Use the servers of a manager, which know whose requests are in progress."""
        self._forward = forward

    def listen(self, listener: Callable[[str, Mapping[str, Any]], None]) -> Callable[[], None]:
        """Call a listener with log messages that come outside requests; return what ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def _handler(self, method: str, given: Handler | None) -> Handler:
        async def ask(server: str, params: dict[str, Any]) -> Any:
            try:
                exchange = self._asked(server)
            except SeveralClientsError:
                logger.warning("%s: refused its question: several clients have requests there", server)
                msg = (
                    f"`{server}` asks without saying for whom, and several clients have requests there, "
                    "or one has gone without its answer"
                )
                raise MCPError(code=INVALID_REQUEST, message=msg) from None
            if exchange is not None:
                self._remember(server, params, exchange)
                return await exchange.ask(method, params, server)
            if given is None:
                msg = f"`{server}` asks for {method}, but no client has a request in progress there"
                raise MCPError(code=INVALID_REQUEST, message=msg)
            outcome = given(server, params)
            return await outcome if inspect.isawaitable(outcome) else outcome

        return ask

    def _remember(self, server: str, params: Mapping[str, Any], exchange: ClientExchange) -> None:
        if isinstance(key := params.get("elicitationId"), str):
            self._opened[server, key] = exchange
            if len(self._opened) > MAX_OPENED:
                del self._opened[next(iter(self._opened))]

    def _complete(self, server: str, params: dict[str, Any]) -> None:
        """Tell the client that was asked to open an address that this is done."""
        exchange = self._opened.pop((server, str(params.get("elicitationId"))), None)
        if exchange is not None:
            exchange.tell(COMPLETE, params)

    def _approval(self, given: ApprovalHandler | None) -> ApprovalHandler:
        async def approve(request: CallRequest) -> bool | None:
            exchange = current_caller.get()
            if exchange is not None:
                return await cast("ClientExchange", exchange).approve(request)
            answer = given(request) if given is not None else None
            return await answer if inspect.isawaitable(answer) else answer

        return approve

    def _log(self, given: Handler | None) -> Handler:
        async def log(server: str, params: dict[str, Any]) -> None:
            # It may quote what one client has sent: where it is not clear whose it is, no client gets it.
            with suppress(SeveralClientsError):
                exchange = self._asked(server)
                shown = _without_hidden(params)
                if exchange is not None:
                    exchange.log(shown)
                else:
                    for listener in list(self._listeners):
                        listener(server, shown)
            if given is not None and inspect.isawaitable(outcome := given(server, params)):
                await outcome

        return log

    def _asked(self, server: str) -> ClientExchange | None:
        """Return the request that a question or a log message is about; `None` if no client is meant.

        Raises:
            SeveralClientsError: It may be about requests of several clients.
        """
        asking = current_caller.get()
        if asking is None and self._forward is not None:
            asking = self._forward.sole_caller(server)
        return cast("ClientExchange | None", asking)
