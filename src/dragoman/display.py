"""Results and servers as HTML, for notebooks: text or table, images, error and sources.

Everything in a result comes from a server, so all of it is escaped; an image is shown only if its type is one
that cannot contain a program, and never fetched.
"""

from __future__ import annotations

import json
from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING, Any, cast

from dragoman.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Protocol

    class _Part(Protocol):
        @property
        def kind(self) -> str: ...
        @property
        def text(self) -> str: ...
        @property
        def data(self) -> bytes: ...
        @property
        def mime_type(self) -> str: ...

    class _Source(Protocol):
        @property
        def title(self) -> str: ...
        @property
        def locator(self) -> str: ...
        @property
        def updated(self) -> str: ...

    class _Provenance(Protocol):
        @property
        def sources(self) -> Sequence[_Source]: ...

    class _Result(Protocol):
        @property
        def success(self) -> bool: ...
        @property
        def text(self) -> str: ...
        @property
        def error(self) -> str | None: ...
        @property
        def structured(self) -> Any: ...
        @property
        def parts(self) -> Sequence[Any]: ...
        @property
        def provenance(self) -> _Provenance | None: ...


MAX_CHARS = 20_000
"""Of one text."""
MAX_ROWS = 100
MAX_COLUMNS = 30
MAX_IMAGE_BYTES = 5_000_000
IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}


def result_html(result: _Result) -> str:
    """Return a result as HTML that is safe in a notebook."""
    return "\n".join(_pieces(result))


def rows_html(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as a table that is safe in a notebook."""
    return _table(list(rows))


def _pieces(result: _Result) -> Iterator[str]:
    if not result.success:
        yield f"<pre style='color:#b00020;white-space:pre-wrap'>{_text(result.error or result.text)}</pre>"
        return
    table = _table(result.structured)
    if table:
        yield table
    pictures = [html for part in result.parts if (html := _picture(part))]
    texts = [
        part.text
        for part in cast("Sequence[_Part]", result.parts)
        if part.kind not in ("image", "structured")
    ]
    text = "\n".join(texts) if result.parts else result.text
    if not table and text.strip():
        yield f"<pre style='white-space:pre-wrap'>{_text(text)}</pre>"
    elif not table and result.structured is not None:
        yield f"<pre>{_text(json.dumps(result.structured, ensure_ascii=False, indent=2, default=str))}</pre>"
    yield from pictures
    sources = result.provenance.sources if result.provenance else ()
    if sources:
        items = "".join(f"<li>{_source(one)}</li>" for one in sources[:MAX_ROWS])
        yield f"<small>Sources<ul>{items}</ul></small>"


def _picture(part: _Part) -> str:
    if part.kind != "image":
        return ""
    kind = part.mime_type.lower()
    if kind not in IMAGES or not part.data or len(part.data) > MAX_IMAGE_BYTES:
        return f"<em>{_text(part.text or f'image, {kind}, {len(part.data):,} bytes')}</em>"
    return f"<img src='data:{kind};base64,{b64encode(part.data).decode()}' style='max-width:100%'>"


def _source(source: _Source) -> str:
    updated = f"updated {source.updated}" if source.updated else ""
    return ", ".join(_text(one) for one in (source.title, source.locator, updated) if one)


def _table(value: object) -> str:
    """Return a list of objects as a table; empty if the value is something else."""
    if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
        # A server wraps a list: `{"result": […]}`.
        (value,) = cast("dict[str, Any]", value).values()
    if not isinstance(value, list) or not value:
        return ""
    rows = cast("list[Any]", value)
    if not all(isinstance(row, dict) for row in rows[:MAX_ROWS]):
        return ""
    shown = cast("list[Mapping[str, Any]]", rows[:MAX_ROWS])
    columns = list(dict.fromkeys(str(key) for row in shown for key in row))[:MAX_COLUMNS]
    if not columns:
        return ""
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(row.get(column))}</td>' for column in columns)}</tr>" for row in shown
    )
    more = f"<small>{len(rows) - MAX_ROWS:,} more rows</small>" if len(rows) > MAX_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return _text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


def _text(text: str) -> str:
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]} … ({len(text) - MAX_CHARS:,} more characters)"
    return escape(printable(text))
