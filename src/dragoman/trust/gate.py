"""The gate of one manager: which servers may start, which calls are permitted, which text is shown.

It decides with the rules of `trust/` and the user's approvals; it starts nothing and calls nothing. Calls
that need no check cost one attribute read: `watches_calls`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from dragoman.errors import (
    CallDeniedError,
    ConfigError,
    DragomanError,
    InvalidResultError,
    ToolFailedError,
)
from dragoman.model import CallRequest, Settings, Stdio
from dragoman.model.keys import texts_of
from dragoman.storage.answers import kept_answers
from dragoman.trust.approvals import fingerprint, input_ids
from dragoman.trust.error_masking import mask_error
from dragoman.trust.layers import (
    answers_for,
    answers_of,
    comes_from_project,
    effective,
    silenced,
    with_program,
)
from dragoman.trust.limits import Limits, read_limits
from dragoman.trust.log_records import protect
from dragoman.trust.pin_checker import PinChecker
from dragoman.trust.policy import (
    STRICTNESS,
    Policy,
    PolicyRequest,
    ReadPolicy,
    ask_by_default,
    combine,
    copied,
    denial,
    read_policy,
)
from dragoman.trust.redaction import (
    Redactor,
    header_values,
    secret_values,
    spec_values,
)
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from dragoman.errors import ConnectError
    from dragoman.events import Event
    from dragoman.model import (
        AlwaysRule,
        ApprovalHandler,
        Auth,
        HeaderProvider,
        Input,
        PendingApproval,
        ProgressHandler,
        ServerSpec,
        ToolDef,
        Transport,
    )
    from dragoman.trust.approval_store import Approvals
    from dragoman.trust.inbox import Inbox
    from dragoman.trust.pins import Trust
    from dragoman.trust.policy import Decision, Kind, Rule, Scope

logger = logging.getLogger("dragoman")

SHOWN_CHARS = 300
"""Longest text from a server that a status shows, in characters."""


class Gate:
    """The trust rules of one manager, and the secrets to mask."""

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
        approvals: Callable[[], Approvals] | None = None,
        inbox: Callable[[], Awaitable[Inbox]] | None = None,
        uses_inbox: bool | None = None,
        offers: Callable[[PolicyRequest, str], Sequence[AlwaysRule]] = lambda _request, _place: (),
        program: Gate | None = None,
        user: str = "",
    ) -> None:
        """Create the gate.

        Args:
            settings: The configuration.
            root: The project's directory.
            trust_project: Whether the project's files need no approval.
            policy: The application's own rules, in the form of the configuration file.
            approval: Asks a person to confirm a call.
            publish: Called with an event when tools differ from their pins.
            default_trust: The trust of servers that do not set `trust`.
            approvals: Opens the user's approvals; required unless the project is trusted.
            inbox: Makes the inbox in which calls wait for a person, when the first has to.
            uses_inbox: Whether there is one, unless the configuration turns it off; by default as configured.
            offers: Given a call and the place of the rule that asks, returns the rules that a person can have
                written together with a yes.
            program: For the gate of one user of a program: the program's own. Its rules hold too.
            user: The id of that user.

        Raises:
            ConfigError: The application's own rules are invalid.
        """
        self._program = program
        self._user = user
        self._of_users: set[Redactor] = set()
        """The redactors of the users that are open."""
        self.redactor = Redactor(program=program.redactor if program else None)
        self.pin_checker = PinChecker(
            root, redactor=self.redactor, publish=publish, default=default_trust, user=user
        )
        self._watches = False
        self._root = root
        self._trusts_project = trust_project
        self._own = None if policy is None else _own_policy(policy)
        self._approval = approval
        self._make_inbox = inbox
        self._uses_inbox = uses_inbox
        self._inbox: Inbox | None = None
        self._offers = offers
        self._remembered: list[tuple[Rule, str]] = []
        """The rules that a person has chosen with a yes: those of the files have them after a reload."""
        self._open_approvals = approvals
        self._vouched: dict[str, str] = program._vouched if program else {}  # noqa: SLF001 -- of this class
        self._policy = Policy()
        self._limits = self._project_limits = Limits()
        self._by_field = False
        self._inputs: Sequence[Input] = ()
        self._caller: Callable[[], Mapping[str, str] | None] = lambda: None
        self._unprotect: list[Callable[[], None]] = []
        self.settings = self.decide(settings or Settings())
        """The settings in effect."""
        self.update(self.settings)

    @property
    def _approvals(self) -> Approvals:
        if self._open_approvals is None:
            msg = "`approvals` is required unless the project is trusted"
            raise TypeError(msg)
        return self._open_approvals()

    @property
    def watches_calls(self) -> bool:
        """Whether the policy may ask about or deny any call."""
        return self._watches or (self._program is not None and self._program.watches_calls)

    @property
    def has_inbox(self) -> bool:
        """Whether calls that no person at the caller decides wait for one."""
        if self._make_inbox is None or self._uses_inbox is False:
            return False
        said = self.settings.approvals
        return said != "off" and (said == "inbox" or self._uses_inbox is True)

    def set_policy(self, policy: Policy | Mapping[str, Any] | list[Any]) -> None:
        """Replace the application's own rules.

        Raises:
            ConfigError: They are invalid.
        """
        self._own = _own_policy(policy)
        self.update(self.settings)

    def decide(self, settings: Settings) -> Settings:
        """Return the settings in effect, with the approved parts of the project's; reads the approvals."""
        if self._trusts_project:
            return effective(settings, refused=(), trusts_settings=True)
        return settings if settings.layers is None else self._approvals.decide(settings, self._root)

    def update(self, settings: Settings) -> None:
        """Apply new settings, as returned by `decide`."""
        self.settings = settings
        self._remembered.clear()
        trusts = self._trusts_project or settings.trusts_project
        parts: list[tuple[Scope, ReadPolicy]] = []
        if self._own is not None:
            parts.append(("code", self._own))
        # If two rules are equally strict, the decision names the user's own.
        for one in sorted(settings.policy, key=lambda one: one.scope == "project"):
            read = read_policy(one.data, scope=one.scope, source=one.source, lines=one.rule_lines)
            unapproved = one.scope == "project" and not trusts
            parts.append((one.scope, silenced(read, one.source) if unapproved else read))
        self._policy = combine(parts)
        self._watches = bool(self._policy.rules) or self._policy.default != "allow"
        limits = with_project = Limits()
        # The weakest first; the project's come last, since it can only lower what the others allow.
        weakest_first = settings.limits[::-1]
        for one in sorted(weakest_first, key=lambda one: one.scope == "project"):
            narrows = one.scope == "project" and not trusts
            with_project, problems = read_limits(one.data, with_project, only_narrow=narrows)
            for problem in problems if narrows else ():
                logger.warning("%s: %s", one.source, problem)
            # A limit can be so low that a server becomes useless: until approved, a project's limits apply to
            # its own servers only.
            limits = limits if narrows else with_project
        self._limits, self._project_limits = limits, with_project
        self._by_field = settings.by_field
        self._inputs = tuple(settings.inputs)
        self.redactor.add((settings.approval_webhook or {}).values())
        for spec in settings.servers:
            self.redactor.add(spec_values(spec, on_disk=not self.needs_approval(spec)))

    # Servers

    def needs_approval(self, spec: ServerSpec) -> bool:
        """Return whether a server must be approved before it is used."""
        if self._trusts_project or not comes_from_project(spec, by_field=self._by_field):
            return False
        return self._vouched.get(spec.name) != fingerprint(spec)

    def trust(self, spec: ServerSpec) -> None:
        """Trust a server as the application's own, even if its spec comes from the project."""
        if comes_from_project(spec, by_field=True):
            self._vouched[spec.name] = fingerprint(spec)

    def admit(self, spec: ServerSpec) -> str:
        """Check that a server may be started or contacted; reads the approvals and every file they cover.

        Returns:
            The path of the approved program; empty for a server that needs no approval.

        Raises:
            ConnectError: The server is not approved in its current form.
        """
        if not self.needs_approval(spec):
            return ""
        look = self._approvals.look(spec, self._root, self._inputs)
        if look.error is not None:
            raise self._advised(look.error)
        return next(iter(look.evidence.programs.values()), "")

    def refusal(self, spec: ServerSpec) -> ConnectError | None:
        """Return the error if a server's entry is not approved; `admit` also checks its files."""
        # A user's servers are those of the program, which has looked at them.
        if self._program is not None or not self.needs_approval(spec):
            return None
        error = self._approvals.refused_entries([spec], self._root, self._inputs).get(spec.name)
        return None if error is None else self._advised(error)

    def refused(self, specs: Iterable[ServerSpec]) -> dict[str, ConnectError]:
        """Return the error of each server that is not approved, by name; reads the files they refer to."""
        bound = [spec for spec in specs if self.needs_approval(spec)]
        found = self._approvals.refused(bound, self._root, self._inputs) if bound else {}
        return {name: self._advised(error) for name, error in found.items()}

    def _advised(self, error: ConnectError) -> ConnectError:
        """Have the commands in an error's hint read the configuration in use."""
        error.hint = with_program(error.hint, self.settings)
        return error

    def limits_of(self, spec: ServerSpec) -> Limits:
        """Return the limits of a server."""
        narrows = not self._trusts_project and comes_from_project(spec, by_field=self._by_field)
        limits = self._project_limits if narrows else self._limits
        if spec.max_message_bytes is not None:
            size = spec.max_message_bytes
            size = min(size, limits.message_bytes) if narrows else size
            # Larger messages are only useful if their results fit too.
            limits = limits.replace(message_bytes=size, result_bytes=max(size, limits.result_bytes))
        if spec.limits:
            limits, problems = read_limits(dict(spec.limits), limits, only_narrow=narrows)
            for problem in problems:
                logger.warning("%s: %s", spec.name, problem)
        return limits

    def answers(self, spec: ServerSpec, settings: Settings, given: Mapping[str, str]) -> dict[str, str]:
        """Return the values of `${input:id}` for a server: defaults, kept answers and given ones.

        The kept ones are read from a file, and are secrets in any field.
        """
        kept = kept_answers(answers_of(spec, settings, self._root), user=self._user)
        self.redactor.add(kept.values())
        is_ours = self._trusts_project or not comes_from_project(spec, by_field=self._by_field)
        if is_ours or not given:
            return answers_for(spec, settings, given, kept=kept)
        own = [one for one in settings.servers if not comes_from_project(one, by_field=self._by_field)]
        taken = {item.id for item in settings.inputs if item.scope != "project"}
        return answers_for(spec, settings, given, taken.union(*map(input_ids, own)), kept=kept)

    def register_secrets(
        self,
        transport: Transport,
        env: Mapping[str, str],
        auth: Auth | None = None,
        *,
        env_files: Iterable[Mapping[str, str]] = (),
    ) -> None:
        """Mask the secrets of a server from now on.

        Args:
            transport: Its transport, with variables expanded.
            env: The environment that a child process may inherit.
            auth: Its login, with variables expanded.
            env_files: The variables in its env files.
        """
        found = secrets_of(transport, env, env_files)
        if auth is not None:
            found |= {text for text in texts_of(auth, secret=True).values() if text}
        self.redactor.add(found)

    def watch_headers(
        self, provider: HeaderProvider | None, caller: Callable[[], Mapping[str, str] | None]
    ) -> HeaderProvider:
        """Return a header provider that registers all headers it sees as secrets.

        Args:
            provider: The application's own, if any.
            caller: Returns the headers of the current call.
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
        """Mask header values for a while; invalid headers are reported by the code that sends them."""
        if headers and isinstance(headers, Mapping):
            items = cast("Mapping[object, object]", headers).items()
            texts = {str(name): text for name, text in items if isinstance(text, str)}
            self.redactor.add_passing(header_values(texts))

    # What is seen

    def begin(self) -> None:
        """Mask secrets in logs, until `end`."""
        if self._program is not None:
            self._program._of_users.add(self.redactor)  # noqa: SLF001 -- of this class
            return
        self._unprotect.append(protect(self.redactor, self._of_users))

    def close_inbox(self) -> list[asyncio.Task[None]]:
        """Deny the calls that wait; return the tasks that have to end."""
        return self._inbox.close() if self._inbox is not None else []

    def end(self) -> None:
        """Stop masking logs; may be called twice."""
        if self._program is not None:
            self._program._of_users.discard(self.redactor)  # noqa: SLF001 -- of this class
        while self._unprotect:
            self._unprotect.pop()()

    def shown(self, text: str | None) -> str | None:
        """Return a text from a server for display: short, without escape codes and secrets."""
        return None if text is None else for_log(self.redactor.mask(text[: 8 * SHOWN_CHARS]), SHOWN_CHARS)

    def scrub(self, error: BaseException) -> None:
        """Mask secrets in an error that leaves the library."""
        # Other calls may have displaced the headers of this one.
        self._hide(self._caller())
        # Text from a tool is for the model: links in it must stay usable.
        from_tool = isinstance(error, ToolFailedError | InvalidResultError)
        mask_error(error, self.redactor, only_known=from_tool)
        if isinstance(error, DragomanError):
            error.hint = with_program(error.hint, self.settings)

    # Calls

    async def permit(
        self,
        tool: ToolDef,
        arguments: Mapping[str, Any],
        *,
        trusts_hints: bool,
        ask: bool | ApprovalHandler = False,
        report: ProgressHandler | None = None,
        shown: Mapping[str, Any] | None = None,
        written: Mapping[str, Any] | None = None,
    ) -> bool:
        """Check that the policy permits a call, and return whether a person was asked (which takes time).

        Args:
            tool: The tool.
            arguments: The arguments to send; a private copy, see `trust.policy.copied`.
            trusts_hints: Whether its server's annotations are trusted.
            shown: The arguments as the caller gave them, if the configuration changes them.
            written: What a person is shown of arguments whose values the configuration looks up.
            ask: Whether a call that no rule decides needs a yes, unless the tool is read-only; a function
                is asked instead of `Handlers.approval`.
            report: Given progress while the call waits in the inbox.

        Raises:
            CallDeniedError: The call is denied; the error names the rule.
        """
        request = _request(tool, arguments, trusts_hints=trusts_hints, shown=shown)
        return await self._permit(request, tool.name, ask=ask, report=report, written=written)

    def asks(
        self,
        tool: ToolDef,
        arguments: Mapping[str, Any],
        *,
        trusts_hints: bool,
        ask: bool | ApprovalHandler = False,
        shown: Mapping[str, Any] | None = None,
    ) -> bool:
        """Return whether a person will be asked about a call; see `permit`."""
        request = _request(tool, arguments, trusts_hints=trusts_hints, shown=shown)
        asks_someone = self.has_inbox or self._asked(ask=ask) is not None
        return asks_someone and self._decide(request, ask=ask).action == "ask"

    def would_allow(self, request: PolicyRequest, rule: Mapping[str, Any], *, before: str = "") -> bool:
        """Return whether one more rule of the user's would allow a call.

        Args:
            request: The call.
            rule: The rule.
            before: The place of the rule of the user's that it comes before; after all others by default. A
                rule about more than these very arguments must not overtake one that denies.
        """
        read = read_policy([rule], scope="user").rules
        later = list(self._policy.rules)[self._place(before) :] if before else []
        if rule.get("other_arguments") is not False and any(
            one.action == "deny" and one.scope == "user" for one in later
        ):
            return False
        decision = self._decide(request, more=[(one, before) for one in read])
        return decision.action == "allow" and not decision.is_open

    def decision(self, tool: ToolDef, arguments: Mapping[str, Any], *, trusts_hints: bool) -> Decision:
        """Return what the rules say about a call, without asking a person."""
        return self._decide(_request(tool, copied(arguments), trusts_hints=trusts_hints))

    def _place(self, before: str) -> int:
        rules = enumerate(self._policy.rules)
        found = (number for number, one in rules if one.scope == "user" and one.source == before)
        return next(found, len(self._policy.rules))

    def refuse_denied(self, tool: ToolDef, arguments: Mapping[str, Any], *, trusts_hints: bool) -> None:
        """Raise if a rule denies a call; whatever needs a question passes.

        Raises:
            CallDeniedError: The call is denied; the error names the rule.
        """
        decision = self._decide(_request(tool, copied(arguments), trusts_hints=trusts_hints))
        if decision.action == "deny":
            raise denial(decision, tool=tool.name, server=tool.server)

    async def permit_builtin(self, tool: ToolDef, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Check that the policy permits a call of a built-in tool, and return the checked arguments.

        Raises:
            CallDeniedError: The call is denied; the error names the rule.
        """
        if not self.watches_calls:
            return arguments
        given = copied(arguments)
        await self.permit(tool, given, trusts_hints=True)
        return given

    async def permit_offer(
        self, kind: Kind, name: str, *, server: str, arguments: Mapping[str, Any] | None = None
    ) -> bool:
        """Check that a resource may be read or a prompt fetched, and return whether a person was asked.

        Args:
            kind: `resource` or `prompt`.
            name: The URI of the resource, or the name of the prompt.
            server: Its server.
            arguments: The arguments to send; a private copy.

        Raises:
            CallDeniedError: The request is denied; the error names the rule.
        """
        return self.watches_calls and await self._permit(_offer(kind, name, server, arguments), name)

    def forbids(self, kind: Kind, name: str, *, server: str) -> bool:
        """Return whether the policy denies a resource or a prompt without asking a person."""
        return self._decide(_offer(kind, name, server, None)).action == "deny"

    def _decide(
        self,
        request: PolicyRequest,
        *,
        ask: bool | ApprovalHandler = False,
        more: Sequence[tuple[Rule, str]] = (),
    ) -> Decision:
        """Return the decision about a request; for a user, the stricter one of theirs and the program's."""
        policy = self._policy
        if more := [*self._remembered, *more]:
            rules = list(policy.rules)
            # From the end, so that the places stay what they are.
            for rule, before in sorted(more, key=lambda one: self._place(one[1]), reverse=True):
                rules.insert(self._place(before) if before else len(rules), rule)
            policy = policy.replace(rules=rules)
        found = own = policy.decide(request)
        if self._program is not None:
            theirs = self._program._decide(request)  # noqa: SLF001 -- of this class
            # A rule that allows decides more than a policy that says nothing.
            stricter = STRICTNESS[own.action] > STRICTNESS[theirs.action]
            found = own if stricter or (theirs.is_open and own.action == "allow") else theirs
        return ask_by_default(request) if ask and found.is_open else found

    def _asked(self, *, ask: bool | ApprovalHandler) -> ApprovalHandler | None:
        return self._approval if isinstance(ask, bool) else ask

    async def _permit(
        self,
        request: PolicyRequest,
        name: str,
        *,
        ask: bool | ApprovalHandler = False,
        report: ProgressHandler | None = None,
        written: Mapping[str, Any] | None = None,
    ) -> bool:
        decision = self._decide(request, ask=ask)
        if decision.action == "allow":
            return False
        own_name = (request.shown_name or request.tool) if request.kind == "tool" else ""
        denied = partial(denial, tool=name, server=request.server, own_name=own_name)
        if decision.action == "deny":
            raise denied(decision)
        question = CallRequest(
            server=request.server,
            tool=name,
            original_name=request.tool,
            # A copy, so that the handler cannot change what is sent.
            arguments=copied({**request.arguments, **(written or {})}),
            shown_name=request.shown_name,
            shown_arguments=copied(request.shown_arguments),
            rule=decision.rule,
            reason=decision.reason,
            kind=request.kind,
            user=self._user,
        )
        handler = self._asked(ask=ask)
        # What the configuration looks up may be a secret, which no rule may hold.
        offered = partial(self._offered, request, decision.source, with_arguments=not written)
        entry = await self._wait_in_inbox(
            question, decision=decision, handler=handler, report=report, always=offered
        )
        if entry is None:
            said = None if handler is None else await self._confirmed(question, handler)
        else:
            said = None if entry.state == "expired" else entry.state == "approved"
        if not said:
            raise denied(decision, asked=said is not None, entry=entry)
        # The rules may have changed while the person was asked.
        decision = self._decide(request, ask=ask)
        if decision.action == "deny":
            if entry is not None and self._inbox is not None:
                await self._inbox.refuse(entry, decision.label)
            raise denied(decision)
        if entry is not None and not (self._inbox is not None and await self._inbox.claim(entry)):
            raise denied(decision, asked=True, entry=entry)
        return True

    async def _wait_in_inbox(
        self,
        question: CallRequest,
        *,
        decision: Decision,
        handler: ApprovalHandler | None,
        report: ProgressHandler | None,
        always: Callable[[], Sequence[AlwaysRule]],
    ) -> PendingApproval | None:
        """Let a call wait for the first answer; return its entry, or `None` without an inbox."""
        if self._make_inbox is None or not self.has_inbox:
            return None
        made = self._inbox or await self._make_inbox()
        self._inbox = self._inbox or made
        entry = await self._inbox.ask(
            question,
            decision,
            seconds=self.settings.approval_timeout,
            handler=None if handler is None else lambda: _answer(question, handler),
            always=always,
            report=report,
        )
        if entry is not None and entry.state == "approved":
            for one in entry.always:
                if one.covers == entry.remembered:
                    read = read_policy([one.rule], scope="user").rules
                    self._remembered += [(rule, one.before) for rule in read]
        return entry

    def _offered(self, request: PolicyRequest, source: str, *, with_arguments: bool) -> Sequence[AlwaysRule]:
        found = self._offers(request, source)
        return [one for one in found if with_arguments or one.covers != "arguments"]

    async def _confirmed(self, question: CallRequest, handler: ApprovalHandler) -> bool | None:
        try:
            answer = await _answer(question, handler)
        except Exception as exc:
            if isinstance(exc, CallDeniedError) and exc.pending:
                raise
            logger.exception("%s: the `approval` handler failed; the call is denied", question.server)
            return False
        # Only a literal True is consent.
        return None if answer is None else answer is True


async def _answer(question: CallRequest, handler: ApprovalHandler) -> bool | None:
    if inspect.iscoroutinefunction(handler):
        return await handler(question)
    answer = await asyncio.to_thread(handler, question)
    return await answer if inspect.isawaitable(answer) else answer


def _offer(kind: Kind, name: str, server: str, arguments: Mapping[str, Any] | None) -> PolicyRequest:
    given = {"uri": name} if arguments is None and kind == "resource" else arguments or {}
    return PolicyRequest(server=server, tool=name, kind=kind, arguments=given)


def secrets_of(
    transport: Transport, env: Mapping[str, str], env_files: Iterable[Mapping[str, str]] = ()
) -> set[str]:
    """Return the secrets of a server, those in its env files included."""
    return secret_values(transport, env).union(*(secret_values(Stdio("", env=given)) for given in env_files))


def _request(
    tool: ToolDef,
    arguments: Mapping[str, Any],
    *,
    trusts_hints: bool,
    shown: Mapping[str, Any] | None = None,
) -> PolicyRequest:
    name = tool.original_name or tool.name
    return PolicyRequest(
        server=tool.server,
        tool=name,
        shown_name=tool.own_name if tool.own_name != name else "",
        arguments=arguments,
        shown_arguments=shown,
        annotations=tool.annotations,
        trust_annotations=trusts_hints or tool.source == "builtin",
    )


def _own_policy(policy: Policy | Mapping[str, Any] | list[Any]) -> ReadPolicy:
    if isinstance(policy, Policy):
        rules = [rule.replace(scope="code") for rule in policy.rules]
        # `allow` is the default of `Policy`, so it does not count as a choice.
        return ReadPolicy(rules=rules, default=None if policy.default == "allow" else policy.default)
    read = read_policy(policy, scope="code", source="code")
    if read.problems:
        msg = f"invalid policy: {'; '.join(read.problems)}"
        raise ConfigError(msg, source="code")
    return read
