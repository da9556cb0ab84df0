"""FastMCP's `MCPConfig`: `mcpServers`, or the bare map; milliseconds; no variables, no switches.

A remote entry has `transport`; the `type` that other hosts write is not looked at, and without a transport
the path decides: SSE where it has a part `sse`, else Streamable HTTP.
"""

from __future__ import annotations

import re
from typing import Any, cast

from dragoman.config.dialect import Dialect, Entry, key_table
from dragoman.config.dialects import logins
from dragoman.config.dialects.sections import PLAIN, SAME, wrapped_or_bare
from dragoman.config.expand import NONE
from dragoman.model import Note

_SSE = re.compile(r"/sse(/|\?|&|$)")


def translate(entry: Entry) -> None:
    """Decide the transport as this library does; read its login and the tools that it hides."""
    fields = entry.fields
    url = fields.get("url")
    if isinstance(url, str):
        if "type" in fields:
            message = "a remote entry has no `type` in this library; `transport` or the path decides"
            entry.leave("type", Note(code="transport", key="type", message=message))
        if fields.get("transport") is None:
            kind = "sse" if _SSE.search(url) else "http"
            fields["transport"] = kind
            entry.spellings["transport"] = "url"
            message = f"no transport given: the path makes it {kind}"
            entry.notes.append(Note(code="transport", key="url", message=message))
    auth = fields.get("auth")
    if isinstance(auth, str) and auth != "oauth" and "command" not in fields:
        del fields["auth"]
        logins.add_header(entry, "auth", value=f"Bearer {auth}")
    _hidden_tools(entry)


def _hidden_tools(entry: Entry) -> None:
    """Read what can be kept of the changes to single tools: that one is switched off."""
    tools = entry.fields.get("tools")
    if isinstance(tools, dict):
        changes = cast("dict[str, Any]", tools)
        off = [
            name
            for name, change in changes.items()
            if isinstance(change, dict) and cast("dict[str, Any]", change).get("enabled") is False
        ]
        if off:
            entry.fields["denied_tools"] = off
            entry.spellings["denied_tools"] = "tools"


DIALECT = Dialect(
    name="fastmcp",
    title="FastMCP",
    find=wrapped_or_bare,
    translate=translate,
    keys=key_table(
        *PLAIN,
        "auth",
        "transport",
        "description",
        "denied_tools",
        type="transport",
        timeout="call",
        unit="ms",
    ),
    style=NONE,
    dropped={
        "tools": "tools keep their names, texts and arguments; those that are off are denied",
        "include_tags": "tools are chosen by name here, not by tag",
        "exclude_tags": "tools are chosen by name here, not by tag",
        "sse_read_timeout": "a stream may be silent for as long as the server likes",
        "keep_alive": "a server runs for as long as it is wanted; `lazy` and `timeouts.idle` say when",
        "authentication": "it describes a login for other programs",
        "disabled": "this library has no such switch and starts the server",
        "icon": "a picture for other programs",
    },
    writes={
        **SAME,
        "transport": "transport",
        "description": "description",
        "call": "timeout",
    },
    write_unit="ms",
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)
