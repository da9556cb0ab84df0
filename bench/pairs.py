"""Measure two implementations alternately, so that noise of the machine affects both alike."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Call = Callable[[], Awaitable[Any]]


async def compare(
    label: str,
    *,
    ours: Call,
    theirs: Call,
    goal: float,
    at_once: int = 1,
    calls: int = 600,
    rounds: int = 7,
    other: str = "SDK",
) -> None:
    """Print the CPU of this process per call, the best round of each, and whether the goal is met."""
    best = {"ours": float("inf"), "theirs": float("inf")}
    for _ in range(rounds):
        for name, call in (("theirs", theirs), ("ours", ours)):
            best[name] = min(best[name], await _cpu(call, at_once, calls))
    report(label, best["ours"], best["theirs"], goal, other)


def report(label: str, ours: float, theirs: float, goal: float, other: str = "SDK") -> None:
    """Print seconds of both, their ratio and whether the goal is met."""
    ratio = ours / theirs
    verdict = "met" if ratio <= goal else "MISSED"
    both = f"dragoman {_shown(ours)}, {other} {_shown(theirs)}"
    print(f"{label:<34} {both}, {ratio:5.2f} ×  (goal {goal}: {verdict})")


def _shown(seconds: float) -> str:
    return f"{seconds * 1e6:7.0f} µs" if seconds < 0.01 else f"{seconds * 1e3:7.1f} ms"


async def _cpu(call: Call, at_once: int, calls: int) -> float:
    turns = max(1, calls // at_once)
    start = time.process_time()
    for _ in range(turns):
        if at_once == 1:
            await call()
        else:
            await asyncio.gather(*(call() for _ in range(at_once)))
    return (time.process_time() - start) / (turns * at_once)
