"""What servers offer now against what was pinned: looked at after every listing, kept for those who ask.

Looking reads files and hashes, so it happens in a thread. The listing of a server whose trust withholds
(`ask`, `strict`) waits for it; others are offered meanwhile. What differs is told once, as an event and a
line in the log. Where such a server was not looked at, for whatever reason, nothing of it is offered. What
is approved is what was told last, never a newer listing that was not.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dragoman.errors import CallDeniedError, DragomanError
from dragoman.events import DefinitionsChanged
from dragoman.pin_store import Pins
from dragoman.trust.pins import ANY, HOLDING, Change, ServerPins, Verdict, describe, fingerprint_of, pins_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.events import Event
    from dragoman.model import Handlers, ServerSpec, ToolDef
    from dragoman.trust.pins import Kind, Trust
    from dragoman.trust.redactor import Redactor

logger = logging.getLogger("dragoman")


class Changes(list[Change]):
    """What is not as it was pinned, at one moment."""

    fingerprint: str = ""
    """What `McpManager.approve` takes, to approve this and nothing newer."""
    is_withheld: bool = False
    """Whether any of it is not offered until it is approved."""
    texts: Sequence[str] = ()
    """Each of them in lines for a person, harmless and without secrets."""


@dataclass(slots=True)
class _Offer:
    """What is known of one server."""

    tools: Sequence[Mapping[str, Any]] = ()
    prompts: Sequence[Mapping[str, Any]] | None = None
    instructions: str | None = None
    is_listed: bool = False
    """Whether the server has listed anything itself."""
    declared: str = ""
    """The capabilities that the client declared."""
    pins: ServerPins | None = None
    """What was looked at last, and told."""
    verdict: Verdict | None = None
    """`None` until it was looked at."""
    told: str = ""
    """The fingerprint of the difference that was told last."""
    withheld: dict[str, str] = field(default_factory=dict[str, str])
    """By exposed name, what the server calls a tool that is not offered."""
    rule: str = ""
    """By which they are not."""
    order: asyncio.Lock = field(default_factory=asyncio.Lock)


class Pinboard:
    """The pins of all servers of a manager."""

    def __init__(
        self, root: str, *, redactor: Redactor, publish: Callable[[Event], None], default: Trust = "warn"
    ) -> None:
        """Look into the lock files of a project and of the user.

        Args:
            root: The project's directory.
            redactor: Tells what no lock file and no event may show.
            publish: Told of every difference.
            default: The trust of servers that say nothing about it.
        """
        self._default: Trust = default
        self._root = root
        self._redactor = redactor
        self._publish = publish
        self._offers: dict[str, _Offer] = {}
        self._store: Pins | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def trust(self, spec: ServerSpec) -> Trust:
        """Return the trust that holds for a server."""
        return spec.trust or self._default

    def holds_back(self, spec: ServerSpec) -> bool:
        """Return whether what is not as it was pinned is withheld."""
        return (spec.trust or self._default) in HOLDING

    def rule(self, spec: ServerSpec) -> str:
        """Return what a refused call names as the rule that decided."""
        return f"trust={self.trust(spec)}"

    async def vet(
        self,
        spec: ServerSpec,
        tools: Sequence[Mapping[str, Any]],
        instructions: str | None,
        *,
        declared: str = "",
    ) -> None:
        """Take a listing in; for a server whose trust withholds, return only when it was looked at.

        Args:
            spec: The server.
            tools: Its listing, raw.
            instructions: What it says about its use.
            declared: The capabilities that were declared to it, as `declared_by` gives them.
        """
        offer = self._offers.setdefault(spec.name, _Offer())
        offer.tools, offer.instructions, offer.declared = tools, instructions, declared
        offer.is_listed = True
        if self.trust(spec) == "off":
            offer.verdict, offer.told = None, ""
        elif self.holds_back(spec):
            # Until there is a verdict on this very listing, nothing of it is offered.
            offer.verdict = None
            await self._look(spec, offer)
        else:
            self._begin(self._look(spec, offer))

    async def vet_prompts(self, spec: ServerSpec, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Take a listing of prompts in, and return when it was looked at."""
        offer = self._offers.setdefault(spec.name, _Offer())
        offer.prompts = prompts
        if self.trust(spec) != "off":
            await self._look(spec, offer)

    async def revisit(self, spec: ServerSpec) -> None:
        """Look again at what a server offers: its spec may have other rules, or somebody approved it."""
        offer = self._offers.get(spec.name)
        if offer is None or not offer.is_listed:
            return
        if self.trust(spec) == "off":
            offer.verdict, offer.told = None, ""
        else:
            await self._look(spec, offer)

    async def approve(
        self,
        spec: ServerSpec,
        *,
        tools: Iterable[str] | None,
        in_project: bool,
        fingerprint: str | None = None,
    ) -> None:
        """Pin what was told last of what a server offers.

        Args:
            spec: The server.
            tools: Which tools; everything unless given.
            in_project: Whether the project's lock file is written too.
            fingerprint: Of what was shown to whoever approves it.

        Raises:
            DragomanError: It was not looked at yet, it offers something else than what was shown, or the lock
                file cannot be written.
        """
        offer = self._offers.get(spec.name)
        if offer is not None and offer.is_listed and offer.pins is None and self.trust(spec) != "off":
            await self._look(spec, offer)
            if offer.verdict is not None and offer.verdict.changes and fingerprint is None:
                msg = f"what server `{spec.name}` offers was compared only now, and it changed"
                raise DragomanError(msg, hint=f"look at `changes({spec.name!r})` first")
        if offer is None or offer.pins is None:
            msg = f"server `{spec.name}` has listed nothing that could be approved"
            raise DragomanError(msg, hint="connect it first; with `trust` off nothing is pinned")
        pins = offer.pins
        if fingerprint is not None and fingerprint != self.changes(spec.name).fingerprint:
            msg = f"server `{spec.name}` offers something else than what was shown, and nothing is approved"
            raise DragomanError(msg, hint=f"look at `changes({spec.name!r})` again, and approve that")
        names = None if tools is None else list(tools)
        await asyncio.to_thread(self._pins().approve, spec, pins, tools=names, in_project=in_project)
        await self._look(spec, offer)

    def fits(self, spec: ServerSpec, entries: Sequence[tuple[Mapping[str, Any], str]]) -> frozenset[str]:
        """Return the tools of a remembered listing that must not be offered; reads files.

        A remembered listing lacks what could not be used or showed a secret, so what is missing is no change.
        """
        if not self.holds_back(spec):
            return frozenset()
        return self._remembered(spec, entries)[0].withheld

    def look_at_remembered(self, spec: ServerSpec, entries: Sequence[tuple[Mapping[str, Any], str]]) -> None:
        """Tell of differences in a remembered listing, of a server that may not list anything for long."""

        async def look() -> None:
            verdict, now = await asyncio.to_thread(self._remembered, spec, entries)
            if (offer := self._offers.setdefault(spec.name, _Offer())).verdict is None:
                self._tell(spec, offer, verdict, now)

        if self.trust(spec) != "off":
            self._begin(look())

    def withheld(self, spec: ServerSpec, names: Iterable[str], kind: Kind = "tool") -> frozenset[str]:
        """Return which of a server's tools, or prompts, must not be offered."""
        if not self.holds_back(spec):
            return frozenset()
        verdict = self._verdict(spec)
        if verdict is None:
            return frozenset(names)
        return frozenset(name for name in names if verdict.standing(name, kind) != "offered")

    def hides_instructions(self, spec: ServerSpec) -> bool:
        """Return whether a server's instructions must not be shown to a model."""
        if not self.holds_back(spec):
            return False
        verdict = self._verdict(spec)
        return verdict is None or verdict.standing("", "instructions") != "offered"

    def keep_back(self, server: str, names: Mapping[str, str], rule: str = "trust=strict") -> None:
        """Remember which exposed names are not offered, to say so to those who call one."""
        offer = self._offers.setdefault(server, _Offer())
        offer.withheld, offer.rule = dict(names), rule

    def refusal(self, name: str) -> CallDeniedError | None:
        """Return the error for a call of a tool that is withheld."""
        for server, offer in self._offers.items():
            if name in offer.withheld:
                return _refusal(name, server, offer)
        return None

    def check(self, spec: ServerSpec, tool: ToolDef) -> None:
        """Look once more when a call is sent: it may have waited for a connection that lists something else.

        Raises:
            CallDeniedError: The tool is withheld by now.
        """
        if self.withheld(spec, [tool.original_name]):
            offer = self._offers.get(spec.name) or _Offer()
            raise _refusal(tool.name, spec.name, replace(offer, rule=self.rule(spec)))

    def changes(self, server: str) -> Changes:
        """Return what is not as it was pinned, with the fingerprint that approves it."""
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
        """Return what still looks."""
        return set(self._tasks)

    def _verdict(self, spec: ServerSpec) -> Verdict | None:
        offer = self._offers.get(spec.name)
        return None if offer is None else offer.verdict

    async def _look(self, spec: ServerSpec, offer: _Offer) -> None:
        # One look after the other, so that an older listing never has the last word.
        async with offer.order:
            tools = offer.tools
            try:
                pins, verdict = await asyncio.to_thread(self._checked, spec, offer)
            except Exception:
                logger.exception("%s: its tools could not be compared with what was pinned", spec.name)
                offer.verdict = None
                return
            if offer.tools is tools:
                offer.pins, offer.verdict = pins, verdict
                self._tell(spec, offer, verdict, pins)

    def _checked(self, spec: ServerSpec, offer: _Offer) -> tuple[ServerPins, Verdict]:
        now = pins_of(
            offer.tools,
            prompts=offer.prompts,
            instructions=offer.instructions,
            hides=self._redactor.holds,
            capabilities=offer.declared,
        )
        return now, self._pins().check(spec, now)

    def _remembered(
        self, spec: ServerSpec, entries: Sequence[tuple[Mapping[str, Any], str]]
    ) -> tuple[Verdict, ServerPins]:
        wholes = (whole(head, schemas) for head, schemas in entries)
        now = pins_of(wholes, hides=self._redactor.holds, capabilities=ANY)
        verdict = self._pins().look(spec, now)
        there = [change for change in verdict.changes if change.what != "removed"]
        return replace(verdict, changes=there), now

    def _pins(self) -> Pins:
        if self._store is None:
            self._store = Pins(self._root, default=self._default)
        return self._store

    def _tell(self, spec: ServerSpec, offer: _Offer, verdict: Verdict, now: ServerPins) -> None:
        fingerprint = fingerprint_of(verdict.changes, now)
        if fingerprint == offer.told:
            return
        offer.told = fingerprint
        if not verdict.changes:
            return
        texts = self._texts(verdict.changes)
        heads = "; ".join(text.partition("\n")[0] for text in texts[:5])
        more = f" and {len(texts) - 5} more" if len(texts) > 5 else ""
        what = "is withheld" if self.holds_back(spec) else "is offered all the same"
        if verdict.problem:
            logger.error("%s: %s is withheld: %s", spec.name, heads, _unpinned(verdict.problem))
            what = "is withheld"
        logger.warning(
            "%s: what it offers is not what was pinned, and %s until `dragoman trust approve %s`: %s%s",
            spec.name,
            what,
            spec.name,
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

    def _texts(self, changes: Iterable[Change]) -> list[str]:
        return [self._redactor.mask("\n".join(describe(change))) for change in changes]

    def _begin(self, job: Any) -> None:
        task = asyncio.create_task(job, name="dragoman pins")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def declared_by(handlers: Handlers | None, server: str) -> str:
    """Return the capabilities that a client with these handlers declares to a server, as a short key."""
    if handlers is None:
        return ""
    roots = handlers.roots(server) if callable(handlers.roots) else handlers.roots
    given = {"elicitation": handlers.elicitation, "roots": roots, "sampling": handlers.sampling}
    return "+".join(name for name, value in given.items() if value is not None)


def _refusal(name: str, server: str, offer: _Offer) -> CallDeniedError:
    msg = f"`{name}` was not called: its definition is not the one that was pinned"
    hint = f"look at the change and run `dragoman trust approve {server}`"
    if offer.verdict is not None and offer.verdict.problem:
        msg = f"`{name}` was not called: {_unpinned(offer.verdict.problem)}"
        hint = 'make that place writable, or write `trust = "warn"` into its entry'
    return CallDeniedError(msg, tool=name, server=server, rule=offer.rule, hint=hint)


def _unpinned(problem: str) -> str:
    return f"its `trust` is strict, and what it offers cannot be pinned: {problem}"


def whole(head: Mapping[str, Any], schemas: str) -> dict[str, Any]:
    """Return an entry of a remembered listing as the server listed it."""
    given, output = json.loads(schemas)
    return {**head, "inputSchema": given, "outputSchema": output}
