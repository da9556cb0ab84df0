"""Which dialect a file of unknown origin is written in: by its name, then by its content."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from dragoman.config.documents import Document

_BY_NAME = {
    "claude_desktop_config.json": "claude-desktop",
    ".claude.json": "claude-code",
    ".kode.json": "kode",
    ".mcprc": "kode",
    "otter.toml": "otter",
    "dragoman.toml": "dragoman",
    "mcp_config.json": "windsurf",
    "cline_mcp_settings.json": "cline",
    "mcp_settings.json": "roo",
    "mcp-config.json": "copilot-cli",
    "opencode.json": "opencode",
    "opencode.jsonc": "opencode",
    "librechat.yaml": "librechat",
    "librechat.yml": "librechat",
    "crush.json": "crush",
    ".crush.json": "crush",
}
_BY_FOLDER = {
    ".cursor": "cursor",
    ".vscode": "vscode",
    ".codex": "codex",
    ".gemini": "gemini",
    ".otter": "otter",
    "otter": "otter",
    ".rrclaw": "rrclaw",
    ".excelmanus": "excelmanus",
    "dragoman": "dragoman",
    ".roo": "roo",
    ".kilocode": "roo",
    ".continue": "continue",
    ".copilot": "copilot-cli",
    ".github": "copilot-cli",
    ".zed": "zed",
    ".opencode": "opencode",
    ".amazonq": "amazon-q",
    ".lmstudio": "lm-studio",
}
_BY_END = {
    ".continue/mcpServers": "continue",
    "zed/settings.json": "zed",
    "Zed/settings.json": "zed",
    "goose/config.yaml": "goose",
    "goose/config": "goose",
    "amazonq/mcp.json": "amazon-q",
    "amazonq/cli-agents": "amazon-q",
    ".amazonq/cli-agents": "amazon-q",
    ".kiro/settings": "kiro",
    ".kiro/agents": "kiro",
    "lm-studio/mcp.json": "lm-studio",
}
"""The last two parts of a file's path, or of its folder's: for names that would be too common alone."""
_BY_SCHEMA = {"opencode.ai": "opencode", "charm.land": "crush", "server.schema.json": "server-json"}
_BY_KEY = {
    "copilot-cli": {"deferTools", "disableToolCache", "filterMapping", "oauthClientId", "oauthGrantType"},
    "gemini": {"httpUrl", "includeTools", "excludeTools"},
    "cursor": {"envFile"},
    "windsurf": {"serverUrl"},
    "cline": {"transportType", "oauthClient", "remoteConfigured"},
    "roo": {"watchPaths"},
    "kiro": {"oauthScopes"},
    "librechat": {"customUserVars", "serverInstructions", "chatMenu", "requiresOAuth"},
    "fastmcp": {"sse_read_timeout", "include_tags", "exclude_tags", "keep_alive"},
}
"""Keys of entries under `mcpServers` that only one host has, the first that fits counts."""
_GOOSE_TYPES = ("stdio", "streamable_http", "sse", "builtin", "platform")


def detect(document: Document) -> str:
    """Return the name of the dialect that a document is most likely written in."""
    path = PurePath(document.source)
    if document.format == "env":
        return "legal"
    if path.name in _BY_NAME:
        return _BY_NAME[path.name]
    if path.parent.name in _BY_FOLDER:
        return _BY_FOLDER[path.parent.name]
    for end in ("/".join(path.parts[-2:]), "/".join(path.parts[-3:-1])):
        if end in _BY_END:
            return _BY_END[end]
    return _by_content(document.data, document.format)


def _by_content(data: object, format: str) -> str:  # noqa: A002 -- as in `documents.parse`
    if isinstance(data, list):
        return "excelmanus"
    if not isinstance(data, dict):
        return "mcp-json"
    keys = cast("dict[str, Any]", data)
    schema = str(keys.get("$schema", ""))
    for part, name in _BY_SCHEMA.items():
        if part in schema:
            return name
    if _is_of_the_registry(keys):
        return "server-json"
    if isinstance(keys.get("context_servers"), dict):
        return "zed"
    if any(entry.get("type") in _GOOSE_TYPES for entry in _entries(keys.get("extensions"))):
        return "goose"
    servers = keys.get("mcp_servers")
    if isinstance(servers, dict):
        return "codex"
    if isinstance(servers, list):
        return "otter"
    mcp = keys.get("mcp")
    if isinstance(mcp, dict) and "servers" in mcp:
        return "otter" if isinstance(mcp["servers"], list) else "dragoman"
    if isinstance(mcp, dict) and any(_is_reachable(entry) for entry in _entries(cast("object", mcp))):
        return _opencode_or_crush(_entries(cast("object", mcp)))
    if isinstance(keys.get("projects"), dict) and isinstance(keys.get("mcpServers"), dict):
        return "claude-code"
    if isinstance(keys.get("servers"), dict):
        return "vscode"
    if format == "yaml" and isinstance(keys.get("mcpServers"), list) and not _say_transport(keys):
        return "continue"
    if isinstance(keys.get("servers"), list) or isinstance(keys.get("mcpServers"), list):
        return "excelmanus"
    return _by_entry_keys(keys.get("mcpServers"))


def _is_of_the_registry(keys: dict[str, Any]) -> bool:
    """Tell whether it is a `server.json`, or what the registry's API answers."""
    listed: object = keys.get("servers")
    items = cast("list[object]", listed) if isinstance(listed, list) else []
    for holder in (keys, *items[:1]):
        table: dict[str, Any] = cast("dict[str, Any]", holder) if isinstance(holder, dict) else {}
        inner: object = table.get("server", table)
        server = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
        ways = [server.get("packages"), server.get("remotes")]
        if isinstance(server.get("name"), str) and any(isinstance(way, list) for way in ways):
            return True
    return False


def _opencode_or_crush(entries: list[dict[str, Any]]) -> str:
    theirs = any(
        entry.get("type") in ("local", "remote") or isinstance(entry.get("command"), list)
        for entry in entries
    )
    return "opencode" if theirs else "crush"


def _is_reachable(entry: dict[str, Any]) -> bool:
    return "command" in entry or "url" in entry


def _say_transport(keys: dict[str, Any]) -> bool:
    return any(
        "transport" in cast("dict[str, Any]", one) for one in keys["mcpServers"] if isinstance(one, dict)
    )


def _by_entry_keys(servers: object) -> str:
    entries = _entries(servers)
    spelled = {key for entry in entries for key in entry}
    for name, keys in _BY_KEY.items():
        if spelled & keys:
            return name
    if "disabledTools" in spelled and spelled & {"autoApprove", "alwaysAllow"}:
        return "kiro" if "autoApprove" in spelled else "roo"
    for entry in entries:
        if isinstance(entry.get("transport"), dict):
            return "cline"
        if isinstance(entry.get("tools"), dict):
            return "fastmcp"
        if isinstance(entry.get("tools"), list) or entry.get("type") == "local":
            return "copilot-cli"
    return "mcp-json"


def _entries(servers: object) -> list[dict[str, Any]]:
    values = cast("dict[str, object]", servers).values() if isinstance(servers, dict) else ()
    return [cast("dict[str, Any]", value) for value in values if isinstance(value, dict)]
