"""Reading the call log: list, find, show one, and what is needed to run one again.

It opens the file for each question and for reading only, so that any process may ask while others write.
These functions wait for the disk; from an event loop they belong into a thread.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from dragoman.errors import DragomanError
from dragoman.observe.call_database import VERSION, default_path, is_damage
from dragoman.observe.call_rows import COLUMNS, from_row
from dragoman.observe.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dragoman.observe.call_rows import CallRecord
    from dragoman.observe.metrics import ServerMetrics

BUSY_SECONDS = 5.0

_SELECT = f"SELECT number, {', '.join(COLUMNS)} FROM calls"  # noqa: S608 -- only constants
_GLOB_MARKS = frozenset("*?[")


class CallHistory:
    """The calls that are in a log."""

    def __init__(self, path: Path | None = None) -> None:
        """Read a log, the user's own unless given; it need not exist."""
        self.path = path or default_path()

    def list(
        self,
        *,
        server: str = "",
        tool: str = "",
        errors_only: bool = False,
        since: float | None = None,
        text: str = "",
        limit: int = 50,
    ) -> list[CallRecord]:
        """Return the latest calls that fit, the latest first.

        Args:
            server: Whose calls; a name, or a pattern with `*`, `?` and `[…]`. Empty for all.
            tool: The exposed name, or a pattern.
            errors_only: Whether calls that went well are left out.
            since: Seconds since the epoch.
            text: What stands somewhere in tool, arguments or result; case does not count in ASCII.
            limit: How many at most.

        Raises:
            DragomanError: The log cannot be read.
        """
        wanted: list[tuple[str, tuple[Any, ...]]] = []
        for column, name in (("server", server), ("tool", tool)):
            if name:
                operator = "GLOB" if _GLOB_MARKS & set(name) else "="
                wanted.append((f"{column} {operator} ?", (name,)))
        if errors_only:
            wanted.append(("error_code <> ''", ()))
        if since is not None:
            wanted.append(("at >= ?", (since,)))
        if text:
            escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            columns = ("tool", "arguments", "result")
            like = " OR ".join(f"{column} LIKE ? ESCAPE '\\'" for column in columns)
            wanted.append((f"({like})", (f"%{escaped}%",) * len(columns)))
        where = " AND ".join(condition for condition, _ in wanted)
        values = [value for _, some in wanted for value in some]
        query = f"{_SELECT}{f' WHERE {where}' if where else ''} ORDER BY at DESC, number DESC LIMIT ?"
        return self._read(query, (*values, max(0, limit)))

    def metrics(self, *, since: float | None = None, limit: int = 10_000) -> dict[str, ServerMetrics]:
        """Add the latest calls up, by server.

        Args:
            since: Seconds since the epoch.
            limit: How many calls at most.

        Raises:
            DragomanError: The log cannot be read.
        """
        found = Metrics()
        for one in reversed(self.list(since=since, limit=limit)):
            found.ended(one.server, one.tool, one.duration, one.error_code)
        return {name: found.server(name, 0.0) for name in found}

    def show(self, key: str | int) -> CallRecord | None:
        """Return one call, by its number or by its id; nothing if the log does not have it.

        Raises:
            DragomanError: The log cannot be read.
        """
        column = "number" if isinstance(key, int) else "call_id"
        found = self._read(f"{_SELECT} WHERE {column} = ? ORDER BY number DESC LIMIT 1", (key,))
        return found[0] if found else None

    def _read(self, query: str, values: Sequence[Any]) -> list[CallRecord]:
        if not self.path.exists():
            return []
        try:
            address = f"{self.path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as connection:
                version: int = connection.execute("PRAGMA user_version").fetchone()[0]
                if version > VERSION:
                    msg = f"the call log {self.path} was written by a later version of dragoman"
                    raise DragomanError(msg, hint="update dragoman")
                if version == 0:
                    # Another process is about to make it.
                    return []
                rows = connection.execute(query, values).fetchall()
        except sqlite3.Error as exc:
            msg = f"the call log {self.path} cannot be read: {exc}"
            hint = "it is moved aside when calls are logged again" if is_damage(exc) else "try again"
            raise DragomanError(msg, hint=hint) from exc
        return [from_row(row[0], row[1:]) for row in rows]
