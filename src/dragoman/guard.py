"""What holds for all servers and calls of one manager: who may start, what may be called, what may be seen.

One guard belongs to one manager. It decides with the rules of `trust/` and remembers with `trust_store`; it
starts nothing and calls nothing. What it is asked on the way of every call is one attribute: `watches_calls`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dragoman.errors import ConfigError, InvalidResultError, ToolFailedError
from dragoman.model import CallRequest, Settings, Stdio
from dragoman.pinboard import Pinboard
from dragoman.trust.content import fingerprint
from dragoman.trust.layers import answers_for, comes_from_project, effective, silenced
from dragoman.trust.limits import Limits, read_limits
from dragoman.trust.log_filter import protect
from dragoman.trust.policy import Policy, ReadPolicy, Request, combine, copied, denial, read_policy
from dragoman.trust.redactor import Redactor, header_values, secret_values, spec_values
from dragoman.trust.sanitize import for_log
from dragoman.trust.scrubbing import scrub_error
from dragoman.trust_store import Approvals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from dragoman.errors import ConnectError
    from dragoman.events import Event
    from dragoman.model import ApprovalHandler, Auth, HeaderProvider, Input, ServerSpec, ToolDef, Transport
    from dragoman.trust.pins import Trust
    from dragoman.trust.policy import Decision, Kind, Scope

logger = logging.getLogger("dragoman")

SHOWN_CHARS = 300
"""Of what a server says of itself, in a status."""
LOGGERS = (
    "dragoman",
    "client",  # what the SDK calls the logger of some of its modules
    *(f"mcp.client.{name}" for name in ("client", "session", "stdio", "streamable_http", "sse", "caching")),
    "mcp.client.auth.oauth2",
    *(f"mcp.shared.{name}" for name in ("dispatcher", "direct_dispatcher", "jsonrpc_dispatcher")),
    "httpx2",
    *(f"httpcore2.{name}" for name in ("connection", "http11", "http2", "proxy", "socks")),
)
"""Who writes about our connections; the SDK's own transports log addresses, headers and messages."""


class Guard:
    """The rules of one manager, and the secrets that nobody may see."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        root: str = "",
        trust_project: bool = True,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
        approval: ApprovalHandler | None = None,
        publish: Callable[[Event], None] = lambda _: None,
        default_trust: Trust = "warn",
    ) -> None:
        """Take the rules in.

        Args:
            settings: What the configuration says.
            root: The project's directory.
            trust_project: Whether files that came with the project need no approval.
            policy: The application's own rules, as a file has them.
            approval: Asks a person.
            publish: Told what is not as it was pinned.
            default_trust: The trust of servers that say nothing about it.

        Raises:
            ConfigError: The application's own rules cannot be read.
        """
        self.redactor = Redactor()
        self.pinboard = Pinboard(root, redactor=self.redactor, publish=publish, default=default_trust)
        self.watches_calls = False
        """Whether any call is anything but allowed."""
        self._root = root
        self._trusts_project = trust_project
        self._own = None if policy is None else _own_policy(policy)
        self._approval = approval
        self._vouched: dict[str, str] = {}
        self._policy = Policy()
        self._limits = self._project_limits = Limits()
        self._by_field = False
        self._inputs: Sequence[Input] = ()
        self._caller: Callable[[], Mapping[str, str] | None] = lambda: None
        self._unprotect: list[Callable[[], None]] = []
        self.settings = self.decide(settings or Settings())
        """What is in effect of what the configuration says."""
        self.adopt(self.settings)

    def decide(self, settings: Settings) -> Settings:
        """Return the settings that hold, with what is approved of the project's; reads the approvals."""
        if self._trusts_project:
            return effective(settings, refused=(), trusts_settings=True)
        return settings if settings.layers is None else Approvals().decide(settings, self._root)

    def adopt(self, settings: Settings) -> None:
        """Go on by settings that hold now, as `decide` returns them."""
        self.settings = settings
        trusts = self._trusts_project or settings.trusts_project
        parts: list[tuple[Scope, ReadPolicy]] = []
        if self._own is not None:
            parts.append(("code", self._own))
        # Of two rules that are equally strict, the user's own is named.
        for one in sorted(settings.policy, key=lambda one: one.scope == "project"):
            read = read_policy(one.data, scope=one.scope, source=one.source)
            unheard = one.scope == "project" and not trusts
            parts.append((one.scope, silenced(read, one.source) if unheard else read))
        self._policy = combine(parts)
        self.watches_calls = bool(self._policy.rules) or self._policy.default != "allow"
        limits = theirs = Limits()
        # The weakest first; what a project says comes last, since it can only narrow what the others allow.
        weakest_first = settings.limits[::-1]
        for one in sorted(weakest_first, key=lambda one: one.scope == "project"):
            narrows = one.scope == "project" and not trusts
            theirs, problems = read_limits(one.data, theirs, only_narrow=narrows)
            for problem in problems if narrows else ():
                logger.warning("%s: %s", one.source, problem)
            # A limit can be so narrow that a server is of no use: a project's is for its own until approved.
            limits = limits if narrows else theirs
        self._limits, self._project_limits = limits, theirs
        self._by_field = settings.by_field
        self._inputs = tuple(settings.inputs)
        for spec in settings.servers:
            self.redactor.add(spec_values(spec))

    # Servers

    def binds(self, spec: ServerSpec) -> bool:
        """Return whether a server needs to be approved before anything is done with it."""
        if self._trusts_project or not comes_from_project(spec, by_field=self._by_field):
            return False
        return self._vouched.get(spec.name) != fingerprint(spec)

    def vouch(self, spec: ServerSpec) -> None:
        """Take a server for the application's own, wherever its spec comes from."""
        if comes_from_project(spec, by_field=True):
            self._vouched[spec.name] = fingerprint(spec)

    def admit(self, spec: ServerSpec) -> str:
        """Let a server be started or reached; reads the approvals and every file that they cover.

        Returns:
            The path of the program that was approved; nothing for a server that needs no approval.

        Raises:
            ConnectError: It is not approved as it is now.
        """
        if not self.binds(spec):
            return ""
        look = Approvals().look(spec, self._root, self._inputs)
        if look.error is not None:
            raise look.error
        return next(iter(look.evidence.programs.values()), "")

    def refusal(self, spec: ServerSpec) -> ConnectError | None:
        """Return why a server must not be touched, by its entry alone; `admit` looks at the rest."""
        if not self.binds(spec):
            return None
        return Approvals().refused_entries([spec], self._root, self._inputs).get(spec.name)

    def refused(self, specs: Iterable[ServerSpec]) -> dict[str, ConnectError]:
        """Return why servers must not be touched, by name; reads the files that they name."""
        bound = [spec for spec in specs if self.binds(spec)]
        return Approvals().refused(bound, self._root, self._inputs) if bound else {}

    def limits_of(self, spec: ServerSpec) -> Limits:
        """Return the limits that hold for a server."""
        narrows = not self._trusts_project and comes_from_project(spec, by_field=self._by_field)
        limits = self._project_limits if narrows else self._limits
        if spec.max_message_bytes is not None:
            size = spec.max_message_bytes
            size = min(size, limits.message_bytes) if narrows else size
            # Who lets larger messages in wants what is in them.
            limits = replace(limits, message_bytes=size, result_bytes=max(size, limits.result_bytes))
        if spec.limits:
            limits, problems = read_limits(dict(spec.limits), limits, only_narrow=narrows)
            for problem in problems:
                logger.warning("%s: %s", spec.name, problem)
        return limits

    def answers(self, spec: ServerSpec, settings: Settings, given: Mapping[str, str]) -> dict[str, str]:
        """Return the values of `${input:id}` that a server gets, from defaults and from what was answered."""
        if self._trusts_project or not comes_from_project(spec, by_field=self._by_field):
            return answers_for(spec, settings, given)
        from dragoman.config.expand import input_ids  # it is needed where a project's server is started

        own = [one for one in settings.servers if not comes_from_project(one, by_field=self._by_field)]
        taken = {item.id for item in settings.inputs if item.scope != "project"}
        return answers_for(spec, settings, given, taken.union(*map(input_ids, own)))

    def learn(self, transport: Transport, env: Mapping[str, str], auth: Auth | None = None) -> None:
        """Hide from now on what a server is given; reads its env files.

        Args:
            transport: With its variables replaced.
            env: What a child may inherit.
            auth: How it is logged in to, with its variables replaced.
        """
        found = secrets_of(transport, env)
        if auth is not None:
            found |= {text for text in (auth.client_secret, auth.private_key) if text}
        self.redactor.add(found)

    def watch_headers(
        self, provider: HeaderProvider | None, caller: Callable[[], Mapping[str, str] | None]
    ) -> HeaderProvider:
        """Return a provider that hides what is sent with calls: its own headers, and their caller's.

        Args:
            provider: The application's, if it has one.
            caller: Tells the headers of the call that is being made.
        """
        self._caller = caller

        def headers(server: str) -> Mapping[str, str] | Awaitable[Mapping[str, str]]:
            self._hide(caller())
            if provider is None:
                return {}
            given = provider(server)
            if inspect.isawaitable(given):
                return awaited(given)
            self._hide(given)
            return given

        async def awaited(given: Awaitable[Mapping[str, str]]) -> Mapping[str, str]:
            found = await given
            self._hide(found)
            return found

        return headers

    def _hide(self, headers: object) -> None:
        """Hide headers for a while; what cannot be sent is left to whoever refuses to send it."""
        if headers and isinstance(headers, Mapping):
            items = cast("Mapping[object, object]", headers).items()
            texts = {str(name): text for name, text in items if isinstance(text, str)}
            self.redactor.add_passing(header_values(texts))

    # What is seen

    def begin(self) -> None:
        """Let nothing out into logs unmasked, until `end`."""
        self._unprotect += [protect(self.redactor, name) for name in LOGGERS]

    def end(self) -> None:
        """Leave the logs alone; twice does no harm."""
        while self._unprotect:
            self._unprotect.pop()()

    def shown(self, text: str | None) -> str | None:
        """Return what a server says of itself, short, harmless and without secrets."""
        return None if text is None else for_log(self.redactor.mask(text[: 8 * SHOWN_CHARS]), SHOWN_CHARS)

    def scrub(self, error: BaseException) -> None:
        """Take the secrets out of an error that leaves the library."""
        # Other calls may have pushed the headers of this one out of memory.
        self._hide(self._caller())
        # A tool's own words are for the model: a link in them has to stay usable.
        said = isinstance(error, ToolFailedError | InvalidResultError)
        scrub_error(error, self.redactor, only_known=said)

    # Calls

    async def permit(self, tool: ToolDef, arguments: Mapping[str, Any], *, trusts_hints: bool) -> bool:
        """Let a call pass, or not; returns whether a person was asked, which takes its time.

        Args:
            tool: The tool.
            arguments: As they would be sent; a copy that no one else holds, see `trust.policy.copied`.
            trusts_hints: Whether its server's annotations are trusted.

        Raises:
            CallDeniedError: It is not to be made; it names the rule.
        """
        request = Request(
            server=tool.server,
            tool=tool.original_name or tool.name,
            arguments=arguments,
            annotations=tool.annotations,
            trust_annotations=trusts_hints or tool.source == "builtin",
        )
        return await self._permit(request, tool.name)

    async def permit_builtin(self, tool: ToolDef, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Let a call of a built-in tool pass, or not; returns the arguments that were judged.

        Raises:
            CallDeniedError: It is not to be made; it names the rule.
        """
        if not self.watches_calls:
            return arguments
        given = copied(arguments)
        await self.permit(tool, given, trusts_hints=True)
        return given

    async def permit_offer(
        self, kind: Kind, name: str, *, server: str, arguments: Mapping[str, Any] | None = None
    ) -> bool:
        """Let a resource be read, or a prompt be got, or not; returns whether a person was asked.

        Args:
            kind: Which of both it is.
            name: The address of the resource, or the name of the prompt.
            server: Whose it is.
            arguments: What is sent along; a copy that no one else holds.

        Raises:
            CallDeniedError: It is not to be done; it names the rule.
        """
        return self.watches_calls and await self._permit(_offer(kind, name, server, arguments), name)

    def forbids(self, kind: Kind, name: str, *, server: str) -> bool:
        """Return whether a resource or a prompt is denied, whatever a person would say."""
        return self._policy.decide(_offer(kind, name, server, None)).action == "deny"

    async def _permit(self, request: Request, name: str) -> bool:
        decision = self._policy.decide(request)
        if decision.action == "allow":
            return False
        asked = decision.action == "ask" and self._approval is not None
        said_yes = asked and await self._confirmed(request, name, decision)
        if said_yes:
            # The rules may have changed while the person was asked.
            decision = self._policy.decide(request)
        if not said_yes or decision.action == "deny":
            raise denial(decision, tool=name, server=request.server, asked=asked, kind=request.kind)
        return True

    async def _confirmed(self, request: Request, name: str, decision: Decision) -> bool:
        handler = self._approval
        if handler is None:
            return False
        question = CallRequest(
            server=request.server,
            tool=name,
            original_name=request.tool,
            # What is judged and sent stays out of the handler's reach.
            arguments=copied(request.arguments),
            rule=decision.rule,
            reason=decision.reason,
            kind=request.kind,
        )
        try:
            if inspect.iscoroutinefunction(handler):
                answer = await handler(question)
            else:
                answer = await asyncio.to_thread(handler, question)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception:
            logger.exception("%s: the `approval` handler failed, and so the call is denied", request.server)
            return False
        # Anything but a plain yes is a no.
        return answer is True


def _offer(kind: Kind, name: str, server: str, arguments: Mapping[str, Any] | None) -> Request:
    given = {"uri": name} if arguments is None and kind == "resource" else arguments or {}
    return Request(server=server, tool=name, kind=kind, arguments=given)


def secrets_of(transport: Transport, env: Mapping[str, str]) -> set[str]:
    """Return what a server is given that nobody else may see, that in its env files included."""
    found = secret_values(transport, env)
    if not isinstance(transport, Stdio) or not transport.env_file:
        return found
    from dragoman.config.files import read_env_file  # it brings the readers of every kind of file

    for name in transport.env_file:
        try:
            given = read_env_file(Path(name))
        except (ConfigError, OSError):
            continue  # Whoever starts the child says so.
        found |= secret_values(Stdio("", env=given))
    return found


def _own_policy(policy: Policy | Mapping[str, Any] | list[Any]) -> ReadPolicy:
    if isinstance(policy, Policy):
        rules = [replace(rule, scope="code") for rule in policy.rules]
        # Whoever does not say anything has the default's `allow`, which is no opinion.
        return ReadPolicy(rules=rules, default=None if policy.default == "allow" else policy.default)
    read = read_policy(policy, scope="code", source="code")
    if read.problems:
        msg = f"the policy cannot be used: {'; '.join(read.problems)}"
        raise ConfigError(msg, source="code")
    return read
