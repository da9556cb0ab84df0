from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import anyio
import pytest

from dragoman.model import Stdio
from dragoman.server.attempt import ConnectAttempt, ConnectionEnd
from dragoman.server.process import family
from dragoman.server.protocol.rpc import Rpc
from dragoman.server.transports.open_transport import open_wire
from dragoman.server.transports.stdio import ENDED_BY_US, exit_reason

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("rrclaw-transport.http", "otter-p1.sse", "kode-config.sse"),
]

STAYS = "import time; time.sleep(600)"


class Ear:
    """Hears that the child runs, by the line that it says."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    def on_request(self, request_id: Any, method: str, params: Any) -> None:
        raise AssertionError(method)

    def on_notification(self, method: str, params: Any) -> None:
        raise AssertionError(method)

    def on_junk(self, reason: str, sample: bytes) -> None:
        self.heard.set()


class Opened:
    """A wire to a child that runs some code, with all that is told of its end."""

    def __init__(self, code: str) -> None:
        self.attempt = ConnectAttempt(kind="stdio")
        self.reasons: list[str] = []
        self.ended = asyncio.Event()
        self.ear = Ear()
        self.wire = open_wire(
            Stdio(sys.executable, ["-S", "-c", code]),
            name="s",
            env=os.environ,
            attempt=self.attempt,
            rpc=Rpc(self.ear),
            on_end=self._on_end,
        )

    def _on_end(self, end: ConnectionEnd) -> None:
        self.reasons.append(end.reason)
        self.ended.set()


@pytest.fixture
def short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, "STDIN_GRACE", 0.1)
    monkeypatch.setattr(family, "TERM_GRACE", 0.1)


@pytest.mark.parametrize(
    ("code", "left", "said"),
    [
        ("raise SystemExit(3)", 3, "the process ended with code 3"),
        ("import os; os.kill(os.getpid(), 11)", -11, "the process was killed by signal 11"),
    ],
)
async def test_child_that_ends_by_itself_leaves_its_code(code: str, left: int, said: str) -> None:
    with anyio.fail_after(20):
        opened = Opened(code)
        async with opened.wire:
            await opened.ended.wait()
        assert opened.attempt.exit_code == left
        assert opened.reasons[-1] == said == exit_reason(left)


@pytest.mark.parametrize("stubborn", [False, True], ids=["asked", "killed"])
async def test_child_that_we_ended_is_not_said_to_be_killed_by_a_signal(
    short_graces: None, stubborn: bool
) -> None:
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    with anyio.fail_after(20):
        opened = Opened(f"{ignore if stubborn else ''}{STAYS}")
        async with opened.wire:
            assert opened.reasons == []
        # On a busy machine, the end of its output may still be read after we stopped it.
        assert opened.reasons in ([ENDED_BY_US], [ENDED_BY_US, "it closed its output"])
        assert opened.attempt.exit_code is None


async def test_child_that_closed_its_output_and_stayed_has_no_code_of_its_own(short_graces: None) -> None:
    with anyio.fail_after(20):
        opened = Opened(f"import os; os.close(1); {STAYS}")
        async with opened.wire:
            await opened.ended.wait()
        assert opened.reasons == ["it closed its output", ENDED_BY_US]
        assert opened.attempt.exit_code is None


async def test_child_that_leaves_when_its_input_ends_has_its_code() -> None:
    with anyio.fail_after(20):
        opened = Opened("import sys; print(1, flush=True); sys.stdin.read()")
        async with opened.wire:
            await opened.ear.heard.wait()
        assert opened.attempt.exit_code == 0
        assert opened.reasons[-1] == "the process ended with code 0"
