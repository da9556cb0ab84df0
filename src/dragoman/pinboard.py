"""What servers offer now against what was pinned: looked at after every listing, kept for whoever asks.

Looking reads files and hashes, so it happens in a thread. A `strict` server's listing waits for it; others
are offered meanwhile. What differs is told once, as an event and a line in the log. Where a strict server was
not looked at, for whatever reason, nothing of it is offered.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dragoman.errors import CallDeniedError, DragomanError
from dragoman.events import DefinitionsChanged
from dragoman.trust.pins import ServerPins, Verdict, describe, pins_of
from dragoman.trust_store import Pins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.events import Event
    from dragoman.model import ServerSpec, ToolDef
    from dragoman.trust.pins import Change, Kind
    from dragoman.trust.redactor import Redactor

logger = logging.getLogger("dragoman")

RULE = "trust=strict"
"""What a refused call names as the rule that decided."""


@dataclass(slots=True)
class _Offer:
    """What is known of one server."""

    tools: Sequence[Mapping[str, Any]] = ()
    prompts: Sequence[Mapping[str, Any]] | None = None
    instructions: str | None = None
    pins: ServerPins | None = None
    verdict: Verdict | None = None
    """`None` until it was looked at."""
    told: Sequence[str] = ()
    withheld: dict[str, str] = field(default_factory=dict[str, str])
    """By exposed name, what the server calls a tool that is not offered."""
    order: asyncio.Lock = field(default_factory=asyncio.Lock)


class Pinboard:
    """The pins of all servers of a manager."""

    def __init__(self, root: str, *, redactor: Redactor, publish: Callable[[Event], None]) -> None:
        """Look into the lock files of a project and of the user.

        Args:
            root: The project's directory.
            redactor: Tells what no lock file and no event may show.
            publish: Told of every difference.
        """
        self._root = root
        self._redactor = redactor
        self._publish = publish
        self._offers: dict[str, _Offer] = {}
        self._store: Pins | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def vet(
        self, spec: ServerSpec, tools: Sequence[Mapping[str, Any]], instructions: str | None
    ) -> None:
        """Take a listing in; for a strict server, return only when it was looked at."""
        offer = self._offers.setdefault(spec.name, _Offer())
        offer.tools, offer.instructions = tools, instructions
        if spec.trust == "off":
            offer.verdict, offer.told = None, ()
        elif spec.trust == "strict":
            # Until there is a verdict on this very listing, nothing of it is offered.
            offer.verdict = None
            await self._look(spec, offer)
        else:
            self._begin(self._look(spec, offer))

    async def vet_prompts(self, spec: ServerSpec, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Take a listing of prompts in, and return when it was looked at."""
        offer = self._offers.setdefault(spec.name, _Offer())
        offer.prompts = prompts
        if spec.trust != "off":
            await self._look(spec, offer)

    async def revisit(self, spec: ServerSpec) -> None:
        """Look again at what a server offers: its spec may have other rules, or somebody approved it."""
        offer = self._offers.get(spec.name)
        if offer is None:
            return
        if spec.trust == "off":
            offer.verdict, offer.told = None, ()
        else:
            await self._look(spec, offer)

    async def approve(self, spec: ServerSpec, *, tools: Iterable[str] | None, in_project: bool) -> None:
        """Pin what a server offers now.

        Raises:
            DragomanError: It was not looked at yet, or the lock file cannot be written.
        """
        offer = self._offers.get(spec.name)
        if offer is not None and spec.trust != "off":
            # A listing may have come a moment ago: what is pinned is what was looked at last.
            await self._look(spec, offer)
        if offer is None or offer.pins is None:
            msg = f"server `{spec.name}` has listed nothing that could be approved"
            raise DragomanError(msg, hint="connect it first; with `trust` off nothing is pinned")
        names = None if tools is None else list(tools)
        pins = offer.pins
        await asyncio.to_thread(self._pins().approve, spec, pins, tools=names, in_project=in_project)
        await self._look(spec, offer)

    def fits(self, spec: ServerSpec, entries: Sequence[tuple[Mapping[str, Any], str]]) -> frozenset[str]:
        """Return the tools of a remembered listing that must not be offered; reads files.

        A remembered listing lacks what could not be used or showed a secret, so what is missing is no change.
        """
        if spec.trust != "strict":
            return frozenset()
        return self._remembered(spec, entries).withheld

    def look_at_remembered(self, spec: ServerSpec, entries: Sequence[tuple[Mapping[str, Any], str]]) -> None:
        """Tell of differences in a remembered listing, of a server that may not list anything for long."""

        async def look() -> None:
            verdict = await asyncio.to_thread(self._remembered, spec, entries)
            if (offer := self._offers.setdefault(spec.name, _Offer())).verdict is None:
                self._tell(spec, offer, verdict)

        if spec.trust != "off":
            self._begin(look())

    def withheld(self, spec: ServerSpec, names: Iterable[str], kind: Kind = "tool") -> frozenset[str]:
        """Return which of a server's tools, or prompts, must not be offered."""
        if spec.trust != "strict":
            return frozenset()
        verdict = self._verdict(spec)
        if verdict is None:
            return frozenset(names)
        return frozenset(name for name in names if verdict.standing(name, kind) != "offered")

    def hides_instructions(self, spec: ServerSpec) -> bool:
        """Tell whether a server's instructions must not be shown to a model."""
        if spec.trust != "strict":
            return False
        verdict = self._verdict(spec)
        return verdict is None or verdict.standing("", "instructions") != "offered"

    def keep_back(self, server: str, names: Mapping[str, str]) -> None:
        """Remember which exposed names are not offered, to say so to whoever calls one."""
        self._offers.setdefault(server, _Offer()).withheld = dict(names)

    def refusal(self, name: str) -> CallDeniedError | None:
        """Return the error for a call of a tool that is withheld."""
        for server, offer in self._offers.items():
            if name in offer.withheld:
                return _refusal(name, server)
        return None

    def check(self, spec: ServerSpec, tool: ToolDef) -> None:
        """Look once more when a call is sent: it may have waited for a connection that lists something else.

        Raises:
            CallDeniedError: The tool is withheld by now.
        """
        if self.withheld(spec, [tool.original_name]):
            raise _refusal(tool.name, spec.name)

    def changes(self, server: str) -> list[Change]:
        """Return what is not as it was pinned."""
        offer = self._offers.get(server)
        return [] if offer is None or offer.verdict is None else list(offer.verdict.changes)

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
                self._tell(spec, offer, verdict)

    def _checked(self, spec: ServerSpec, offer: _Offer) -> tuple[ServerPins, Verdict]:
        now = pins_of(
            offer.tools,
            prompts=offer.prompts,
            instructions=offer.instructions,
            hides=self._redactor.holds,
        )
        return now, self._pins().check(spec, now)

    def _remembered(self, spec: ServerSpec, entries: Sequence[tuple[Mapping[str, Any], str]]) -> Verdict:
        wholes = (whole(head, schemas) for head, schemas in entries)
        verdict = self._pins().look(spec, pins_of(wholes, hides=self._redactor.holds))
        there = [change for change in verdict.changes if change.what != "removed"]
        return replace(verdict, changes=there)

    def _pins(self) -> Pins:
        if self._store is None:
            self._store = Pins(self._root)
        return self._store

    def _tell(self, spec: ServerSpec, offer: _Offer, verdict: Verdict) -> None:
        texts = [self._redactor.mask("\n".join(describe(change))) for change in verdict.changes]
        if texts == list(offer.told):
            return
        offer.told = texts
        if not texts:
            return
        heads = "; ".join(text.partition("\n")[0] for text in texts[:5])
        more = f" and {len(texts) - 5} more" if len(texts) > 5 else ""
        what = "is withheld" if spec.trust == "strict" else "is offered all the same"
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
        )
        self._publish(event)

    def _begin(self, job: Any) -> None:
        task = asyncio.create_task(job, name="dragoman pins")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _refusal(name: str, server: str) -> CallDeniedError:
    msg = f"`{name}` was not called: its definition is not the one that was pinned"
    hint = f"look at the change and run `dragoman trust approve {server}`"
    return CallDeniedError(msg, tool=name, server=server, rule=RULE, hint=hint)


def whole(head: Mapping[str, Any], schemas: str) -> dict[str, Any]:
    """Return an entry of a remembered listing as the server listed it."""
    given, output = json.loads(schemas)
    return {**head, "inputSchema": given, "outputSchema": output}
