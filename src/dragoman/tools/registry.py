"""The registry of all tools of an agent, built-in and remote.

`names` decides which tool gets which name. Exports the tools in the form of each model API; an export is
cached until a tool is added, removed or changed. The registry never connects to anything: a remote tool
carries the function that calls it.

What a name means, from strict to lenient: `get` knows exposed names. `find` also knows every alias of an
export; calls use it. `resolve` also takes what people type: `server:tool`, `server.tool`, or a tool's own
name if only one server has it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from dragoman.errors import (
    CallTimeoutError,
    InvalidArgumentsError,
    ToolExecutionError,
    ToolFailedError,
    UnknownToolError,
)
from dragoman.events import NameContested
from dragoman.struct import MutableStruct, field
from dragoman.suggest import suggest
from dragoman.tools.export.apis import APIS, model_api
from dragoman.tools.host import HostTools
from dragoman.tools.names import (
    AliasTable,
    NameTable,
    Pair,
    alike,
    assign,
    qualified,
)
from dragoman.tools.view import MAX_SAID, ToolSet, ToolView, ambiguous, unknown
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from dragoman.model import ToolDef, ToolResult
    from dragoman.tools.export.export import Export, Exporter
    from dragoman.tools.host import HostRegistry
    from dragoman.tools.names import Outcome

logger = logging.getLogger("dragoman")

MAX_SHOWN = 200
"""Characters of a name in a log line."""

ALIAS_RULES = tuple(dict.fromkeys(model_api(api).names for api in APIS))
"""The rules of every export; the modules of the APIs are imported with this one, off the event loop."""

SLICE = 250
"""Tools that are registered at once; the event loop runs in between."""

T = TypeVar("T")

MAX_NAME = 1_000
"""Characters of a name that is looked up; no tool has a longer one."""


class RemoteCall(Protocol):
    """Calls a remote tool by its exposed name; a failed call is a result too."""

    async def __call__(
        self, name: str, arguments: Mapping[str, Any] | None, *, timeout: float | None = None
    ) -> ToolResult:
        """Call the tool."""
        ...


class Permit(Protocol):
    """Checks a call of a built-in tool, and returns the arguments to pass to it."""

    async def __call__(self, tool: ToolDef, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Check the call; raise if it is denied."""
        ...


class _Claim(MutableStruct):
    """A server's tool, with its preferred name and as it is offered."""

    pair: Pair
    tool: ToolDef
    remote: RemoteCall | None
    is_withheld: bool = False
    offered: ToolDef | None = None


class Settled(MutableStruct):
    """The effect of a change on the tools of all servers."""

    before: dict[str, list[ToolDef]] = field(default_factory=dict[str, "list[ToolDef]"])
    """By server, the tools that were removed, changed or renamed."""
    after: dict[str, list[ToolDef]] = field(default_factory=dict[str, "list[ToolDef]"])
    contested: list[NameContested] = field(default_factory=list["NameContested"])


class ToolRegistry(ToolSet):
    """Tools by exposed name; iteration is sorted, so that prompt caches stay valid."""

    def __init__(self, *, host: HostRegistry | None = None) -> None:
        """Create an empty registry.

        Args:
            host: The application's own registry, which gets every tool of a server too. A tool that it does
                not take is left out here as well.
        """
        self.owners: list[object] = []
        """The managers whose tools are in here."""
        self._host = None if host is None else HostTools(host)
        self._tools: dict[str, ToolDef] = {}
        self._aliases = AliasTable()
        self._computed: dict[str, Pair] | None = None
        """The aliases of the current tools, for names that no export of this registry gave out."""
        self._own_names: dict[str, list[ToolDef]] | None = None
        self._remotes: dict[str, RemoteCall] = {}
        self._claims: dict[Pair, _Claim] = {}
        self._servers: dict[str, dict[Pair, _Claim]] = {}
        """The same claims by server: a change of one server does not look at the others."""
        self._names = NameTable()
        self._permits: list[Permit] = []
        self._sorted: list[ToolDef] | None = None
        self._exporters: dict[tuple[str, bool], Exporter] = {}
        self._exports: dict[tuple[str, bool], Export] = {}
        self._longest: dict[str, int] = {}
        self._told: set[tuple[str, str, str]] = set()
        self._said: dict[str, list[str]] = {}
        self._of_host: dict[str, ToolDef] = {}
        """The tools of the application's own registry, as they were last read."""
        self.read_host()

    def register(self, tool: ToolDef, *, remote: RemoteCall | None = None) -> bool:
        """Add a tool.

        A built-in tool always keeps its name; a second one of the same name is skipped with a warning, and so
        is a server's tool with that name. If tools of several servers have the same name, none of them gets
        it; see `tools.names`.

        Args:
            tool: The tool; a built-in one has a `func`.
            remote: Calls a server's tool; its own `func` by default.

        Returns:
            Whether it was added, under that name or an unambiguous one.
        """
        return bool(self.register_all([tool], remote=remote))

    def register_all(self, tools: Iterable[ToolDef], *, remote: RemoteCall | None = None) -> list[ToolDef]:
        """Add tools in one batch; return those that were added, under their final names."""
        added: list[ToolDef] = []
        claims: list[_Claim] = []
        keys: dict[str, None] = {}
        for tool in tools:
            if tool.source != "mcp":
                if self._add_builtin(tool):
                    added.append(tool)
                    keys[alike(tool.name)] = None
            elif (pair := _pair(tool)) in self._claims:
                logger.warning("%s is skipped: it is already registered", _called(tool))
            else:
                claim = _Claim(pair, tool, remote)
                claims.append(claim)
                keys[self._claim(claim)] = None
        self._settle(keys, Settled())
        return added + [claim.offered for claim in claims if claim.offered is not None]

    def replace_server(
        self,
        server: str,
        tools: Iterable[ToolDef],
        *,
        remote: RemoteCall | None = None,
        withheld: Iterable[ToolDef] = (),
    ) -> Settled:
        """Replace all tools of a server; unchanged tools stay the same objects.

        Args:
            server: The server.
            tools: Its tools, under their preferred names.
            remote: Calls them.
            withheld: Tools that are not offered, but whose names stay reserved.
        """
        return finished(self.replacing(server, tools, remote=remote, withheld=withheld))

    def replacing(
        self,
        server: str,
        tools: Iterable[ToolDef],
        *,
        remote: RemoteCall | None = None,
        withheld: Iterable[ToolDef] = (),
    ) -> Generator[None, None, Settled]:
        """Do what `replace_server` does in slices: each `next` takes a few milliseconds.

        Other changes may happen between two slices. If one of them replaces the tools of the same server, the
        rest must not be run.
        """
        settled = Settled()
        keys: dict[str, None] = {}
        wanted: dict[Pair, ToolDef] = {}
        held: set[Pair] = set()
        given = [(some, False) for some in slices(list(tools))]
        given += [(some, True) for some in slices(list(withheld))]
        for some, is_withheld in given:
            for tool in some:
                pair = _pair(tool)
                if wanted.setdefault(pair, tool) is not tool:
                    logger.warning("%s is skipped: another tool of the server has this name", _called(tool))
                elif is_withheld:
                    held.add(pair)
            if len(some) == SLICE:
                yield
        for some in slices(list(self._servers.get(server, {}).values())):
            for claim in some:
                tool = wanted.get(claim.pair)
                is_same = tool is claim.tool or tool == claim.tool
                if not is_same or claim.is_withheld != (claim.pair in held):
                    keys[self._drop(claim, settled)] = None
            if keys:
                self._change()
            if len(some) == SLICE:
                yield
        for some in slices(sorted(wanted)):
            for pair in some:
                if pair not in self._claims:
                    keys[self._claim(_Claim(pair, wanted[pair], remote, pair in held))] = None
            if len(some) == SLICE:
                yield
        for some in slices(list(keys)):
            self._settle(some, settled)
            if len(some) == SLICE:
                yield
        return settled

    def arrange(self, order: Iterable[str] | None) -> Settled:
        """Give ambiguous names to the first server in this order; without an order no tool gets them.

        Returns:
            The resulting changes.
        """
        settled = Settled()
        servers = None if order is None else list(order)
        if servers != self._names.order:
            self._names.order = servers
            self._settle(self._names.contested(), settled)
        return settled

    def read_host(self) -> None:
        """Take over the tools that the application's own registry has now, as built-in ones."""
        if self._host is None:
            return
        found = self._host.builtin()
        for name, known in list(self._of_host.items()):
            if found.get(name) != known:
                del self._of_host[name]
                self.unregister(name)
        for name, tool in found.items():
            if name not in self._of_host and self.register(tool):
                self._of_host[name] = tool

    def watch(self, permit: Permit) -> None:
        """Check every call of a built-in tool with this function first."""
        self._permits.append(permit)

    def unregister(self, name: str) -> None:
        """Remove a tool, if it is there."""
        tool = self._tools.get(name)
        if tool is None:
            return
        if tool.source != "mcp":
            del self._tools[name]
            self._names.discard_builtin(name)
            self._change()
            self._settle([alike(name)], Settled())
            return
        key = self._drop(self._claims[_pair(tool)], Settled())
        self._change()
        self._settle([key], Settled())

    def unregister_server(self, server: str) -> list[ToolDef]:
        """Remove all tools of a server; return them."""
        return self.replace_server(server, ()).before.get(server, [])

    def forget(self, server: str) -> None:
        """Release the names of a server's tools for other servers."""
        self._names.forget(server)

    def get(self, name: str) -> ToolDef | None:
        """Return the tool of that exposed name."""
        return self._tools.get(name)

    def find(self, name: str | Pair) -> ToolDef | None:
        """Return the tool that a call of this name reaches, without parsing the name.

        Args:
            name: An exposed name, which always wins, or any alias that an export has given out or would give
                out now; or a server and its tool, also as `server:tool` or `server.tool`.

        Returns:
            The tool; `None` if the name is unknown or ambiguous, for example because it stood for different
            tools in two exports.
        """
        if isinstance(name, Pair):
            return self._held(name)
        tool = self._tools.get(name)
        if tool is not None or len(name) > MAX_NAME:
            return tool
        if self.contenders(name):
            return None
        meanings = self._aliases.meanings(name)
        if not meanings and (pair := self._current_aliases().get(name)) is not None:
            meanings = (pair,)
        if not meanings:
            meanings = tuple(pair for pair in qualified(name) if self._held(pair) is not None)
        return self._held(meanings[0]) if len(meanings) == 1 else None

    def shown_name(self, name: str | Pair) -> str:
        """Return how errors call a tool that is not found."""
        if not isinstance(name, Pair):
            return name
        claim = self._claims.get(name)
        # The name of a withheld tool stays its own, and the reason why it is withheld is known by that name.
        return claim.tool.name if claim is not None and claim.is_withheld else f"{name.server}:{name.tool}"

    def exposed_name(self, server: str, tool: str) -> str | None:
        """Return the exposed name of a server's tool."""
        claim = self._claims.get(Pair(server, tool))
        return None if claim is None or claim.offered is None else claim.offered.name

    def count(self, server: str) -> int:
        """Return how many tools of a server are offered."""
        return sum(claim.offered is not None for claim in self._servers.get(server, {}).values())

    def wanted(self, server: str) -> list[ToolDef]:
        """Return a server's tools under their preferred names."""
        return [claim.tool for claim in self._servers.get(server, {}).values() if not claim.is_withheld]

    def contenders(self, name: str) -> list[ToolDef]:
        """Return the tools that could be meant by an ambiguous name."""
        if name in self._tools or len(name) > MAX_NAME:
            return []
        claims = [self._claims[pair] for pair in self._names.wanting(name)]
        offered = [claim.offered for claim in claims if claim.offered is not None]
        renamed = any(claim.offered not in (None, claim.tool) for claim in claims)
        return offered if renamed else []

    def suggest(self, name: str) -> list[str]:
        """Return the names that are most like an unknown name."""
        return suggest(name, self._tools)

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> str:
        """Run a tool by its exposed name, or an alias of an export, and return its result as a string.

        Raises:
            ToolExecutionError: The call failed; the subclass says why.
        """
        tool = self._tools.get(name) or self.find(name)
        if tool is None:
            raise self.unknown(name)
        if tool.source == "builtin":
            given = arguments or {}
            for permit in self._permits:
                given = await permit(tool, given)
            return await run_builtin(tool, given, timeout=timeout)
        remote = self._remotes.get(tool.name)
        if remote is not None:
            result = await remote(tool.name, arguments, timeout=timeout)
            return result.raise_for_error().text
        if tool.func is not None:
            # A tool of another registry's manager, which applies its own rules.
            return await run_builtin(tool, arguments or {}, timeout=timeout)
        msg = f"the tool `{tool.name}` has neither a function nor a server"
        raise ToolExecutionError(msg, tool=tool.name, hint="register it with `func` or `remote`")

    def unknown(self, name: str) -> UnknownToolError:
        """Return the error for an unknown or ambiguous name."""
        return (
            ambiguous(name, self.contenders(name)) or self._moved(name) or unknown(name, self.suggest(name))
        )

    def _moved(self, name: str) -> UnknownToolError | None:
        """Return the error for an alias that stood for different tools in two exports."""
        meanings = self._aliases.meanings(name)
        if len(meanings) < 2 or name in self._tools:
            return None
        names = [tool.name for pair in meanings if (tool := self._held(pair)) is not None]
        shown = " and ".join(f"`{pair.tool}` (server `{pair.server}`)" for pair in meanings)
        msg = f"`{name}` is ambiguous: it stood for {shown} in different exports"
        hint = f"use {' or '.join(f'`{one}`' for one in names)}" if names else "export the tools again"
        return UnknownToolError(msg, tool=name, suggestions=names, is_ambiguous=True, hint=hint)

    def _held(self, pair: Pair) -> ToolDef | None:
        """Return a tool, if it is offered now."""
        if (claim := self._claims.get(pair)) is not None:
            return claim.offered
        tool = None if pair.server else self._tools.get(pair.tool)
        return tool if tool is not None and tool.source == "builtin" else None

    def _current_aliases(self) -> Mapping[str, Pair]:
        if self._computed is None:
            self._computed = {
                alias: _pair(self._tools[name])
                for rule in ALIAS_RULES
                if not rule.allows_all(self._tools)
                for name, alias in assign(self._tools, rule).items()
                if alias != name
            }
        return self._computed

    def _meanings(self, name: str) -> Iterator[Sequence[ToolDef]]:
        if len(name) > MAX_NAME:
            return
        tool = self.find(name)
        if tool is None and (error := self._moved(name)) is not None:
            raise error
        yield () if tool is None else (tool,)
        yield self.contenders(name)
        found = {pair: tool for pair in qualified(name) if (tool := self._held(pair)) is not None}
        yield tuple(found.values())
        if self._own_names is None:
            self._own_names = {}
            for tool in self:
                if tool.source == "mcp":
                    self._own_names.setdefault(tool.own_name, []).append(tool)
        yield self._own_names.get(name, ())

    def export(self, api: str, *, strict: bool = False) -> Export:
        """Return all tools in the form of a model API, with the tables to map names back.

        The same object is returned until the tools change. A tool that the API cannot express is left out and
        logged once.

        Args:
            api: `openai` (Chat Completions), `responses`, `anthropic`, `gemini` (JSON Schema),
                `gemini-openapi`, `ai-sdk`, or another module of `dragoman.tools.export.apis`.
            strict: Whether to use OpenAI's strict mode for schemas that can be expressed in it. Pass the
                model's calls through `Export.restore` then.

        Raises:
            ValueError: The API is unknown, or has no strict mode.
        """
        key = (api, strict)
        if (export := self._exports.get(key)) is not None:
            return export
        # Imported late: programs that only call tools do not need the formats.
        from dragoman.tools.export.export import Exporter

        if key not in self._exporters:
            self._exporters[key] = Exporter(api, strict=strict, longest=self._longest)
        # Tools for a server's app alone never reach a model.
        export = self._exports[key] = self._exporters[key].export(
            tool for tool in self if not tool.meta or "model" in tool.audience
        )
        for alias, name in export.names.items():
            pair = _pair(self._tools[name])
            claim = self._claims.get(pair)
            self._aliases.add(alias, pair if claim is None else claim.pair)
        for name, reason in export.left_out.items():
            if (line := (api, name, reason)) not in self._told:
                self._told.add(line)
                logger.warning(
                    "%s is left out of the export for %s: %s", _called(self._tools[name]), api, reason
                )
        return export

    def limit_descriptions(self, server: str, chars: int) -> None:
        """Limit the length of descriptions from a server in exports."""
        if self._longest.get(server) != chars:
            self._longest[server] = chars
            self._exporters.clear()
            self._change()

    def view(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> ToolView:
        """Return the tools that an agent may use: a live view, which changes with the registry.

        Args:
            allow: Exposed names, or `server:tool` for a server's tools, or globs of them; all tools by
                default. If exposed names do not contain the server's name, use `server:tool`, since a server
                could otherwise choose a name on the list.
            deny: The same; these win.
        """
        return ToolView(self, allow=allow, deny=deny)

    def __iter__(self) -> Iterator[ToolDef]:
        if self._sorted is None:
            self._sorted = [self._tools[name] for name in sorted(self._tools)]
        return iter(self._sorted)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def _change(self) -> None:
        self._sorted = self._computed = self._own_names = None
        self._exports.clear()

    def _add_builtin(self, tool: ToolDef) -> bool:
        holder = self._tools.get(tool.name)
        if holder is not None and holder.source != "mcp":
            logger.warning("%s", _skipped(tool, tool.name, holder))
            return False
        if holder is not None:
            self._withdraw(self._claims[_pair(holder)], Settled())
        self._tools[tool.name] = tool
        self._names.add_builtin(tool.name)
        self._change()
        return True

    def _claim(self, claim: _Claim) -> str:
        """Add a claim; return the key to settle."""
        self._claims[claim.pair] = claim
        self._servers.setdefault(claim.pair.server, {})[claim.pair] = claim
        return self._names.add(claim.pair, claim.tool.name)

    def _drop(self, claim: _Claim, settled: Settled) -> str:
        del self._claims[claim.pair]
        own = self._servers[claim.pair.server]
        del own[claim.pair]
        if not own:
            del self._servers[claim.pair.server]
        self._withdraw(claim, settled)
        return self._names.discard(claim.pair, claim.tool.name)

    def _withdraw(self, claim: _Claim, settled: Settled) -> None:
        if claim.offered is not None:
            settled.before.setdefault(claim.pair.server, []).append(claim.offered)
            if self._tools.get(claim.offered.name) is claim.offered:
                del self._tools[claim.offered.name]
                self._remotes.pop(claim.offered.name, None)
                if self._host is not None:
                    self._host.remove(claim.offered.name)
            claim.offered = None

    def _offer(self, claim: _Claim, name: str, settled: Settled) -> None:
        tool = claim.tool if name == claim.tool.name else claim.tool.replace(name=name)
        if self._host is not None:
            if (hosted := self._host.add(tool)) is None:
                return
            # A model of the application calls it by that name.
            if hosted != name:
                self._aliases.add(hosted, claim.pair)
        claim.offered = self._tools[name] = tool
        if claim.remote is not None:
            self._remotes[name] = claim.remote
        settled.after.setdefault(claim.pair.server, []).append(tool)

    def _settle(self, keys: Iterable[str], settled: Settled) -> None:
        """Assign the names in these groups of similar names to tools."""
        is_changed = False
        given: list[tuple[_Claim, str]] = []
        said: list[str] = []
        for key in keys:
            # Nearly every name is wanted by one tool only.
            if (alone := self._names.settle_alone(key)) is not None and key not in self._said:
                claim = self._claims[alone]
                if claim.offered is None:
                    if not claim.is_withheld:
                        given.append((claim, claim.tool.name))
                    continue
            outcomes = self._names.settle(key)
            is_plain = True
            for pair, outcome in outcomes.items():
                claim = self._claims[pair]
                name = None if claim.is_withheld else outcome.name
                if claim.offered is not None and claim.offered.name != name:
                    self._withdraw(claim, settled)
                    is_changed = True
                if name is not None and claim.offered is None:
                    given.append((claim, name))
                is_plain = is_plain and outcome.name == claim.tool.name
            if not is_plain or key in self._said:
                said += self._tell(key, outcomes, settled)
        for claim, name in given:
            if (holder := self._tools.get(name)) is None:
                self._offer(claim, name, settled)
            else:
                # A built-in tool has the unambiguous name already.
                said.append(_skipped(claim.tool, name, holder))
        if is_changed or given:
            self._change()
        for line in said[:MAX_SAID]:
            logger.warning("%s", line)
        if len(said) > MAX_SAID:
            logger.warning("%d more tools did not get their preferred names", len(said) - MAX_SAID)

    def _tell(self, key: str, outcomes: Mapping[Pair, Outcome], settled: Settled) -> list[str]:
        """Return the warnings about tools that did not get their preferred names, each only once."""
        said: list[str] = []
        renamed: list[tuple[ToolDef, str]] = []
        for pair, outcome in sorted(outcomes.items()):
            tool, by = self._claims[pair].tool, outcome.taken_by
            if outcome.name is None:
                holder = self._claims[by].tool if isinstance(by, Pair) else self._tools[by]
                said.append(_skipped(tool, tool.name, holder))
            elif outcome.name != tool.name:
                renamed.append((tool, outcome.name))
        if renamed:
            wanted = _shown(renamed[0][0].name)
            named = [f"{_called(tool)} (now `{_shown(name)}`)" for tool, name in renamed[:MAX_SAID]]
            builtin = renamed[0][0].name in self._tools
            why = "belongs to a built-in tool" if builtin else "is ambiguous, so no tool gets it"
            said.append(f"the name `{wanted}` {why}: {' and '.join(named)}")
        if said == self._said.get(key, []):
            return []
        self._said[key] = said
        if not said:
            del self._said[key]
        if renamed:
            servers = dict.fromkeys(tool.server for tool, _ in renamed)
            names = tuple(name for _, name in renamed)
            event = NameContested(name=renamed[0][0].name, servers=tuple(servers), offered=names)
            settled.contested.append(event)
        return said


def finished(work: Generator[None, None, T]) -> T:
    """Do work that pauses between its slices without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast("T", end.value)


def slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Return the items in slices, between which the event loop runs."""
    return (items[start : start + SLICE] for start in range(0, len(items), SLICE))


def _pair(tool: ToolDef) -> Pair:
    return Pair(tool.server, tool.own_name)


def _skipped(tool: ToolDef, name: str, holder: ToolDef) -> str:
    return f"{_called(tool)} is skipped: the name `{_shown(name)}` is taken by {_called(holder)}"


def _called(tool: ToolDef) -> str:
    if tool.source == "mcp":
        return f"tool `{_shown(tool.own_name)}` of server `{_shown(tool.server)}`"
    return f"built-in tool `{_shown(tool.name)}`"


def _shown(name: str) -> str:
    """Return a name for the log: a server may put anything into it, even lone surrogates."""
    return for_log(name, MAX_SHOWN)


async def run_builtin(tool: ToolDef, arguments: Mapping[str, Any], *, timeout: float | None = None) -> str:
    """Run the function of a built-in tool, and return its result as a string.

    Raises:
        ToolExecutionError: The call failed; the subclass says why.
    """
    func = tool.func
    if func is None:
        msg = f"the tool `{tool.name}` has no function"
        raise ToolExecutionError(msg, tool=tool.name)
    try:
        bound = inspect.signature(func).bind(**arguments)
    except TypeError as exc:
        msg = f"invalid arguments for `{tool.name}`: {exc}"
        raise InvalidArgumentsError(msg, tool=tool.name, problems=[str(exc)]) from exc
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            if inspect.iscoroutinefunction(func):
                value = await func(*bound.args, **bound.kwargs)
            else:
                # In a thread, so that a slow function does not block the event loop.
                value = await asyncio.to_thread(func, *bound.args, **bound.kwargs)
    except ToolExecutionError:
        raise
    except Exception as exc:
        if timeout is not None and limit.expired():
            msg = f"`{tool.name}` did not finish within {timeout:g} s"
            raise CallTimeoutError(msg, seconds=timeout, tool=tool.name) from exc
        msg = f"`{tool.name}` failed: {type(exc).__name__}: {exc}"
        raise ToolFailedError(msg, tool=tool.name) from exc
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
