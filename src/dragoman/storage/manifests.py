"""Manifests: the last tool listing of each server, so that its tools are known before it is connected.

A manifest is one file, named by a fingerprint of its server's spec. Its first line has the format, a
checksum, a hash of the listing as the server sent it and, if it spoke the older protocol, one of its
handshake; the second has the definitions without their schemas; then comes one line for the schemas of each
definition, which is decoded only when it is used. Only the owner can read it. It holds no secrets: values of
variables are not part of the fingerprint, and a listing that shows a secret is not kept. It is not kept in
part either: a tool that is missing there would be unknown to a caller.

An unusable manifest is ignored with one warning, and the next listing replaces it. Errors of the disk are
never raised.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import time
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard, cast

from dragoman.storage.files import cache_folder, private_folder, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.model import ServerSpec

logger = logging.getLogger("dragoman")

VERSION = 3
_READ = (1, 2, 3)
"""Version 1 is that of dragoman 0.2: a tool that shows a secret may be missing until the next listing. The
versions before 3 have no hash."""
MAX_BYTES = 8 * 2**20
"""A larger manifest is not written and not read."""
MAX_MANIFESTS = 256
"""Beyond this, the least recently used ones are removed."""
DAY = 86_400.0

_HASHED = 3
"""The first version with a hash."""
SAVE_PAUSE = 0.1
"""Seconds in which listings are collected before they are written."""
_MAGIC = b"dragoman manifest "
_SUFFIX = ".manifest"
_SCHEMA_KEYS = ("inputSchema", "outputSchema")

Entry: TypeAlias = tuple[dict[str, Any], str]
"""A definition without its schemas, and both schemas as a JSON array."""


class Manifest(NamedTuple):
    """What was remembered of a server."""

    entries: list[Entry]
    digest: str = ""
    """The hash of the listing that they were made from; empty if they say less than it."""
    handshake: str = ""
    """The hash of what the server said in the older handshake; empty if its protocol is not known."""


class _UnusableError(Exception):
    """A manifest cannot be used; the message says why."""


def default_folder() -> Path:
    """Return the user's folder for listings."""
    return cache_folder() / "manifests"


class ManifestCache:
    """The manifests in one folder; any thread may use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._warned: set[str] = set()

    def read(self, key: str) -> list[Entry] | None:
        """Return the entries of a manifest; `None` if it is missing or unusable."""
        found = self.recall(key)
        return None if found is None else found.entries

    def recall(self, key: str) -> Manifest | None:
        """Return a manifest; `None` if it is missing or unusable."""
        try:
            return _manifest(self._content(self._path(key)))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            self._warn(key, f"cannot be read: {exc.strerror}")
        except _UnusableError as exc:
            self._warn(key, str(exc))
        return None

    def write(
        self,
        key: str,
        listing: Iterable[Mapping[str, Any]],
        *,
        digest: str = "",
        handshake: str = "",
        hides: Callable[[str], bool] = lambda _: False,
    ) -> bool:
        """Write a server's listing, unless it is the same as the one on disk.

        Args:
            key: The fingerprint.
            listing: The usable definitions as the server sent them.
            digest: The hash of the whole listing, if all of it is usable.
            handshake: The hash of what the server said in the older handshake.
            hides: Returns whether a text shows a secret; such a listing is not kept.

        Returns:
            Whether the file was written.
        """
        content = _encoded(listing, f"{digest}~{handshake}" if handshake else digest)
        path = self._path(key)
        try:
            if len(content) > MAX_BYTES or hides(content.decode()):
                path.unlink(missing_ok=True)
                logger.debug("the manifest `%s` is not kept: %d bytes, or a secret", key, len(content))
                return False
            try:
                if self._content(path) == content:
                    return False
            except (OSError, _UnusableError):
                pass
            self._replace(path, content)
        except OSError as exc:
            self._warn(key, f"cannot be written: {exc.strerror}")
            return False
        return True

    def clean(self, key: str, hides: Callable[[str], bool]) -> None:
        """Remove a manifest that shows a secret: one that was not known when it was written."""
        try:
            if hides(self._content(self._path(key)).decode("ascii", "replace")):
                self.forget(key)
        except (OSError, _UnusableError):
            return

    def forget(self, key: str) -> None:
        """Remove a manifest."""
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError as exc:
            self._warn(key, f"cannot be removed: {exc.strerror}")

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _content(self, path: Path) -> bytes:
        # Non-blocking: opening a named pipe must not wait for its other end.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode):
                msg = "is not a regular file"
                raise _UnusableError(msg)
            if status.st_size > MAX_BYTES:
                msg = "is too large"
                raise _UnusableError(msg)
            content = os.read(number, status.st_size)
        finally:
            os.close(number)
        if time.time() - status.st_mtime > DAY:
            os.utime(path)  # mark it as used
        return content

    def _replace(self, path: Path, content: bytes) -> None:
        private_folder(self.folder)
        if not path.exists():
            self._make_room()
        write_atomically(path, content, sync=False)

    def _make_room(self) -> None:
        """Remove the least recently used manifests, and temporary files that a crash left."""
        found: list[tuple[float, str]] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                changed = entry.stat(follow_symlinks=False).st_mtime
                if entry.name.endswith(_SUFFIX):
                    found.append((changed, entry.path))
                elif entry.name.endswith(".new") and time.time() - changed > DAY:
                    Path(entry.path).unlink(missing_ok=True)
        for _, path in sorted(found)[: max(0, len(found) - MAX_MANIFESTS + 1)]:
            Path(path).unlink(missing_ok=True)

    def _warn(self, key: str, why: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            logger.warning("the manifest `%s` %s; it is not used", self._path(key), why)


class ManifestMemory:
    """Remembers the listings of servers from one run to the next; writes in a thread."""

    def __init__(
        self, cache: ManifestCache, *, key: Callable[[ServerSpec], str], hides: Callable[[str], bool]
    ) -> None:
        """Use `cache`.

        Args:
            cache: The manifests.
            key: Returns the key of a server's manifest, without its secrets: `trust.masking.spec_key`.
            hides: Returns whether a text shows a secret: `Redactor.holds`.
        """
        self._cache = cache
        self._key = key
        self._hides = hides
        self._keys: dict[str, tuple[ServerSpec, str]] = {}
        self._unsaved: dict[str, Callable[[], object]] = {}
        self._saving: asyncio.Task[None] | None = None
        self._due: asyncio.TimerHandle | None = None

    def recall(self, spec: ServerSpec) -> Manifest | None:
        """Return the last listing of a server, if there is one."""
        return self._cache.recall(self._key_of(spec))

    def keep(
        self, spec: ServerSpec, listing: Sequence[Mapping[str, Any]], *, digest: str = "", handshake: str = ""
    ) -> None:
        """Remember a listing of usable definitions; a task writes it later.

        Args:
            spec: The server.
            listing: The definitions.
            digest: The hash of the whole listing, if all of it is usable.
            handshake: The hash of what the server said in the older handshake.
        """
        write = partial(self._cache.write, digest=digest, handshake=handshake, hides=self._hides)
        self._do_later(spec, partial(write, self._key_of(spec), listing))

    def keep_known(self, spec: ServerSpec) -> None:
        """Go on remembering a listing that has not changed, unless it shows a secret by now."""
        self._do_later(spec, partial(self._cache.clean, self._key_of(spec), self._hides))

    def forget(self, spec: ServerSpec) -> None:
        """Forget the listing of a server."""
        self._do_later(spec, partial(self._cache.forget, self._key_of(spec)))

    def _key_of(self, spec: ServerSpec) -> str:
        known = self._keys.get(spec.name)
        if known is None or known[0] is not spec:
            known = self._keys[spec.name] = (spec, self._key(spec))
        return known[1]

    def _do_later(self, spec: ServerSpec, job: Callable[[], object]) -> None:
        self._unsaved[spec.name] = job
        if self._due is None and (self._saving is None or self._saving.done()):
            # Servers that start at once list at once: one thread writes for all of them.
            self._due = asyncio.get_running_loop().call_later(SAVE_PAUSE, self._begin)

    def saving(self) -> set[asyncio.Task[None]]:
        """Write now what is left, and return the task that does it."""
        if self._due is not None:
            self._begin()
        return {self._saving} if self._saving is not None else set()

    def _begin(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._saving = asyncio.create_task(self._save(), name="dragoman manifests")

    async def _save(self) -> None:
        while self._unsaved:
            jobs, self._unsaved = self._unsaved, {}
            await asyncio.to_thread(_do_all, jobs.values())


def _do_all(jobs: Iterable[Callable[[], object]]) -> None:
    for job in jobs:
        job()


def _encoded(listing: Iterable[Mapping[str, Any]], word: str) -> bytes:
    pairs: list[tuple[str, str]] = []
    for raw in listing:
        try:
            head = _json({key: value for key, value in raw.items() if key not in _SCHEMA_KEYS})
            both = _json([raw.get("inputSchema"), raw.get("outputSchema") or None])
        except (ValueError, RecursionError):
            continue
        pairs.append((head, both))
    heads, schemas = [head for head, _ in pairs], [both for _, both in pairs]
    body = "\n".join([f"[{','.join(heads)}]", *schemas]).encode()
    return _head_line(body, word) + body


def _manifest(content: bytes) -> Manifest:
    first, _, body = content.partition(b"\n")
    if not first.startswith(_MAGIC):
        msg = "is damaged"
        raise _UnusableError(msg)
    version = next((one for one in _READ if first.startswith(_MAGIC + b"%d " % one)), None)
    if version is None:
        msg = "was written by another version"
        raise _UnusableError(msg)
    word = first.rpartition(b" ")[2].decode("ascii", "replace") if version >= _HASHED else ""
    if _head_line(body, word, version) != first + b"\n":
        msg = "is damaged"
        raise _UnusableError(msg)
    line, *schemas = body.decode("ascii", "replace").split("\n")
    try:
        heads: object = json.loads(line)
    except (ValueError, RecursionError):
        heads = None
    if not _are_heads(heads) or len(heads) != len(schemas):
        msg = "is damaged"
        raise _UnusableError(msg)
    digest, _, handshake = word.partition("~")
    return Manifest(list(zip(heads, schemas, strict=True)), digest.strip("-"), handshake)


def _are_heads(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(
        isinstance(head, dict) and isinstance(cast("dict[str, Any]", head).get("name"), str)
        for head in cast("list[object]", value)
    )


def _head_line(body: bytes, word: str, version: int = VERSION) -> bytes:
    if version < _HASHED:
        return _MAGIC + b"%d %08x\n" % (version, zlib.crc32(body))
    raw = (word or "-").encode("ascii", "replace")
    return _MAGIC + b"%d %08x %b\n" % (version, zlib.crc32(raw + body), raw)


# Made once: it would be made for each tool.
_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
