from __future__ import annotations

from typing import Any

import pytest

from dragoman.config.documents import Document
from dragoman.config.load import detect


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
        ("/home/ana/.codeium/windsurf/mcp_config.json", "windsurf"),
        ("/home/ana/.cline/data/settings/cline_mcp_settings.json", "cline"),
        ("/x/.roo/mcp.json", "roo"),
        ("/x/.kilocode/mcp.json", "roo"),
        ("/g/settings/mcp_settings.json", "roo"),
        ("/home/ana/.continue/config.yaml", "continue"),
        ("/x/.continue/mcpServers/one.yaml", "continue"),
        ("/home/ana/.copilot/mcp-config.json", "copilot-cli"),
        ("/x/.github/mcp.json", "copilot-cli"),
        ("/home/ana/.config/zed/settings.json", "zed"),
        ("/x/.zed/settings.json", "zed"),
        ("/home/ana/.config/goose/config.yaml", "goose"),
        ("/g/Block/goose/config/config.yaml", "goose"),
        ("/x/opencode.jsonc", "opencode"),
        ("/home/ana/.aws/amazonq/mcp.json", "amazon-q"),
        ("/x/.amazonq/cli-agents/one.json", "amazon-q"),
        ("/x/.kiro/settings/mcp.json", "kiro"),
        ("/home/ana/.kiro/agents/one.json", "kiro"),
        ("/home/ana/.lmstudio/mcp.json", "lm-studio"),
        ("/home/ana/.cache/lm-studio/mcp.json", "lm-studio"),
        ("/x/librechat.yaml", "librechat"),
        ("/x/.crush.json", "crush"),
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
        ({"$schema": "https://opencode.ai/config.json"}, "opencode"),
        ({"$schema": "https://charm.land/crush.json", "mcp": {"a": {"url": "x"}}}, "crush"),
        ({"$schema": ["opencode"]}, "mcp-json"),
        ({"name": "a/b", "version": "1", "packages": []}, "server-json"),
        ({"server": {"name": "a/b", "remotes": []}}, "server-json"),
        ({"servers": [{"server": {"name": "a/b", "remotes": []}}]}, "server-json"),
        ({"servers": [5], "server": 5}, "excelmanus"),
        ({"name": "a", "packages": {"x": "1"}}, "mcp-json"),
        ({"context_servers": {}}, "zed"),
        ({"extensions": {"a": {"type": "stdio", "cmd": "x"}}}, "goose"),
        ({"extensions": {"a": {"type": ["stdio"]}}}, "mcp-json"),
        ({"mcp": {"a": {"type": "local", "command": ["x"]}}}, "opencode"),
        ({"mcp": {"a": {"command": "x"}}}, "crush"),
        ({"mcp": {"a": {"enabled": False}}}, "mcp-json"),
        ({"mcpServers": {"a": {"serverUrl": "https://x"}}}, "windsurf"),
        ({"mcpServers": {"a": {"transport": {"type": "stdio"}}}}, "cline"),
        ({"mcpServers": {"a": {"alwaysAllow": [], "disabledTools": []}}}, "roo"),
        ({"mcpServers": {"a": {"autoApprove": [], "disabledTools": []}}}, "kiro"),
        ({"mcpServers": {"a": {"alwaysAllow": []}}}, "mcp-json"),
        ({"mcpServers": {"a": {"tools": ["*"]}}}, "copilot-cli"),
        ({"mcpServers": {"a": {"type": "local"}}}, "copilot-cli"),
        ({"mcpServers": {"a": {"excludeTools": [], "deferTools": "auto"}}}, "copilot-cli"),
        ({"mcpServers": {"a": {"tools": {"x": {"enabled": False}}}}}, "fastmcp"),
        ({"mcpServers": {"a": {"tools": {"x": {"arguments": {"y": {"hide": True}}}}}}}, "fastmcp"),
        ({"mcpServers": {"a": {"tools": {"x": {"arguments": {"y": {"value": 1}}}}}}}, "mcp-json"),
        ({"mcpServers": {"a": {"chatMenu": False}}}, "librechat"),
    ],
)
def test_else_the_content_tells_it(data: Any, expected: str) -> None:
    assert detect(Document("/x/some.json", "json", data)) == expected


@pytest.mark.parametrize(
    ("entry", "expected"), [({"name": "a"}, "continue"), ({"name": "a", "transport": "stdio"}, "excelmanus")]
)
def test_a_list_in_yaml_is_of_continue_unless_it_says_its_transport(entry: Any, expected: str) -> None:
    assert detect(Document("/x/some.yaml", "yaml", {"mcpServers": [entry, 5]})) == expected


@pytest.mark.parametrize("path", ["/src/zed/mcp.json", "/src/goose/mcp.json", "/src/windsurf/mcp.json"])
def test_a_project_that_has_a_hosts_name_is_not_that_host(path: str) -> None:
    assert detect(Document(path, "json", {"mcpServers": {"a": {"command": "x"}}})) == "mcp-json"


def test_an_env_file_holds_variables_that_describe_servers() -> None:
    assert detect(Document("/x/.env", "env", {})) == "legal"
