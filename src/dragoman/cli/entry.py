"""The first module of the program: passes light commands to a daemon before anything else is imported."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the program and exit."""
    words = sys.argv[1:]
    code = _in_daemon(words)
    if code is None:
        from dragoman.cli.main import main as run

        run(words)
    sys.exit(code)


def _in_daemon(words: list[str]) -> int | None:
    """Run a command in the daemon; return its exit code, or `None` if it has to run here."""
    from dragoman.gateway import client

    if not client.command_of(words) or not client.is_supported() or client.ALONE in words or "--" in words:
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
        return client.run(words, may_start=may_start)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        # The reader of our output is gone; so is the point of printing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
