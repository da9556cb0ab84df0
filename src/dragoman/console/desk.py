"""Desk: one manager as the console shows it to one kind of visitor; every reading of the JSON endpoints.

Texts come out harmless to read (`dragoman.visible`). What must arrive as it is, such as schemas and
arguments, is JSON text inside of JSON, with harmful characters escaped: a page that reads numbers as floating
point would change it.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, cast

from dragoman.console.feed import Feed, call_row
from dragoman.diagnosis.fleet import count_fleet, read_broken, read_server
from dragoman.errors import DragomanError, UnknownToolError
from dragoman.gateway.approvals import for_client
from dragoman.manager.manager import parts_of
from dragoman.observe.call_history import CallHistory
from dragoman.observe.call_stream import arguments_line
from dragoman.tools.result.budget import estimate_tokens
from dragoman.trust.encoding import encoded
from dragoman.trust.sanitizing import for_json, for_remote
from dragoman.visible import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.diagnosis.fleet import FleetRow
    from dragoman.manager.manager import McpManager
    from dragoman.manager.parts import Parts
    from dragoman.model import PendingApproval, ToolDef
    from dragoman.observe.call_history import CallRecord
    from dragoman.observe.metrics import ToolMetrics

DAYS = 7
"""The calls that are set against the tokens of definitions are those of these days."""
COUNT_SECONDS = 30.0
"""How long a count of the log's calls is used."""
MOST_ROWS = 500
"""Calls in one answer."""
MOST_LINE = 200
MOST_LOG_LINES = 1000
MOST_SCHEMA = 1_000_000
"""Characters of the longest schema that a page gets."""


class Desk:
    """One manager, for the operator or for a user of the gateway."""

    def __init__(self, mcp: McpManager, *, is_operator: bool) -> None:
        """Show a manager.

        Args:
            mcp: The manager: the program's, or that of a user.
            is_operator: Whether the visitor runs the program. Anybody else sees only their own calls, and
                no path, process or output of this machine.
        """
        self.mcp = mcp
        self.is_operator = is_operator
        log = mcp.call_log
        self.history = CallHistory(log.path) if log is not None else None
        self.feed = Feed(mcp, history=self.history if is_operator else None)
        self._counts: dict[str, int] = {}
        self._counted = -COUNT_SECONDS
        self._tokens: dict[str, tuple[tuple[str, ...], int]] = {}

    @property
    def parts(self) -> Parts:
        """What the manager is composed of."""
        return parts_of(self.mcp)

    async def close(self) -> None:
        """End the streams of its pages."""
        await self.feed.close()

    # Servers

    async def fleet(self) -> dict[str, Any]:
        """Return every server, the broken entries, and the numbers of all."""
        statuses, settings = self.mcp.status(), self.mcp.settings
        metrics = self.parts.metrics.read(time.monotonic(), by_tool=False)
        logged, tokens = await self._count(), self._definition_tokens()
        rows: list[dict[str, Any]] = []
        for name, status in statuses.items():
            spec = self.parts.supervisors[name].spec
            one = read_server(status, metrics.get(name), spec=spec, is_on=spec.enabled and settings.enabled)
            row = self._row(one)
            row["share"] = spec.share
            row["tokens"] = tokens.get(name, 0)
            row["logged"] = logged.get(name, 0)
            row["changes"] = len(self.mcp.trust.changes(name))
            if self.is_operator:
                row["origin"] = shown(str(spec.origin))
            rows.append(row)
        if self.is_operator:
            rows += [self._row(one) for one in read_broken(settings)]
        count = count_fleet(statuses.values(), metrics)
        return {"count": encoded(count), "servers": rows, "at": time.time(), "days": DAYS}

    def _row(self, one: FleetRow) -> dict[str, Any]:
        row = cleaned(encoded(one))
        if not self.is_operator:
            row["cause"] = for_remote(row["cause"])
            row["pid"] = None
        return row

    async def server(self, name: str) -> dict[str, Any]:
        """Return what is known of one server beside its row: calls by tool, processes, users."""
        (status,) = self.mcp.status([name]).values()
        metrics = self.mcp.metrics().get(name)
        tools: Mapping[str, ToolMetrics] = {} if metrics is None else metrics.tools
        found: dict[str, Any] = {
            "name": shown(name),
            "tools": [
                {
                    "tool": shown(tool),
                    "calls": one.calls,
                    "failed": one.failed,
                    "latency": one.latency.as_json(),
                }
                for tool, one in sorted(tools.items(), key=lambda item: -item[1].calls)[:MOST_ROWS]
            ],
            "states": {} if metrics is None else dict(metrics.states),
        }
        if self.is_operator:
            found["processes"] = (
                [] if status.pid is None else await asyncio.to_thread(processes_of, status.pid)
            )
            found["users"] = [shown(user) for user in self.mcp.users()]
        return found

    def logs(self, name: str, lines: int) -> dict[str, Any]:
        """Return the last lines of a server's standard error."""
        found = self.mcp.logs(name, min(lines, MOST_LOG_LINES))
        return {"server": shown(name), "lines": [shown(line) for line in found]}

    def _definition_tokens(self) -> dict[str, int]:
        """Return what the definitions of each server cost; those that did not change are not read again."""
        offered: dict[str, list[ToolDef]] = {}
        for tool in self.mcp.registry:
            if tool.source == "mcp":
                offered.setdefault(tool.server, []).append(tool)
        for server, tools in offered.items():
            names = tuple(tool.name for tool in tools)
            known = self._tokens.get(server)
            if known is None or known[0] != names:
                text = "".join(f"{one.name}{one.description}{_text_of(one.input_schema)}" for one in tools)
                self._tokens[server] = names, estimate_tokens(text)
        return {server: self._tokens[server][1] for server in offered}

    async def _count(self) -> dict[str, int]:
        """Return the calls of each server in the log in the last days."""
        now = time.monotonic()
        if self.history is None or not (self.is_operator or self.mcp.user):
            return {}
        if now - self._counted >= COUNT_SECONDS:
            self._counted = now
            user = None if self.is_operator else self.mcp.user
            since = time.time() - DAYS * 86400
            try:
                self._counts = await asyncio.to_thread(self.history.count, since=since, user=user)
            except DragomanError:
                self._counts = {}
        return self._counts

    # Tools

    def tools(self) -> dict[str, Any]:
        """Return every tool that a model is offered, in short."""
        return {
            "tools": [
                {
                    "name": shown(tool.name),
                    "server": shown(tool.server),
                    "title": shown(tool.title[:MOST_LINE]),
                    "about": _first_line(tool.description),
                    "reads": tool.annotations.get("readOnlyHint") is True,
                }
                for tool in self.mcp.tools()
            ]
        }

    def tool(self, name: str) -> dict[str, Any]:
        """Return the whole definition of a tool.

        Raises:
            UnknownToolError: No server offers it.
        """
        tool = self.find_tool(name)
        return {
            "name": tool.name,
            "server": shown(tool.server),
            "original_name": shown(tool.original_name),
            "title": shown(tool.title),
            "description": shown(tool.description),
            "annotations": cleaned(encoded(tool.annotations)),
            "input_schema": _text_of(tool.input_schema),
            "output_schema": None if tool.output_schema is None else _text_of(tool.output_schema),
        }

    def find_tool(self, name: str) -> ToolDef:
        """Return a tool of a server that a model may call.

        Raises:
            UnknownToolError: No server offers it.
        """
        tool = self.mcp.registry.find(name)
        if tool is None or tool.source != "mcp" or "model" not in tool.audience:
            msg = f"no server offers the tool `{shown(name[:MOST_LINE])}`"
            raise UnknownToolError(msg, tool=name, hint="it may have changed: search for it again")
        return tool

    # Calls

    async def calls(
        self,
        *,
        server: str = "",
        tool: str = "",
        text: str = "",
        errors_only: bool = False,
        before: tuple[float, int] | None = None,
        limit: int = 200,
    ) -> dict[str, Any]:
        """Return calls, the newest first; those that run only on the first page.

        Args:
            server: A server's name, or a pattern.
            tool: A tool's name, or a pattern.
            text: A text in the arguments or the result.
            errors_only: Whether to leave out calls that succeeded.
            before: The time and the number of the last call of the page before.
            limit: How many at most.

        Raises:
            DragomanError: The log cannot be read.
        """
        limit = max(1, min(limit, MOST_ROWS))
        live = (
            []
            if before is not None
            else self._live(server=server, tool=tool, text=text, errors_only=errors_only)
        )
        if self.history is None or not (self.is_operator or self.mcp.user):
            return {"calls": live[:limit], "logged": False, "more": False}
        found = await asyncio.to_thread(
            self.history.list,
            server=server,
            tool=tool,
            text=text,
            errors_only=errors_only,
            user=None if self.is_operator else self.mcp.user,
            before=before,
            limit=limit,
        )
        rows = [_record_row(one) for one in found]
        known = {one["call_id"] for one in rows}
        oldest = rows[-1]["at"] if len(rows) == limit else 0.0
        late = [one for one in live if one["call_id"] not in known and one["at"] >= oldest]
        return {"calls": [*late, *rows], "logged": True, "more": len(rows) == limit}

    def _live(self, *, server: str, tool: str, text: str, errors_only: bool) -> list[dict[str, Any]]:
        from fnmatch import fnmatchcase

        words = text.casefold()
        return [
            call_row(one)
            for one in reversed(self.feed.calls.entries())
            if (not server or fnmatchcase(one.server, server))
            and (not tool or fnmatchcase(one.tool, tool))
            and (not errors_only or one.error_code)
            and (not words or one.matches(words))
        ]

    async def call(self, call_id: str) -> dict[str, Any]:
        """Return one call as it was logged.

        Raises:
            DragomanError: It is not known, or the log cannot be read.
        """
        entry = self.feed.calls.get(call_id)
        record = None
        if self.history is not None and (self.is_operator or self.mcp.user or entry is not None):
            record = await asyncio.to_thread(self.history.show, call_id)
        if record is not None and not self.is_operator and record.user != self.mcp.user:
            record = None
        if record is None and entry is None:
            msg = "this call is not known"
            raise DragomanError(msg, hint="it may be older than what the log keeps")
        if record is None:
            row = call_row(cast("Any", entry))
            return {**row, "record": False, "obstacle": "its arguments were not kept"}
        return {
            **_record_row(record),
            "record": True,
            "arguments_json": _text_of(record.arguments),
            "missing": {shown(place): why for place, why in record.missing.items()},
            "result": shown(record.result),
            "result_chars": record.result_chars,
            "result_missing": list(record.result_missing),
            "user": shown(record.user),
            "obstacle": shown(record.obstacle),
            "rule": self._rule(record),
        }

    def _rule(self, record: CallRecord) -> dict[str, Any] | None:
        """Return what the rules of today say about a past call; `None` if its tool is not offered."""
        tool = self.mcp.registry.find(record.tool)
        given: object = record.arguments
        if tool is None or not isinstance(given, dict):
            return None
        supervisor = self.parts.supervisors.get(tool.server)
        trusts = supervisor is not None and supervisor.spec.trust_annotations
        decision = self.parts.gate.decision(tool, cast("dict[str, Any]", given), trusts_hints=trusts)
        label = decision.label if self.is_operator else decision.public_label
        return {
            "action": decision.action,
            "rule": shown(label),
            "source": shown(decision.source) if self.is_operator else "",
            "exact": not record.missing,
        }

    # Inbox, tasks, users

    @property
    def has_inbox(self) -> bool:
        """Whether the visitor has an inbox; clients that share one token have none of their own."""
        return self.is_operator or bool(self.mcp.user)

    async def inbox(self) -> dict[str, Any]:
        """Return the calls that wait for an answer, the oldest first."""
        if not self.has_inbox:
            return {"pending": []}
        found = await asyncio.to_thread(self.mcp.trust.pending)
        return {"pending": [self._pending_row(one) for one in found], "at": time.time()}

    def _pending_row(self, one: PendingApproval) -> dict[str, Any]:
        row = cleaned(encoded(one if self.is_operator else for_client(one)))
        del row["arguments"]
        row["arguments_json"] = json_text(one.arguments)
        return row

    async def tasks(self) -> dict[str, Any]:
        """Return the tasks that servers still work on."""
        return {"tasks": cleaned(encoded(list(await self.mcp.tasks.list())))}

    def users(self) -> dict[str, Any]:
        """Return the users of the gateway who are connected."""
        return {"users": cleaned(encoded(list(self.mcp.users().values())))}


def cleaned(value: Any) -> Any:
    """Return plain JSON data whose texts are harmless to read."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {shown(key): cleaned(one) for key, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [cleaned(one) for one in cast("list[Any]", value)]
    return value


def json_text(value: Any) -> str:
    """Return a value as JSON text with escapes for harmful characters."""
    return for_json(json.dumps(value, ensure_ascii=False, default=str))


def _text_of(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= MOST_SCHEMA else "{}"


def _first_line(text: str) -> str:
    lines = shown(text[: 20 * MOST_LINE]).split("\n")
    return next((" ".join(line.split()) for line in lines if line.strip()), "")[:MOST_LINE]


def _record_row(record: CallRecord) -> dict[str, Any]:
    line = arguments_line(record.arguments)
    return {
        "call_id": record.call_id,
        "number": record.number,
        "at": record.at,
        "server": shown(record.server),
        "tool": shown(record.tool),
        "duration": record.duration,
        "error_code": record.error_code,
        "arguments": line if len(line) <= MOST_LINE else f"{line[:MOST_LINE]}…",
    }


def processes_of(pid: int) -> list[dict[str, Any]]:
    """Return a process and what it has started, with the memory of each in bytes; empty without `/proc`."""
    from pathlib import Path

    proc = Path("/proc")
    children: dict[int, list[int]] = {}
    about: dict[int, tuple[str, int]] = {}
    if not (proc / str(pid) / "stat").exists():
        return []
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            text = (folder / "stat").read_text("utf-8", "replace")
            pages = int((folder / "statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            continue  # It has just ended.
        # The name may hold spaces and brackets.
        name, _, rest = text.partition("(")[2].rpartition(")")
        number = int(folder.name)
        about[number] = name, pages * _page_size()
        children.setdefault(int(rest.split()[1]), []).append(number)
    found: list[dict[str, Any]] = []
    todo = [pid]
    while todo and len(found) < MOST_ROWS:
        one = todo.pop(0)
        if one in about:
            found.append({"pid": one, "name": shown(about[one][0]), "bytes": about[one][1]})
        todo += children.get(one, [])
    return found


def _page_size() -> int:
    import os

    return os.sysconf("SC_PAGE_SIZE")
