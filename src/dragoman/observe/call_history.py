"""Reads the call log that `observe/call_log.py` writes; it never creates or changes it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from dragoman.errors import DragomanError
from dragoman.observe.call_log import (
    COLUMNS,
    LOCK_SECONDS,
    Why,
    default_path,
    is_damage,
    missing_columns,
    version_of,
)
from dragoman.observe.metrics import Metrics
from dragoman.struct import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dragoman.observe.call_log import Row
    from dragoman.observe.metrics import ServerMetrics

_SELECT = f"SELECT number, {', '.join(COLUMNS)} FROM calls"  # noqa: S608 -- only constants
_GLOB_MARKS = frozenset("*?[")


class CallRecord(Struct, kw_only=True):
    """One call as it was logged."""

    number: int
    """Unique within the log, and never used again."""
    call_id: str
    at: float
    """Seconds since the epoch, when the call began."""
    server: str
    tool: str
    """The exposed name."""
    duration: float
    error_code: str = ""
    arguments: Any = None
    """As they were sent, except what `missing` names."""
    missing: Mapping[str, Why] = field(default_factory=dict[str, Why])
    """The parts of the arguments that were not kept, by JSON pointer, and why."""
    result: str = ""
    """The text that the caller got, masked and cut."""
    result_chars: int = 0
    """The length of the whole result."""
    result_missing: Sequence[Why] = ()
    user: str = ""
    """Who made it, in a program with many users."""

    @property
    def success(self) -> bool:
        """Whether the call went well."""
        return not self.error_code

    @property
    def obstacle(self) -> str:
        """Why the call cannot be run again as it was; empty if it can."""
        if self.missing:
            places = ", ".join(f"`{place}` ({why})" for place, why in list(self.missing.items())[:5])
            more = len(self.missing) - 5
            return f"not all of its arguments were kept: {places}{f' and {more} more' if more > 0 else ''}"
        return "" if isinstance(self.arguments, dict) else "its arguments are not an object"


class CallHistory:
    """Reads the calls of a log."""

    def __init__(self, path: Path | None = None) -> None:
        """Read a log, by default the user's; it need not exist."""
        self.path = path or default_path()

    def list(
        self,
        *,
        server: str = "",
        tool: str = "",
        user: str | None = None,
        errors_only: bool = False,
        since: float | None = None,
        text: str = "",
        before: tuple[float, int] | None = None,
        limit: int = 50,
    ) -> list[CallRecord]:
        """Return the latest calls that match, newest first.

        Args:
            server: A server's name, or a pattern with `*`, `?` and `[…]`. Empty for all.
            tool: The exposed name, or a pattern.
            user: Who made them, in a program with many users; empty for the program itself.
            errors_only: Whether to leave out calls that succeeded.
            since: Seconds since the epoch.
            text: A text in the tool's name, the arguments or the result; ASCII letters match in any case.
            before: The time and the number of a call; only those are returned that are listed after it.
            limit: How many at most.

        Raises:
            DragomanError: The log cannot be read.
        """
        wanted: list[tuple[str, tuple[Any, ...]]] = []
        for column, name in (("server", server), ("tool", tool)):
            if name:
                operator = "GLOB" if _GLOB_MARKS & set(name) else "="
                wanted.append((f"{column} {operator} ?", (name,)))
        if user is not None:
            wanted.append(("user = ?", (user,)))
        if errors_only:
            wanted.append(("error_code <> ''", ()))
        if since is not None:
            wanted.append(("at >= ?", (since,)))
        if before is not None:
            wanted.append(("(at, number) < (?, ?)", before))
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
        """Sum up the latest calls by server.

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

    def count(self, *, since: float, user: str | None = None) -> dict[str, int]:
        """Return the number of calls by server.

        Args:
            since: Seconds since the epoch.
            user: Who made them; `None` for all.

        Raises:
            DragomanError: The log cannot be read.
        """
        of_user, values = ("", (since,)) if user is None else (" AND user = ?", (since, user))
        query = f"SELECT server, count(*) FROM calls WHERE at >= ?{of_user} GROUP BY server"  # noqa: S608 -- only constants
        return dict(self._rows(query, values))

    def show(self, key: str | int) -> CallRecord | None:
        """Return one call by its number or its id; `None` if the log does not have it.

        Raises:
            DragomanError: The log cannot be read.
        """
        column = "number" if isinstance(key, int) else "call_id"
        found = self._read(f"{_SELECT} WHERE {column} = ? ORDER BY number DESC LIMIT 1", (key,))
        return found[0] if found else None

    def _read(self, query: str, values: Sequence[Any]) -> list[CallRecord]:
        return [from_row(row[0], row[1:]) for row in self._rows(query, values)]

    def _rows(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if not self.path.exists():
            return []
        if not self.path.is_file():
            # SQLite would wait for the other end of a named pipe.
            msg = f"the call log {self.path} is not a regular file"
            raise DragomanError(msg, hint="move it away")
        try:
            address = f"{self.path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, timeout=LOCK_SECONDS)) as connection:
                if version_of(connection, self.path) == 0:
                    return []  # another process is creating it
                if "user" in missing_columns(connection):
                    query = query.replace(", user FROM", ", '' FROM").replace("user = ?", "'' = ?")
                return connection.execute(query, values).fetchall()
        except sqlite3.Error as exc:
            msg = f"the call log {self.path} cannot be read: {exc}"
            hint = "it is moved aside when calls are logged again" if is_damage(exc) else "try again"
            raise DragomanError(msg, hint=hint) from exc


def from_row(number: int, row: Row) -> CallRecord:
    """Return the call that a row describes."""
    at, server, tool, call_id, duration, code, arguments, missing, result, chars, why, user = row
    return CallRecord(
        number=number,
        call_id=call_id,
        at=at,
        server=server,
        tool=tool,
        duration=duration,
        error_code=code,
        arguments=json.loads(arguments),
        missing=json.loads(missing) if missing else {},
        result=result,
        result_chars=chars,
        result_missing=cast("list[Why]", why.split()),
        user=user,
    )
