"""Each fault with its times: the call ends within its deadline and a second, and the neighbour answers at once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.behaviour import test_faults
from tests.behaviour.faults import FAULTS, MODES, STUCK, Fault, Mode, check, comes_back, faulty

from dragoman import McpManager
from dragoman.events import StateChanged
from dragoman.model import ServerState
from dragoman.server.process import spawn

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

pytestmark = pytest.mark.anyio

EVERY = 0.05
SLOWEST = 0.25
SLACK = 1.0
LEAST_SAMPLES = 20


class Neighbour:
    """Calls a healthy server every 50 ms and takes the times."""

    def __init__(self, mcp: McpManager) -> None:
        self._mcp = mcp
        self._times: list[float] = []
        self._task = asyncio.ensure_future(self._call())

    async def _call(self) -> None:
        while True:
            began = time.monotonic()
            result = await self._mcp.call("mcp_good_echo", {"text": "n"})
            self._times.append(time.monotonic() - began)
            assert result.text == "n"
            await asyncio.sleep(max(0.0, EVERY - self._times[-1]))

    async def stop(self) -> float:
        """Return the 99th percentile."""
        while len(self._times) < LEAST_SAMPLES and not self._task.done():  # noqa: ASYNC110 -- samples are counted
            await asyncio.sleep(EVERY)
        assert not self._task.done(), self._task.exception()
        self._task.cancel()
        await asyncio.wait({self._task})
        times = sorted(self._times)
        return times[int(0.99 * (len(times) - 1))]


@pytest.mark.parametrize("fault", [*FAULTS, *STUCK], ids=str)
async def test_fault_of_a_call_in_its_time(fault: Fault, proof: Proof) -> None:
    with anyio.fail_after(120):
        async with McpManager([faulty("bad", health_check_interval=1.0), faulty("good", "good")]) as mcp:
            await mcp.wait_ready()
            events, neighbour = mcp.events(), Neighbour(mcp)
            began = time.monotonic()
            result = await mcp.call("mcp_bad_fault", {"kind": fault.kind}, timeout=fault.timeout)
            took = time.monotonic() - began
            check(result, fault)
            while fault in STUCK and mcp.status()["bad"].state is ServerState.READY:
                await mcp.call("mcp_bad_echo", {"text": "?"}, timeout=0.4)
            if not fault.survives:
                async for event in events:
                    if isinstance(event, StateChanged) and event.server == "bad":
                        break
            await comes_back(mcp, "bad", events)
            assert (await mcp.call("mcp_bad_echo", {"text": "again"})).text == "again"
            back = time.monotonic() - began
            slowest = await neighbour.stop()
    proof.record(
        over_the_deadline_seconds=took - fault.timeout,
        back_after_seconds=back,
        neighbour_p99_ms=slowest * 1000,
    )
    assert took <= fault.timeout + SLACK
    assert slowest < SLOWEST


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_fault_from_the_beginning_in_its_time(mode: Mode, proof: Proof) -> None:
    specs = [faulty("good", "good"), faulty("bad", mode.name, timeouts={"connect": mode.connect})]
    with anyio.fail_after(120):
        mcp = McpManager(specs)
        async with mcp:
            await mcp.wait_ready(["good"])
            neighbour, began = Neighbour(mcp), time.monotonic()
            await mcp.wait_ready(["bad"])
            took = time.monotonic() - began
            slowest = await neighbour.stop()
            closing = time.monotonic()
        closed = time.monotonic() - closing
    proof.record(given_up_after_seconds=took, closed_in_seconds=closed, neighbour_p99_ms=slowest * 1000)
    # Ending a child takes 4 s and its family 1 s, at most.
    assert took <= mode.connect + 5 + SLACK
    assert closed <= 5 + SLACK
    assert slowest < SLOWEST


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speak to children over the streams of the event loop, as on Windows."""
    monkeypatch.setattr(spawn, "HAS_POSIX_PIPES", False)
    monkeypatch.setattr(spawn, "STDIN_GRACE", 0.2)
    monkeypatch.setattr(spawn, "TERM_GRACE", 0.2)


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_fault_of_a_call_over_streams(fault: Fault) -> None:
    await test_faults.fault_of_one_call_ends_that_call_and_nothing_else(fault)


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_fault_from_the_beginning_over_streams(mode: Mode) -> None:
    await test_faults.server_that_misbehaves_from_the_beginning_harms_no_other(mode)
