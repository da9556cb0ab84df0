"""ClientRequest: one request of a client, and who can be asked about it.

A client of the older protocol has a `ClientConnection`: it says in its handshake what it can be asked, and is
asked while its request goes on. A modern client says it with each request, and is asked by the result of one
round; its answer comes with the next.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any, cast

from dragoman.gateway.questions import ClientExchange, approval_form, framed, says_yes
from dragoman.gateway.states import subject_of
from dragoman.server.protocol.envelope import (
    CLIENT_INFO_META_KEY,
    INVALID_REQUEST,
    LEVELS,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
    MCPError,
    is_modern,
)
from dragoman.server.protocol.rounds import ELICIT, asked_for, lacking
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.gateway.connection import ClientConnection
    from dragoman.model import CallRequest
    from dragoman.server.protocol.rounds import Held

logger = logging.getLogger("dragoman")

SERVER_ERROR = -32000
NOWHERE: Mapping[str, Any] = {}
MAX_NAME_CHARS = 200
"""How much of a client's name is kept."""
APPROVAL = "dragoman_approval"
"""The key of the question whether a call may be made."""


class ClientRequest:
    """One request of a client."""

    __slots__ = ("capabilities", "client", "id", "method", "params", "place", "principal", "put", "version")

    def __init__(
        self,
        message: Mapping[str, Any],
        *,
        version: str,
        capabilities: Mapping[str, Any],
        put: Callable[[Mapping[str, Any]], None],
        principal: str = "",
        client: ClientConnection | None = None,
        place: Mapping[str, Any] | None = None,
    ) -> None:
        """Take a request whose envelope is checked.

        Args:
            message: The request.
            version: The protocol version.
            capabilities: What the client can be asked.
            put: Sends a message to the client before the result, without waiting.
            principal: Who makes it; empty where no one has to say so.
            client: The client, if it stays; otherwise the request is one of its own.
            place: Where the client is, as attributes of a span; where it was first, unless given.
        """
        self.method: str = message["method"]
        self.params: dict[str, Any] = message.get("params") or {}
        self.id: int | str = message["id"]
        self.version = version
        self.capabilities = capabilities
        self.put = put
        self.principal = principal
        self.client = client
        self.place = place or (client.place if client is not None else NOWHERE)

    @property
    def peer(self) -> ClientConnection | None:
        """The client, if it is of the older protocol and can be asked in between."""
        return None if self.is_modern else self.client

    @property
    def client_name(self) -> str:
        """What the client calls itself; anyone may say anything."""
        if self.peer is not None:
            return self.peer.name
        info = self.meta.get(CLIENT_INFO_META_KEY)
        name = cast("dict[str, Any]", info).get("name", "") if isinstance(info, dict) else ""
        return str(name)[:MAX_NAME_CHARS]

    @property
    def is_modern(self) -> bool:
        """Whether the client speaks the stateless protocol."""
        return is_modern(self.version)

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` of the parameters."""
        meta = self.params.get("_meta")
        return cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}

    def lacks(self, method: str) -> bool:
        """Return whether the client has not declared that it can be asked for something."""
        return lacking(self.capabilities, method)

    def extension(self, name: str) -> bool:
        """Return whether the client declares an extension of the protocol."""
        declared: object = self.capabilities.get("extensions")
        return isinstance(declared, dict) and name in declared

    async def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send progress, if the client wants it."""
        token = self.meta.get("progressToken")
        if token is None:
            return
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = for_model(message)
        self.put({"method": "notifications/progress", "params": params})

    def log(self, params: Mapping[str, Any]) -> None:
        """Send a log message, if the client wants its level."""
        wanted = self.meta.get(LOG_LEVEL_META_KEY) if self.is_modern else self.peer.level if self.peer else ""
        if not self.is_modern and not wanted:
            # An older client that has not said which gets all.
            wanted = LEVELS[0]
        if wants_level(str(wanted or ""), params):
            self.put({"method": "notifications/message", "params": dict(params)})


def wants_level(wanted: str, params: Mapping[str, Any]) -> bool:
    """Return whether a log message is at least as urgent as a client wants."""
    level = params.get("level")
    return wanted in LEVELS and level in LEVELS and LEVELS.index(level) >= LEVELS.index(wanted)


class AskedNow(ClientExchange):
    """A request of an older client, which is asked while the request goes on."""

    def __init__(self, request: ClientRequest) -> None:
        super().__init__(request.client)
        self._request = request

    async def ask(self, method: str, params: Mapping[str, Any], server: str) -> Mapping[str, Any]:
        """Ask the client."""
        request = self._request
        if request.peer is None:
            msg = f"the server asks for {method}, but this connection keeps no session"
            hint = "use the newer protocol, or a gateway of one process"
            raise MCPError(code=SERVER_ERROR, message=f"{msg} ({hint})")
        if request.lacks(method):
            raise MCPError(code=METHOD_NOT_FOUND, message=f"the client does not support {method}")
        if params.get("mode") == "url" and "elicitationId" not in params:
            # The newer protocol has dropped it; a client of the older one insists on it.
            params = {**params, "elicitationId": secrets.token_hex(8)}
        return await request.peer.ask(method, framed(method, params, server), request.put)

    @property
    def name(self) -> str:
        """What the client calls itself."""
        return self._request.client_name

    @property
    def principal(self) -> str:
        """Whom its token stands for."""
        return self._request.principal

    async def approve(self, call: CallRequest) -> bool | None:
        """Ask the person at the client by a form; a client that cannot be asked has not approved."""
        request = self._request
        if request.peer is None or request.lacks(ELICIT):
            return None
        try:
            return says_yes(await request.peer.ask(ELICIT, approval_form(call), request.put))
        except MCPError as exc:
            logger.info("%s: `%s` is not approved: %s", call.server, call.original_name, exc)
            return None

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification on the connection."""
        if self._request.peer is not None:
            self._request.peer.announce(method, params)

    def log(self, params: Mapping[str, Any]) -> None:
        """Send a log message, if the connection wants its level."""
        self._request.log(params)


class AskedInRounds(ClientExchange):
    """A request of a modern client, which is asked by the result of its round."""

    def __init__(self, request: ClientRequest, *, approved: Sequence[str] = (), refused: str = "") -> None:
        """Prepare the first or a later round.

        Args:
            request: The request of this round.
            approved: The calls that the person has approved.
            refused: The call that the person has not approved.
        """
        super().__init__(request.client)
        self.request = request
        self._approved = approved
        self._refused = refused
        self.held: Held | None = None
        """The request at an older server, if it can wait for answers."""
        self._wants: CallRequest | None = None

    async def ask(self, method: str, params: Mapping[str, Any], server: str) -> Mapping[str, Any]:
        """Ask the client with the result of this round."""
        if self.held is None or self.request.lacks(method):
            raise MCPError(code=INVALID_REQUEST, message=f"the client does not support {method}")
        return await self.held.ask(method, framed(method, params, server))

    @property
    def name(self) -> str:
        """What the client calls itself."""
        return self.request.client_name

    @property
    def principal(self) -> str:
        """Whom its token stands for."""
        return self.request.principal

    async def approve(self, call: CallRequest) -> bool | None:
        """Return what the person has said.

        Raises:
            CallDeniedError: The person is asked with the result of this round; nothing is sent before that.
        """
        from dragoman.errors import CallDeniedError

        subject = subject_of(call)
        if subject in self._approved:
            return True
        if subject == self._refused:
            return False
        if self.request.lacks(ELICIT):
            return None
        self._wants = call
        msg = f"`{call.tool}` waits for approval"
        raise CallDeniedError(msg, tool=call.tool, server=call.server, rule=call.rule, pending=True)

    def approval_asked(self) -> tuple[str, dict[str, Any]] | None:
        """Return the call that the request was stopped for, and the result that asks for its approval."""
        if self._wants is None:
            return None
        asked = {"method": ELICIT, "params": approval_form(self._wants)}
        return subject_of(self._wants), asked_for({APPROVAL: asked}, state=None)

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Send progress along with the current round."""
        await self.request.report(progress, total, message)

    def log(self, params: Mapping[str, Any]) -> None:
        """Send a log message along with the current round."""
        self.request.log(params)
