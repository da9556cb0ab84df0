"""A command's work on its event loop: a signal that ends the program ends the servers first.

SIGTERM, and SIGHUP from a terminal that is closed, cancel the work, as Ctrl-C does; what it opened is closed
on the way out, and the program ends with 128 and the signal's number, as a shell counts.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dragoman.cli.exits import EndedError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

_LONGEST_ANSWER = 4096


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
    """Ask at the terminal, without holding up the loop or a thread; anything but a yes is a no."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    while True:
        click.echo(f"{question} [y/N]: ", nl=False, err=True)
        answered = asyncio.Event()
        loop.add_reader(descriptor, answered.set)
        try:
            await answered.wait()
        finally:
            loop.remove_reader(descriptor)
        try:
            line = os.read(descriptor, _LONGEST_ANSWER)
        except OSError:  # the terminal is closed
            return False
        answer = line.decode("utf-8", "replace").strip().lower()
        if answer in ("y", "yes"):
            return True
        if not line.strip() or answer in ("n", "no"):
            return False
        click.echo("Error: invalid input", err=True)


def _numbers() -> list[signal.Signals]:
    """Return the signals that end the program; one that is ignored, as `nohup` does, stays so."""
    known = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    return [number for number in known if number and signal.getsignal(number) is not signal.SIG_IGN]
