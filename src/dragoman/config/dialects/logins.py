"""How hosts write a login down: keys of an `oauth` table and beside it, headers that hold a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.model import Note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.config.dialect import Entry

CAMEL_CASE = {
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "callbackPort": "callback_port",
    "authServerMetadataUrl": "metadata_url",
    "redirectUri": "redirect_uri",
}


def rename(entry: Entry, names: Mapping[str, str] = CAMEL_CASE, *, key: str = "oauth") -> None:
    """Rename the keys of a table about a login."""
    table = entry.fields.get(key)
    if isinstance(table, dict):
        pairs = cast("dict[str, Any]", table).items()
        entry.fields[key] = {names.get(name, name): value for name, value in pairs}
        entry.spellings.update({f"{key}.{new}": f"{key}.{old}" for old, new in names.items()})


def gather(entry: Entry, names: Mapping[str, str]) -> None:
    """Move keys that stand beside `oauth` into it, under the names that they have there."""
    fields = entry.fields
    table: dict[str, Any] = {}
    for key, name in names.items():
        if fields.get(key) is not None:
            table[name] = fields.pop(key)
            entry.spellings[f"oauth.{name}"] = key
    oauth = fields.get("oauth")
    if table and (oauth is None or isinstance(oauth, dict)):
        fields["oauth"] = {**cast("dict[str, Any]", oauth or {}), **table}
        if oauth is None:
            entry.spellings["oauth"] = entry.spellings[f"oauth.{next(iter(table))}"]


def switch(entry: Entry) -> None:
    """Read an `oauth` that may be true or false: a login is wanted, or there is none."""
    value = entry.fields.get("oauth")
    if isinstance(value, bool):
        entry.fields["oauth"] = {} if value else {"mode": "none"}


def add_header(entry: Entry, key: str, *, name: str = "Authorization", value: str) -> None:
    """Add a header that a host makes from another key; it wins over the one in `headers`."""
    headers = entry.fields.get("headers")
    if headers is None or isinstance(headers, dict):
        entry.fields["headers"] = {**cast("dict[str, Any]", headers or {}), name: value}
        entry.spellings.setdefault("headers", "headers" if headers is not None else key)
        entry.spellings[f"headers.{name}"] = key


def forget(entry: Entry, key: str) -> None:
    """Leave a host's tokens where they are: they are not even kept."""
    if entry.fields.pop(key, None) is not None:
        message = "tokens of that host stay with it; log in again"
        entry.notes.append(Note(code="unused", key=key, message=message))
