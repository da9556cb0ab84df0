"""One bulk run: takes rows, calls the tool with bounded concurrency, and settles each row once.

A row is announced in the journal before its call is sent. A call that certainly did not run goes back and is
sent again when the server is available; one that may have run is repeated only if the tool is safe to repeat.
Rows are read as a stream and results are not kept, so memory does not grow with the table, except for a few
bytes a row if there is a journal.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import deque
from collections.abc import AsyncIterable, Iterable, Mapping, Sized
from contextlib import aclosing, suppress
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, cast

from dragoman.bulk.journal import FAILED, INTERRUPTED, OK, OPEN, SENT, UNKNOWN, Journal, outcome_line
from dragoman.bulk.outcomes import BulkPlan, BulkProgress, BulkReport, RowOutcome
from dragoman.bulk.tables import BadRow, Table
from dragoman.bulk.template import Template
from dragoman.errors import (
    AuthRequiredError,
    BulkError,
    CallTimeoutError,
    DragomanError,
    InvalidArgumentsError,
    ToolUnavailableError,
    UnknownToolError,
)
from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    from dragoman.bulk.outcomes import Status
    from dragoman.call import CallContext
    from dragoman.model import Settings, ToolDef, ToolResult

Rows: TypeAlias = (
    "Table | str | PathLike[str] | Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]"
)
"""Where rows come from: a file, or mappings of any origin."""

CONCURRENCY = 8
RETRIES = 2
PATIENCE = 300.0
"""Seconds for which a server may be unavailable before the run stops."""
CHUNK = 256
"""Rows that are read ahead."""
SYNC_SECONDS = 2.0
MAX_PROBLEMS = 20
MAX_SAMPLED = 200
"""Recorded calls that an estimate is made of."""
LARGE_CHARS = 100_000
"""Results above this are made into JSON in a thread."""
_PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
_BAD_ROW = "bulk.row"


class RowItem(NamedTuple):
    """A row that has no outcome yet."""

    row: int
    arguments: dict[str, Any] | BadRow
    mark: int
    """A checksum of the arguments."""


Item: TypeAlias = "tuple[int, dict[str, Any] | BadRow, int]"
"""The same as a plain tuple, which takes a tenth of the time to make."""


class BulkJob(Struct, kw_only=True):
    """What another executor needs to do a job: the rows, and how to call."""

    settings: Settings
    """The configuration of the tool's server alone, and the rules."""
    name: str
    items: Iterator[RowItem]
    """The open rows; reading them takes time, so do it in a thread."""
    journal: Journal
    """Has to be closed before another process can have it."""
    header: dict[str, Any]
    """What identifies the job in the journal."""
    is_safe: bool
    """Whether a call may be repeated although it may have run."""
    concurrency: int
    rate: float | None
    timeout: float | None
    retries: int
    patience: float
    coerce: bool
    on_outcome: Callable[[Status], None]
    """Counts an outcome for the progress; it may be called from any thread."""
    is_stopped: Callable[[], bool]
    """Whether the caller wants no more rows to be sent."""


class Executor(Protocol):
    """Does a job elsewhere than in this process, such as `dragoman.adapters.ray.RayCluster`."""

    async def run(self, job: BulkJob) -> None:
        """Record one outcome for every row in the journal; rows that are left out stay open."""
        ...


class BulkRun:
    """One tool for every row; `McpManager.map` makes it. Iterate over it, or `await run.wait()`; once."""

    def __init__(
        self,
        start: Callable[[], Awaitable[CallContext]],
        name: str,
        rows: Rows,
        *,
        settings: Settings,
        on: Executor | None = None,
        arguments: Mapping[str, Any] | None = None,
        journal: str | PathLike[str] | None = None,
        concurrency: int = CONCURRENCY,
        rate: float | None = None,
        timeout: float | None = None,
        retries: int = RETRIES,
        patience: float = PATIENCE,
        limit: int | None = None,
        repeat_unknown: bool = False,
        repeat_failed: bool = False,
        coerce: bool | None = None,
    ) -> None:
        """Prepare a run; nothing is read or sent yet. See `McpManager.map`."""
        if concurrency < 1 or (rate is not None and rate <= 0) or (limit is not None and limit < 0):
            msg = "`concurrency` and `rate` must be above 0, and `limit` not below"
            raise BulkError(msg)
        self._start = start
        self._settings = settings
        self._executor = on
        self._name = name
        self.table = rows if isinstance(rows, Table) else _table(rows)
        """The file that the rows come from, if they come from one."""
        self._rows: Any = self.table or rows
        self._arguments = arguments
        self._template = None if arguments is None else Template(arguments)
        self._journal_path = None if journal is None else Path(journal)
        self._concurrency = concurrency
        self._rate = rate
        self._timeout = timeout
        self._retries = retries
        self._patience = patience
        self._limit = limit
        self._repeats_unknown = repeat_unknown
        self._repeats_failed = repeat_failed
        # The cells of a table are often texts where the tool expects a number.
        self._coerce = self.table is not None if coerce is None else coerce
        self._total = len(cast("Sized", rows)) if isinstance(rows, Sized) and self.table is None else None
        self._is_used = False
        # While it runs
        self._journal: Journal | None = None
        self._is_safe = False
        self._items: deque[Item] = deque()
        self._reading = asyncio.Lock()
        self._reader: RowReader | None = None
        self._is_exhausted = False
        self._stops = False
        self._failure: DragomanError | None = None
        self._down_since: float | None = None
        self._next_at = 0.0
        self._outbox: deque[RowOutcome] | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._began = self._ended = 0.0
        self._earlier = self._ok = self._failed = self._unknown = 0
        self._unknown_rows: list[int] = []

    async def wait(self) -> BulkReport:
        """Run until every row has an outcome, and return the report.

        Raises:
            BulkError: The rows, the template or the journal cannot be used.
            ToolExecutionError: The tool does not exist, or its server was not available for too long. Rows
                without an outcome stay open: with a journal, the next run goes on with them.
        """
        await self._drive()
        return self.report()

    def __aiter__(self) -> AsyncGenerator[RowOutcome]:
        """Return the outcomes as they come; those of earlier runs are not among them."""
        return self._stream()

    def stop(self) -> None:
        """Take no more rows; calls that were sent are still waited for."""
        self._stops = True

    def progress(self) -> BulkProgress:
        """Return how far the run is."""
        total = self._total
        if total is not None and self._limit is not None:
            total = min(total, self._limit)
        return BulkProgress(
            total=total,
            earlier=self._earlier,
            ok=self._ok,
            failed=self._failed,
            unknown=self._unknown,
            seconds=(self._ended or time.monotonic()) - self._began if self._began else 0.0,
        )

    def report(self) -> BulkReport:
        """Return the state of the job after the run."""
        journal = self._journal
        read = self._reader.count if self._reader is not None else 0
        if journal is None:
            ok, failed, unknown, unknown_rows = self._ok, self._failed, self._unknown, self._unknown_rows
        else:
            _, _, ok, failed, _ = journal.counts
            unknown_rows = sorted(journal.rows_in(UNKNOWN) + journal.rows_in(SENT))
            unknown = len(unknown_rows)
        return BulkReport(
            rows=max(read, self._total or 0, ok + failed + unknown),
            ok=ok,
            failed=failed,
            unknown=unknown,
            earlier=self._earlier,
            unknown_rows=unknown_rows,
            seconds=self.progress().seconds,
        )

    def outcomes(self) -> Iterator[RowOutcome | None]:
        """Return every recorded outcome in the order of the rows, `None` for an open row; reads the journal.

        Raises:
            BulkError: The run has no journal, or has not begun.
        """
        if self._journal is None:
            msg = "the outcomes of a run without a journal are not kept"
            raise BulkError(msg, hint="iterate over the run, or give it a `journal`")
        return self._journal.outcomes()

    async def plan(self) -> BulkPlan:
        """Read all rows, check each against the tool's schema, and estimate the time; no call is made.

        Raises:
            BulkError: The table, the template or the journal cannot be used.
            UnknownToolError: No tool has this name.
        """
        context, tool = await self._find()
        if isinstance(self._rows, AsyncIterable) or iter(self._rows) is self._rows:
            msg = "rows that can be read only once cannot be planned"
            raise BulkError(msg, hint="give a list or a file")
        return await asyncio.to_thread(self._plan, context, tool)

    def _plan(self, context: CallContext, tool: ToolDef) -> BulkPlan:
        from dragoman.tools.result.build import check
        from dragoman.tools.schema.validate import Validators

        journal = None
        if self._journal_path is not None and self._journal_path.exists():
            journal = Journal(self._journal_path, self._job(tool))
            journal.close()
        validator = Validators().of(tool.input_schema)
        reader = RowReader(self._rows, self._template, None, self._limit)
        sample, problems, invalid, done, unsure = None, list[tuple[int, str]](), 0, 0, list[int]()
        for row, arguments, mark in reader.items():
            state = OPEN if journal is None else journal.state(row)
            if journal is not None:
                _check_mark(journal, row, mark)
            if state == OK or (state == FAILED and not self._repeats_failed):
                done += 1
                continue
            if state in (SENT, UNKNOWN):
                unsure.append(row)
            problem = arguments.problem if isinstance(arguments, BadRow) else ""
            if not isinstance(arguments, BadRow):
                try:
                    fields, _ = check(validator, tool, arguments, coerces=self._coerces(context, tool))
                except InvalidArgumentsError as exc:
                    problem = "; ".join(exc.problems)
                else:
                    sample = fields if sample is None and state in (OPEN, FAILED) else sample
            if problem:
                invalid += 1
                if len(problems) < MAX_PROBLEMS:
                    problems.append((row, problem))
        if journal is not None:
            _check_length(journal, reader, self._limit)
        self._total = reader.count
        return BulkPlan(
            tool=tool.name,
            server=tool.server,
            rows=reader.count,
            done=done,
            unknown_rows=unsure,
            repeats_unknown=self._repeats_unknown or _is_safe(context, tool),
            sample=sample,
            invalid=invalid,
            problems=problems,
            seconds_per_call=_usual_seconds(tool),
            concurrency=self._most_at_once(context, tool),
            rate=self._rate,
        )

    async def _find(self) -> tuple[CallContext, ToolDef]:
        context = await self._start()
        tool = context.registry.get(self._name) or context.registry.find(self._name)
        if tool is None:
            raise context.registry.unknown(self._name)
        return context, tool

    def _coerces(self, context: CallContext, tool: ToolDef) -> bool:
        supervisor = context.supervisors.get(tool.server)
        wanted = supervisor.spec.coerce_arguments if supervisor is not None else None
        return self._coerce if wanted is None else wanted

    def _most_at_once(self, context: CallContext, tool: ToolDef) -> int:
        """Return the concurrency: no more calls than the server takes, since waiting counts as their time."""
        supervisor = context.supervisors.get(tool.server)
        most = supervisor.spec.max_concurrency if supervisor is not None else None
        return min(self._concurrency, most or self._concurrency)

    def _job(self, tool: ToolDef) -> dict[str, Any]:
        """Return what identifies the job in a journal."""
        return {"server": tool.server, "tool": tool.own_name, "arguments": self._arguments}

    async def _drive(self) -> None:
        if self._is_used:
            msg = "a bulk run can be used only once"
            raise BulkError(msg, hint="call `map` again; a journal lets it go on")
        self._is_used = True
        context, tool = await self._find()
        self._is_safe = _is_safe(context, tool)
        context = context.replace(coerce=self._coerce)
        if self._journal_path is not None:
            path, job = self._journal_path, self._job(tool)
            self._journal = await asyncio.to_thread(Journal, path, job)
        syncing: asyncio.Task[None] | None = None
        workers: set[asyncio.Task[None]] = set()
        try:
            if (journal := self._journal) is not None:
                self._settle_interrupted(journal)
                syncing = asyncio.create_task(_sync(journal), name="dragoman journal")
            self._reader = RowReader(self._rows, self._template, self._journal, self._limit)
            self._began = time.monotonic()
            count = self._most_at_once(context, tool)
            if self._executor is not None:
                await self._executor.run(self._handed_over(context, tool, self._reader))
            else:
                workers = {asyncio.create_task(self._work(context, tool.name)) for _ in range(count)}
                await asyncio.gather(*workers)
            if self._journal is not None and not self._stops:
                _check_length(self._journal, self._reader, self._limit)
        finally:
            self._ended = time.monotonic()
            for task in (*workers, *((syncing,) if syncing else ())):
                task.cancel()
            left = [task for task in (*workers, syncing) if task is not None and not task.done()]
            if left:
                await asyncio.wait(left)
            if self._reader is not None:
                await self._reader.close()
            if self._journal is not None:
                await asyncio.to_thread(self._journal.close)
        if self._failure is not None:
            raise self._failure

    def _handed_over(self, context: CallContext, tool: ToolDef, reader: RowReader) -> BulkJob:
        """Return the job for another executor."""
        if self._journal is None:
            msg = "a job that other processes do needs a journal"
            raise BulkError(msg, hint="give it a `journal`")
        names = {tool.server}
        for spec in self._settings.servers:
            if spec.name == tool.server:
                names.update(spec.fallback_names)
        servers = [spec for spec in self._settings.servers if spec.name in names]
        return BulkJob(
            settings=self._settings.replace(servers=servers, auto_reload=False),
            name=tool.name,
            items=reader.open_items(),
            journal=self._journal,
            header=self._job(tool),
            is_safe=self._is_safe,
            concurrency=self._most_at_once(context, tool),
            rate=self._rate,
            timeout=self._timeout,
            retries=self._retries,
            patience=self._patience,
            coerce=self._coerce,
            on_outcome=self._count,
            is_stopped=lambda: self._stops,
        )

    def _settle_interrupted(self, journal: Journal) -> None:
        """Decide about the rows that an earlier run sent without a recorded answer."""
        repeats = self._repeats_unknown or self._is_safe
        for row in journal.rows_in(SENT):
            if repeats:
                journal.again(row)
            else:
                line = line_of(row, "unknown", None, INTERRUPTED, "bulk.interrupted")
                journal.end(row, "unknown", line)
        for state, is_repeated in ((UNKNOWN, repeats), (FAILED, self._repeats_failed)):
            for row in journal.rows_in(state) if is_repeated else ():
                journal.again(row)
        _, _, *ended = journal.counts
        self._earlier = sum(ended)

    async def _work(self, context: CallContext, name: str) -> None:
        """Take rows and settle them, one after the other, until none is left."""
        from dragoman.call import run  # Loaded already: the context is of that module.

        items, journal, timeout = self._items, self._journal, self._timeout
        try:
            while not self._stops:
                if self._rate is not None:
                    await self._pace(self._rate)
                if self._outbox is not None and len(self._outbox) > 4 * self._concurrency:
                    # The caller takes the outcomes more slowly than they come.
                    self._room.clear()
                    await self._room.wait()
                    continue
                item = items.popleft() if items else await self._refill()
                if item is None:
                    return
                row, arguments, mark = item
                if isinstance(arguments, BadRow):
                    self._settle(row, "failed", None, arguments.problem, _BAD_ROW)
                    continue
                tries = 0
                while True:
                    if journal is not None:
                        journal.begin(row, mark)
                    result = await run(context, name, arguments, timeout=timeout)
                    exc = result.exception
                    if exc is None:
                        self._down_since = None
                        origin = result.provenance
                        if len(result.text) > LARGE_CHARS:
                            await self._settle_large(row, result)
                        elif (
                            journal is not None
                            and origin is not None
                            and not origin.sources
                            and result.structured is None
                            and result.success
                            and self._outbox is None
                        ):
                            journal.end_ok(row, origin.at, result.duration, result.text)
                            self._ok += 1
                        else:
                            self._settle(row, "ok" if result.success else "failed", result)
                        break
                    verdict = self._verdict(exc)
                    if verdict == "wait" or verdict == "stop":
                        if journal is not None:
                            journal.release(row)
                        if verdict == "stop" or not await self._wait_available():
                            raise exc
                        if self._stops:
                            break
                    elif verdict == "repeat" and tries < self._retries:
                        await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
                        tries += 1
                    else:
                        self._down_since = None
                        self._settle(row, "unknown" if verdict == "unknown" else "failed", result)
                        break
        except DragomanError as exc:
            # The others finish the calls that they have sent.
            self._failure = self._failure or exc
            self._stops = True
            self._room.set()

    def _verdict(self, exc: DragomanError) -> Literal["failed", "unknown", "repeat", "wait", "stop"]:
        """Return what becomes of a row whose call failed."""
        match exc:
            case UnknownToolError():
                return "stop"
            case ToolUnavailableError(may_have_run=False):
                return "stop" if isinstance(exc.__cause__, AuthRequiredError) else "wait"
            case ToolUnavailableError() | CallTimeoutError():
                return "repeat" if self._is_safe else "unknown"
            case _:
                return "failed"

    async def _wait_available(self) -> bool:
        """Wait a moment for the server to come back; return false if it was away for too long."""
        now = time.monotonic()
        if self._down_since is None:
            self._down_since = now
        away = now - self._down_since
        if away >= self._patience:
            return False
        await asyncio.sleep(min(max(0.1, away / 2), _PAUSES[-1], max(0.1, self._patience - away)))
        return True

    async def _pace(self, rate: float) -> None:
        """Wait for the next moment at which a call may be sent."""
        now = time.monotonic()
        at = max(self._next_at, now)
        self._next_at = at + 1 / rate
        if at > now:
            await asyncio.sleep(at - now)

    async def _refill(self) -> Item | None:
        """Return the next row, and read more rows; `None` at the end."""
        async with self._reading:
            while not self._items:
                if self._is_exhausted or self._reader is None:
                    return None
                chunk = await self._reader.chunk()
                self._is_exhausted = chunk is None
                self._items.extend(chunk or ())
            return self._items.popleft()

    async def _settle_large(self, row: int, result: ToolResult) -> None:
        line = await asyncio.to_thread(line_of, row, "ok", result, "", "")
        self._settle(row, "ok", result, line=line)

    def _settle(
        self,
        row: int,
        status: Status,
        result: ToolResult | None,
        error: str = "",
        code: str = "",
        *,
        line: str = "",
    ) -> None:
        """Record the outcome of a row, and hand it to the caller."""
        self._count(status)
        if status != "ok":
            if result is not None:
                error = result.error or result.text
                code = result.exception.code if result.exception is not None else "tool.input_required"
            if status == "unknown" and self._journal is None:
                self._unknown_rows.append(row)
        if self._journal is not None:
            self._journal.end(row, status, line or line_of(row, status, result, error, code))
        if self._outbox is not None:
            self._outbox.append(_outcome(row, status, result, error, code))
            self._wake.set()

    def _count(self, status: Status) -> None:
        if status == "ok":
            self._ok += 1
        elif status == "failed":
            self._failed += 1
        else:
            self._unknown += 1

    async def _stream(self) -> AsyncGenerator[RowOutcome]:
        outbox = self._outbox = deque[RowOutcome]()
        driving = asyncio.create_task(self._drive(), name="dragoman map")
        driving.add_done_callback(lambda _: self._wake.set())
        try:
            while True:
                while outbox:
                    yield outbox.popleft()
                    if not self._room.is_set():
                        self._room.set()
                if driving.done():
                    break
                self._wake.clear()
                await self._wake.wait()
            driving.result()
        finally:
            driving.cancel()
            await asyncio.wait({driving})


class RowReader:
    """Numbers rows, fills the template, and skips what the journal has."""

    def __init__(
        self, rows: Any, template: Template | None, journal: Journal | None, limit: int | None
    ) -> None:
        self.count = 0
        """Rows that were read so far."""
        self._rows = rows
        self._template = template
        self._journal = journal
        self._limit = limit
        self._is_file = isinstance(rows, Table)
        self._iterator: Any = None

    def items(self) -> Iterator[Item]:
        """Return every row."""
        while items := self._next():
            yield from items

    def open_items(self) -> Iterator[RowItem]:
        """Return every row that has no outcome."""
        while items := self._next():
            yield from map(RowItem._make, self._unless_done(items))

    async def chunk(self) -> list[Item] | None:
        """Return those of the next rows that have no outcome; `None` at the end."""
        if isinstance(self._rows, AsyncIterable):
            return await self._awaited()
        return await asyncio.to_thread(self._take) if self._is_file else self._take()

    async def close(self) -> None:
        """End the reading of a file or a generator."""
        if hasattr(self._iterator, "close") and self._iterator is not self._rows:
            self._iterator.close()
        if hasattr(self._iterator, "aclose"):
            async with aclosing(self._iterator):
                pass

    def _next(self) -> list[Item]:
        """Read some rows; none at the end."""
        if self._iterator is None:
            if self._template is not None and isinstance(self._rows, Table) and self._rows.kind != "jsonl":
                self._template.check(self._rows.columns())
            self._iterator = iter(self._rows)
        most = CHUNK if self._limit is None else min(CHUNK, self._limit - self.count)
        # Each row is copied before the next is read: an iterator may give out the same object every time.
        rows: Iterator[object] = islice(self._iterator, most)
        return list(map(self._item, rows))

    def _take(self) -> list[Item] | None:
        items = self._next()
        return self._unless_done(items) if items else None

    async def _awaited(self) -> list[Item] | None:
        if self._iterator is None:
            self._iterator = aiter(cast("AsyncIterable[Any]", self._rows))
        if self._limit is not None and self.count >= self._limit:
            return None
        try:
            return self._unless_done([self._item(await anext(self._iterator))])
        except StopAsyncIteration:
            return None

    def _unless_done(self, items: list[Item]) -> list[Item]:
        """Return the rows that have no outcome."""
        journal = self._journal
        if journal is None or items[0][0] > journal.last:
            return items
        for row, _, mark in items:
            _check_mark(journal, row, mark)
        return [item for item in items if journal.state(item[0]) == OPEN]

    def _item(self, row: object) -> Item:
        self.count += 1
        cells: Any = row
        if type(row) is not dict and not isinstance(row, Mapping):  # asking for a `Mapping` is slow
            what = type(row).__name__
            problem = row if isinstance(row, BadRow) else BadRow(f"the row is {what}, not a mapping")
            return self.count, problem, 0
        arguments: dict[str, Any]
        if self._template is None:
            arguments = dict(cells)
        else:
            try:
                arguments = self._template.fill(cells)
            except KeyError as exc:
                return self.count, BadRow(f"the row has no column `{exc.args[0]}`"), 0
        # Not a security measure: it notices a table that was edited or sorted meanwhile.
        return self.count, arguments, zlib.crc32(repr(arguments).encode("utf-8", "backslashreplace"))


def _table(rows: object) -> Table | None:
    return Table(cast("str | PathLike[str]", rows)) if isinstance(rows, str | PathLike) else None


def _check_mark(journal: Journal, row: int, mark: int) -> None:
    sent = journal.mark(row)
    if sent and sent != mark:
        msg = f"row {row} is not the row that was sent: the input has changed since {journal.path} was begun"
        hint = "restore it, or begin again with another output; rows may only be added at the end"
        raise BulkError(msg, hint=hint)


def _check_length(journal: Journal, reader: RowReader, limit: int | None) -> None:
    if limit is None and journal.last > reader.count:
        msg = f"the input has {reader.count:,} rows, and the journal {journal.path} has row {journal.last:,}"
        raise BulkError(msg, hint="restore the rows that were removed, or begin again with another output")


def line_of(row: int, status: Status, result: ToolResult | None, error: str, code: str) -> str:
    """Return the entry of a journal for an outcome."""
    if result is None:
        return outcome_line(row, status, time.time(), 0.0, "", error=error, code=code)
    origin = result.provenance
    at, sources = (origin.at, origin.sources) if origin is not None else (time.time(), ())
    if status == "ok" and result.structured is None and not sources:
        return outcome_line(row, status, at, result.duration, result.text)
    return outcome_line(
        row,
        status,
        at,
        result.duration,
        result.text,
        error=error,
        code=code,
        structured=result.structured,
        sources=sources,
    )


def _outcome(row: int, status: Status, result: ToolResult | None, error: str, code: str) -> RowOutcome:
    if result is None:
        return RowOutcome(row=row, status=status, error=error, code=code, at=time.time())
    origin = result.provenance
    return RowOutcome(
        row=row,
        status=status,
        text=result.text,
        error=error,
        code=code,
        structured=result.structured,
        sources=origin.sources if origin is not None else (),
        seconds=result.duration,
        at=origin.at if origin is not None else time.time(),
        result=result,
    )


def _is_safe(context: CallContext, tool: ToolDef) -> bool:
    """Return whether a call may be repeated although it may have run: the same rule as for a single call."""
    supervisor = context.supervisors.get(tool.server)
    if supervisor is None or not supervisor.spec.trust_annotations:
        return False
    hints = tool.annotations
    return hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True


def _usual_seconds(tool: ToolDef) -> float | None:
    """Return the median duration of recorded calls of a tool; `None` if there are none."""
    from statistics import median

    from dragoman.observe.call_history import CallHistory

    try:
        calls = CallHistory().list(server=tool.server, tool=tool.name, limit=MAX_SAMPLED)
    except DragomanError:
        return None
    seconds = [one.duration for one in calls if one.success]
    return median(seconds) if seconds else None


async def _sync(journal: Journal) -> None:
    """Write the journal to the disk from time to time, for a machine that loses power."""
    while True:
        await asyncio.sleep(SYNC_SECONDS)
        with suppress(OSError):
            await asyncio.to_thread(journal.sync)
