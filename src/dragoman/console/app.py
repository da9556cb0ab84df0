"""The console over HTTP, as an ASGI application: static pages, JSON endpoints, and a stream of events.

Every request is checked before anything else: its host and origin as in the gateway, then the session (a
cookie and a key), then whether the path may be used in this way by this visitor. What changes something is a
POST with JSON, and is refused with `read_only`. docs/console.md has the endpoints.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import parse_qs, unquote

from starlette.responses import RedirectResponse, Response, StreamingResponse

from dragoman.console.actions import Actions
from dragoman.console.desk import Desk, json_text
from dragoman.console.sessions import Sessions
from dragoman.console.tool_call import Call, read_arguments, stream_call
from dragoman.errors import DragomanError, UnknownServerError, UnknownToolError
from dragoman.gateway.auth import MAX_TOKEN_CHARS, Refused
from dragoman.gateway.http import GatewayRequest, RefusedError
from dragoman.struct import Struct
from dragoman.trust.addresses import split_url
from dragoman.trust.masking import mask_text
from dragoman.trust.sanitizing import for_remote
from dragoman.version import VERSION
from dragoman.visible import shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from contextlib import AbstractAsyncContextManager

    from starlette.types import Receive, Scope, Send

    from dragoman.console.sessions import Session
    from dragoman.gateway.app import Entered, Guard
    from dragoman.manager.manager import McpManager

MAX_BODY_BYTES = 1024 * 1024
COOKIE = "dragoman-console"
"""With the port, since a browser keeps the cookies of all ports of a host together."""
KEY_HEADER = "x-console-key"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), clipboard-write=(self)",
    "Cache-Control": "no-store",
}


class Entrance(Protocol):
    """Lets the clients of a gateway in by their tokens."""

    def enter(self, token: str) -> AbstractAsyncContextManager[Entered]:
        """Check a token; give who it stands for, and their manager, while a request is in progress.

        Raises:
            Refused: The token is not valid.
        """
        ...


class Visit(Struct, kw_only=True):
    """A request of a visitor who was let in."""

    session: Session
    desk: Desk
    actions: Actions
    claims: Mapping[str, Any] | None = None
    """What the token of the visitor says about them."""


class ConsoleApp:
    """The ASGI application."""

    def __init__(
        self,
        mcp: McpManager,
        guard: Guard,
        *,
        entrance: Entrance | None = None,
        prefix: str = "",
        read_only: bool = False,
    ) -> None:
        """Show a manager.

        Args:
            mcp: The manager of the program, for its operator.
            guard: Checks hosts and origins.
            entrance: Lets clients of the gateway in; `None` lets in the operator alone.
            prefix: Where the console is, such as `/console`.
            read_only: Whether it changes nothing and calls no tool.
        """
        self._mcp = mcp
        self._guard = guard
        self._entrance = entrance
        self._prefix = prefix
        self._read_only = read_only
        self.sessions = Sessions()
        self._desks: dict[tuple[int, bool], tuple[Desk, Actions]] = {}
        """By the identity of the manager and whether the visitor is the operator."""
        self._files = _static_files()

    def link(self, origin: str) -> str:
        """Return an address that lets one person in as the operator, once.

        The token is in the fragment, which no browser sends: it is in no log and no `Referer`.
        """
        return f"{origin}{self._prefix}/#token={self.sessions.new_link()}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the life of an application that is not part of a gateway."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            response = await self.answer(GatewayRequest(scope, receive, send))
            await response(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def drain(self, _seconds: float) -> None:
        """End every stream: there is nothing to wait for."""
        await self.close()

    async def close(self) -> None:
        """End every stream."""
        desks, self._desks = self._desks, {}
        for desk, _ in desks.values():
            await desk.close()

    async def answer(self, http: GatewayRequest) -> Response:
        """Answer a request, whatever is wrong with it."""
        try:
            response = await self._answer(http)
        except Refused as exc:
            response = _json({"error": exc.reason}, exc.status)
        except RefusedError as exc:
            response = _json({"error": "the request cannot be read"}, exc.status)
        except (UnknownServerError, UnknownToolError) as exc:
            response = _json(self._error(exc), 404)
        except DragomanError as exc:
            response = _json(self._error(exc), 409)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    def _error(self, error: DragomanError) -> dict[str, Any]:
        text = mask_text(" ".join(str(error).split()))
        return {"error": shown(text) if self._entrance is None else for_remote(text), "code": error.code}

    async def _answer(self, http: GatewayRequest) -> Response:
        self._guard.check_address(http.headers)
        _check_same_origin(http.headers)
        if http.path == self._prefix and self._prefix:
            return RedirectResponse(f"{self._prefix}/", 308)
        path = http.path.removeprefix(self._prefix)
        if not path.startswith("/api/"):
            return self._static(path, http)
        words = self._words(http.scope)
        if words == ["session"] and http.method == "POST":
            return await self._log_in(http)
        cookie = _cookie_of(http)
        session = self.sessions.find(cookie, http.headers.get(KEY_HEADER, ""))
        if words == ["session"] and http.method == "DELETE":
            self.sessions.close(session)
            for desk, _ in self._desks.values():
                desk.feed.wake()
            response = _json({"ended": True})
            response.delete_cookie(
                _cookie_name(http.scope), path=f"{self._prefix}/", httponly=True, samesite="strict"
            )
            return response
        if http.method not in ("GET", "POST"):
            raise Refused(405, "only GET and POST")
        if http.method == "POST" and self._read_only:
            raise Refused(403, "the console is read-only")
        if words == ["events"] and http.method == "GET":
            async with self._enter(session):
                pass  # Who is not let in any more gets an answer, not a broken stream.
            stream = self._events(session, http.headers.get("last-event-id", "")[:64])
            return StreamingResponse(
                stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
            )
        async with self._enter(session) as visit:
            if http.method == "GET":
                return await self._read(words, visit, query=_query(http.scope))
            if words == ["calls"]:
                return await self._call(http, visit)
            return _json(await self._act(words, visit, body=await _body(http)))

    def _words(self, scope: Scope) -> list[str]:
        """Return the parts of the path below `/api/`, from the path as it was sent.

        A name may hold an escaped slash, so each part is unescaped by itself.
        """
        sent = cast("bytes", scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        below = sent.partition("?")[0].removeprefix(scope.get("root_path", "")).removeprefix(self._prefix)
        if not below.startswith("/api/"):
            raise Refused(404, "not found")
        return [unquote(part) for part in below.removeprefix("/api/").split("/")]

    # Who it is

    async def _log_in(self, http: GatewayRequest) -> Response:
        token = (await _body(http)).get("token")
        # What no header can hold is no token.
        if not isinstance(token, str) or not 0 < len(token) <= MAX_TOKEN_CHARS or not token.isprintable():
            raise Refused(401, "no token")
        user, kept = "", None
        if not self.sessions.redeem(token):
            # After the links: whoever guesses must not lock out the person who has one.
            self.sessions.check_tries()
            if self._entrance is None:
                self.sessions.note_wrong()
                raise Refused(401, "this link was used already, or is too old")
            try:
                async with self._entrance.enter(token) as entered:
                    user, kept = entered.user, token
            except Refused:
                self.sessions.note_wrong()
                raise
        cookie, key = self.sessions.open(user, kept)
        response = _json({"key": key})
        response.set_cookie(
            _cookie_name(http.scope),
            cookie,
            path=f"{self._prefix}/",
            httponly=True,
            samesite="strict",
            secure=http.scope.get("scheme") == "https",
        )
        return response

    @asynccontextmanager
    async def _enter(self, session: Session) -> AsyncGenerator[Visit]:
        if session.is_operator:
            yield self._visit(self._mcp, session)
        elif self._entrance is not None:
            # The token is checked with every request: one that was withdrawn is out with the next.
            async with AsyncExitStack() as stack:
                try:
                    entered = await stack.enter_async_context(self._entrance.enter(session.token or ""))
                except Refused as exc:
                    if exc.status not in (401, 403):
                        raise
                    self.sessions.close(session)
                    raise Refused(401, exc.reason) from exc
                yield self._visit(entered.mcp, session).replace(claims=entered.claims)

    async def _is_in(self, session: Session) -> bool:
        """Return whether a visitor would still be let in: the session is open, the token still valid."""
        if not self.sessions.is_open(session):
            return False
        try:
            async with self._enter(session):
                return True
        except Refused:
            return False

    def _visit(self, mcp: McpManager, session: Session) -> Visit:
        place = id(mcp), session.is_operator
        found = self._desks.get(place)
        # A user who comes back has another manager, which may have the same place in memory.
        if found is None or found[0].mcp is not mcp:
            self._desks = {key: one for key, one in self._desks.items() if not one[0].parts.closed}
            desk = Desk(mcp, is_operator=session.is_operator)
            found = self._desks[place] = desk, Actions(desk)
        return Visit(session=session, desk=found[0], actions=found[1])

    # What is asked

    async def _read(self, words: list[str], visit: Visit, *, query: Mapping[str, str]) -> Response:
        desk = visit.desk
        match words:
            case ["session"]:
                return _json(self._about(visit.session))
            case ["fleet"]:
                return _json(await desk.fleet())
            case ["servers", name]:
                return _json(await desk.server(name))
            case ["servers", name, "logs"] if desk.is_operator:
                return _json(desk.logs(name, _number(query.get("lines", "200"))))
            case ["tools"]:
                return _json(desk.tools())
            case ["tools", name]:
                return _json(desk.tool(name))
            case ["calls"]:
                return _json(
                    await desk.calls(
                        server=query.get("server", ""),
                        tool=query.get("tool", ""),
                        text=query.get("text", ""),
                        errors_only=query.get("errors") == "1",
                        before=_place(query.get("before", "")),
                        limit=_number(query.get("limit", "200")),
                    )
                )
            case ["calls", call_id]:
                return _json(await desk.call(call_id))
            case ["trust"] if desk.is_operator:
                return _json(await visit.actions.trust())
            case ["inbox"]:
                return _json(await desk.inbox())
            case ["tasks"]:
                return _json(await desk.tasks())
            case ["users"] if desk.is_operator:
                return _json(desk.users())
            case _:
                raise Refused(404, "not found")

    def _about(self, session: Session) -> dict[str, Any]:
        return {
            "version": VERSION,
            "user": shown(session.user),
            "is_operator": session.is_operator,
            "read_only": self._read_only,
            "gateway": self._entrance is not None,
        }

    async def _act(self, words: list[str], visit: Visit, *, body: Mapping[str, Any]) -> dict[str, Any]:
        desk, actions = visit.desk, visit.actions
        mark = body.get("fingerprint")
        match words:
            case ["servers", name, action] if action in actions.of_server():
                return await actions.of_server()[action](name)
            case ["trust", name, "changes"] if desk.is_operator and isinstance(mark, str):
                return await actions.approve_changes(name, mark)
            case ["trust", name, "entry"] if desk.is_operator and isinstance(mark, str):
                return await actions.approve_entry(name, mark)
            case ["inbox", identifier] if type(body.get("allow")) is bool:
                always = body.get("always")
                if always not in (None, "tool", "arguments", "server"):
                    raise Refused(400, "`always` is `tool`, `arguments`, `server` or null")
                return await actions.answer(identifier, allow=body["allow"], always=always)
            case ["tasks", task, "cancel"]:
                return await actions.cancel_task(task)
            case _:
                raise Refused(404, "not found")

    async def _call(self, http: GatewayRequest, visit: Visit) -> Response:
        tool, arguments, timeout = read_arguments(await _text(http))
        visit.desk.find_tool(tool)

        async def lines() -> AsyncGenerator[bytes]:
            # The call keeps the visitor for as long as it lasts, as the stream of events does.
            async with self._enter(visit.session) as again:
                call = Call(tool=tool, arguments=arguments, timeout=timeout, claims=again.claims)
                async for line in stream_call(again.desk, call):
                    yield line

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def _events(self, session: Session, last: str) -> AsyncGenerator[bytes]:
        async with self._enter(session) as visit:
            async for message in visit.desk.feed.read(last):
                # With each message: a stream lasts longer than what a token was checked for.
                if not await self._is_in(session):
                    return
                yield message

    def _static(self, path: str, http: GatewayRequest) -> Response:
        if http.method not in ("GET", "HEAD"):
            raise Refused(405, "only GET")
        found = self._files.get(path)
        if found is None:
            raise Refused(404, "not found")
        body, kind, mark = found
        headers = {"ETag": mark, "Cache-Control": "no-cache"}
        if http.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)


def _static_files() -> dict[str, tuple[bytes, str, str]]:
    """Return every page by its path: only these paths exist, whatever a request has in its own."""
    found: dict[str, tuple[bytes, str, str]] = {}
    for one in files("dragoman.console").joinpath("static").iterdir():
        kind = mimetypes.guess_type(one.name)[0]
        if one.name.endswith((".js", ".css", ".html", ".svg")) and kind is not None:
            body = one.read_bytes()
            mark = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found["/" if one.name == "index.html" else f"/{one.name}"] = body, kind, mark
    return found


def _check_same_origin(headers: Mapping[str, str]) -> None:
    """Check that a request comes from a page of this very origin, or from no page at all.

    A page on another port of the same machine is another origin, though a browser sends it our cookie.

    Raises:
        Refused: It comes from another page.
    """
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Refused(403, "wrong origin")
    origin = headers.get("origin")
    if origin is None:
        return
    parts = split_url(origin)
    if parts is None or parts.netloc.lower() != headers.get("host", "").lower():
        raise Refused(403, "wrong origin")


def _cookie_name(scope: Scope) -> str:
    server = scope.get("server")
    return f"{COOKIE}-{server[1] if server else 0}"


def _cookie_of(http: GatewayRequest) -> str:
    wanted = _cookie_name(http.scope)
    for part in http.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            return value
    return ""


async def _text(http: GatewayRequest) -> str:
    """Return the body of a request, which has to be JSON.

    Raises:
        Refused: It says that it is something else; a form of another page cannot say that it is JSON.
        RefusedError: It is too large.
    """
    kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "the body must be application/json")
    try:
        return (await http.body(MAX_BODY_BYTES) or b"").decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Refused(400, "the body is not UTF-8") from exc


async def _body(http: GatewayRequest) -> dict[str, Any]:
    try:
        value: object = json.loads(await _text(http) or "{}")
    except (ValueError, RecursionError) as exc:
        raise Refused(400, "the body is not JSON") from exc
    if not isinstance(value, dict):
        raise Refused(400, "the body is not an object")
    return cast("dict[str, Any]", value)


def _json(value: object, status: int = 200) -> Response:
    return Response(json_text(value).encode("utf-8", "replace"), status, media_type="application/json")


def _query(scope: Scope) -> dict[str, str]:
    text = cast("bytes", scope.get("query_string", b"")).decode("latin-1")[:4096]
    try:
        return {name: values[-1] for name, values in parse_qs(text, max_num_fields=20).items()}
    except ValueError as exc:
        raise Refused(400, "the query has too many fields") from exc


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 9 else 0


def _place(text: str) -> tuple[float, int] | None:
    """Read where the page before ended, as `AT,NUMBER`."""
    at, _, number = text.partition(",")
    try:
        return (float(at), _number(number)) if text else None
    except ValueError:
        return None
