"""Bulk runs without `await`.

Written by scripts/write_blocking.py from the async classes; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.blocking.loop_thread import iterate

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from dragoman.blocking.loop_thread import BlockingRunner
    from dragoman.bulk.outcomes import BulkPlan, BulkProgress, BulkReport, RowOutcome
    from dragoman.bulk.run import BulkRun as AsyncBulkRun


class BulkRun:
    """One tool for every row; `McpManager.map` makes it. Iterate over it, or `run.wait()`; once."""

    def __init__(self, it: AsyncBulkRun, runner: BlockingRunner) -> None:
        self._runner = runner
        self._async = it

    def wait(self) -> BulkReport:
        """Run until every row has an outcome, and return the report.

        Raises:
            BulkError: The rows, the template or the journal cannot be used.
            ToolExecutionError: The tool does not exist, or its server was not available for too long. Rows
                without an outcome stay open: with a journal, the next run goes on with them.
        """
        return self._runner.run(self._async.wait)

    def __iter__(self) -> Generator[RowOutcome]:
        """Return the outcomes as they come; those of earlier runs are not among them."""
        return iterate(self._async, self._runner)

    def stop(self) -> None:
        """Take no more rows; calls that were sent are still waited for."""
        self._runner.read(self._async.stop)

    def progress(self) -> BulkProgress:
        """Return how far the run is."""
        return self._runner.read(self._async.progress)

    def report(self) -> BulkReport:
        """Return the state of the job after the run."""
        return self._runner.read(self._async.report)

    def outcomes(self) -> Iterator[RowOutcome | None]:
        """Return every recorded outcome in the order of the rows, `None` for an open row; reads the journal.

        Raises:
            BulkError: The run has no journal, or has not begun.
        """
        return self._runner.read(self._async.outcomes)

    def plan(self) -> BulkPlan:
        """Read all rows, check each against the tool's schema, and estimate the time; no call is made.

        Raises:
            BulkError: The table, the template or the journal cannot be used.
            UnknownToolError: No tool has this name.
        """
        return self._runner.run(self._async.plan)
