"""Reads configuration files into a `Document`, or raises a clear error."""

from __future__ import annotations

import codecs
import os
from typing import TYPE_CHECKING

from dragoman.config.documents import MAX_BYTES, Document, Format, parse, parse_env, too_large
from dragoman.errors import ConfigError, ConfigSyntaxError

if TYPE_CHECKING:
    from pathlib import Path

_FORMATS: dict[str, Format] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".env": "env"}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def format_of(path: Path) -> Format:
    """Return a file's format by its name; JSON by default."""
    if path.name == ".env" or path.name.startswith(".env."):
        return "env"
    return _FORMATS.get(path.suffix.lower(), "json")


def is_file(path: Path) -> bool:
    """Return whether a file exists; `False` if the path cannot be accessed."""
    return os.path.isfile(path)  # noqa: PTH113 -- `Path.is_file` raises where a directory is closed to us


def read(
    path: Path,
    format: Format | None = None,  # noqa: A002 -- as in `documents.parse`
    *,
    only_regular: bool = False,
    most: int | None = None,
) -> Document:
    """Read and parse a file.

    Args:
        path: The file.
        format: Its format; by its name unless given.
        only_regular: Whether to refuse pipes and devices: reading one from a project could block.
        most: The most bytes it may have; `MAX_BYTES` unless given.

    Raises:
        FileNotFoundError: The file does not exist.
        ConfigSyntaxError: It cannot be read or parsed.
    """
    if only_regular and os.path.exists(path) and not is_file(path):  # noqa: PTH110 -- as in `is_file`
        msg = "this is not a regular file"
        raise ConfigSyntaxError(msg, source=str(path))
    return parse(_text(path, most), str(path), format or format_of(path))


def read_env_file(path: Path, *, pointer: str = "") -> dict[str, str]:
    """Read an env file that a server's spec names.

    Raises:
        ConfigError: It is missing or unreadable, or a pipe or a device, which could block.
    """
    if os.path.exists(path) and not is_file(path):  # noqa: PTH110 -- as in `is_file`
        msg = "this is not a regular file"
        raise ConfigError(msg, source=str(path), pointer=pointer)
    try:
        return parse_env(_text(path))
    except FileNotFoundError:
        msg = "the env file does not exist"
        raise ConfigError(
            msg, source=str(path), pointer=pointer, hint="create it, or remove the key"
        ) from None


def _text(path: Path, most: int | None = None) -> str:
    limit = MAX_BYTES if most is None else most
    source = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise FileNotFoundError(*error.args) from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        msg = f"the file cannot be read: {reason}"
        raise ConfigSyntaxError(msg, source=source) from None
    if len(data) > limit:
        raise ConfigSyntaxError(too_large(limit), source=source)
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        msg = f"the file is not valid {encoding.upper().removesuffix('-SIG')} (byte {error.start})"
        raise ConfigSyntaxError(msg, source=source, line=line) from None
