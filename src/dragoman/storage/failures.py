"""Which servers failed in the last minute, so that a list of tools does not wait for them each time."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, cast

from dragoman.storage.files import StoredFile, cache_folder
from dragoman.struct import Struct, asdict

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = 60.0


class Failure(Struct, kw_only=True):
    """Why a server could not be used."""

    at: float
    """Seconds since the epoch."""
    code: str
    cause: str
    next_step: str
    exit_code: int


def recent_failures() -> dict[str, Failure]:
    """Return the failures of the last minute, by the fingerprint of the server's entry."""
    now = time.time()
    return {key: one for key, one in (_file().content() or {}).items() if 0 <= now - one.at < SECONDS}


def remember_failures(failed: Mapping[str, Failure], settled: Mapping[str, object]) -> None:
    """Remember failures, and forget those of all servers that were tried.

    Raises:
        ConfigError: The file cannot be written.
    """
    recent = {key: one for key, one in recent_failures().items() if key not in settled}
    if failed or _file().path.exists():
        _file().change(lambda _: {**recent, **failed})


def _file() -> StoredFile[dict[str, Failure]]:
    return StoredFile(cache_folder() / "failures.json", _read, _write, dict)


def _read(text: str) -> dict[str, Failure]:
    found: object = json.loads(text)
    if not isinstance(found, dict):
        return {}
    try:
        return {key: Failure(**fields) for key, fields in cast("dict[str, Any]", found).items()}
    except TypeError:
        return {}  # of another version


def _write(failures: Mapping[str, Failure]) -> str:
    return json.dumps({key: asdict(one) for key, one in failures.items()})
