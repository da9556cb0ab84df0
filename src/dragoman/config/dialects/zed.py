"""Zed: `context_servers` in `settings.json` with comments; seconds; layers merge key by key; no variables.

`context_server_timeout` is the time-out of every server of the same file that has none of its own. Older
files have `source` and a table under `command`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.config.dialect import Dialect, Entry, Place, entries_at, key_table, table_at
from dragoman.config.templates import NONE
from dragoman.model import Note

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.config.documents import Document


def find(document: Document, _root: str) -> Iterable[Entry]:
    """Find the servers, each with the time-out that the file has for all."""
    entries = entries_at(document, ("context_servers",))
    shared = table_at(document, ()).get("context_server_timeout")
    if isinstance(shared, int | float) and not isinstance(shared, bool) and shared > 0:
        for entry in entries:
            if "command" in entry.fields or "url" in entry.fields:
                entry.fields.setdefault("timeout", shared)
    return entries


def translate(entry: Entry) -> None:
    """Lift what stands under `command`, and tell servers of extensions from others."""
    fields = entry.fields
    if fields.get("source") == "custom":
        del fields["source"]
    nested = fields.get("command")
    if isinstance(nested, dict):
        del fields["command"]
        for key, name in (("path", "command"), ("args", "args"), ("env", "env")):
            value = cast("dict[str, Any]", nested).get(key)
            if value is not None and fields.get(name) is None:
                fields[name] = value
                entry.spellings[name] = f"command.{key}"
    by_extension = fields.get("source") == "extension" or "settings" in fields
    if by_extension and "command" not in fields and "url" not in fields:
        key = "settings" if "settings" in fields else "source"
        entry.problems.append((key, "an extension of Zed starts this server, and only it knows how"))
    if fields.get("oauth") == {}:
        entry.set_aside("oauth", Note(code="unused", key="oauth", message="it is empty"))


ZED = Dialect(
    name="zed",
    title="Zed",
    places=(
        Place("${workspaceFolder}/.zed/settings.json", "project"),
        Place("${XDG_CONFIG_HOME:-~/.config}/zed/settings.json", "user", platform="linux"),
        Place("~/.config/zed/settings.json", "user", platform="darwin"),
        Place("${APPDATA}/Zed/settings.json", "user", platform="win32"),
    ),
    combine="fields",
    find=find,
    translate=translate,
    keys=key_table(
        "command", "args", "env", "inherit_env", "url", "headers", "enabled", timeout="call", oauth="auth"
    ),
    style=NONE,
    untyped_url="http",
    dropped={
        "remote": "whether it runs on the other side of a remote project is the editor's own choice",
        "settings": "values for an extension of Zed",
        "source": "who brought the entry into the file",
    },
    container=("context_servers",),
    settings=[("context_server_timeout",)],
    writes={
        "command": "command",
        "args": "args",
        "env": "env",
        "url": "url",
        "headers": "headers",
        "enabled": "enabled",
        "call": "timeout",
    },
    remote_types={"stdio": "", "http": ""},
)
