"""Configuration files are read here, and only read: bytes become a `Document` or a clear error."""

from __future__ import annotations

import codecs
from pathlib import Path

from dragoman.config.documents import MAX_BYTES, Document, Format, parse
from dragoman.config.dotenv import parse_env
from dragoman.errors import ConfigError, ConfigSyntaxError

_FORMATS: dict[str, Format] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".env": "env"}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def format_of(path: Path) -> Format:
    """Tell a file's format by its name; JSON unless the name says otherwise."""
    return _FORMATS.get(path.suffix.lower(), "json")


def read(path: Path, format: Format | None = None) -> Document:  # noqa: A002 -- as in `documents.parse`
    """Read and parse a file.

    Raises:
        FileNotFoundError: There is no such file.
        ConfigSyntaxError: It cannot be read or parsed.
    """
    return parse(_text(path), str(path), format or format_of(path))


def read_env_file(path: Path, *, pointer: str = "") -> dict[str, str]:
    """Read an env file that a server's spec names.

    Raises:
        ConfigError: It is absent or unreadable.
    """
    try:
        return parse_env(_text(path))
    except FileNotFoundError:
        msg = "the env file does not exist"
        raise ConfigError(msg, source=str(path), pointer=pointer, hint="create it, or remove the key") from None


def _text(path: Path) -> str:
    source = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        msg = f"the file cannot be read: {error.strerror or error}"
        raise ConfigSyntaxError(msg, source=source) from None
    if len(data) > MAX_BYTES:
        msg = f"the file is larger than {MAX_BYTES // 2**20} MiB"
        raise ConfigSyntaxError(msg, source=source)
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        msg = f"the file is not valid {encoding.upper().removesuffix('-SIG')} (byte {error.start})"
        raise ConfigSyntaxError(msg, source=source, line=line) from None
