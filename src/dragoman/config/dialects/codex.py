"""Codex: `[mcp_servers.NAME]` in TOML; layers merge key by key; no variables, but keys that name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.config.dialect import Dialect, Key, Place, key_table, under
from dragoman.config.expand import Style, escape
from dragoman.model import Note

if TYPE_CHECKING:
    from dragoman.config.dialect import Entry

_STDIO_ONLY = ("args", "env", "env_vars", "cwd")
_HTTP_ONLY = ("bearer_token_env_var", "http_headers", "env_http_headers", "http_headers_helper")


def translate(entry: Entry) -> None:
    """Turn keys that name variables into templates, and refuse keys of the other transport."""
    fields = entry.fields
    _escape_literals(fields)
    if "type" in fields:
        message = "this host has no `type` and ignores it; a URL is Streamable HTTP"
        entry.notes.append(Note(code="transport", key="type", message=message))
        entry.move("type", "ignored type")
    _headers(entry)
    _passed_variables(entry)
    if "startup_timeout_sec" in fields and "startup_timeout_ms" in fields:
        entry.move("startup_timeout_ms", "ignored startup_timeout_ms")
    oauth = fields.get("oauth")
    auth: dict[str, Any] = {}
    if isinstance(oauth, dict):
        auth |= {key: value for key, value in cast("dict[str, Any]", oauth).items() if key != "enabled"}
    if "scopes" in fields:
        auth["scopes"] = fields["scopes"]
    if "oauth_resource" in fields:
        auth["resource"] = fields["oauth_resource"]
    if auth:
        spelling = next(key for key in ("oauth", "scopes", "oauth_resource") if key in fields)
        for key in ("scopes", "oauth_resource", "oauth", "auth"):
            if key != spelling:
                fields.pop(key, None)
        entry.move(spelling, "oauth table", auth)
    if fields.get("auth") == "chatgpt":
        entry.move("auth", "ignored auth")
    wrong = _STDIO_ONLY if "url" in fields else _HTTP_ONLY
    for key in wrong:
        if key in fields:
            owner = "command" if "url" in fields else "url"
            message = f"it belongs to a server with a `{owner}`"
            entry.notes.append(Note(code="conflict", key=key, message=message))


def _escape_literals(fields: dict[str, Any]) -> None:
    """Keep `${…}` in this host's texts literal, so that only the templates made here expand."""
    for key in ("command", "url", "cwd"):
        if isinstance(fields.get(key), str):
            fields[key] = escape(fields[key])
    if isinstance(fields.get("args"), list):
        fields["args"] = [escape(arg) if isinstance(arg, str) else arg for arg in fields["args"]]
    for key in ("env", "http_headers"):
        if isinstance(fields.get(key), dict):
            table = cast("dict[str, Any]", fields[key])
            fields[key] = {name: escape(text) if isinstance(text, str) else text for name, text in table.items()}


def _headers(entry: Entry) -> None:
    fields = entry.fields
    made: dict[str, Any] = {}
    token = fields.get("bearer_token_env_var")
    if isinstance(token, str):
        made["Authorization"] = f"Bearer ${{{token}}}"
    named = fields.get("env_http_headers")
    if isinstance(named, dict):
        made |= {name: f"${{{variable}}}" for name, variable in cast("dict[str, Any]", named).items()}
    if not made:
        return
    literal = fields.get("http_headers")
    if isinstance(literal, dict):
        made = cast("dict[str, Any]", literal) | made
    origin = "bearer_token_env_var" if isinstance(token, str) else "env_http_headers"
    fields["http_headers"] = made
    entry.spellings.setdefault("http_headers", "http_headers" if literal else origin)
    fields.pop("bearer_token_env_var", None)
    fields.pop("env_http_headers", None)


def _passed_variables(entry: Entry) -> None:
    passed = entry.fields.get("env_vars")
    if not isinstance(passed, list):
        return
    names: list[Any] = []
    for item in cast("list[object]", passed):
        names.append(cast("dict[str, Any]", item).get("name") if isinstance(item, dict) else item)
    entry.move("env_vars", "inherit_env", names)


DIALECT = Dialect(
    name="codex",
    title="Codex",
    places=(
        Place("${workspaceFolder}/.codex/config.toml", "project"),
        Place("${CODEX_HOME:-~/.codex}/config.toml", "user"),
        Place("/etc/codex/config.toml", "system", platform="linux"),
    ),
    combine="fields",
    find=under("mcp_servers"),
    translate=translate,
    keys={
        **key_table(
            "command",
            "args",
            "env",
            "cwd",
            "url",
            "inherit_env",
            "enabled",
            "required",
            http_headers="headers",
            enabled_tools="allowed_tools",
            disabled_tools="denied_tools",
            startup_timeout_sec=Key(field="connect", unit="s"),
            startup_timeout_ms=Key(field="connect", unit="ms"),
            tool_timeout_sec=Key(field="call", unit="s"),
            auth="auth",
        ),
        "oauth table": Key(field="auth"),
    },
    style=Style(braces=True, escape=True),
    untyped_url="http",
    dropped={
        "ignored type": "this host has no `type`",
        "ignored startup_timeout_ms": "`startup_timeout_sec` wins",
        "ignored auth": "a login that belongs to that host",
        "http_headers_helper": "a command that prints headers is never run while reading",
        "default_tools_approval_mode": "approval is decided by dragoman's own policy",
        "tools": "approval of single tools is decided by dragoman's own policy",
        "supports_parallel_tool_calls": "how calls run side by side is the agent's own choice",
        "omit_tools_from": "which tools are shown is the agent's own choice",
        "environment_id": "it belongs to that host",
        "bearer_token": "a token in the file is refused; name a variable in `bearer_token_env_var`",
    },
    container=("mcp_servers",),
    writes={
        "command": "command",
        "args": "args",
        "env": "env",
        "cwd": "cwd",
        "url": "url",
        "headers": "http_headers",
        "enabled": "enabled",
        "required": "required",
        "allowed_tools": "enabled_tools",
        "denied_tools": "disabled_tools",
        "connect": "startup_timeout_sec",
        "call": "tool_timeout_sec",
    },
    remote_types={"stdio": "", "http": ""},
)
