"""One word of a command is changed in files of every shape, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dragoman.config.dialects import dialect
from dragoman.config.documents import parse
from dragoman.config.edit import reworded
from dragoman.config.packages import pinned
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.config.documents import Format
    from dragoman.model import Stdio


def pin(text: str, host: str, pointer: str, format_: Format = "json") -> str:
    def change(stdio: Stdio) -> Stdio:
        return pinned(stdio, "1.2.3")

    document = parse(text, "file", format_)
    return reworded(document, dialect(host), "/p", "one", pointer=pointer, change=change).text


@pytest.mark.parametrize(
    ("host", "format_", "pointer", "text"),
    [
        (
            "mcp-json",
            "json",
            "mcpServers.one",
            '{ // mine\n  "mcpServers": {"one": {"command": "npx", "args": ["-y", "PACKAGE", "x"], "k": 1}},\n}\n',
        ),
        (
            "dragoman",
            "toml",
            "mcp.servers.one",
            '# mine\n[mcp.servers.one]\ncommand = "npx"  # it is\nargs = ["-y", "PACKAGE", "x"]\n',
        ),
        ("opencode", "json", "mcp.one", '{"mcp": {"one": {"type": "local", "command": ["npx", "PACKAGE"]}}}'),
        (
            "mcp-json",
            "json",
            "mcpServers.one",
            '{"mcpServers": {"one": {"description": "@m/fs", "command": "npx", "args": ["PACKAGE", "@m/fs"]}}}',
        ),
    ],
)
def test_only_the_word_changes(host: str, format_: Format, pointer: str, text: str) -> None:
    changed = pin(text.replace("PACKAGE", "@m/fs"), host, pointer, format_)
    assert changed == text.replace("PACKAGE", "@m/fs@1.2.3")


def test_what_cannot_be_changed_is_refused() -> None:
    for text, why in (
        ('{"mcpServers": {"one": {"url": "http://x.example/mcp"}}}', "has no command there"),
        ('{"mcpServers": {"two": {"command": "npx", "args": ["@m/fs"]}}}', "has no command there"),
    ):
        with pytest.raises(ConfigError, match=why) as caught:
            pin(text, "mcp-json", "mcpServers.one")
        assert "by hand" in caught.value.hint
    with pytest.raises(ConfigError, match="YAML files are read but not changed"):
        pin("mcpServers:\n  one: {command: npx, args: [foo]}\n", "mcp-json", "mcpServers.one", "yaml")


def test_what_is_pinned_already_stays() -> None:
    text = '{"mcpServers": {"one": {"command": "npx", "args": ["foo@1.2.3"]}}}'
    assert pin(text, "mcp-json", "mcpServers.one") == text
