"""Codex: `[mcp_servers.NAME]` in TOML; layers merge key by key; no variables, but keys that name them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from dragoman.config import dialect
from dragoman.config.dialect import Dialect, Meaning, Place, each_text, key_table, under
from dragoman.config.templates import VariableSyntax, escape
from dragoman.model import Note

if TYPE_CHECKING:
    from dragoman.config.dialect import Entry

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXTS = ("command", "args", "env", "cwd", "url", "http_headers", "oauth", "scopes", "oauth_resource")


def translate(entry: Entry) -> None:
    """Turn keys that name variables into templates; keep every other `${…}` literal."""
    fields = entry.fields
    for key in _TEXTS:
        if key in fields:
            fields[key] = each_text(fields[key], escape)
    if "type" in fields:
        message = "this host has no `type` and ignores it; a URL is Streamable HTTP"
        entry.set_aside("type", Note(code="transport", key="type", message=message))
    if "startup_timeout_sec" in fields and "startup_timeout_ms" in fields:
        message = "`startup_timeout_sec` wins"
        entry.set_aside(
            "startup_timeout_ms", Note(code="conflict", key="startup_timeout_ms", message=message)
        )
    _headers(entry)
    _passed_variables(entry)
    _login(entry)


def _headers(entry: Entry) -> None:
    """Add the headers whose values are variables to the literal ones."""
    fields = entry.fields
    made: dict[str, object] = {}
    bearer = fields.pop("bearer_token_env_var", None)
    if bearer is not None:
        made["Authorization"] = f"Bearer {_reference(entry, 'bearer_token_env_var', bearer)}"
        entry.spellings["http_headers.Authorization"] = "bearer_token_env_var"
    named = fields.get("env_http_headers")
    if isinstance(named, dict):
        for header, variable in cast("dict[str, object]", fields.pop("env_http_headers")).items():
            made[header] = _reference(entry, "env_http_headers", variable)
            entry.spellings[f"http_headers.{header}"] = f"env_http_headers.{header}"
    elif named is not None:
        entry.problems.append(("env_http_headers", "expected an object of headers and variables"))
    literal = fields.get("http_headers")
    if made and (literal is None or isinstance(literal, dict)):
        fields["http_headers"] = {**cast("dict[str, object]", literal or {}), **made}


def _reference(entry: Entry, key: str, variable: object) -> str:
    if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
        entry.problems.append((key, "expected the name of an environment variable"))
    return f"${{{variable}}}"


def _passed_variables(entry: Entry) -> None:
    passed = entry.fields.get("env_vars")
    if isinstance(passed, list):
        items = cast("list[object]", passed)
        names = [
            cast("dict[str, Any]", item).get("name") if isinstance(item, dict) else item for item in items
        ]
        entry.move("env_vars", "inherit_env", names)


def _login(entry: Entry) -> None:
    """Gather `oauth`, `scopes` and `oauth_resource` in one table."""
    fields = entry.fields
    if fields.get("auth") == "chatgpt":
        entry.set_aside("auth", Note(code="unused", key="auth", message="a login that belongs to that host"))
    dialect.gather(entry, {"scopes": "scopes", "oauth_resource": "resource"})
    if "oauth" in fields and fields.get("auth") == "oauth":
        del fields["auth"]


CODEX = Dialect(
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
    keys=key_table(
        "command",
        "args",
        "env",
        "cwd",
        "url",
        "inherit_env",
        "enabled",
        "required",
        "auth",
        env_vars="inherit_env",
        http_headers="headers",
        oauth="auth",
        enabled_tools="allowed_tools",
        disabled_tools="denied_tools",
        startup_timeout_sec=Meaning(field="connect", unit="s"),
        startup_timeout_ms=Meaning(field="connect", unit="ms"),
        tool_timeout_sec=Meaning(field="call", unit="s"),
    ),
    style=VariableSyntax(braces=True, escape=True),
    untyped_url="http",
    dropped={
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
        "header_variables": "env_http_headers",
        "bearer_variable": "bearer_token_env_var",
        "inherit_env": "env_vars",
        "enabled": "enabled",
        "required": "required",
        "allowed_tools": "enabled_tools",
        "denied_tools": "disabled_tools",
        "connect": "startup_timeout_sec",
        "call": "tool_timeout_sec",
    },
    literal_when_written=True,
    remote_types={"stdio": "", "http": ""},
)
