"""The lines that were typed, kept from one session to the next; nobody else can read the file.

A line that looks as if it held a secret is known until the session ends and never written.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING

from prompt_toolkit.history import History

from dragoman.private import private_folder, private_opener
from dragoman.trust.redact import MASK, mask_args, mask_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MOST = 2_000
"""Lines that are kept; the file may grow to twice as many before it is written anew."""
LONGEST = 10_000
"""Characters of a line that is worth keeping."""


class LineHistory(History):
    """A file of JSON texts, one to a line, the newest last."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return what was typed, the newest first; a file that cannot be read is none."""
        lines = self._read()
        if len(lines) > 2 * MOST:
            self._write(lines[-MOST:])
        return reversed(lines[-MOST:])

    def store_string(self, string: str) -> None:
        """Keep a line, unless it looks secret, or begins with a blank as in a shell."""
        if not is_worth_keeping(string):
            return
        try:
            private_folder(self.path.parent)
            descriptor = private_opener(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            with os.fdopen(descriptor, "ab") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(f"{json.dumps(string)}\n".encode())
        except OSError:
            return  # A history is no reason to disturb anybody.

    def _read(self) -> list[str]:
        try:
            raw = self.path.read_bytes()
        except OSError:
            return []
        found: list[str] = []
        for line in raw.splitlines():
            try:
                text: object = json.loads(line)
            except ValueError:
                continue
            if isinstance(text, str):
                found.append(text)
        return found

    def _write(self, lines: list[str]) -> None:
        try:
            fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            descriptor = private_opener(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(descriptor, "wb") as file:
                file.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
            fresh.replace(self.path)
        except OSError:
            return


def is_worth_keeping(line: str) -> bool:
    """Tell whether a line may be written to disk."""
    if not line.strip() or line.startswith(" ") or len(line) > LONGEST:
        return False
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    masked = [mask_text(line), *mask_args(words)]
    return MASK in line or not any(MASK in one for one in masked)
