"""Measures work in multiples of a fixed piece of work, so that no test asserts seconds.

A machine that is slow scales both. One that is busy for a moment does not count either: work that looks too slow is
measured again, in turns with the reference work, and the best attempt of each is compared.
"""

from __future__ import annotations

import gc
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_RATIO = 10
"""Of the times for a text and a quarter of it: 4 where the work is linear, 16 where it is quadratic."""
PLAINLY_LINEAR = 5
"""At most this ratio needs no second attempt: one that is wrong by a factor of three would hide nothing."""
MEASURABLE = 1
"""Below this multiple of the reference work a ratio says nothing."""
ATTEMPTS = 3
MORE_ATTEMPTS = 25
REFERENCE = "the quick (brown) fox = jumps {over} 13 lazy dogs, " * 1280


def reference() -> object:
    """Do a fixed piece of work that is like a parser's: a pattern, a loop, and text that is joined."""
    words = re.findall(r"[a-z]+|\S", REFERENCE)
    return "".join([word.upper() if word.isalpha() else "-" for word in words]), len(dict.fromkeys(words))


@dataclass
class Stopwatch:
    """Measures work by the CPU's time, in multiples of the reference work."""

    clock: Callable[[], float] = time.process_time
    reference: Callable[[], object] = reference
    unit: float = float("inf")
    """The reference work at its best so far."""

    def cost(self, work: Callable[[], object], *, attempts: int = 1) -> float:
        """Return the CPU seconds that some work takes at its best."""
        best = float("inf")
        # The heap of the test process is large: collecting it would count as the work's own time.
        gc.disable()
        try:
            for _ in range(attempts):
                begin = self.clock()
                work()
                best = min(best, self.clock() - begin)
        finally:
            gc.enable()
        return best

    def excess(
        self, work: Callable[[], object], *, most: float, quarter: Callable[[], object] | None = None
    ) -> tuple[float, str]:
        """Return the CPU seconds that some work takes, and how much too long that is, if it is.

        Args:
            work: What is measured.
            most: The multiple of the reference work that it may take.
            quarter: The same with a quarter of the text, to compare with.
        """
        if self.unit == float("inf"):
            self.unit = self.cost(self.reference, attempts=2 * ATTEMPTS)
        long = self.cost(work)
        if long <= (min(MEASURABLE, most) if quarter else most) * self.unit:
            return long, ""
        short = self.cost(quarter) if quarter else float("inf")
        if quarter and long <= min(most * self.unit, PLAINLY_LINEAR * short):
            return long, ""
        short = min(short, self.cost(quarter, attempts=ATTEMPTS)) if quarter else short
        unit = float("inf")
        # In turns, so that a neighbour on the same core slows all of them down; the work itself first, so that it
        # is never compared with what was measured while the machine was busier.
        for attempt in range(MORE_ATTEMPTS):
            unit = min(unit, self.cost(self.reference))
            self.unit = min(self.unit, unit)
            if long <= min(most * unit, max(MEASURABLE * unit, MOST_RATIO * short)):
                return long, ""
            # Far over the limit is no accident of a busy machine, and each attempt would take as long.
            if attempt and long > 4 * most * unit:
                break
            long = min(long, self.cost(work))
            short = min(short, self.cost(quarter)) if quarter else short
        return long, f"{long / unit:.1f} times the reference work, {short / unit:.1f} for a quarter of it"


STOPWATCH = Stopwatch()
