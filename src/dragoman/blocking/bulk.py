"""Bulk runs without `await`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from dragoman.blocking.loop_thread import BlockingRunner
    from dragoman.bulk.outcomes import BulkPlan, BulkProgress, BulkReport, RowOutcome
    from dragoman.bulk.run import BulkRun as AsyncRun


class BulkRun:
    """One tool for every row, as `dragoman.bulk.BulkRun`: iterate over it, or call `wait`; once."""

    def __init__(self, run: AsyncRun, runner: BlockingRunner) -> None:
        self._run = run
        self._runner = runner

    def __iter__(self) -> Generator[RowOutcome]:
        """Return the outcomes as they come; leaving the loop early stops the run."""
        stream = aiter(self._run)
        try:
            while True:
                try:
                    outcome = self._runner.run(stream.__anext__)
                except StopAsyncIteration:
                    return
                yield outcome
        finally:
            with suppress(DragomanError):  # The manager is closed, and its tasks have ended.
                self._runner.run(stream.aclose)

    def wait(self) -> BulkReport:
        """Run until every row has an outcome, and return the report."""
        return self._runner.run(self._run.wait)

    def plan(self) -> BulkPlan:
        """Read all rows, check each against the tool's schema, and estimate the time; no call is made."""
        return self._runner.run(self._run.plan)

    def stop(self) -> None:
        """Take no more rows; calls that were sent are still waited for."""
        self._run.stop()

    def progress(self) -> BulkProgress:
        """Return how far the run is."""
        return self._run.progress()

    def report(self) -> BulkReport:
        """Return the state of the job after the run."""
        return self._run.report()

    def outcomes(self) -> Iterator[RowOutcome | None]:
        """Return every recorded outcome in the order of the rows, `None` for an open row."""
        return self._run.outcomes()
