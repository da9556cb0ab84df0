"""Pieces of results and resources: for programs as JSON, and as files where they are saved."""

from __future__ import annotations

import base64
import mimetypes
import re
from typing import TYPE_CHECKING

import click

from dragoman.cli.output import safe, shorten_path
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dragoman.cli.shapes import PartShape
    from dragoman.model import Part

_ENDINGS = {"image/jpeg": ".jpg", "audio/mpeg": ".mp3", "audio/wav": ".wav", "text/plain": ".txt"}
"""What `mimetypes` has several or odd answers for."""
_MOST = 10_000


def part_json(part: Part, file: Path | None = None) -> PartShape:
    """Return a piece for programs; what was saved is named, what was not is there as base64."""
    shown: PartShape = {"kind": part.kind}
    if part.text:
        shown["text"] = part.text
    if part.mime_type:
        shown["mime_type"] = part.mime_type
    if part.uri:
        shown["uri"] = part.uri
    if part.kind == "structured":
        shown["value"] = part.value
    if part.data:
        shown["size"] = len(part.data)
        if file is not None:
            shown["file"] = str(file)
        else:
            shown["data"] = base64.b64encode(part.data).decode()
    return shown


def save(parts: Sequence[Part], folder: Path | None, stem: str) -> Mapping[int, Path]:
    """Write every piece that is bytes into a folder, if there is one; return the files by their piece.

    Raises:
        DragomanError: A file cannot be written.
    """
    saved: dict[int, Path] = {}
    if folder is None:
        return saved
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for index, part in enumerate(parts):
            if part.data:
                path = _write(folder, f"{_plain(stem)}{{}}{_ending(part.mime_type)}", part.data)
                click.echo(f"saved {shorten_path(safe(str(path.absolute())))}", err=True)
                saved[index] = path
    except OSError as error:
        msg = f"`{folder}` cannot be written to: {error.strerror or error}"
        raise DragomanError(msg, hint="choose another folder for `--save`") from error
    return saved


def _write(folder: Path, pattern: str, data: bytes) -> Path:
    """Write a new file: nothing that is there is ever written over."""
    for number in range(1, _MOST):
        path = folder / pattern.format(f"-{number}")
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            continue
        return path
    msg = f"`{folder}` is full of files that are called like that"
    raise DragomanError(msg, hint="choose another folder for `--save`")


def _plain(stem: str) -> str:
    # A name from a server decides no folder and no ending.
    return re.sub(r"[^A-Za-z0-9_-]+", "_", stem).strip("_")[:60] or "content"


def _ending(mime_type: str) -> str:
    kind = mime_type.partition(";")[0].strip().lower()
    return _ENDINGS.get(kind) or mimetypes.guess_extension(kind) or ".bin"
