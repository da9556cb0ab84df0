"""ToolCatalog: keeps the registry in step with the tools that servers list, or listed in the last run.

It publishes every change. A tool that did not change stays the same object in the same place. A tool that the
pins withhold is not offered, but keeps its name. The catalog never connects to a server.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import marshal
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dragoman.model import RemoteTool
from dragoman.struct import MutableStruct, Struct, field
from dragoman.tools.definition import admit, difference, fill_in_schemas, readmit, shown
from dragoman.tools.names import has_chinese, is_exposed, learn_spelling
from dragoman.tools.registry import SLICE, Settled, finished, slices
from dragoman.trust.sanitizing import for_log
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from dragoman.events import Event
    from dragoman.model import ServerSpec, ToolDef, ToolResult
    from dragoman.storage.manifests import ManifestMemory
    from dragoman.tools.definition import MakeFunc, Rejected
    from dragoman.tools.registry import RemoteCall, ToolRegistry
    from dragoman.tools.transforms import Refusal
    from dragoman.trust.gate import Gate
    from dragoman.trust.limits import Limits

logger = logging.getLogger("dragoman")

T = TypeVar("T")

MAX_WARNING = 500
"""Characters of a warning about a transform; it may have names that a server has chosen."""

EMPTY_ALLOWS = (
    " (an empty list allows none; leave it out to allow all, or read a map of RRClaw, where it allows all, "
    'with `profile="rrclaw"`)'
)


class AsyncRemoteTool(RemoteTool):
    """A server's tool whose `func` is async."""

    __slots__ = ()

    async def call(self, /, **arguments: Any) -> str:
        """Run the tool with keyword arguments and return its text.

        Raises:
            ToolExecutionError: The call failed; the subclass says why.
        """
        result: ToolResult = await self.execute(arguments)
        return result.raise_for_error().text


class _Recalled(Struct):
    """The tools of a server from the last run."""

    digest: str
    """The hash of the listing that they were made from; empty if it is not known."""
    handshake: str
    spec: ServerSpec
    template: str
    tools: list[ToolDef]
    withheld: frozenset[str]


class _Known(Struct):
    """The tools of a server, under the names that they ask for."""

    tools: Sequence[ToolDef] = ()
    withheld: Sequence[ToolDef] = ()
    """Not offered, but their names stay reserved."""
    recalled: _Recalled | None = None


class _Read(MutableStruct):
    """A listing; a long one is read ahead of `update`."""

    listing: Sequence[dict[str, Any]]
    spec: ServerSpec
    template: str
    limits: Limits
    digest: str = ""
    """Its hash; empty if it is not needed, or has none."""
    tools: list[ToolDef] = field(default_factory=list["ToolDef"])
    rejected: list[Rejected] = field(default_factory=list["Rejected"])
    is_recalled: bool = False
    """Whether it is the listing of the last run, so that the registry holds its tools already."""
    withheld: frozenset[str] = frozenset()
    settled: Settled | None = None
    """What its registration has changed; `None` if the registry does not hold exactly these tools."""


class ToolCatalog:
    """Adds the tools of servers to a registry, and removes them again."""

    def __init__(
        self,
        registry: ToolRegistry,
        memory: ManifestMemory | None,
        *,
        gate: Gate,
        publish: Callable[[Event], None],
        remote: RemoteCall,
        make_func: MakeFunc,
        order: Callable[[], Iterable[str] | None] = lambda: None,
    ) -> None:
        """Use `registry`.

        Args:
            registry: Where the tools go.
            memory: The cached listings; `None` if listings are not cached.
            gate: Decides which tools are withheld.
            publish: Called with every change.
            remote: Runs a server's tool by its exposed name.
            make_func: Makes the `func` of a server's tool.
            order: Returns the servers in the order of the configuration, if the first one wins a name that
                several servers ask for.
        """
        self._registry = registry
        self._memory = memory
        self._gate = gate
        self._publish = publish
        self._remote = remote
        self._make_func = make_func
        self._order = order
        self._emptied: dict[str, tuple[object, object]] = {}
        """The filters that leave no tool of a server, by server."""
        self._said: dict[str, tuple[object, set[str]]] = {}
        """The transforms of a server, and the warnings about them, by server."""
        self._read: dict[str, _Read] = {}
        """The long listings in use, by server."""
        self._recalled: dict[str, _Recalled] = {}
        """What the registry holds from the last run, by server."""

    async def load_cached(self, spec: ServerSpec, naming: str, *, starts: bool) -> int:
        """Offer the tools that a server listed in the last run; return how many are offered.

        For the start of the manager: only name conflicts are published.

        Args:
            spec: The server.
            naming: The naming template for specs without one.
            starts: Whether the server will list its tools soon.
        """
        known = await _in_slices(self._recalling(spec, naming, starts=starts))
        if known is None:
            return 0
        await _learn_spelling([tool.name for tool in known.tools])
        self._note(spec.name, known)
        self._publish_each(self._registry.arrange(self._order()).contested)
        settled = await _in_slices(self._replacing(spec.name, known))
        self._publish_each(settled.contested if settled is not None else ())
        return self._registry.count(spec.name)

    def handshake(self, server: str) -> str:
        """Return the hash of what a server said in the older handshake, if that was its last protocol."""
        known = self._recalled.get(server)
        return known.handshake if known is not None else ""

    async def read_ahead(
        self,
        spec: ServerSpec,
        listing: Sequence[dict[str, Any]],
        naming: str,
        *,
        is_current: Callable[[], bool],
    ) -> None:
        """Read and register a long listing in slices, so that `update` has little left to do.

        The event loop runs between the slices. A short listing is left to `update`.

        Args:
            spec: The server.
            listing: Its tool definitions, as the server sent them.
            naming: The naming template for specs without one.
            is_current: Returns whether this server is the one in use under its name, and still expected.
        """
        self._read.pop(spec.name, None)
        await _learn_spelling([spec.name, *(str(raw.get("name")) for raw in listing)])
        if len(listing) <= SLICE:
            return
        read = _Read(listing, spec, spec.naming or naming, self._gate.limits_of(spec))
        for _ in self._hashing(read):
            await asyncio.sleep(0)  # the other tasks run now
        if self._take_recalled(read):
            self._read[spec.name] = read
            return
        for start in range(0, len(listing), SLICE):
            tools, rejected = self._admit(read, listing[start : start + SLICE])
            read.tools += tools
            read.rejected += rejected
            await asyncio.sleep(0)
        if not is_current():
            return
        self._note(spec.name, _Known())
        self._read[spec.name] = read
        read.withheld = self._withheld(spec, read.tools)
        self.arrange()
        work = self._replacing(spec.name, self._split(spec, read.tools, read.withheld))
        settled = await _in_slices(work, lambda: self._read.get(spec.name) is read and is_current())
        if self._read.get(spec.name) is read:
            read.settled = settled

    def update(
        self,
        spec: ServerSpec,
        listing: Sequence[dict[str, Any]],
        naming: str,
        *,
        is_current: bool,
        is_ready: bool,
        is_private: bool = False,
        handshake: str = "",
    ) -> int:
        """Offer the tools that a server has just listed; return how many are offered.

        Args:
            spec: The server.
            listing: Its tool definitions, as the server sent them.
            naming: The naming template for specs without one.
            is_current: Whether this server is the one in use under its name; if not, only count its tools.
            is_ready: Whether the server is ready; if not, do not cache the listing.
            is_private: Whether the listing is for the credentials in use only; it is not cached then, since
                the next program may use others.
            handshake: The hash of what the server said in the older handshake, to be kept with the listing.
        """
        limits = self._gate.limits_of(spec)
        read = self._read.get(spec.name)
        asked = (spec, spec.naming or naming, limits)
        if read is None or read.listing is not listing or (read.spec, read.template, read.limits) != asked:
            read = _Read(listing, *asked)
            deque(self._hashing(read), 0)
            if not self._take_recalled(read):
                read.tools, read.rejected = self._admit(read, listing)
        tools, rejected = read.tools, read.rejected
        for one in rejected:
            logger.warning("%s: tool `%s` is skipped: %s", spec.name, one.tool, one.reason)
        self._warn_of_empty(spec, len(listing) - len(rejected), exposed=len(tools))
        if spec.tools and listing:
            from dragoman.tools.transforms import unused_transforms

            for unused in unused_transforms(spec, listing):
                self._warn_once(spec, unused)
        if not is_current:
            return len(tools)
        if self._memory is not None and is_private:
            self._memory.forget(spec)
        elif self._memory is not None and is_ready:
            useless = {one.tool for one in rejected}
            usable = [raw for raw in listing if str(raw.get("name")) not in useless]
            fill_in_schemas({"tools": usable})
            known = self._recalled.get(spec.name)
            if read.is_recalled and known is not None and known.handshake == handshake:
                self._memory.keep_known(spec)
            else:
                digest = "" if rejected else read.digest
                self._memory.keep(spec, usable, digest=digest, handshake=handshake)
        self._registry.limit_descriptions(spec.name, limits.description_chars)
        withheld = self._withheld(spec, tools)
        settled, read.settled = read.settled, None
        if settled is not None and withheld == read.withheld:
            self._publish_changes(settled)
            return self._registry.count(spec.name)
        count = self._replace(spec.name, self._split(spec, tools, withheld))
        if len(listing) > SLICE:
            self._read[spec.name] = read
        return count

    def _warn_of_empty(self, spec: ServerSpec, listed: int, *, exposed: int) -> None:
        """Warn, once for each filter, that it leaves none of the tools of a server."""
        rules = (spec.allowed_tools, spec.denied_tools)
        if exposed or not listed:
            self._emptied.pop(spec.name, None)
        elif self._emptied.get(spec.name) != rules:
            self._emptied[spec.name] = rules
            hint = EMPTY_ALLOWS if spec.allowed_tools == () else ""
            line = "%s: 0 of %d tools are offered: %s leaves out all%s"
            words = "`allowed_tools` or `denied_tools`" if not spec.tools else "its configuration"
            logger.warning(line, spec.name, listed, words, hint)

    def _warn_once(self, spec: ServerSpec, text: object) -> None:
        """Warn about a transform of a server, once for each configuration."""
        known = self._said.get(spec.name)
        said: set[str] = known[1] if known is not None and known[0] == spec.tools else set()
        self._said[spec.name] = (spec.tools, said)
        if (line := for_log(str(text), MAX_WARNING)) not in said:
            said.add(line)
            logger.warning("%s: %s", spec.name, line)

    def reload(self, spec: ServerSpec, naming: str, *, starts: bool) -> int:
        """Offer the known tools of a server that was just installed or has new rules; return how many.

        Args:
            spec: The server, which is not connected.
            naming: The naming template for specs without one.
            starts: Whether the server will list its tools soon. If it has no cached listing, the tools that
                are offered under its name stay until then.
        """
        known = self._recall(spec, naming, starts=starts)
        if known is None and starts:
            allowed, denied = spec.allowed_tools, spec.denied_tools
            before = self._registry.wanted(spec.name)
            tools = [tool if tool.transform is None else tool.transform.original for tool in before]
            tools = [tool for tool in tools if is_exposed(tool.original_name, allowed=allowed, denied=denied)]
            known = _Known(self._shown(tools, spec, spec.naming or naming))
        return self._replace(spec.name, known or _Known())

    def clear(self, server: str) -> None:
        """Remove all tools of a server."""
        self._gate.pin_checker.set_withheld(server, {})
        self._replace(server, _Known())

    def forget(self, server: str) -> None:
        """Remove all tools of a server, and release their names."""
        self.clear(server)
        self._said.pop(server, None)
        self._registry.forget(server)

    def arrange(self) -> None:
        """Apply the order of the configuration to names that several servers ask for."""
        self._publish_changes(self._registry.arrange(self._order()))

    def saving(self) -> set[asyncio.Task[None]]:
        """Return the tasks that are writing listings to the cache."""
        return self._memory.saving() if self._memory is not None else set()

    def _recall(self, spec: ServerSpec, naming: str, *, starts: bool) -> _Known | None:
        """Return the cached tools of a server, if any."""
        return finished(self._recalling(spec, naming, starts=starts))

    def _recalling(
        self, spec: ServerSpec, naming: str, *, starts: bool
    ) -> Generator[None, None, _Known | None]:
        """Do the same with a pause after each slice."""
        if self._memory is None or not spec.enabled:
            return None
        manifest = self._memory.recall(spec)
        if manifest is None:
            return None
        entries, template = manifest.entries, spec.naming or naming
        tools: list[ToolDef] = []
        for some in slices(entries):
            tools += readmit(
                some, spec, template=template, make_func=self._make_func, on_refused=self._on_refused(spec)
            )
            if len(some) == SLICE:
                yield
        if not starts:
            # The server may not list its tools for a long time, so check the cached ones now.
            self._gate.pin_checker.check_cached(spec, entries)
        withheld = self._gate.pin_checker.matches(spec, entries)
        recalled = _Recalled(manifest.digest, manifest.handshake, spec, template, tools, withheld)
        return self._split(spec, tools, withheld).replace(recalled=recalled)

    def _note(self, server: str, known: _Known) -> None:
        """Note which tools of a server the registry gets now."""
        self._read.pop(server, None)
        self._recalled.pop(server, None)
        if known.recalled is not None:
            self._recalled[server] = known.recalled

    def _take_recalled(self, read: _Read) -> bool:
        """Take the tools of the last run for an unchanged listing; return whether it is one.

        Its manifest was written by this version, with the same limits, and no definition was rejected.
        """
        known = self._recalled.get(read.spec.name)
        if known is None or not read.digest:
            return False
        if (known.digest, known.spec, known.template) != (read.digest, read.spec, read.template):
            return False
        read.tools, read.withheld, read.settled = known.tools, known.withheld, Settled()
        read.is_recalled = True
        return True

    def _hashing(self, read: _Read) -> Generator[None]:
        """Compute the hash of a listing in slices."""
        if self._memory is None:
            return
        found = hashlib.sha256(f"{VERSION} {read.limits}".encode())
        some: Any
        for some in slices(read.listing):
            try:
                # It is three times as fast as `json`; its second format is the same in every process.
                found.update(marshal.dumps(some, 2))
            except ValueError:  # It is nested too deeply.
                return
            yield
        read.digest = found.hexdigest()

    def _split(self, spec: ServerSpec, tools: Sequence[ToolDef], withheld: frozenset[str]) -> _Known:
        """Separate the withheld tools of a server from the others, and record them for error messages."""
        held = [tool for tool in tools if tool.original_name in withheld]
        self._gate.pin_checker.set_withheld(
            spec.name, {tool.name: tool.original_name for tool in held}, self._gate.pin_checker.rule(spec)
        )
        return _Known([tool for tool in tools if tool.original_name not in withheld], held)

    def _replace(self, server: str, known: _Known) -> int:
        """Offer exactly these tools of a server; return how many got a name."""
        self._note(server, known)
        self.arrange()
        self._publish_changes(
            self._registry.replace_server(server, known.tools, remote=self._remote, withheld=known.withheld)
        )
        return self._registry.count(server)

    def _replacing(self, server: str, known: _Known) -> Generator[None, None, Settled]:
        return self._registry.replacing(server, known.tools, remote=self._remote, withheld=known.withheld)

    def _admit(self, read: _Read, listing: Sequence[dict[str, Any]]) -> tuple[list[ToolDef], list[Rejected]]:
        """Return the usable tools of a part of a listing, and the rejected definitions."""
        return admit(
            listing,
            read.spec,
            template=read.template,
            limits=read.limits,
            make_func=self._make_func,
            on_refused=self._on_refused(read.spec),
        )

    def _shown(self, tools: list[ToolDef], spec: ServerSpec, template: str) -> list[ToolDef]:
        """Return tools of a server as its spec shows them."""
        return shown(
            tools, spec, template=template, make_func=self._make_func, on_refused=self._on_refused(spec)
        )

    def _on_refused(self, spec: ServerSpec) -> Callable[[Refusal], object]:
        return lambda refusal: self._warn_once(spec, refusal)

    def _withheld(self, spec: ServerSpec, tools: Iterable[ToolDef]) -> frozenset[str]:
        return self._gate.pin_checker.withheld(spec, [tool.original_name for tool in tools])

    def _publish_changes(self, settled: Settled) -> None:
        """Publish every change; a name that two servers ask for changes the tools of both."""
        for server in sorted(settled.before.keys() | settled.after.keys()):
            before, after = settled.before.get(server, ()), settled.after.get(server, ())
            if (change := difference(server, before, after)) is not None:
                self._publish(change)
        self._publish_each(settled.contested)

    def _publish_each(self, events: Iterable[Event]) -> None:
        for event in events:
            self._publish(event)


async def _learn_spelling(names: list[str]) -> None:
    if has_chinese(names):
        await asyncio.to_thread(learn_spelling, names)


async def _in_slices(work: Generator[None, None, T], goes_on: Callable[[], bool] = lambda: True) -> T | None:
    """Run work that pauses between its slices; return `None` if it was given up half-way."""
    while goes_on():
        try:
            next(work)
        except StopIteration as end:
            return cast("T", end.value)
        await asyncio.sleep(0)
    return None
