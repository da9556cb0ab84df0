from __future__ import annotations

from typing import Any

import pytest

from dragoman.config.detect import detect
from dragoman.config.documents import Document


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/x/claude_desktop_config.json", "claude-desktop"),
        ("/home/ana/.claude.json", "claude-code"),
        ("/home/ana/.kode.json", "kode"),
        ("/x/.mcprc", "kode"),
        ("/x/otter.toml", "otter"),
        ("/x/dragoman.toml", "dragoman"),
        ("/x/.cursor/mcp.json", "cursor"),
        ("/x/.vscode/mcp.json", "vscode"),
        ("/home/ana/.codex/config.toml", "codex"),
        ("/home/ana/.gemini/settings.json", "gemini"),
        ("/x/.otter/config.toml", "otter"),
        ("/home/ana/.config/otter/config.toml", "otter"),
        ("/home/ana/.rrclaw/config.toml", "rrclaw"),
        ("/home/ana/.excelmanus/mcp.json", "excelmanus"),
        ("/home/ana/.config/dragoman/mcp.json", "dragoman"),
    ],
)
def test_the_name_or_the_folder_tells_the_dialect(path: str, expected: str) -> None:
    assert detect(Document(path, "json", [])) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([{"name": "a"}], "excelmanus"),
        ("text", "mcp-json"),
        ({}, "mcp-json"),
        ({"mcp_servers": {"a": {}}}, "codex"),
        ({"mcp_servers": [{"name": "a"}]}, "otter"),
        ({"mcp": {"servers": [{"name": "a"}]}}, "otter"),
        ({"mcp": {"servers": {"a": {}}}}, "dragoman"),
        ({"mcp": {"enabled": True}}, "mcp-json"),
        ({"projects": {}, "mcpServers": {}}, "claude-code"),
        ({"servers": {"a": {}}}, "vscode"),
        ({"servers": [{"name": "a"}]}, "excelmanus"),
        ({"mcpServers": [{"name": "a"}]}, "excelmanus"),
        ({"mcpServers": {"a": {"httpUrl": "https://x"}}}, "gemini"),
        ({"mcpServers": {"a": {"includeTools": []}}}, "gemini"),
        ({"mcpServers": {"a": {"command": "x", "envFile": ".env"}}}, "cursor"),
        ({"mcpServers": {"a": {"command": "x"}, "b": 5}}, "mcp-json"),
        ({"mcpServers": 5}, "mcp-json"),
    ],
)
def test_else_the_content_tells_it(data: Any, expected: str) -> None:
    assert detect(Document("/x/some.json", "json", data)) == expected


def test_an_env_file_holds_variables_that_describe_servers() -> None:
    assert detect(Document("/x/.env", "env", {})) == "legal"
