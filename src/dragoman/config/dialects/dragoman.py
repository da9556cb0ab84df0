"""dragoman's own format, in TOML, JSON or YAML; also what a file of no known host is read as.

Entries stand under `mcp.servers`, `mcpServers` or `servers`, as a map or as a list with names. Plain
numbers are seconds. The usual spellings that hosts have for a key are understood.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.config.dialect import (
    SWITCHES,
    Dialect,
    Entry,
    FileSettings,
    Key,
    bare_map,
    entries_at,
    key_table,
    settings_patch,
    table_at,
)
from dragoman.trust.limits import read_limits
from dragoman.trust.policy import read_policy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.config.documents import Document

KEYS = key_table(
    "command",
    "args",
    "env",
    "env_file",
    "inherit_env",
    "cwd",
    "log_file",
    "url",
    "headers",
    "alternate",
    "allow_http",
    "tls",
    "transport",
    "enabled",
    "disabled",
    "required",
    "lazy",
    "reconnect",
    "replacement",
    "timeouts",
    "health_check_interval",
    "allowed_tools",
    "denied_tools",
    "max_concurrency",
    "max_message_bytes",
    "parallel",
    "share",
    "coerce_arguments",
    "sources_in_text",
    "attribution",
    "limits",
    "naming",
    "fallback",
    "auth",
    "trust",
    "trust_annotations",
    "protocol",
    "title",
    "description",
    replace="replacement",
    type="transport",
    envFile="env_file",
    cmd="command",
    envs="env",
    environment="env",
    working_directory="cwd",
    workingDirectory="cwd",
    transportType="transport",
    http_headers="headers",
    uri="url",
    httpUrl="url",
    serverUrl="url",
    server_url="url",
    baseUrl="url",
    base_url="url",
    timeout="call",
    connect_timeout="connect",
    idle_timeout="idle",
    timeout_seconds=Key(field="call", unit="s"),
    tool_timeout_sec=Key(field="call", unit="s"),
    startup_timeout_sec=Key(field="connect", unit="s"),
    requestTimeout=Key(field="call", unit="ms"),
    connectionTimeout=Key(field="connect", unit="ms"),
    initTimeout=Key(field="connect", unit="ms"),
    startup_timeout_ms=Key(field="connect", unit="ms"),
    enabled_tools="allowed_tools",
    includeTools="allowed_tools",
    disabled_tools="denied_tools",
    disabledTools="denied_tools",
    excludeTools="denied_tools",
    mend_arguments="coerce_arguments",
)


_PATHS = (("mcp", "servers"), ("mcpServers",), ("servers",), ("mcp_servers",))


def find(document: Document, _root: str) -> Iterable[Entry]:
    """Find entries under each of the usual keys, or in the document itself."""
    data = document.data
    if isinstance(data, list):
        return entries_at(document, ())
    return [entry for path in _PATHS for entry in entries_at(document, path)] or bare_map(document)


def patch(document: Document, _root: str) -> FileSettings:
    """Read the `mcp` table's own keys, the rules for calls and the limits among them."""
    found = settings_patch(document, ("mcp",))
    table = table_at(document, ("mcp",))
    policy, limits = table.get("policy"), table.get("limits")
    problems = [*found.problems]
    if policy is not None:
        problems += [(("mcp", "policy"), text) for text in read_policy(policy, scope="user").problems]
    if limits is not None:
        problems += [(("mcp", "limits"), text) for text in read_limits(limits)[1]]
    return found.replace(policy=policy, limits=limits, problems=problems)


DRAGOMAN = Dialect(
    name="dragoman",
    title="dragoman",
    find=find,
    patch=patch,
    keys=KEYS,
    dropped={
        "autoApprove": "approval is decided by dragoman's own policy",
        "alwaysAllow": "approval is decided by dragoman's own policy",
    },
    container=("mcp", "servers"),
    also_in=_PATHS,
    settings=[("mcp", key) for key in (*SWITCHES, "policy", "limits")],
    writes={
        field: field
        for field in (
            "enabled required lazy reconnect replacement timeouts health_check_interval allowed_tools "
            "denied_tools max_concurrency naming fallback auth trust trust_annotations protocol "
            "title description command args env env_file inherit_env cwd log_file url headers alternate "
            "allow_http tls transport max_message_bytes parallel coerce_arguments attribution limits "
            "sources_in_text share"
        ).split()
    },
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)


# ── The portable `mcp.json` and `.mcp.json`: the `mcpServers` map that many hosts share


MCP_JSON = DRAGOMAN.replace(
    name="mcp-json",
    title="portable mcp.json",
    keys={
        spelling: key.replace(unit="unknown") if spelling == "timeout" else key
        for spelling, key in KEYS.items()
    },
    container=("mcpServers",),
    # Other hosts read the type under this name only.
    writes={**DRAGOMAN.writes, "transport": "type"},
)
