from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from dragoman.server.process.signals import on_signal

if TYPE_CHECKING:
    from pathlib import Path


class PlainLoop(asyncio.SelectorEventLoop):
    """A loop that handles no signals, as those of Windows."""

    add_signal_handler = asyncio.AbstractEventLoop.add_signal_handler
    remove_signal_handler = asyncio.AbstractEventLoop.remove_signal_handler


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, PlainLoop])
def test_an_action_runs_in_the_loop_until_it_is_undone(loop: type[asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        came = asyncio.Event()
        undo = on_signal(signal.SIGUSR1, came.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(came.wait(), 20)
        undo()

    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(main())
        assert heard == []
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, PlainLoop])
async def test_outside_the_main_thread_nothing_changes(loop: type[asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        on_signal(signal.SIGUSR1, print)()

    def run() -> None:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(main())

    before = signal.getsignal(signal.SIGUSR1)
    await asyncio.to_thread(run)
    assert signal.getsignal(signal.SIGUSR1) is before


PROGRAM = """
    import asyncio, sys

    for name in ("add_signal_handler", "remove_signal_handler"):
        setattr(asyncio.SelectorEventLoop, name, getattr(asyncio.AbstractEventLoop, name))
    sys.argv[0] = "dragoman"
    from dragoman.cli.main import main

    main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0)])
def test_the_gateway_ends_in_order_where_the_loop_handles_no_signals(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    config = tmp_path / "servers.json"
    config.write_text('{"mcpServers": {}}', "utf-8")
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), "serve", "--config", str(config)]
    with subprocess.Popen([*command, "--http", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True) as gateway:
        assert gateway.stderr is not None
        said: list[str] = []
        for line in gateway.stderr:
            said.append(line)
            if "http://127.0.0.1:" in line:
                break
        gateway.send_signal(number)
        rest = gateway.stderr.read()
        assert (gateway.wait(40), "Traceback" in rest) == (code, False), (said, rest)
