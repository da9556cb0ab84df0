"""A command's work on its event loop: a signal that ends the program ends the servers first.

SIGTERM, and SIGHUP from a terminal that is closed, cancel the work, as Ctrl-C does; what it opened is closed
on the way out, and the program ends with 128 and the signal's number, as a shell counts.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dragoman.cli.exits import EndedError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run work to its end, as `asyncio.run` does.

    Raises:
        EndedError: A signal ended it.
    """
    noted: list[int] = []

    async def watched() -> T:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def end(number: int) -> None:
            noted.append(number)
            if task is not None and len(noted) == 1:
                task.cancel()

        for number in _numbers():
            # Windows has none of them, and another thread than the first cannot watch for them.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, end, number)
        return await work

    try:
        result = asyncio.run(watched())
    except BaseException:
        if noted:
            raise EndedError(noted[0]) from None
        raise
    if noted:
        raise EndedError(noted[0])
    return result


async def confirm(question: str) -> bool:
    """Ask a yes-or-no question at the terminal; a signal ends the wait for an answer.

    The thread that reads the answer is a daemon: the program does not wait for it on its way out.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bool] = loop.create_future()

    def settle(value: bool) -> None:
        if not answer.done():
            answer.set_result(value)

    def read() -> None:
        try:
            value = click.confirm(question, default=False, err=True)
        except click.Abort:
            value = False
        with suppress(RuntimeError):  # The loop is closed if a signal ended the program.
            loop.call_soon_threadsafe(settle, value)

    Thread(target=read, name="dragoman confirm", daemon=True).start()
    return await answer


def _numbers() -> list[signal.Signals]:
    """Return the signals that end the program; one that is ignored, as `nohup` does, stays so."""
    known = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    return [number for number in known if number and signal.getsignal(number) is not signal.SIG_IGN]
