"""Goose: a map `extensions` in YAML; `cmd`, `envs` and `uri`; seconds.

Variables count in the address and the headers of a remote extension, and come from `envs` first. `env_keys`
names secrets in Goose's keyring; here they come from the environment. What runs inside Goose itself cannot be
taken over: it is a problem where it is on, and nothing where it is off.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from dragoman.config.dialect import Dialect, Entry, Place, entries_at, key_table
from dragoman.config.templates import VariableSyntax
from dragoman.model import Note

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.config.documents import Document

_INSIDE = frozenset({"builtin", "platform", "frontend", "inline_python"})
_REMOTE = frozenset({"streamable_http", "sse"})


def find(document: Document, _root: str) -> Iterable[Entry]:
    """Find the extensions, but for those inside Goose that are off."""
    entries = entries_at(document, ("extensions",))
    return [entry for entry in entries if entry.fields.get("enabled") is not False or not _is_inside(entry)]


def _is_inside(entry: Entry) -> bool:
    kind = entry.fields.get("type")
    return isinstance(kind, str) and kind in _INSIDE


def translate(entry: Entry) -> None:
    """Give an extension its title and its variables."""
    fields = entry.fields
    shown = fields.get("display_name") or fields.get("name")
    for key in ("display_name", "name"):
        fields.pop(key, None)
    if isinstance(shown, str) and shown != entry.name:
        fields["title"] = shown
    if fields.get("socket") is not None:
        entry.problems.append(("socket", "a server behind a Unix socket is not supported"))
    keys = fields.pop("env_keys", None)
    if keys:
        message = "Goose has these in its keyring; here they come from the environment"
        entry.notes.append(Note(code="unused", key="env_keys", message=message))
    kind = fields.get("type")
    if isinstance(kind, str) and kind in _REMOTE:
        _fill(fields)
    elif keys:
        fields["inherit_env"] = keys
        entry.spellings["inherit_env"] = "env_keys"


def _fill(fields: dict[str, Any]) -> None:
    """Put the values of `envs` where a remote extension refers to them."""
    envs = fields.pop("envs", None)
    known = cast("dict[str, object]", envs) if isinstance(envs, dict) else {}

    def value(match: re.Match[str]) -> str:
        found = known.get(match[1] or match[2])
        return found if isinstance(found, str) else match[0]

    def filled(text: object) -> object:
        return _REFERENCE.sub(value, text) if isinstance(text, str) else text

    if known and "uri" in fields:
        fields["uri"] = filled(fields["uri"])
    if known and isinstance(fields.get("headers"), dict):
        headers = cast("dict[str, object]", fields["headers"])
        fields["headers"] = {name: filled(text) for name, text in headers.items()}


_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")

GOOSE = Dialect(
    name="goose",
    title="Goose",
    places=(
        Place("${GOOSE_PATH_ROOT}/config/config.yaml", "user"),
        Place("${XDG_CONFIG_HOME:-~/.config}/goose/config.yaml", "user", platform="linux"),
        Place("~/.config/goose/config.yaml", "user", platform="darwin"),
        Place("${APPDATA}/Block/goose/config/config.yaml", "user", platform="win32"),
    ),
    combine="first",
    find=find,
    translate=translate,
    keys=key_table(
        "args",
        "headers",
        "enabled",
        "title",
        "description",
        "inherit_env",
        cmd="command",
        envs="env",
        uri="url",
        type="transport",
        timeout="call",
        available_tools="allowed_tools",
    ),
    style=VariableSyntax(braces=True, bare=True),
    expanded=frozenset({"url", "headers"}),
    untyped_url="error",
    empty_allows_all=True,
    dropped={"bundled": "it says that the extension came with Goose"},
    container=("extensions",),
    writes={
        "command": "cmd",
        "args": "args",
        "env": "envs",
        "url": "uri",
        "headers": "headers",
        "inherit_env": "env_keys",
        "transport": "type",
        "enabled": "enabled",
        "title": "display_name",
        "description": "description",
        "allowed_tools": "available_tools",
        "call": "timeout",
    },
    # Goose reads `sse` from old files and cannot use it.
    remote_types={"stdio": "stdio", "http": "streamable_http"},
    always={"enabled": True},
)
