"""UserSettings: what `as_user` was given for one user, and what follows from it for each request."""

from __future__ import annotations

import asyncio
import inspect
import os
from typing import TYPE_CHECKING, Any, cast

from dragoman.model import Auth, Handlers, Stdio
from dragoman.struct import Struct, field_names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from dragoman.manager.parts import Given
    from dragoman.model import CallRequest, Handler, HeaderProvider, ServerSpec
    from dragoman.trust.policy import Policy

_ASKED = ("sampling", "elicitation", "elicitation_complete", "list_roots", "logging", "login")


class UserOptions(Struct, kw_only=True):
    """What `as_user` was given; what it was not given stays as it was."""

    headers: Mapping[str, str] | HeaderProvider | None = None
    auth: str | Auth | Mapping[str, str | Auth] | None = None
    policy: Policy | Mapping[str, Any] | list[Any] | None = None
    handlers: Handlers | None = None
    env: Mapping[str, str] | None = None


class UserSettings:
    """The headers, logins, handlers and variables of one user; `as_user` may replace them at any time."""

    def __init__(self, options: UserOptions, program: Given) -> None:
        """Begin with these options.

        Args:
            options: What `as_user` was given.
            program: What the program's manager was given.
        """
        self._options = UserOptions()
        self._handlers = program.handlers or Handlers()
        self._program_headers = program.handlers.headers if program.handlers else None
        self.environment = dict(os.environ if program.env is None else program.env)
        """For variables in entries, and for processes of this user."""
        self.adopt(options)

    def adopt(self, options: UserOptions) -> None:
        """Replace what is given, for the requests from now on."""
        given = {
            name: value for name in field_names(options) if (value := getattr(options, name)) is not None
        }
        self._options = self._options.replace(**given)
        self._handlers = options.handlers or self._handlers
        self.environment.update(options.env or {})

    def specs(self, servers: Sequence[ServerSpec]) -> list[ServerSpec]:
        """Return the servers with the login settings of this user.

        None is lazy: a user has no cached listings, so the tools of a server are known once it is connected.
        """
        specs: list[ServerSpec] = []
        for spec in servers:
            auth = self._auth(spec.name)
            is_given = isinstance(auth, Auth) and not isinstance(spec.transport, Stdio)
            specs.append(spec.replace(lazy=False, auth=auth if is_given else spec.auth))
        return specs

    def handlers(self) -> Handlers:
        """Return handlers that look up what is given at each request."""
        now = self._handlers

        def late(kind: str) -> Handler | None:
            async def ask(server: str, params: dict[str, Any]) -> Any:
                handler: Handler = getattr(self._handlers, kind)
                outcome = handler(server, params)
                return await outcome if inspect.isawaitable(outcome) else outcome

            return None if getattr(now, kind) is None else ask

        async def approve(request: CallRequest) -> bool | None:
            handler = self._handlers.approval
            if handler is None:
                return None
            if inspect.iscoroutinefunction(handler):
                return await handler(request)
            answer = await asyncio.to_thread(handler, request)
            return await answer if inspect.isawaitable(answer) else answer

        return now.replace(
            **{kind: late(kind) for kind in _ASKED},
            headers=self._headers,
            approval=None if now.approval is None else approve,
        )

    def _auth(self, server: str) -> str | Auth | None:
        auth = self._options.auth
        return auth if auth is None or isinstance(auth, str | Auth) else auth.get(server)

    def _headers(self, server: str) -> Mapping[str, str] | Awaitable[Mapping[str, str]]:
        own = self._options.headers
        auth = self._auth(server)
        token = {"authorization": f"Bearer {auth}"} if isinstance(auth, str) else {}
        sources = [
            self._program_headers(server) if self._program_headers else {},
            token,
            own(server) if callable(own) else own or {},
        ]
        if any(inspect.isawaitable(one) for one in sources):
            return _merged_later(sources)
        return _merged(cast("list[Mapping[str, str]]", sources))


def _merged(sources: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return all headers; of two spellings of one name, the later source wins."""
    found: dict[str, tuple[str, str]] = {}
    for source in sources:
        for name, value in source.items():
            found[name.lower()] = (name, value)
    return dict(found.values())


async def _merged_later(sources: Sequence[Any]) -> dict[str, str]:
    return _merged([await one if inspect.isawaitable(one) else one for one in sources])
