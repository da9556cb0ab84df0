"""Bulk work on a Ray cluster: `mcp.map(…, on=RayCluster())`.

Ray Data distributes the rows to actors, restarts them and repeats their work. Each actor has its own manager
and servers. One more actor, on the machine of the caller, owns the journal: a worker asks it before it sends
rows, so that what Ray repeats is not sent twice. The environment variables of servers are those of the
workers. A rule that asks a person denies there.
"""

# Ray is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.bulk.journal import FAILED, INTERRUPTED, OK, OPEN, SENT, UNKNOWN, Journal
from dragoman.bulk.outcomes import Status  # noqa: TC001 -- the annotation of a constant
from dragoman.bulk.run import line_of
from dragoman.bulk.tables import BadRow
from dragoman.errors import BulkError, DragomanError

try:
    import pyarrow as pa
    import ray
    import ray.data
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ModuleNotFoundError as exc:
    msg = f"dragoman.adapters.ray needs the package `{exc.name}`: install `dragoman[ray]`"
    raise ModuleNotFoundError(msg, name=exc.name) from exc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dragoman.bulk.run import BulkJob, RowItem
    from dragoman.model import Settings

__all__ = ["RayCluster"]

BLOCK_ROWS = 128
"""Rows in one block of the dataset: what Ray gives to a worker at once, and repeats if the worker dies."""
_STATUSES: dict[int, Status] = {OK: "ok", FAILED: "failed", UNKNOWN: "unknown"}


class RayCluster:
    """Makes the calls of a bulk run on the Ray cluster that this program belongs to, or on a local one."""

    def __init__(self, *, workers: int | None = None) -> None:
        """Choose how many workers there are.

        Args:
            workers: Actors, each with its own servers; by default one for each machine of the cluster.
        """
        self._workers = workers

    async def run(self, job: BulkJob) -> None:
        """Do a job.

        Raises:
            DragomanError: The job cannot go on; rows without an outcome stay open.
        """
        await asyncio.to_thread(self._run, job)

    def _run(self, job: BulkJob) -> None:
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        blocks = [ray.put(block) for block in _blocks(job)]
        path = job.journal.path
        job.journal.close()
        try:
            if blocks:
                self._compute(job, blocks, path)
        finally:
            job.journal.reload()

    def _compute(self, job: BulkJob, blocks: list[Any], path: Path) -> None:
        machines = [node for node in ray.nodes() if node["Alive"]]
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        keeper_type: Any = ray.remote(JournalKeeper)
        keeper = keeper_type.options(num_cpus=0, scheduling_strategy=here).remote(
            str(path.absolute()), job.header, is_safe=job.is_safe
        )
        try:
            ray.get(keeper.ready.remote())
            how = {
                "concurrency": job.concurrency,
                "rate": job.rate,
                "timeout": job.timeout,
                "retries": job.retries,
                "patience": job.patience,
                "coerce": job.coerce,
            }
            rows = ray.data.from_arrow_refs(blocks)
            done = rows.map_batches(
                Worker,
                fn_constructor_args=(job.settings, job.name, keeper, how),
                # A worker that is killed leaves the rows of one batch with an unknown outcome.
                batch_size=2 * job.concurrency,
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(size=self._workers or len(machines)),
            )
            for batch in done.iter_batches(batch_size=None, batch_format="pyarrow"):
                for status in batch.column("status").to_pylist():
                    job.on_outcome(status)
                if job.is_stopped():
                    break
        except Exception as exc:
            raise _told(exc) from exc
        finally:
            # Its process has the journal: it ends with it, and so do the workers with the dataset.
            ray.get(keeper.close.remote())
            ray.kill(keeper)


def _blocks(job: BulkJob) -> Iterator[Any]:
    """Return the open rows as blocks of a dataset; rows that cannot be sent get their outcome here."""
    while chunk := list(islice(job.items, BLOCK_ROWS)):
        good: list[RowItem] = []
        for item in chunk:
            if isinstance(item.arguments, BadRow):
                problem = item.arguments.problem
                job.journal.end(item.row, "failed", line_of(item.row, "failed", None, problem, "bulk.row"))
                job.on_outcome("failed")
            else:
                good.append(item)
        if good:
            yield pa.table(
                {
                    "row": [item.row for item in good],
                    "mark": [item.mark for item in good],
                    "arguments": [json.dumps(item.arguments, default=str) for item in good],
                }
            )


def _told(exc: BaseException) -> DragomanError:
    """Return the error of a worker, which Ray has wrapped."""
    found: BaseException | None = exc
    while found is not None:
        if isinstance(found, DragomanError):
            return found
        found = getattr(found, "cause", None) or found.__cause__
    return BulkError(f"the Ray job failed: {type(exc).__name__}: {exc}", hint="run it again to go on")


class JournalKeeper:
    """The actor that owns the journal."""

    def __init__(self, path: str, header: dict[str, Any], *, is_safe: bool) -> None:
        self._journal = Journal(Path(path), header)
        self._is_safe = is_safe

    def ready(self) -> None:
        """Answer once the journal is open."""

    def begin(self, rows: list[tuple[int, int]]) -> tuple[list[int], dict[int, Status]]:
        """Record that rows, with their checksums, are about to be sent.

        Returns:
            The rows that may be sent, and the statuses of those that may not.

        A row that was announced before belonged to a worker that has ended: it may have run.
        """
        journal = self._journal
        allowed: list[int] = []
        settled: dict[int, Status] = {}
        for row, mark in rows:
            state = journal.state(row)
            if state == OPEN or (state == SENT and self._is_safe):
                journal.begin(row, mark)
                allowed.append(row)
                continue
            if state == SENT:
                line = line_of(row, "unknown", None, INTERRUPTED, "bulk.interrupted")
                journal.end(row, "unknown", line)
            settled[row] = _STATUSES[journal.state(row)]
        return allowed, settled

    def end(self, row: int, status: Status, line: str) -> None:
        """Record an outcome."""
        if self._journal.state(row) == UNKNOWN:
            self._journal.again(row)  # A worker that was taken for dead has answered after all.
        if self._journal.state(row) in (OPEN, SENT):
            self._journal.end(row, status, line)

    def release(self, rows: list[int]) -> None:
        """Record that rows were certainly not sent."""
        for row in rows:
            if self._journal.state(row) == SENT:
                self._journal.release(row)

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()


class Worker:
    """An actor of Ray Data: one manager, which calls the tool for batches of rows."""

    def __init__(self, settings: Settings, name: str, keeper: Any, how: dict[str, Any]) -> None:
        from dragoman.blocking.manager import McpManager

        self._name = name
        self._keeper = keeper
        self._how = how
        # The caller's own manager has used this server: it is approved.
        self._mcp = McpManager(settings, trust_project=True)
        self._mcp.__enter__()

    def __del__(self) -> None:
        # Ray drops the object before it ends the process.
        self._mcp.shutdown()

    def __call__(self, batch: Any) -> Any:
        """Settle the rows of a batch; return their statuses."""
        given: dict[int, str] = dict(
            zip(batch.column("row").to_pylist(), batch.column("arguments").to_pylist(), strict=True)
        )
        marks = batch.column("mark").to_pylist()
        begun: Any = ray.get(self._keeper.begin.remote(list(zip(given, marks, strict=True))))
        allowed: list[int] = begun[0]
        statuses: dict[int, str] = begun[1]
        recorded: list[Any] = []
        try:
            for outcome in self._mcp.map(
                self._name, [json.loads(given[row]) for row in allowed], **self._how
            ):
                row = allowed[outcome.row - 1]
                statuses[row] = outcome.status
                line = line_of(row, outcome.status, outcome.result, outcome.error, outcome.code)
                recorded.append(self._keeper.end.remote(row, outcome.status, line))
        finally:
            # After an error, rows without an outcome were not sent: the run waits for those that were.
            ray.get([*recorded, self._keeper.release.remote([row for row in allowed if row not in statuses])])
        return pa.table({"row": list(statuses), "status": list(statuses.values())})
