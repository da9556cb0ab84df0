"""Printing for people and for programs, and saving the parts of results.

Escape codes in text from files and servers are removed before printing; colors are used in terminals only.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import os
import re
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Any, Literal

import click

from dragoman.errors import DragomanError
from dragoman.model import Http, Sse, Stdio
from dragoman.model.keys import keys
from dragoman.storage.files import private_folder
from dragoman.struct import UNSET, Report, Struct, UnsetType
from dragoman.trust.encoding import encoded, encoded_field
from dragoman.trust.masking import mask_args, mask_command, mask_url
from dragoman.trust.sanitizing import for_json, for_terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dragoman.model import Origin, Part, ServerSpec, Transport

MOST_INDENTED = 1_000_000
"""Characters of the longest JSON that is indented."""
NO_SERVERS = "No servers. Import them: dragoman import --all. Add one: dragoman add NAME"
_QUOTE_FREE = re.compile(r"[\w@%+=:,./${}\-•*~]+")


def safe(text: str) -> str:
    """Replace characters that could move the cursor, hide text or change its direction."""
    return for_terminal(text)


def one_line(text: str) -> str:
    """Return the first non-empty line of an untrusted text, without escape codes."""
    return safe(next((" ".join(line.split()) for line in text.splitlines() if line.strip()), ""))


def width_of(text: str) -> int:
    """Return the width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Cut a text to a width in columns; a cut text ends with `…`."""
    if width_of(text) <= width:
        return text
    if text.isascii():
        return f"{text[: max(0, width - 1)]}…"
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, max(0, width - 1)).rstrip()}…"


_COMMAND = re.compile(r"`dragoman [^`]+`")


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap a line at spaces to a width; later lines are indented. A command stays whole, to be copied."""
    whole = _COMMAND.sub(lambda found: found[0].replace(" ", "\xa0"), text.lstrip(" "))
    words = [word.replace("\xa0", " ") for word in whole.split(" ")]
    line = " " * (len(text) - len(text.lstrip(" "))) + words[0]
    lines: list[str] = []
    for word in words[1:]:
        if width_of(f"{line} {word}") <= width:
            line = f"{line} {word}"
        else:
            lines.append(line)
            line = indent + word
    return [*lines, line]


def columns() -> int | None:
    """Return the width of the terminal; None without a terminal."""
    return terminal_width() if sys.stdout.isatty() else None


def terminal_width() -> int:
    """Return the width of the terminal, or a usual one."""
    from dragoman.cli.remote import current_command

    command = current_command.get()
    if command is not None and command.columns:
        return command.columns
    return shutil.get_terminal_size().columns


def indented(text: str) -> str:
    """Return a text that is a JSON object or array with a line for each of its values; any other as it is."""
    if len(text) > MOST_INDENTED or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text


def say(text: str = "", **style: Any) -> None:
    """Print a line of text."""
    click.secho(safe(text), **style)


def say_json(value: object) -> None:
    """Print a value as JSON; structs become objects."""
    text = json.dumps(encoded(value), ensure_ascii=False, indent=2)
    click.echo(for_json(text))


def warn(text: str) -> None:
    """Print a warning to stderr."""
    click.secho(safe(text), fg="yellow", err=True)


def note(text: str) -> None:
    """Print a note to stderr, if stderr is a terminal."""
    if sys.stderr.isatty():
        click.secho(safe(text), dim=True, err=True)


def shorten_path(path: str) -> str:
    """Return a path relative to the current folder or to the home folder."""
    from dragoman.cli.remote import current_command

    command = current_command.get()
    here = os.getcwd() if command is None else command.place.root  # noqa: PTH109 -- texts in, texts out
    home = os.path.expanduser("~")  # noqa: PTH111 -- as above
    if path == here or path.startswith(here + os.sep):
        return "." + path[len(here) :]
    if home != os.sep and path.startswith(home + os.sep):
        return "~" + path[len(home) :]
    return path


def place(origin: Origin) -> str:
    """Return the file and line of a definition."""
    source = shorten_path(origin.source)
    if origin.source == "environment":
        return f"environment, {origin.pointer}"
    return f"{source}:{origin.line}" if origin.line else source


def command_line(transport: Transport) -> str:
    """Return the command or URL of a server, with secrets masked."""
    match transport:
        case Stdio():
            return " ".join(
                _quoted(word) for word in [mask_command(transport.command), *mask_args(transport.args)]
            )
        case Http() | Sse():
            return mask_url(transport.url)


def _quoted(word: str) -> str:
    return word if _QUOTE_FREE.fullmatch(word) else shlex.quote(word)


def spec_json(spec: ServerSpec) -> dict[str, Any]:
    """Return a spec as JSON, with secrets masked; absent keys have their default."""
    shown: dict[str, Any] = {"name": spec.name, "transport": spec.kind, "enabled": spec.enabled}
    for of in (spec.transport, spec):
        shown |= _keys_json(of)
    shown["transport"] = spec.kind
    shown["origin"] = encoded(spec.origin)
    shown["shadowed"] = encoded(spec.shadowed)
    shown["extras"] = sorted(spec.extras)
    shown["notes"] = [{"code": note.code, "key": note.key, "message": note.message} for note in spec.notes]
    return shown


def _keys_json(of: Struct) -> dict[str, Any]:
    return {
        key.name: _keys_json(value) if isinstance(value, Struct) else encoded_field(value, key)
        for name, key in keys(type(of)).items()
        if (value := getattr(of, name)) != key.default or key.is_always_shown
    }


class ErrorReport(Report, kw_only=True):
    """An error."""

    code: str
    """Stable, e.g. `server.connect` or `tool.timeout`; check this in scripts."""
    message: str
    """The text of the error; may change."""
    hint: str
    """How to fix it; may be empty."""
    problems: Sequence[str] | UnsetType = UNSET
    """Details, if there are several: invalid arguments, keys of an entry."""

    @classmethod
    def of_error(cls, error: DragomanError) -> ErrorReport:
        """Return what is shown of an error."""
        return cls.of(error, problems=getattr(error, "problems", ()) or UNSET)


class FailureReport(Report, kw_only=True):
    """The output of a command that failed."""

    error: ErrorReport


class ProblemReport(Report, kw_only=True):
    """A problem of the configuration."""

    code: str
    source: str = ""
    """The file."""
    line: int | None = None
    pointer: str = ""
    message: str
    hint: str
    problems: Sequence[str] = ()


_ENDINGS = {"image/jpeg": ".jpg", "audio/mpeg": ".mp3", "audio/wav": ".wav", "text/plain": ".txt"}
"""Extensions for types where `mimetypes` gives several or unusual ones."""
_MOST = 10_000


class PartReport(Report, kw_only=True, omit_defaults=True):
    """One part of a result or of a resource; without the keys that are empty."""

    kind: Literal["text", "image", "audio", "link", "resource", "structured"]
    text: str = ""
    mime_type: str = ""
    uri: str = ""
    value: Any = UNSET
    """Structured data."""
    size: int = 0
    """The size of binary data in bytes."""
    file: str = ""
    """The file written by `--save`."""
    data: str = ""
    """Base64, unless it was saved to a file."""


def part_reports(parts: Sequence[Part], saved: Mapping[int, Path]) -> list[PartReport]:
    """Return what is shown of parts; `saved` has the files by the index of their part."""
    return [
        PartReport.of(
            part,
            value=part.value if part.kind == "structured" else UNSET,
            size=len(part.data),
            file=str(saved.get(index, "")),
            data="" if index in saved else base64.b64encode(part.data).decode(),
        )
        for index, part in enumerate(parts)
    ]


def save(parts: Sequence[Part], folder: Path | None, stem: str) -> Mapping[int, Path]:
    """Save all binary parts in a folder; return the files by the index of their part.

    Raises:
        DragomanError: A file cannot be written.
    """
    saved: dict[int, Path] = {}
    if folder is None:
        return saved
    try:
        private_folder(folder)
        for index, part in enumerate(parts):
            if part.data:
                path = _write(folder, f"{_plain(stem)}{{}}{_ending(part.mime_type)}", part.data)
                click.echo(f"Saved {shorten_path(safe(str(path.absolute())))}", err=True)
                saved[index] = path
    except OSError as error:
        msg = f"cannot write to `{folder}`: {error.strerror or error}"
        raise DragomanError(msg, hint="choose another folder for `--save`") from error
    return saved


def _write(folder: Path, pattern: str, data: bytes) -> Path:
    """Write a new file; existing files are never overwritten."""
    for number in range(1, _MOST):
        path = folder / pattern.format(f"-{number}")
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            continue
        return path
    msg = f"`{folder}` has too many files with this name"
    raise DragomanError(msg, hint="choose another folder for `--save`")


def _plain(stem: str) -> str:
    # A name from a server must not choose the folder or the extension.
    return re.sub(r"[^A-Za-z0-9_-]+", "_", stem).strip("_")[:60] or "content"


def _ending(mime_type: str) -> str:
    kind = mime_type.partition(";")[0].strip().lower()
    return _ENDINGS.get(kind) or mimetypes.guess_extension(kind) or ".bin"
