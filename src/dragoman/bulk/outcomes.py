"""What bulk work tells: the outcome of a row, the plan before the first call, the progress, the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from dragoman.struct import HIDDEN, Struct, is_equal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.model import SourceRef, ToolResult

Status: TypeAlias = Literal["ok", "failed", "unknown"]
"""`unknown`: the call was sent and no answer was recorded, so the tool may have run."""


class RowOutcome(Struct, kw_only=True):  # noqa: PLW1641 -- data of a result has no hash
    """The outcome of one row."""

    row: int
    """The number of the row, counted from 1; the header of a table does not count."""
    status: Status
    text: Annotated[str, HIDDEN] = ""
    """The text of the result."""
    error: str = ""
    code: str = ""
    """The stable code of the error."""
    structured: Annotated[Any, HIDDEN] = None
    sources: Annotated[Sequence[SourceRef], HIDDEN] = ()
    seconds: float = 0.0
    at: float = 0.0
    """Seconds since the epoch, when the answer came."""
    result: Annotated[ToolResult | None, HIDDEN] = None
    """The result itself, while the run goes on; a journal keeps only the fields above."""

    def __eq__(self, other: object) -> bool:
        return is_equal(self, other, ignored="result")


class BulkProgress(Struct, kw_only=True):
    """How far a run is."""

    total: int | None
    """The number of rows; `None` if it is not known."""
    earlier: int
    """Rows whose outcome an earlier run has recorded."""
    ok: int
    failed: int
    unknown: int
    seconds: float
    """Since the run began."""

    @property
    def done(self) -> int:
        """The rows that have an outcome."""
        return self.earlier + self.ok + self.failed + self.unknown

    @property
    def rate(self) -> float:
        """Rows per second in this run."""
        return (self.done - self.earlier) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The time for the remaining rows at this rate; `None` if it is not known."""
        if self.total is None or self.rate <= 0:
            return None
        return (self.total - self.done) / self.rate


class BulkReport(Struct, kw_only=True):
    """The state of a job when a run has ended."""

    rows: int
    """Rows that were read."""
    ok: int
    failed: int
    unknown: int
    """Of all runs with the same journal."""
    earlier: int
    """Outcomes of earlier runs among them."""
    unknown_rows: Annotated[Sequence[int], HIDDEN] = ()
    """The rows whose outcome is not known."""
    seconds: float = 0.0
    """How long this run took."""

    @property
    def open(self) -> int:
        """Rows without an outcome: a limit or an interruption left them for the next run."""
        return self.rows - self.ok - self.failed - self.unknown


class BulkPlan(Struct, kw_only=True):
    """What a run would do; no call was made for it."""

    tool: str
    server: str
    rows: int
    done: int
    """Rows with a recorded outcome."""
    unknown_rows: Sequence[int]
    """Rows that were sent without a recorded answer."""
    repeats_unknown: bool
    """Whether the run sends those again: the caller said so, or the tool is safe to repeat."""
    sample: Mapping[str, Any] | None
    """The arguments of the first call."""
    invalid: int
    """Rows that cannot be sent."""
    problems: Sequence[tuple[int, str]]
    """The first of them, with the reason."""
    seconds_per_call: float | None
    """The median of recorded calls; `None` if the call log has none."""
    concurrency: int
    rate: float | None

    @property
    def calls(self) -> int:
        """How many calls the run would make."""
        left = self.rows - self.done - self.invalid
        return left if self.repeats_unknown else left - len(self.unknown_rows)

    @property
    def seconds(self) -> float | None:
        """An estimate of the time for all calls; `None` without a basis for it."""
        by_rate = self.calls / self.rate if self.rate else 0.0
        if self.seconds_per_call is None:
            return by_rate or None
        return max(by_rate, self.calls * self.seconds_per_call / self.concurrency)
