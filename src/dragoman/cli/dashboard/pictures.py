"""Images of a result on the screen, where `textual-image` is installed and the terminal can; else one line.

`prepare` has to run before the dashboard starts: when it is imported, the library asks the terminal what it
can, and nobody else may be reading the keyboard then.
"""

from __future__ import annotations

import importlib
from io import BytesIO
from typing import TYPE_CHECKING, Any

from dragoman.cli.output import one_line
from dragoman.tools.pictures import image_size, image_type

if TYPE_CHECKING:
    from textual.widget import Widget

    from dragoman.model import Part

MAX_PIXELS = 4_000_000
"""Of an image that is decoded: a small file may claim to be a huge one."""
MAX_ROWS = 16

_kind: list[Any] = []
"""The library's widget, once it was looked for and is there."""


def prepare() -> bool:
    """Look for the library; tell whether images can be shown."""
    if not _kind:
        try:
            _kind.append(importlib.import_module("textual_image.widget").Image)
        except ImportError:
            return False
    return True


def picture(part: Part) -> Widget | None:
    """Return a widget that shows an image; nothing where that is not possible."""
    if not _kind or not 0 < _pixels(part.data) <= MAX_PIXELS:
        return None
    try:
        widget: Widget = _kind[0](BytesIO(part.data), classes="picture")
    except (OSError, ValueError, SyntaxError):  # what the decoder raises for a broken image
        return None
    return widget


def picture_line(part: Part) -> str:
    """Write what stands for an image: `[image 640×480 png]`."""
    kind = (image_type(part.data) or part.mime_type).rpartition("/")[2]
    size = image_size(part.data).replace("x", "×")
    return f"[{' '.join(word for word in ('image', size, one_line(kind)) if word)}]"


def _pixels(data: bytes) -> int:
    width, _, height = image_size(data).partition("x")
    return int(width) * int(height) if width and height else 0
