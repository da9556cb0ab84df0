"""OAuth for one server behind a URL: stores tokens, renews them in time, and asks a person when it has none.

An `Authorizer` outlives the connections of its server. It adds the token to every request and renews it
before it expires (one process at a time; the others load the new token from the store). When the server
refuses a request, it tries in this order: a token that another process has stored, a refresh, the client's
own credentials, a person.

A request waits only seconds for a person. The login goes on in its own task; its address is in the error and
in the status, and the supervisor is called back when it is done. Each server has one login at a time.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shlex
import time
from collections import deque
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from dragoman.errors import AuthRequiredError, ConfigError, ConnectionLostError, DragomanError
from dragoman.model import Auth, Sse, Stdio, Tls
from dragoman.server.late_import import late_import_module
from dragoman.server.oauth.credentials import DpopKey
from dragoman.server.oauth.safe_fetch import (
    Fetcher,
    FetchError,
    ForbiddenTargetError,
    challenge_fields,
    header,
    token_in,
    written_reach,
)
from dragoman.server.oauth.token_store import Login, StoreError, TokenStore, canonical, forget, stores_of
from dragoman.server.transports.http_client import HttpAnswer, HttpRequest, endpoint, is_exposed, tls_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dragoman.model import Handler, LoginUI, Transport
    from dragoman.server.oauth.login_prompt import LoginPrompt
    from dragoman.server.oauth.safe_fetch import Fetched

logger = logging.getLogger("dragoman")

ADDRESS_SECONDS = 8.0
"""How long a request waits for the address that a person has to open: less than a handshake may take."""
LOGIN_WAIT_SECONDS = 6.0
"""How long a request waits for the login itself, if the address was given to a person."""
MAX_LOGINS = 3
LOGIN_WINDOW = 300.0
"""More logins than `MAX_LOGINS` within these seconds: the server rejects every token, so stop."""
CLOSE_SECONDS = 5.0
NO_OAUTH = "it offers no login by OAuth"

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
    """Do nothing: the default of optional callbacks."""


class Authorizer:
    """Logs in to one server; it is the `HttpAuth` of that server's transports."""

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
        headers: Mapping[str, str] | None = None,
        user: str = "",
    ) -> None:
        """Create an authorizer; nothing is sent or read yet.

        Args:
            server: The server's name.
            url: Its address, expanded.
            auth: The `auth` settings of its entry, expanded.
            handler: The application's login handler; it gets the address that a person has to open.
            tls: How certificates of authorization servers are checked.
            folder: Where logins are stored.
            streams: Whether to probe the server with a GET, as the legacy SSE transport needs.
            headers: Those of its entry, expanded; it may refuse a good token without them.
            user: Who logs in, in a program with many users.
        """
        self.server = server
        self._user = user
        self.on_needed: Callable[[AuthRequiredError], None] = _nothing
        """Called when the server cannot be used until a person has logged in."""
        self.on_granted: Callable[[], None] = _nothing
        """Called when a person has logged in."""
        self.on_secrets: Callable[[set[str]], None] = _nothing
        """Called with tokens and keys that must not be shown, before they are used."""
        self.asks_person = True
        """Whether a refused request may start a login; a login that is in progress goes on."""
        self._url = url
        self._auth = auth
        self._handler = handler
        self._store = TokenStore(server, url, folder=folder, keyring=auth.store == "keyring", user=user)
        self._program_store = TokenStore(server, url, folder=folder, keyring=auth.store == "keyring")
        """Where the program's client is kept, which all of its users log in with."""
        self._fetcher = Fetcher(server, hosts=auth.hosts, tls=tls, own=written_reach(url))
        self._streams = streams
        self._headers = headers or {}
        self._exposed = is_exposed(endpoint(url, server))
        self._login: Login | None = None
        self._loaded = False
        self._has_own_header = False
        """Whether the last request had an `Authorization` header from elsewhere: we do not replace it."""
        self._unoffered: str | None = None
        """Why a login by OAuth is not possible, if one was tried: a token may do."""
        self._uses = 0
        """How many requests the current token was sent with."""
        self._by_person = False
        self._nonce = ""
        self._key: DpopKey | None = None
        self._asked_scopes: set[str] = set()
        self._logins: deque[float] = deque(maxlen=MAX_LOGINS)
        self._renewal: asyncio.Task[bool] | None = None
        self._prompt: LoginPrompt | None = None

    def __repr__(self) -> str:
        return f"Authorizer({self.server!r})"

    @property
    def login_url(self) -> str:
        """The address that a person has to open, while a login waits for that."""
        return self._prompt.url if self._prompt is not None else ""

    # Called by the transports

    async def headers(self, request: HttpRequest) -> Mapping[str, str]:
        """Return the headers with the token, renewed if it is about to expire; empty without a login.

        Raises:
            AuthRequiredError: The token has expired, and the client's credentials are refused.
            ConnectionLostError: The token has expired, and the authorization server does not answer.
        """
        self._has_own_header = self._auth.mode != "oauth" and "Authorization" in request.headers
        if self._has_own_header or self._exposed:
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
        """Handle a 401 or 403, and return whether to send the request again.

        Raises:
            AuthRequiredError: A person has to log in, or the configured credentials are refused.
            ConnectionLostError: The authorization server does not answer.
        """
        # A DELETE ends the session, and a GET only listens to a server that answers without a login: neither
        # is worth one.
        method = answer.request.method
        listens = method == "GET" and not self._streams and self._login is None
        if self._has_own_header or method == "DELETE" or listens:
            return False
        if self._exposed:
            if answer.status != HTTPStatus.UNAUTHORIZED:
                return False
            error = self._exposed_error()
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
            return await self._renew(token, answer) or await self._ask_person(answer)
        except AuthRequiredError as exc:
            self.on_needed(exc)
            raise

    def _check_fresh(self, token: str) -> None:
        """Fail if a token from a person's login is refused at its first use: another login would not help."""
        login = self._login
        if self._by_person and login is not None and token == login.access_token and self._uses <= 1:
            msg = f"`{self.server}` does not accept the token of the login that just succeeded"
            hint = "check `auth.scopes` and `auth.resource`, or ask the server's operator"
            raise self._required(msg, hint=hint)

    async def close(self) -> None:
        """Cancel a login in progress, but let a renewal finish: a refresh token can be used only once."""
        prompt, self._prompt = self._prompt, None
        if prompt is not None and prompt.task is not None:
            prompt.task.cancel()
            await asyncio.wait({prompt.task})
        if self._renewal is not None and not self._renewal.done():
            await asyncio.wait({self._renewal}, timeout=CLOSE_SECONDS)
            self._renewal.cancel()

    @property
    def has_login(self) -> bool:
        """Whether requests carry a token."""
        return self._login is not None

    async def login(self, ui: LoginUI) -> None:
        """Log in now, whether the server asks for it or not, and wait until it is done.

        Cancelling this stops the prompt; the login goes on only if a request waits for it too. The
        application's handler is not called if `ui` has an `open_url`.

        Raises:
            AuthRequiredError: The login was refused, or took too long.
            ConnectionLostError: The server or the authorization server did not answer.
        """
        if self._exposed:
            raise self._exposed_error()
        if ui.only_token and ui.token is not None:
            await self._keep_token(await ui.token())
            return
        answer = await self._probe()
        # Only logins that a server causes count against the limit.
        self._logins.clear()
        if self._auth.grant != "authorization_code":
            if not await self._renew("", answer, force=True):
                msg = f"cannot log in to `{self.server}` with the configured credentials"
                raise self._required(msg, hint="check `auth.client_id`, and its secret, key or assertion")
            return
        prompts = await _import_prompts()
        prompt = self._prompt or self._start(prompts, answer, use_handler=ui.open_url is None)
        try:
            await prompt.join(ui)
        finally:
            if prompt.task is not None and prompt.task.cancelling() and self._prompt is prompt:
                self._prompt = None  # the next caller starts a new login
        try:
            self._raise_outcome(prompt)
        except AuthRequiredError as exc:
            if exc.reason != "no_oauth" or ui.token is None:
                raise
            await self._keep_token(await ui.token())

    async def _keep_token(self, given: str) -> None:
        """Keep a token that a person got elsewhere, in place of a login.

        Raises:
            AuthRequiredError: It is not a token, the server rejects it, or it cannot be stored.
            ConnectionLostError: The server did not answer; the token is kept.
        """
        token = given.strip().removeprefix("Bearer ").strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            msg = "a token is one word of ASCII characters"
            raise self._required(msg, hint="copy it again, without what stands around it")
        unchecked = ""
        own = {name: text for name, text in self._headers.items() if name.lower() != "authorization"}
        try:
            _, fetched = await self._fetch({**own, "Authorization": f"Bearer {token}"})
        except ConnectionLostError as exc:
            unchecked = exc.message
        else:
            if fetched.status == HTTPStatus.UNAUTHORIZED:
                hint = "it is wrong or has expired: copy it again, or get a new one"
                raise self._rejected(what="the token", hint=hint)
        login = Login(access_token=token)
        try:
            async with self._store.locked():
                await self._store.save(login)
        except StoreError as exc:
            raise self._required(str(exc), hint="") from None
        self._loaded = True
        self._adopt(login)
        if unchecked:
            msg = f"the token of `{self.server}` is kept, but not checked: {unchecked}"
            raise ConnectionLostError(msg, server=self.server, may_have_run=False)

    async def begin(self) -> str:
        """Begin a login, or join the one in progress, and return the address that a person has to open.

        The login goes on by itself; `complete`, or the page on this machine, ends it.

        Raises:
            AuthRequiredError: The server or its authorization server refuses, or this program logs in itself.
            ConnectionLostError: The server or the authorization server did not answer.
        """
        if self._exposed:
            raise self._exposed_error()
        prompt = self._prompt
        if prompt is None:
            answer = await self._probe()
            # Only logins that a server causes count against the limit.
            self._logins.clear()
            prompts = await _import_prompts()
            prompt = self._prompt or self._start(prompts, answer, use_handler=False)
        prompt.has_request = prompt.blocks_server = True
        assert prompt.task is not None  # noqa: S101 -- it was started
        await asyncio.wait({prompt.task, prompt.shown}, return_when=asyncio.FIRST_COMPLETED)
        if prompt.task.done():
            self._raise_outcome(prompt)
        return prompt.url

    async def complete(self, address: str) -> bool:
        """Take the address that a login ended at, and wait until the login is over.

        Returns:
            False if the address is not of the login that is in progress here.

        Raises:
            AuthRequiredError: The login was refused.
            ConnectionLostError: The authorization server did not answer.
        """
        prompt = self._prompt
        if prompt is None or prompt.task is None or not prompt.accept(address):
            return False
        await asyncio.wait({prompt.task})
        self._raise_outcome(prompt)
        return True

    @property
    def is_asking(self) -> bool:
        """Whether a login waits for a person."""
        return self._prompt is not None

    async def logout(self) -> bool:
        """Forget the login, revoke its token, and return whether there was one."""
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

    async def _program_client(self) -> Login | None:
        """Return the client that the program registered when another user logged in, and nothing else."""
        if not self._user:
            return None
        try:
            known = await self._program_store.load()
        except StoreError:
            return None
        return None if known is None else Login(issuer=known.issuer, client=known.client)

    async def _renew(self, token: str, answer: HttpAnswer | None = None, *, force: bool = False) -> bool:
        """Get a newer token than `token` without a person; concurrent callers share one renewal."""
        if self._renewal is None or self._renewal.done():
            # In its own task: a cancelled request must not lose a refresh token that was just used.
            self._renewal = asyncio.create_task(self._renew_once(token, answer, force=force))
        try:
            return await asyncio.shield(self._renewal)
        except FetchError as exc:
            msg = f"cannot renew the login to `{self.server}`: {exc}"
            raise ConnectionLostError(msg, server=self.server, may_have_run=False) from exc
        except StoreError as exc:
            raise self._required(str(exc), hint="") from exc

    async def _renew_once(self, token: str, answer: HttpAnswer | None, *, force: bool) -> bool:
        current = self._login
        if current is not None and current.is_better_than(token, time.time()) and not force:
            return True
        if current is None and self._auth.grant == "authorization_code" and not self._store.stamp():
            return False
        async with self._store.locked():
            stored = await self._stored()
            if stored is not None and stored.is_better_than(token, time.time()) and not force:
                self._adopt(stored)
                return True
            flow = await _import_flow()
            renewed: Login | None = None
            if stored is not None and stored.refresh_token and not force:
                renewed = await flow.refresh(self._flow_server(flow), stored)
            if renewed is None and self._auth.grant != "authorization_code":
                refusal = answer or HttpAnswer(401, {}, b"", HttpRequest("POST", self._url, {}, b""))
                try:
                    renewed = await flow.obtain(self._flow_server(flow), refusal, stored)
                except flow.LoginError as exc:
                    msg = f"cannot log in to `{self.server}`: {exc}"
                    hint = "check `auth.issuer`, `auth.client_id`, and its secret, key or assertion"
                    raise self._required(msg, hint=hint) from None
            if renewed is not None:
                await self._store.save(renewed)
                self._adopt(renewed)
                return True
            if stored is not None and stored.refresh_token:
                # The refresh token was refused: drop it. Keep the access token if it was not refused itself.
                is_good = answer is None and not stored.is_expired(time.time())
                kept = stored.access_token if is_good else ""
                rest = stored.replace(refresh_token="", access_token=kept)
                await self._store.save(rest)
                self._adopt(rest)
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
                logger.warning("%s: cannot read the key of its login", self.server)
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

    def _flow_server(self, flow: Any) -> Any:
        """Return the `flow.OAuthServer` of this server; the module `flow` is heavy, so it is a parameter."""

        async def save_client(client: Mapping[str, Any], issuer: str) -> None:
            async with self._store.locked():
                known = await self._store.load_issuer(issuer) or Login(issuer=issuer)
                await self._store.save(known.replace(client=client, access_token="", refresh_token=""))
            if self._user:
                async with self._program_store.locked():
                    if await self._program_store.load_issuer(issuer) is None:
                        await self._program_store.save(Login(issuer=issuer, client=client))

        return flow.OAuthServer(
            url=canonical(self._url),
            auth=self._auth,
            fetcher=self._fetcher,
            save_client=save_client,
        )

    # Logins by a person

    async def _step_up(self, answer: HttpAnswer, fields: Mapping[str, str]) -> bool:
        """Ask for more scopes, once for each: a granted scope that is still not enough never will be."""
        wanted = set(fields.get("scope", "").split())
        granted = set((self._login.scope if self._login else "").split())
        if not wanted or wanted <= granted or wanted <= self._asked_scopes:
            return False
        token = token_in(answer.request.headers)
        if self._login is not None and token and token != self._login.access_token:
            return True
        self._asked_scopes |= wanted
        return await self._ask_person(answer)

    async def _ask_person(self, answer: HttpAnswer) -> bool:
        """Have a person log in; return `True` if that is done within the few seconds that a request waits.

        Raises:
            AuthRequiredError: The login goes on after this request, or has failed.
        """
        if not self.asks_person:
            if self._unoffered is not None:
                raise self._no_login_error(self._unoffered, answer)
            raise self._required(url=self.login_url)
        # Import first: the time for it does not count as the server's.
        prompts = await _import_prompts()
        await _import_flow()
        prompt = self._prompt or self._start(prompts, answer)
        prompt.has_request = True
        assert prompt.task is not None  # noqa: S101 -- it was started
        waits: set[asyncio.Future[Any]] = {prompt.task, prompt.shown}
        await asyncio.wait(waits, timeout=ADDRESS_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not prompt.task.done() and prompt.is_announced:
            await asyncio.wait({prompt.task}, timeout=LOGIN_WAIT_SECONDS)
        if prompt.task.done():
            self._raise_outcome(prompt)
            return True
        prompt.blocks_server = prompt.blocks_server or answer.status == HTTPStatus.UNAUTHORIZED
        raise self._required(url=prompt.url)

    def _raise_outcome(self, prompt: LoginPrompt) -> None:
        """Raise the error of a login that is over; a cancelled login is not a cancelled caller."""
        assert prompt.task is not None  # noqa: S101 -- it was started
        if prompt.task.cancelled():
            msg = f"the login to `{self.server}` was cancelled"
            raise self._required(msg)
        prompt.task.result()

    def _start(self, prompts: Any, answer: HttpAnswer, *, use_handler: bool = True) -> LoginPrompt:
        now = time.monotonic()
        if len(self._logins) == MAX_LOGINS and now - self._logins[0] < LOGIN_WINDOW:
            msg = f"`{self.server}` still refuses the token after {MAX_LOGINS} logins"
            raise self._required(msg)
        self._logins.append(now)
        prompt: LoginPrompt = prompts.LoginPrompt(
            self.server, self._store, on_shown=self._on_shown, user=self._user
        )
        if use_handler and (handler := self._handler) is not None:
            whose = {"user": self._user} if self._user else {}
            prompt.handler = lambda url: handler(self.server, {"url": url, **whose})
        prompt.task = asyncio.create_task(self._log_in(prompt, answer), name=f"dragoman login {self.server}")
        prompt.task.add_done_callback(lambda task: self._on_end(prompt, task))
        self._prompt = prompt
        return prompt

    async def _log_in(self, prompt: LoginPrompt, answer: HttpAnswer) -> None:
        flow, prompts = await _import_flow(), await _import_prompts()
        try:
            async with AsyncExitStack() as stack:
                stored = await self._stored() or await self._program_client()
                if not (self._user and self._auth.redirect_uri):  # Else the program itself is that page.
                    prompt.callback = await prompts.open_callback_page(stack, self._auth, stored)
                uri = self._auth.redirect_uri or (prompt.callback.uri if prompt.callback is not None else "")
                login = await flow.obtain(
                    self._flow_server(flow), answer, stored, redirect_uri=uri, prompt=prompt
                )
                async with self._store.locked():
                    await self._store.save(login)
        except prompts.LoggedInElsewhereError:
            login = await self._stored()
        except FetchError as exc:
            msg = f"cannot log in to `{self.server}`: {exc}"
            raise ConnectionLostError(msg, server=self.server, may_have_run=False) from exc
        except flow.NoLoginError as exc:
            self._unoffered = str(exc)
            raise self._no_login_error(self._unoffered, answer) from None
        except (flow.LoginError, ForbiddenTargetError, prompts.CallbackError, StoreError) as exc:
            msg = f"cannot log in to `{self.server}`: {exc}"
            raise self._required(msg, hint="") from None
        except DragomanError:
            raise
        except TimeoutError:
            msg = f"the login to `{self.server}` was not completed within {prompts.LOGIN_SECONDS:.0f} s"
            raise self._required(msg) from None
        except Exception as exc:  # noqa: BLE001 -- a login ends in an error of ours, whatever happened
            # Only the type is shown: the text may quote the answer of a token endpoint.
            logger.error("%s: unexpected error in a login (%s)", self.server, type(exc).__name__)
            msg = f"cannot log in to `{self.server}` ({type(exc).__name__})"
            raise self._required(msg, hint="") from None
        self._loaded = True
        self._adopt(login, by_person=True)

    def _on_shown(self, prompt: LoginPrompt) -> None:
        if prompt.blocks_server:
            self.on_needed(self._required(url=prompt.url))

    def _on_end(self, prompt: LoginPrompt, task: asyncio.Task[None]) -> None:
        if self._prompt is prompt:
            self._prompt = None
        prompt.close()
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            if prompt.blocks_server:
                self.on_granted()
        elif isinstance(error, AuthRequiredError) and prompt.blocks_server:
            self.on_needed(error)

    async def _probe(self) -> HttpAnswer:
        """Send a request without a token, to get the server's challenge."""
        request, fetched = await self._fetch({})
        refused = fetched.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        return HttpAnswer(HTTPStatus.UNAUTHORIZED, fetched.headers if refused else {}, b"", request)

    async def _fetch(self, headers: Mapping[str, str]) -> tuple[HttpRequest, Fetched]:
        """Send the first request of a session, with more headers."""
        if self._streams:
            request = HttpRequest("GET", self._url, {**headers, **_STREAM_HEADERS}, b"")
        else:
            request = HttpRequest("POST", self._url, {**headers, **_PROBE_HEADERS}, _PROBE)
        method, url, headers, body = request
        try:
            fetched = await self._fetcher.fetch(
                method, url, headers=headers, body=body, configured=True, reads=False
            )
        except FetchError as exc:
            msg = f"cannot reach `{self.server}`: {exc}"
            raise ConnectionLostError(msg, server=self.server, may_have_run=False) from exc
        self._fetcher.learn(fetched.peer)
        return request, fetched

    def _exposed_error(self) -> AuthRequiredError:
        msg = f"`{self.server}` requires login, but its address is plain http: others could read the token"
        hint = "use an https address; `allow_http` is only for headers of the entry"
        return self._required(msg, hint=hint)

    def _rejected(self, *, what: str, hint: str) -> AuthRequiredError:
        error = self._required(f"`{self.server}` rejects {what} (HTTP 401)", hint=hint)
        error.reason = "saved_token"
        return error

    def _no_login_error(self, why: str, answer: HttpAnswer) -> AuthRequiredError:
        msg = f"cannot log in to `{self.server}`: {why}"
        hint = f"run `dragoman login {shlex.quote(self.server)} --with-token`, which asks for a token"
        if not why.startswith(NO_OAUTH):
            hint += "; or set `auth.client_id` of a client that the server knows"
        if answer.status == HTTPStatus.UNAUTHORIZED and token_in(answer.request.headers):
            return self._rejected(what="its saved token", hint=hint)
        error = self._required(msg, hint=hint)
        error.reason = "no_oauth"
        return error

    def _required(self, msg: str = "", *, url: str = "", hint: str | None = None) -> AuthRequiredError:
        if hint is None:
            address = ", or open the address in `url`" if url else ""
            hint = f"run `dragoman login {shlex.quote(self.server)}`{address}"
        msg = msg or f"`{self.server}` requires login"
        if self._user and hint.startswith("run "):
            hint = (
                "show the user the address in `url`" if url else "log the user in: `await user.auth.login(…)`"
            )
        return AuthRequiredError(msg, server=self.server, url=url, hint=hint)


async def _import_flow() -> Any:
    """Import the SDK's OAuth provider in a thread: it takes up to a second."""
    return await late_import_module("dragoman.server.oauth.flow")


async def _import_prompts() -> Any:
    """Import the login prompt in a thread: only a person's login needs aiohttp's server."""
    return await late_import_module("dragoman.server.oauth.login_prompt")


def authorizer_for(
    server: str,
    transport: Transport,
    auth: Auth | None,
    *,
    handler: Handler | None = None,
    tls: ssl.SSLContext | bool = True,
    folder: Path | None = None,
    user: str = "",
) -> Authorizer | None:
    """Return the authorizer of a server, or `None` if the server does not use OAuth.

    Args:
        server: The server's name.
        transport: Its transport, expanded.
        auth: The `auth` settings of its entry, expanded.
        handler: The application's login handler; it gets the address that a person has to open.
        tls: How certificates of authorization servers are checked.
        folder: Where logins are stored.
        user: Who logs in, in a program with many users.

    Raises:
        ConnectError: The address cannot be used.
    """
    auth = auth or Auth()
    if isinstance(transport, Stdio) or auth.mode == "none":
        return None
    address = endpoint(transport.url, server)
    given = any(name.lower() == "authorization" for name in transport.headers)
    if auth.mode != "oauth" and (given or address.user):
        return None
    streams = isinstance(transport, Sse)
    return Authorizer(
        server,
        transport.url,
        auth,
        handler=handler,
        tls=tls,
        folder=folder,
        streams=streams,
        headers=transport.headers,
        user=user,
    )


async def open_authorizer(
    server: str, transport: Transport, auth: Auth | None, *, handler: Handler | None = None, user: str = ""
) -> Authorizer | None:
    """Return `authorizer_for` the server, with the CA certificate of its transport.

    Raises:
        ConnectError: The address cannot be used, or the CA certificate cannot be read.
    """
    own = None if isinstance(transport, Stdio) else transport.tls
    if own is None or own.ca is None:
        return authorizer_for(server, transport, auth, handler=handler, user=user)
    # Only `ca` is taken over: client certificates and `verify = false` are meant for the server itself.
    tls = await asyncio.to_thread(tls_context, Tls(ca=own.ca), server)
    return authorizer_for(server, transport, auth, handler=handler, tls=tls, user=user)


def no_oauth_error(server: str, transport: Transport, auth: Auth | None) -> ConfigError:
    """Return the error for a login to a server that does not use OAuth."""
    name = shlex.quote(server)
    if isinstance(transport, Stdio):
        hint = "it is a local command"
    elif auth is not None and auth.mode == "none":
        hint = f'it has `auth = "none"`: `dragoman unset {name} auth`'
    elif any(header.lower() == "authorization" for header in transport.headers):
        hint = f"its `Authorization` header is its login; if that fails: `dragoman doctor {name}`"
    else:
        hint = "its URL has a user and a password"
    return ConfigError(f"`{server}` does not use OAuth", hint=hint)


async def login(server: str, transport: Transport, auth: Auth | None, ui: LoginUI) -> None:
    """Log in to a server without a manager, as `dragoman login` does.

    Raises:
        ConfigError: The server does not use OAuth.
        AuthRequiredError: The login was refused, or took too long.
    """
    authorizer = await open_authorizer(server, transport, auth)
    if authorizer is None:
        raise no_oauth_error(server, transport, auth)
    try:
        await authorizer.login(ui)
    finally:
        await authorizer.close()


async def logout(server: str, *, folder: Path | None = None) -> bool:
    """Forget every login under a server's name, whatever its address, and return whether there was one."""
    found = stores_of(server, folder=folder)
    return any([await forget(store, Fetcher(server)) for store in found])
