"""The first module of the program: passes light commands to a daemon before anything else is imported."""

from __future__ import annotations

import os
import sys

from dragoman.cli import interrupts

_ALONE = {"--no-daemon", "--debug", "--"}
"""Words of commands that run here: tracebacks and servers of the command line belong to this process."""


def main() -> None:
    """Run the program and exit."""
    open_missing_streams()
    interrupts.install()
    words = sys.argv[1:]
    try:
        code = _pass_to_daemon(words)
        if code is None:
            from dragoman.cli.main import main as run

            run(words)
    except KeyboardInterrupt:  # during an import, or in the client of the daemon
        _complain("interrupted")
        code = interrupts.INTERRUPTED
    interrupts.begin_end()
    sys.exit(code)


def open_missing_streams() -> None:
    """Open `/dev/null` for each standard stream that is closed.

    The next file that is opened would get its number, and our output would go into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 -- a descriptor, for as long as we live


def _pass_to_daemon(words: list[str]) -> int | None:
    """Run a command in the daemon; return its exit code, or `None` if it has to run here."""
    from dragoman.gateway import client

    if not client.command_of(words) or not client.is_supported() or _ALONE.intersection(words):
        return None
    wanted = os.environ.get("DRAGOMAN_DAEMON", "").strip().lower()
    if wanted in ("0", "false", "no", "off"):
        return None
    may_start = bool(wanted)
    if not may_start and not os.path.exists(client.paths().socket):  # noqa: PTH110 -- pathlib costs 10 ms
        return None
    for stream in (sys.stdout, sys.stderr):
        # Escape characters that the terminal or pipe cannot encode instead of raising an error.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # the interpreter's own
    try:
        code = client.run(words, may_start=may_start)
        sys.stdout.flush()
    except OSError as exc:
        if not isinstance(exc, BrokenPipeError):
            _complain(f"error: the output cannot be written: {exc.strerror}")
        # The reader of our output is gone, or the disk is full; so is the point of printing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _complain(text: str) -> None:
    try:  # noqa: SIM105 -- `contextlib` takes 2 ms to import
        sys.stderr.write(f"{text}\n")
    except OSError:
        pass
