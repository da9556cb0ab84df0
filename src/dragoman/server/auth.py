"""OAuth for one server behind a URL: tokens that are kept, renewed in time, and asked for when there is none.

An `Authorizer` outlives the connections of its server. It gives every request its token, renews it before it
expires (one process at a time; the others pick the new one up), and answers a refusal: by what another
process has got meanwhile, by a refresh, by the program's own credentials, and only then by a person. A
person's login is never waited for inside a request for long: it goes on beside it, its address is in the
error and in the status, and whoever supervises the server is told when it is done. A server has one login at
a time, and of all servers one is shown to the application's handler, which alone opens a browser.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from dragoman.errors import AuthRequiredError, ConnectionLostError, DragomanError
from dragoman.server.auth_callback import CallbackError
from dragoman.server.auth_challenge import challenge_fields, header, token_in
from dragoman.server.auth_dpop import DpopKey
from dragoman.server.auth_fetch import Fetcher, FetchError, ForbiddenTargetError, written_reach
from dragoman.server.auth_revoke import forget
from dragoman.server.auth_store import Login, StoreError, TokenStore, canonical
from dragoman.server.auth_visit import LOGIN_SECONDS, ElsewhereError, Visit, listen
from dragoman.server.http_client import HttpAnswer, HttpRequest
from dragoman.server.http_route import endpoint, is_exposed
from dragoman.server.late import late_import_module

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from dragoman.model import Auth, Handler

logger = logging.getLogger("dragoman")

ASK_SECONDS = 8.0
"""How long a request waits for the address that a person has to open: less than a handshake may take."""
PATIENCE = 6.0
"""How long a request waits for the login itself, if there is somebody who was told to do it."""
MAX_LOGINS = 3
LOGINS_WITHIN = 300.0
"""So many logins within so many seconds, and the server is taken for one that is never content."""
CLOSE_SECONDS = 5.0

_PROBE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"dragoman","version":"0"}}}'
)
_PROBE_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2025-11-25",
}
_STREAM_HEADERS = {"Accept": "text/event-stream"}


def _nothing(*_: object) -> None:
    """Stand in for a listener until there is one."""


class Authorizer:
    """Logs in to one server; an `HttpAuth` for its wires."""

    def __init__(
        self,
        server: str,
        url: str,
        auth: Auth,
        *,
        handler: Handler | None = None,
        tls: ssl.SSLContext | bool = True,
        folder: Path | None = None,
        streams: bool = False,
    ) -> None:
        """Prepare for a server; nothing is sent or read yet.

        Args:
            server: Its name.
            url: Its address, expanded.
            auth: How it wants to be logged in to, expanded.
            handler: The application's, told of the address that a person has to open.
            tls: Whom authorization servers have to be.
            folder: Where logins are kept.
            streams: Whether it is asked by a GET, as servers of the legacy transport are.
        """
        self.server = server
        self.on_needed: Callable[[AuthRequiredError], None] = _nothing
        """Told that the server is of no use until a person has logged in."""
        self.on_granted: Callable[[], None] = _nothing
        """Told that a person has logged in."""
        self.on_secrets: Callable[[set[str]], None] = _nothing
        """Told what nobody may see, before it is used."""
        self._url = url
        self._auth = auth
        self._handler = handler
        self._store = TokenStore(server, url, folder=folder, keyring=auth.store == "keyring")
        self._fetcher = Fetcher(server, hosts=auth.hosts, tls=tls, own=written_reach(url))
        self._streams = streams
        self._exposed = is_exposed(endpoint(url, server))
        self._login: Login | None = None
        self._loaded = False
        self._foreign = False
        self._uses = 0
        self._by_person = False
        self._nonce = ""
        self._key: DpopKey | None = None
        self._asked_scopes: set[str] = set()
        self._logins: deque[float] = deque(maxlen=MAX_LOGINS)
        self._renewal: asyncio.Task[bool] | None = None
        self._visit: Visit | None = None

    def __repr__(self) -> str:
        return f"Authorizer({self.server!r})"

    @property
    def login_url(self) -> str:
        """The address that a person has to open, while one has to."""
        return self._visit.url if self._visit is not None else ""

    # What the wires ask for

    async def headers(self, request: HttpRequest) -> Mapping[str, str]:
        """Return what proves who we are, renewed in time; nothing if there is nothing yet.

        Raises:
            ConnectionLostError: The token has expired, and the authorization server does not answer.
        """
        self._foreign = self._auth.mode != "oauth" and "Authorization" in request.headers
        if self._foreign or self._exposed:
            return {}
        login = await self._current()
        if login is None or not login.access_token:
            return {}
        if login.is_stale(time.time()):
            try:
                await self._renew(login.access_token)
            except ConnectionLostError:
                if login.is_expired(time.time()):
                    raise
            except AuthRequiredError as exc:
                self.on_needed(exc)
                raise
            login = self._login
            if login is None or not login.access_token:
                return {}
        self._uses += 1
        return self._signed(login, request)

    async def on_challenge(self, answer: HttpAnswer) -> bool:
        """Take a refusal in; returns whether trying once more makes sense.

        Raises:
            AuthRequiredError: A person has to log in, or nobody can.
            ConnectionLostError: The authorization server does not answer.
        """
        # A goodbye that is refused is not worth a login.
        if self._foreign or answer.request.method == "DELETE":
            return False
        if self._exposed:
            if answer.status != HTTPStatus.UNAUTHORIZED:
                return False
            error = self._unsafe()
            self.on_needed(error)
            raise error
        self._fetcher.learn(answer.peer)
        fields = challenge_fields(answer)
        token = token_in(answer.request.headers)
        nonce = header(answer.headers, "dpop-nonce")
        if nonce and fields.get("error") == "use_dpop_nonce" and token and nonce != self._nonce:
            self._nonce = nonce
            return True
        if answer.status == HTTPStatus.FORBIDDEN:
            return fields.get("error") == "insufficient_scope" and await self._step_up(answer, fields)
        if answer.status != HTTPStatus.UNAUTHORIZED:
            return False
        try:
            self._check_fresh(token)
            return await self._renew(token, answer) or await self._ask(answer)
        except AuthRequiredError as exc:
            self.on_needed(exc)
            raise

    def _check_fresh(self, token: str) -> None:
        """Stop where a person's login did not help at all: another one would not either."""
        login = self._login
        if self._by_person and login is not None and token == login.access_token and self._uses <= 1:
            msg = f"server `{self.server}` does not accept the token that was just given for it"
            raise self._needed(
                msg, hint="check `auth.scopes` and `auth.resource`, or ask who runs the server"
            )

    async def close(self) -> None:
        """End a login that is under way; a renewal is let finish, since its token counts once."""
        visit, self._visit = self._visit, None
        if visit is not None and visit.task is not None:
            visit.task.cancel()
            await asyncio.wait({visit.task})
        if self._renewal is not None and not self._renewal.done():
            await asyncio.wait({self._renewal}, timeout=CLOSE_SECONDS)
            self._renewal.cancel()

    async def login(
        self,
        *,
        open_url: Callable[[str], Any] | None = None,
        paste: Callable[[], Awaitable[str]] | None = None,
        on_refused: Callable[[str], Any] | None = None,
    ) -> None:
        """Log in, now, whether the server asks for it or not, and wait until it is done.

        Who is cancelled asks nobody any more; the login ends with that, unless a request wants it too.

        Args:
            open_url: Given the address that a person has to open; may be async. The handler is not told then.
            paste: Asks the person for the address that the browser ended at; for machines without a browser.
                What it raises ends the login, and is raised.
            on_refused: Told why what was pasted is of no use, before it is asked for again.

        Raises:
            AuthRequiredError: It was refused, or nobody logged in.
            ConnectionLostError: Somebody did not answer.
        """
        if self._exposed:
            raise self._unsafe()
        answer = await self._probe()
        # Who asks for it knows what they do; only logins that a server causes are counted.
        self._logins.clear()
        if self._auth.grant == "client_credentials":
            if not await self._renew("", answer, force=True):
                msg = f"server `{self.server}` cannot be logged in to with the configured credentials"
                raise self._needed(msg, hint="check `auth.client_id`, and its secret or key")
            return
        visit = self._visit or self._start(answer, told=open_url is None)
        try:
            await visit.accompany(open_url, paste, on_refused)
        finally:
            if visit.task is not None and visit.task.cancelling() and self._visit is visit:
                self._visit = None  # whoever comes next begins anew
        self._finish(visit)

    async def logout(self) -> bool:
        """Forget the login, and tell the authorization server; returns whether there was one."""
        await self.close()
        self._adopt(None)
        return await forget(self._store, self._fetcher)

    # Tokens without a person

    async def _current(self) -> Login | None:
        if not self._loaded:
            self._loaded = True
            self._adopt(await self._stored())
        return self._login

    async def _stored(self) -> Login | None:
        try:
            login = await self._store.load()
        except StoreError as exc:
            logger.warning("%s: %s", self.server, exc)
            return None
        if login is not None:
            self._fetcher.recall(login.reaches)
        return login

    async def _renew(self, token: str, answer: HttpAnswer | None = None, *, force: bool = False) -> bool:
        """Get a better token than that one, without a person; whoever else needs one waits for the same."""
        if self._renewal is None or self._renewal.done():
            # In a task of its own: who is cancelled must not take a half-used refresh token along.
            self._renewal = asyncio.create_task(self._renew_once(token, answer, force=force))
        try:
            return await asyncio.shield(self._renewal)
        except FetchError as exc:
            msg = f"server `{self.server}`: its login cannot be renewed: {exc}"
            raise ConnectionLostError(msg, server=self.server, may_have_run=False) from exc
        except StoreError as exc:
            raise self._needed(str(exc), hint="") from exc

    async def _renew_once(self, token: str, answer: HttpAnswer | None, *, force: bool) -> bool:
        current = self._login
        if current is not None and current.is_better_than(token, time.time()) and not force:
            return True
        if current is None and self._auth.grant != "client_credentials" and not self._store.stamp():
            return False
        async with self._store.locked():
            stored = await self._stored()
            if stored is not None and stored.is_better_than(token, time.time()) and not force:
                self._adopt(stored)
                return True
            flow = await _flow()
            renewed: Login | None = None
            if stored is not None and stored.refresh_token and not force:
                renewed = await flow.refresh(self._job(flow), stored)
            if renewed is None and self._auth.grant == "client_credentials":
                refusal = answer or HttpAnswer(401, {}, b"", HttpRequest("POST", self._url, {}, b""))
                try:
                    renewed = await flow.obtain(self._job(flow), refusal, stored)
                except flow.LoginError as exc:
                    msg = f"server `{self.server}` cannot be logged in to: {exc}"
                    hint = "check `auth.issuer`, `auth.client_id`, and its secret or key"
                    raise self._needed(msg, hint=hint) from None
            if renewed is not None:
                await self._store.save(renewed)
                self._adopt(renewed)
                return True
            if stored is not None and stored.refresh_token:
                # It is used up: nobody tries it again. A token that nobody has refused may still be good.
                lasts = answer is None and not stored.is_expired(time.time())
                kept = stored.access_token if lasts else ""
                spent = replace(stored, refresh_token="", access_token=kept)
                await self._store.save(spent)
                self._adopt(spent)
            return False

    def _adopt(self, login: Login | None, *, by_person: bool = False) -> None:
        self._login = login
        if login is not None:
            self.on_secrets(login.secrets())
        self._uses = 0
        self._by_person = by_person
        self._key = None
        if login is not None and login.scheme == "DPoP":
            try:
                self._key = DpopKey.from_pem(login.key)
            except ValueError:
                logger.warning("%s: the key of its login cannot be read", self.server)
                self._login = None

    def _signed(self, login: Login, request: HttpRequest) -> dict[str, str]:
        headers = {"Authorization": f"{login.scheme} {login.access_token}"}
        if self._key is not None:
            headers["DPoP"] = self._key.proof(
                request.method,
                request.url,
                now=time.time(),
                unique=secrets.token_urlsafe(24),
                token=login.access_token,
                nonce=self._nonce,
            )
        return headers

    def _job(self, flow: Any) -> Any:
        """Return what the flow has to know; its module is heavy, so that its types stay there."""

        async def keep_client(client: Mapping[str, Any], issuer: str) -> None:
            async with self._store.locked():
                known = await self._store.load_issuer(issuer) or Login(issuer=issuer)
                await self._store.save(replace(known, client=client, access_token="", refresh_token=""))

        return flow.Job(
            server=self.server,
            url=canonical(self._url),
            auth=self._auth,
            fetcher=self._fetcher,
            keep_client=keep_client,
        )

    # Tokens through a person

    async def _step_up(self, answer: HttpAnswer, fields: Mapping[str, str]) -> bool:
        """Ask for more rights, once for each; what was granted and is still not enough never will be."""
        wanted = set(fields.get("scope", "").split())
        granted = set((self._login.scope if self._login else "").split())
        if not wanted or wanted <= granted or wanted <= self._asked_scopes:
            return False
        token = token_in(answer.request.headers)
        if self._login is not None and token and token != self._login.access_token:
            return True
        self._asked_scopes |= wanted
        return await self._ask(answer)

    async def _ask(self, answer: HttpAnswer) -> bool:
        """Have a person log in; a request waits for that only a moment, and only if somebody was told."""
        visit = self._visit or self._start(answer)
        visit.wanted = True
        assert visit.task is not None  # noqa: S101 -- it was started
        await _flow()  # what that takes is not the server's time
        waits: set[asyncio.Future[Any]] = {visit.task, visit.shown}
        await asyncio.wait(waits, timeout=ASK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not visit.task.done() and visit.is_attended:
            await asyncio.wait({visit.task}, timeout=PATIENCE)
        if visit.task.done():
            self._finish(visit)
            return True
        visit.blocks = visit.blocks or answer.status == HTTPStatus.UNAUTHORIZED
        msg = f"server `{self.server}` wants a login"
        raise self._needed(msg, url=visit.url)

    def _finish(self, visit: Visit) -> None:
        """Raise what a login that is over has ended with; one that was ended is no cancellation of ours."""
        assert visit.task is not None  # noqa: S101 -- it was started
        if visit.task.cancelled():
            msg = f"the login to server `{self.server}` was ended"
            raise self._needed(msg)
        visit.task.result()

    def _start(self, answer: HttpAnswer, *, told: bool = True) -> Visit:
        now = time.monotonic()
        if len(self._logins) == MAX_LOGINS and now - self._logins[0] < LOGINS_WITHIN:
            msg = f"server `{self.server}` was logged in to {MAX_LOGINS} times, and is still not content"
            raise self._needed(msg)
        self._logins.append(now)
        visit = self._visit = Visit(self.server, self._store)
        if self._handler is not None and told:
            handler = self._handler
            visit.handler = lambda url: handler(self.server, {"url": url})
        visit.on_shown = self._on_shown
        visit.task = asyncio.create_task(self._log_in(visit, answer), name=f"dragoman login {self.server}")
        visit.task.add_done_callback(lambda task: self._on_end(visit, task))
        return visit

    async def _log_in(self, visit: Visit, answer: HttpAnswer) -> None:
        flow = await _flow()
        auth = self._auth
        try:
            async with AsyncExitStack() as stack:
                stored = await self._stored()
                own = auth.redirect_uri
                visit.callback = await listen(stack, auth, stored)
                uri = own or (visit.callback.uri if visit.callback is not None else "")
                login = await flow.obtain(self._job(flow), answer, stored, redirect_uri=uri, ask=visit)
                async with self._store.locked():
                    await self._store.save(login)
        except ElsewhereError:
            login = await self._stored()
        except FetchError as exc:
            msg = f"server `{self.server}`: logging in failed: {exc}"
            raise ConnectionLostError(msg, server=self.server, may_have_run=False) from exc
        except (flow.LoginError, ForbiddenTargetError, CallbackError, StoreError) as exc:
            msg = f"server `{self.server}` cannot be logged in to: {exc}"
            raise self._needed(msg, hint="") from None
        except DragomanError:
            raise
        except TimeoutError:
            msg = f"nobody logged in to server `{self.server}` within {LOGIN_SECONDS:.0f} s"
            raise self._needed(msg) from None
        except Exception as exc:  # noqa: BLE001 -- a login ends in an error of ours, whatever happened
            # Its text may quote what a token endpoint answered.
            logger.error("%s: a login failed in an unforeseen way (%s)", self.server, type(exc).__name__)
            msg = f"server `{self.server}` cannot be logged in to ({type(exc).__name__})"
            raise self._needed(msg, hint="") from None
        self._loaded = True
        self._adopt(login, by_person=True)

    def _on_shown(self, visit: Visit) -> None:
        if visit.blocks:
            self.on_needed(self._needed(f"server `{self.server}` wants a login", url=visit.url))

    def _on_end(self, visit: Visit, task: asyncio.Task[None]) -> None:
        if self._visit is visit:
            self._visit = None
        visit.close()
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            if visit.blocks:
                self.on_granted()
        elif isinstance(error, AuthRequiredError) and visit.blocks:
            self.on_needed(error)

    async def _probe(self) -> HttpAnswer:
        """Knock at the server's door without a token, to hear what it wants."""
        if self._streams:
            request = HttpRequest("GET", self._url, _STREAM_HEADERS, b"")
        else:
            request = HttpRequest("POST", self._url, _PROBE_HEADERS, _PROBE)
        method, url, headers, body = request
        try:
            fetched = await self._fetcher.fetch(
                method, url, headers=headers, body=body, configured=True, reads=False
            )
        except FetchError as exc:
            msg = f"server `{self.server}`: {exc}"
            raise ConnectionLostError(msg, server=self.server, may_have_run=False) from exc
        self._fetcher.learn(fetched.peer)
        refused = fetched.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        return HttpAnswer(HTTPStatus.UNAUTHORIZED, fetched.headers if refused else {}, b"", request)

    def _unsafe(self) -> AuthRequiredError:
        msg = f"server `{self.server}` wants a login, whose token others can read: its address is plain http"
        hint = "use an https address; `allow_http` is for headers of the entry only"
        return self._needed(msg, hint=hint)

    def _needed(self, msg: str, *, url: str = "", hint: str | None = None) -> AuthRequiredError:
        if hint is None:
            hint = f"run `dragoman login {self.server}`{', or open the address in `url`' if url else ''}"
        return AuthRequiredError(msg, server=self.server, url=url, hint=hint)


async def _flow() -> Any:
    """Import the SDK's provider late, and beside the loop: it costs a second where nothing else has."""
    return await late_import_module("dragoman.server.auth_flow")
