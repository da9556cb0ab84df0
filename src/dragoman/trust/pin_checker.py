"""Compare every listing with the pins, and remember the result.

A check reads files and computes hashes, so it runs in a thread. With `trust` set to `ask` or `strict` a
listing waits for its check; other servers are offered meanwhile. A difference is reported once, as an event
and a log line. If the check of an `ask` or `strict` server fails, none of its tools are offered. An approval
covers what was reported last, never a newer listing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import marshal
import shlex
from typing import TYPE_CHECKING, Any

from dragoman.errors import CallDeniedError, DragomanError
from dragoman.events import DefinitionsChanged
from dragoman.storage.files import user_data_folder
from dragoman.struct import MutableStruct, field
from dragoman.trust.pin_store import Pins
from dragoman.trust.pins import (
    ANY,
    HOLDING,
    PinChange,
    ServerPins,
    Verdict,
    describe,
    fingerprint_of,
    pins_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.events import Event
    from dragoman.model import Handlers, ServerSpec, ToolDef
    from dragoman.trust.pins import Kind, Trust
    from dragoman.trust.redaction import Redactor

logger = logging.getLogger("dragoman")

PAUSE = 0.1
"""Seconds in which listings that are offered before their check are collected, to be checked together."""


class Changes(list[PinChange]):
    """The differences from the pins, at one moment."""

    fingerprint: str = ""
    """Pass this to `McpManager.trust.approve` to approve exactly these changes."""
    is_withheld: bool = False
    """Whether any of them is withheld until it is approved."""
    texts: Sequence[str] = ()
    """Each change as lines for a person, safe to print and without secrets."""


class _Offer(MutableStruct):
    """The last listing of one server and its check."""

    tools: Sequence[Mapping[str, Any]] = ()
    prompts: Sequence[Mapping[str, Any]] | None = None
    instructions: str | None = None
    is_listed: bool = False
    """Whether the server itself sent a listing (not only the cache)."""
    declared: str = ""
    """The capabilities that the client declared."""
    pins: ServerPins | None = None
    """The listing that was checked and reported last."""
    verdict: Verdict | None = None
    """`None` until the check is done."""
    reported: str = ""
    """The fingerprint of the changes that were reported last."""
    withheld: dict[str, str] = field(default_factory=dict[str, str])
    """The withheld tools: the server's own name of each, by exposed name."""
    rule: str = ""
    """Why they are withheld."""
    order: asyncio.Lock = field(default_factory=asyncio.Lock)


class PinChecker:
    """Checks the listings of all servers of a manager against their pins."""

    def __init__(
        self,
        root: str,
        *,
        redactor: Redactor,
        publish: Callable[[Event], None],
        default: Trust = "warn",
        user: str = "",
    ) -> None:
        """Use the lock files of the user and of a project.

        Args:
            root: The project's directory.
            redactor: Knows the secrets, which are kept out of lock files and events.
            publish: Called with an event for every difference.
            default: The trust of servers that do not set `trust`.
            user: Whose pins, in a program with many users. A listing may be for one user only, and a change
                shows what was pinned: each has their own.
        """
        self._user = user
        self._default: Trust = default
        self._root = root
        self._redactor = redactor
        self._publish = publish
        self._offers: dict[str, _Offer] = {}
        self._store: Pins | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._due: dict[str, tuple[ServerSpec, _Offer]] = {}
        """Listings that are offered before their check, by server."""
        self._timer: asyncio.TimerHandle | None = None

    def trust(self, spec: ServerSpec) -> Trust:
        """Return the effective `trust` of a server."""
        return spec.trust or self._default

    def holds_back(self, spec: ServerSpec) -> bool:
        """Return whether new and changed tools of a server are withheld."""
        return (spec.trust or self._default) in HOLDING

    def rule(self, spec: ServerSpec) -> str:
        """Return the name of the rule for the error of a refused call."""
        return f"trust={self.trust(spec)}"

    async def check_listing(
        self,
        spec: ServerSpec,
        tools: Sequence[Mapping[str, Any]],
        instructions: str | None,
        *,
        declared: str = "",
    ) -> None:
        """Check a new listing; for a server whose trust withholds tools, wait for the result.

        Args:
            spec: The server.
            tools: The raw tool entries.
            instructions: The server's instructions.
            declared: The declared capabilities, as returned by `declared_by`.
        """
        offer = self._offers.setdefault(spec.name, _Offer())
        offer.tools, offer.instructions, offer.declared = tools, instructions, declared
        offer.is_listed = True
        if self.trust(spec) == "off":
            offer.verdict, offer.reported = None, ""
        elif self.holds_back(spec):
            # Offer nothing until this very listing is checked.
            offer.verdict = None
            await self._check_offer(spec, offer)
        else:
            # Servers that are starting need the processor more.
            self._due[spec.name] = spec, offer
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(PAUSE, self._check_due_now)

    async def vet_prompts(self, spec: ServerSpec, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Check a new listing of prompts and wait for the result."""
        offer = self._offers.setdefault(spec.name, _Offer())
        offer.prompts = prompts
        if self.trust(spec) != "off":
            await self._check_offer(spec, offer)

    async def revisit(self, spec: ServerSpec) -> None:
        """Check the last listing again, after its spec changed or it was approved."""
        offer = self._offers.get(spec.name)
        if offer is None or not offer.is_listed:
            return
        if self.trust(spec) == "off":
            offer.verdict, offer.reported = None, ""
        else:
            await self._check_offer(spec, offer)

    async def approve(
        self,
        spec: ServerSpec,
        *,
        tools: Iterable[str] | None,
        in_project: bool,
        fingerprint: str | None = None,
    ) -> None:
        """Pin the listing that was reported last.

        Args:
            spec: The server.
            tools: Which tools; everything by default.
            in_project: Whether to write the project's lock file too.
            fingerprint: The fingerprint of the changes that the person saw; needed if there are any.

        Raises:
            DragomanError: The listing was not checked yet, the fingerprint is missing or is not that of the
                changes shown, or the lock file cannot be written.
        """
        offer = self._offers.get(spec.name)
        if offer is not None and offer.is_listed and offer.pins is None and self.trust(spec) != "off":
            await self._check_offer(spec, offer, keeps=True)
        if offer is None or offer.pins is None:
            msg = f"server `{spec.name}` has not listed anything to approve"
            raise DragomanError(msg, hint='connect it first; with `trust = "off"` nothing is pinned')
        pins, changes = offer.pins, self.changes(spec.name)
        if changes and fingerprint is None:
            msg = f"the tools of server `{spec.name}` changed, and these changes were not reviewed yet"
            raise DragomanError(msg, hint=f"review `changes({spec.name!r})` and pass its `fingerprint`")
        if fingerprint is not None and fingerprint != changes.fingerprint:
            msg = (
                f"the tools of server `{spec.name}` changed again since they were shown; nothing was approved"
            )
            raise DragomanError(msg, hint=f"review `changes({spec.name!r})` again")
        names = None if tools is None else list(tools)
        await asyncio.to_thread(self._pins().approve, spec, pins, tools=names, in_project=in_project)
        await self._check_offer(spec, offer)

    def matches(self, spec: ServerSpec, entries: Sequence[tuple[Mapping[str, Any], str]]) -> frozenset[str]:
        """Return the tools of a cached listing that must be withheld; reads files.

        A cached listing lacks unusable tools and those that contain a secret, so missing tools do not count.
        """
        if not self.holds_back(spec):
            return frozenset()
        return self._check_cached(spec, entries)[0].withheld

    def check_cached(self, spec: ServerSpec, entries: Sequence[tuple[Mapping[str, Any], str]]) -> None:
        """Report changes in a cached listing, as the server may not connect for long."""

        async def check() -> None:
            verdict, now = await asyncio.to_thread(self._check_cached, spec, entries)
            if (offer := self._offers.setdefault(spec.name, _Offer())).verdict is None:
                await self._report(spec, offer, verdict, now)

        if self.trust(spec) != "off":
            self._begin(check())

    def withheld(self, spec: ServerSpec, names: Iterable[str], kind: Kind = "tool") -> frozenset[str]:
        """Return which of a server's tools, or prompts, are withheld."""
        if not self.holds_back(spec):
            return frozenset()
        verdict = self._verdict(spec)
        if verdict is None:
            return frozenset(names)
        changed = {change.name for change in verdict.changes if change.kind == kind}
        return frozenset(changed.intersection(names))

    def hides_instructions(self, spec: ServerSpec) -> bool:
        """Return whether a server's instructions must not be shown to a model."""
        if not self.holds_back(spec):
            return False
        verdict = self._verdict(spec)
        return verdict is None or verdict.standing("", "instructions") != "offered"

    def set_withheld(self, server: str, names: Mapping[str, str], rule: str = "trust=strict") -> None:
        """Set the exposed names that are withheld, for the error of a call."""
        offer = self._offers.setdefault(server, _Offer())
        offer.withheld, offer.rule = dict(names), rule

    def refusal(self, name: str) -> CallDeniedError | None:
        """Return the error for a call of a withheld tool; `None` if it is not withheld."""
        for server, offer in self._offers.items():
            if name in offer.withheld:
                return _refusal(name, server, offer)
        return None

    def check(self, spec: ServerSpec, tool: ToolDef) -> None:
        """Check a tool again just before its call is sent: a new connection may have listed changed tools.

        Raises:
            CallDeniedError: The tool is withheld now.
        """
        if self.withheld(spec, [tool.original_name]):
            offer = self._offers.get(spec.name) or _Offer()
            raise _refusal(tool.name, spec.name, offer.replace(rule=self.rule(spec)))

    def changes(self, server: str) -> Changes:
        """Return the differences from the pins, with the fingerprint to approve them."""
        offer = self._offers.get(server)
        if offer is None or offer.verdict is None:
            return Changes()
        found = Changes(offer.verdict.changes)
        found.fingerprint = fingerprint_of(found, offer.pins)
        found.is_withheld = offer.verdict.trust in HOLDING and any(one.what != "removed" for one in found)
        found.texts = self._texts(found)
        return found

    def forget(self, server: str) -> None:
        """Forget a server that is gone."""
        self._offers.pop(server, None)

    def looking(self) -> set[asyncio.Task[None]]:
        """Begin the checks that are due, and return those that are running."""
        self._check_due_now()
        return set(self._tasks)

    def _verdict(self, spec: ServerSpec) -> Verdict | None:
        offer = self._offers.get(spec.name)
        return None if offer is None else offer.verdict

    def _check_due_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            due, self._due = self._due, {}
            self._begin(self._check_due(list(due.values())))

    async def _check_due(self, due: list[tuple[ServerSpec, _Offer]]) -> None:
        """Check listings: those that are as they were when they were checked last in one thread."""
        listed = [(offer.tools, offer.prompts) for _, offer in due]
        are_known = await asyncio.to_thread(lambda: [self._is_known(*one) for one in due])
        for (spec, offer), (tools, prompts), is_known in zip(due, listed, are_known, strict=True):
            if offer.tools is not tools or offer.prompts is not prompts:
                continue  # it is due again, or was checked with its prompts
            if is_known:
                offer.pins, offer.verdict, offer.reported = None, Verdict(trust=self.trust(spec)), ""
            else:
                await self._check_offer(spec, offer)

    def _is_known(self, spec: ServerSpec, offer: _Offer) -> bool:
        try:
            return self._pins().is_as_checked(spec, _digest(offer))
        except Exception:  # noqa: BLE001 -- the check of this one listing says what is wrong
            return False

    async def _check_offer(self, spec: ServerSpec, offer: _Offer, *, keeps: bool = False) -> None:
        # One check at a time, so that an older listing never overwrites a newer result.
        async with offer.order:
            tools = offer.tools
            try:
                pins, verdict = await asyncio.to_thread(self._checked, spec, offer, keeps)
            except Exception:
                logger.exception("%s: could not compare its tools with the pins", spec.name)
                offer.verdict = None
                return
            if offer.tools is tools:
                offer.pins, offer.verdict = pins, verdict
                await self._report(spec, offer, verdict, pins)

    def _checked(
        self,
        spec: ServerSpec,
        offer: _Offer,
        keeps: bool,  # noqa: FBT001 -- for a thread
    ) -> tuple[ServerPins | None, Verdict]:
        """Compare a listing; return its pins only if it has changes, or if they are to be kept.

        A listing that was compared with the same lock files before, and had no changes, has none now.
        """
        store = self._pins()
        digest = _digest(offer)
        if not keeps and store.is_as_checked(spec, digest):
            return None, Verdict(trust=self.trust(spec))
        now = pins_of(
            offer.tools,
            prompts=offer.prompts,
            instructions=offer.instructions,
            hides=self._redactor.holds,
            capabilities=offer.declared,
        )
        verdict = store.check(spec, now)
        is_known = not verdict.changes and not verdict.problem
        if is_known:
            store.note_checked(spec, digest)
        return None if is_known and not keeps else now, verdict

    def _check_cached(
        self, spec: ServerSpec, entries: Sequence[tuple[Mapping[str, Any], str]]
    ) -> tuple[Verdict, ServerPins]:
        wholes = (whole(head, schemas) for head, schemas in entries)
        now = pins_of(wholes, hides=self._redactor.holds, capabilities=ANY)
        verdict = self._pins().look(spec, now)
        there = [change for change in verdict.changes if change.what != "removed"]
        return verdict.replace(changes=there), now

    def _pins(self) -> Pins:
        if self._store is None:
            folder = user_data_folder(self._user) if self._user else None
            self._store = Pins(self._root, folder, default=self._default)
        return self._store

    async def _report(
        self, spec: ServerSpec, offer: _Offer, verdict: Verdict, now: ServerPins | None
    ) -> None:
        if not verdict.changes:
            offer.reported = ""
            return
        # In a thread, because a server may change thousands of tools.
        fingerprint = await asyncio.to_thread(fingerprint_of, verdict.changes, now)
        if fingerprint == offer.reported:
            return
        offer.reported = fingerprint
        texts = await asyncio.to_thread(self._texts, verdict.changes)
        heads = "; ".join(text.partition("\n")[0] for text in texts[:5])
        more = f" and {len(texts) - 5} more" if len(texts) > 5 else ""
        state = "withheld" if self.holds_back(spec) or verdict.problem else "still enabled"
        if verdict.problem:
            logger.error("%s: withheld: %s: %s", spec.name, heads, _unpinned(verdict.problem))
        logger.warning(
            "%s: tools changed since you approved them (%s); review: %s: %s%s",
            spec.name,
            state,
            _how_to_review(spec),
            heads,
            more,
        )
        event = DefinitionsChanged(
            server=spec.name,
            tools=tuple(change.name for change in verdict.changes if change.kind == "tool"),
            withheld=tuple(sorted(verdict.withheld)),
            changes=tuple(texts),
            fingerprint=fingerprint,
        )
        self._publish(event)

    def _texts(self, changes: Iterable[PinChange]) -> list[str]:
        return [self._redactor.mask("\n".join(describe(change))) for change in changes]

    def _begin(self, job: Any) -> None:
        task = asyncio.create_task(job, name="dragoman pins")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _digest(offer: _Offer) -> str:
    """Return the hash of what a server offers."""
    said = [offer.tools, offer.prompts, offer.instructions, offer.declared]
    # `marshal` is three times as fast as `json`; its second format is the same in every process.
    return hashlib.sha256(marshal.dumps(said, 2)).hexdigest()


def declared_by(handlers: Handlers | None, server: str) -> str:
    """Return the capabilities that a client with these handlers declares to a server, as a short key."""
    if handlers is None:
        return ""
    roots = handlers.roots(server) if callable(handlers.roots) else handlers.roots
    roots = roots if handlers.list_roots is None else ()
    given = {"elicitation": handlers.elicitation, "roots": roots, "sampling": handlers.sampling}
    return "+".join(name for name, value in given.items() if value is not None)


def _how_to_review(spec: ServerSpec) -> str:
    # The commands know only servers of configuration files.
    is_code = spec.origin.scope in ("code", "session")
    return (
        f"`mcp.trust.changes({spec.name!r})`" if is_code else f"dragoman trust show {shlex.quote(spec.name)}"
    )


def _refusal(name: str, server: str, offer: _Offer) -> CallDeniedError:
    msg = f"`{name}` is withheld: its definition changed since it was approved"
    hint, public = f"review the change and run `dragoman trust approve {shlex.quote(server)}`", ""
    if offer.verdict is not None and offer.verdict.problem:
        msg = f"`{name}` is withheld: {_unpinned(offer.verdict.problem)}"
        hint = 'make the file writable, or set `trust = "warn"` in its entry'
        public = f"`{name}` is withheld: the tools of its server cannot be pinned"
    return CallDeniedError(msg, tool=name, server=server, rule=offer.rule, hint=hint, public_message=public)


def _unpinned(problem: str) -> str:
    return f"its `trust` is strict, and its tools cannot be pinned: {problem}"


def whole(head: Mapping[str, Any], schemas: str) -> dict[str, Any]:
    """Return an entry of a cached listing in the form that the server sent."""
    given, output = json.loads(schemas)
    return {**head, "inputSchema": given, "outputSchema": output}
