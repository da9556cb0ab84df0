"""Crush: a map `mcp` in `crush.json`; seconds for a connection; layers merge key by key; a shell's variables.

Only JSON: `crushrc` is a script, which is never run. Nor is a `$(command)` in a value: its output is asked
for. Assumed: an unset variable, which is empty there, stops the server here, as everywhere in dragoman.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dragoman.config.dialect import Dialect, Place, key_table, under
from dragoman.config.dialects import logins
from dragoman.config.dialects.sections import each_text
from dragoman.config.expand import Spelling, Style, spelled

if TYPE_CHECKING:
    from dragoman.config.dialect import Entry

# What has no end is taken up to the end of the text, so that no character is looked at twice.
_OPERATOR = re.compile(
    r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*+)(?P<operator>:\?|\?|-)(?:(?P<word>[^}]*+)\}|[^}]*+)"
)
_KNOWN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(:-.*)?", re.DOTALL)
_BRACED = re.compile(r"\$\{(?:([^}]*+)\}|[^}]*+)")
_TEXTS = ("command", "args", "env", "url", "headers", "oauth_client_id", "oauth_client_secret")

STYLE = Style(
    braces=True,
    bare=True,
    defaults=True,
    spellings=(
        Spelling(
            "$(",
            ")",
            kind="input",
            prefix="output of ",
            loss="a command in a value is never run: what it prints is asked for, as an input",
        ),
    ),
)


def translate(entry: Entry) -> None:
    """Rewrite what only a shell knows, refuse what cannot be rewritten, and gather the login."""
    fields = entry.fields
    for key in _TEXTS:
        if key in fields:
            fields[key] = each_text(fields[key], lambda text, key=key: _plainer(text, key, entry))
    logins.forget(entry, "oauth_token")
    logins.switch(entry)
    logins.gather(
        entry,
        {
            "oauth_client_id": "client_id",
            "oauth_client_secret": "client_secret",
            "oauth_callback_port": "callback_port",
        },
    )


def _plainer(text: str, key: str, entry: Entry) -> str:
    """Write `${V:?text}` as `${V}`, which fails too where V is unset, and `${V-text}` as `${V:-text}`."""
    known = sum(1 for _, spelling, _name in spelled(text, STYLE) if spelling.opening == "$(")
    if text.count("$(") != known or "`" in text:
        entry.problems.append((key, "a command in a value is never run, and this one cannot be asked for"))

    def reference(match: re.Match[str]) -> str:
        if match["word"] is None:
            return match[0]
        default = f":-{match['word']}" if match["operator"] == "-" else ""
        return f"${{{match['name']}{default}}}"

    plain = _OPERATOR.sub(reference, text)
    bodies = (match[1] for match in _BRACED.finditer(plain))
    if not all(_KNOWN.fullmatch(body) for body in bodies if body is not None):
        entry.problems.append((key, "only `${NAME}`, `${NAME:-text}` and `${NAME:?text}` are known here"))
    return plain


DIALECT = Dialect(
    name="crush",
    title="Crush",
    places=(
        Place("${workspaceFolder}/.crush.json", "project"),
        Place("${workspaceFolder}/crush.json", "project"),
        Place("${XDG_CONFIG_HOME:-~/.config}/crush/crush.json", "user"),
        Place("${LOCALAPPDATA}/crush/crush.json", "user", platform="win32"),
    ),
    combine="fields",
    find=under("mcp"),
    translate=translate,
    keys=key_table(
        "command",
        "args",
        "env",
        "url",
        "headers",
        "disabled",
        type="transport",
        timeout="connect",
        enabled_tools="allowed_tools",
        disabled_tools="denied_tools",
        oauth="auth",
    ),
    style=STYLE,
    untyped_url="http",
    empty_allows_all=True,
    container=("mcp",),
    writes={
        "command": "command",
        "args": "args",
        "env": "env",
        "url": "url",
        "headers": "headers",
        "transport": "type",
        "disabled": "disabled",
        "allowed_tools": "enabled_tools",
        "denied_tools": "disabled_tools",
        "connect": "timeout",
    },
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)
