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
}


def detect(document: Document) -> str:
    """Return the name of the dialect that a document is most likely written in."""
    path = PurePath(document.source)
    if document.format == "env":
        return "legal"
    if path.name in _BY_NAME:
        return _BY_NAME[path.name]
    if path.parent.name in _BY_FOLDER:
        return _BY_FOLDER[path.parent.name]
    return _by_content(document.data)


def _by_content(data: object) -> str:
    if isinstance(data, list):
        return "excelmanus"
    if not isinstance(data, dict):
        return "mcp-json"
    keys = cast("dict[str, Any]", data)
    servers = keys.get("mcp_servers")
    if isinstance(servers, dict):
        return "codex"
    if isinstance(servers, list):
        return "otter"
    mcp = keys.get("mcp")
    if isinstance(mcp, dict) and "servers" in mcp:
        return "otter" if isinstance(mcp["servers"], list) else "dragoman"
    if isinstance(keys.get("projects"), dict) and isinstance(keys.get("mcpServers"), dict):
        return "claude-code"
    if isinstance(keys.get("servers"), dict):
        return "vscode"
    if isinstance(keys.get("servers"), list) or isinstance(keys.get("mcpServers"), list):
        return "excelmanus"
    return _by_entry_keys(keys.get("mcpServers"))


def _by_entry_keys(servers: object) -> str:
    entries = list(cast("dict[str, Any]", servers).values()) if isinstance(servers, dict) else []
    spelled = {key for entry in entries if isinstance(entry, dict) for key in cast("dict[str, Any]", entry)}
    if spelled & {"httpUrl", "includeTools", "excludeTools"}:
        return "gemini"
    if "envFile" in spelled:
        return "cursor"
    return "mcp-json"
