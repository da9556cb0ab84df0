"""Folders and files of ours that nobody but their owner can look into, whatever the umask is."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

NAME = "dragoman"
_BASES = ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
_USUAL = (".local/share", ".local/state", ".cache", ".config")
_USUAL_ON_MACS = ("Library/Application Support", "Library/Caches", "Library/Logs")


def private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for its owner alone (0700).

    One that exists is left as it is, unless it is our own place (`~/.local/state/dragoman` and the like) or
    lies inside of it and belongs to us: then it is closed to others. A folder that the user chose stays.

    Raises:
        OSError: It cannot be made.
    """
    missing: list[Path] = []
    above = folder
    while not above.exists() and above != above.parent:
        missing.append(above)
        above = above.parent
    for one in reversed(missing):
        try:
            one.mkdir(mode=0o700)
        except FileExistsError:
            if not one.is_dir():
                raise
        else:
            # A umask may have taken even our own rights away.
            one.chmod(0o700)
    if not folder.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(folder))
    if sys.platform != "win32":
        for one in _ours(folder):
            _close(one)


def private_opener(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file; one that is made is for its owner alone (0600), whatever the umask is."""
    descriptor = os.open(path, flags, 0o600)
    if sys.platform != "win32":
        with suppress(OSError):
            status = os.fstat(descriptor)
            is_new = stat.S_ISREG(status.st_mode) and status.st_size == 0 and status.st_uid == os.geteuid()
            if is_new and stat.S_IMODE(status.st_mode) != 0o600:
                os.fchmod(descriptor, 0o600)
    return descriptor


def private_temporary(folder: Path, suffix: str) -> tuple[int, str]:
    """Make a new file in a folder for its owner alone; returns its descriptor and its path.

    Raises:
        OSError: It cannot be made.
    """
    import tempfile

    number, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=suffix)
    if sys.platform != "win32":
        os.fchmod(number, 0o600)
    return number, name


def is_ours(folder: Path) -> bool:
    """Return whether a folder is one of our own places, or inside of one."""
    return bool(_ours(folder))


def _ours(folder: Path) -> list[Path]:
    """Return the folder and those above it that are ours, the highest first; none if it is elsewhere."""
    home = Path.home()
    bases = {Path(base) for name in _BASES if (base := os.environ.get(name))}
    bases |= {home / name for name in (*_USUAL, *_USUAL_ON_MACS)}
    found: list[Path] = []
    for one in (folder, *folder.parents):
        found.append(one)
        if one.name == NAME and one.parent in bases:
            return found[::-1]
    return []


def _close(folder: Path) -> None:
    """Take from others what they may do in a folder of ours."""
    with suppress(OSError):
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and status.st_mode & 0o777 != 0o700:
            folder.chmod(0o700)
