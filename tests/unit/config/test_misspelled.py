"""Wrong containers and misspelt keys are told, and keys of a host that mean nothing here are not."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import tomlkit
import yaml

from dragoman.cli.main import run
from dragoman.config.dialects import dialect
from dragoman.config.documents import parse
from dragoman.config.load import load
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.model import Settings

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/dialects"
FILES = sorted(
    path for path in FIXTURES.rglob("*") if path.is_file() and not path.name.endswith(".expected.json")
)
ENTRY: dict[str, Any] = {"fs": {"command": "npx", "args": []}}


def read(name: str, text: str, file: str) -> Settings:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return load(name, config=path, root=Path.cwd())


def told(settings: Settings) -> list[str]:
    found = [one for one in settings.warnings if isinstance(one, ConfigError)]
    return [f"{one.line}: {one.pointer}: {one.message} ({one.hint})" for one in found]


@pytest.mark.parametrize(
    ("profile", "file", "text", "expected"),
    [
        (
            "excelmanus",
            "mcp.json",
            '{\n "mcpserver": {"fs": {"command": "npx"}}}',
            "2: mcpserver: not a key that is read, so 1 server is not used (did you mean `mcpServers`?)",
        ),
        (
            "excelmanus",
            "mcp.json",
            '{"fs": {"command": "npx"}, "web": {"url": "https://x.example.org/mcp"}}',
            "1: : servers at the top level are not read: `fs`, `web` (put them under `mcpServers`)",
        ),
        (
            "otter",
            "otter.toml",
            '[[mcp.server]]\nname = "a"\ncommand = "x"\n[[mcp.server]]\nname = "b"\ncommand = "y"\n',
            "1: mcp.server: not a key that is read, so 2 servers are not used (did you mean `mcp.servers`?)",
        ),
        (
            "otter",
            "otter.toml",
            "[mcp]\nenabeld = false\n",
            "2: mcp.enabeld: not a key that is read, so it has no effect (did you mean `mcp.enabled`?)",
        ),
        (
            "dragoman",
            "dragoman.toml",
            '[mcp]\nauto_reload = true\nhealth_check_intervall = "5s"\n',
            "3: mcp.health_check_intervall: not a key that is read, so it has no effect (did you mean `mcp.health_check_interval`?)",
        ),
        (
            "rrclaw",
            "config.toml",
            '[mpc.servers.fs]\ntransport = "stdio"\ncommand = "x"\n',
            "1: mpc: not a key that is read, so 1 server is not used (did you mean `mcp`?)",
        ),
        (
            "rrclaw",
            "config.toml",
            '[mcpServers.fs]\ncommand = "x"\n',
            "1: mcpServers: not a key that is read, so 1 server is not used (did you mean `mcp.servers`?)",
        ),
        (
            "kode",
            ".kode.json",
            '{"servers":\n {"fs": {"command": "x", "args": []}}}',
            "1: servers: not a key that is read, so 1 server is not used (did you mean `mcpServers`?)",
        ),
        (
            "kode",
            ".kode.json",
            '{"mcpServers": {"fs": {\n"command": "x", "args": [],\n"enabeld": false}}}',
            "3: mcpServers.fs.enabeld: not a key that is read, so it has no effect (did you mean `enabled`?)",
        ),
        (
            "gemini",
            "settings.json",
            '{"mcp": {"alowed": ["fs"]}, "mcpServers": {}}',
            "1: mcp.alowed: not a key that is read, so it has no effect (did you mean `mcp.allowed`?)",
        ),
        (
            "claude-desktop",
            "claude_desktop_config.json",
            '{"mcp": {"servers": {"fs": {"command": "x"}}}}',
            "1: mcp: not a key that is read, so 1 server is not used (did you mean `mcpServers`?)",
        ),
    ],
)
def test_a_key_that_is_close_to_one_that_is_read_is_told_with_its_place(
    profile: str, file: str, text: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = read(profile, text, file)
    assert told(settings) == [expected]
    assert settings.problems == []
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, str(settings.warnings[0]))


def renamed(data: Any, path: tuple[str, ...]) -> Any:
    """Return a document whose container is misspelt."""
    first, *rest = path
    inner = dict(cast("dict[str, Any]", data))
    if rest:
        return inner | {first: renamed(inner[first], tuple(rest))}
    return {(f"{key}z" if key == first else key): value for key, value in inner.items()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_a_misspelt_container_of_every_dialect_is_told(path: Path, tmp_path: Path) -> None:
    name = path.relative_to(FIXTURES).parts[0]
    text = path.read_text("utf-8")
    if name in ("legal", "mcp-json", "server-json", "goose") or path.suffix == ".mcprc":
        pytest.skip("it has no one container of its own, or every name is a server's")
    found = dialect(name)
    parsers: dict[str, Any] = {".toml": tomlkit.parse, ".yaml": yaml.safe_load}
    data = json.loads(json.dumps(parsers.get(path.suffix, load_jsonc)(text), default=str))
    at = next(
        (one for one in (tuple(found.container), *map(tuple, found.also_in)) if has_servers(data, one)), None
    )
    if at is None:
        pytest.skip("this file has no servers in the container")
    file = tmp_path / path.name.replace(path.suffix, ".json")
    file.write_text(json.dumps(renamed(data, at)), "utf-8")
    settings = load(name, config=file, root="/home/ana/shop", env={}, log_problems=False)
    pointers = [getattr(one, "pointer", "") for one in settings.warnings]
    assert any(pointer.endswith("z") for pointer in pointers), told(settings)


def load_jsonc(text: str) -> Any:
    return parse(text, "x", "json").data


def has_servers(data: object, path: tuple[str, ...]) -> bool:
    for part in path:
        data = cast("dict[str, object]", data).get(part) if isinstance(data, dict) else None
    items: list[object] = cast("list[object]", data) if isinstance(data, list) else []
    if isinstance(data, dict):
        items = list(cast("dict[str, object]", data).values())
    tables = [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]
    return any("command" in table or "url" in table for table in tables)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_no_file_of_a_host_that_is_right_is_warned_about(path: Path, tmp_path: Path) -> None:
    name = path.relative_to(FIXTURES).parts[0]
    profile = "dragoman" if name == "mcp-json" else name
    file = tmp_path / (".mcprc" if path.suffix == ".mcprc" else path.name)
    file.write_bytes(path.read_bytes())
    settings = load(profile, config=file, root="/home/ana/shop", env={}, log_problems=False)
    assert [line for line in told(settings) if "mcpServers.typo.argz" not in line] == []


FOREIGN: dict[str, Any] = {
    "vscode": {
        "servers": ENTRY,
        "inputs": [],
        "editor.fontSize": 12,
        "mcp.enabled": True,
        "chat.mcp.discovery.enabled": True,
        "lspServers": {"py": {"command": "pylsp"}},
    },
    "claude-code": {
        "numStartups": 12,
        "theme": "dark",
        "statusLine": {"type": "command", "command": "~/.claude/line.sh"},
        "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "x"}]}]},
        "enabledMcpjsonServers": ["fs"],
        "disabledMcpServers": [],
        "mcpContextUris": [],
        "mcpServers": ENTRY,
        "projects": {"/p": {"allowedTools": [], "mcpContextUris": [], "mcpServers": {}}},
        "lspServers": {"go": {"command": "gopls"}},
    },
    "zed": {
        "agent_servers": {"claude": {"command": "claude-acp", "args": []}},
        "lsp": {"pyright": {"binary": {"path": "x"}}},
        "language_servers": ["pyright"],
        "context_servers": ENTRY,
        "context_server_timeout": 60,
        "terminal": {"command": "zsh"},
    },
    "opencode": {
        "mcp": {"fs": {"type": "local", "command": ["x"]}},
        "lsp": {"go": {"command": ["gopls"]}},
        "formatter": {"prettier": {"command": ["prettier"]}},
        "command": {"test": {"template": "run"}},
        "agent": {"review": {"prompt": "x"}},
        "provider": {"x": {"options": {"baseURL": "https://x.example.org"}}},
    },
    "crush": {"mcp": {"fs": {"type": "stdio", "command": "x"}}, "lsp": {"go": {"command": "gopls"}}},
    "codex": {
        "model": "gpt-5",
        "model_providers": {"x": {"name": "x", "base_url": "https://x.example.org", "url": "y"}},
        "mcp_oauth_credentials_store": "file",
        "notify": ["say"],
        "profiles": {"a": {"model": "b"}},
        "mcp_servers": ENTRY,
    },
    "gemini": {
        "mcp": {"allowed": ["fs"], "serverCommand": "x"},
        "mcpServers": ENTRY,
        "ui": {"theme": "x"},
        "tools": {"core": [], "discoveryCommand": "x"},
        "telemetry": {"enabled": True},
    },
    "excelmanus": {"mcpServers": ENTRY, "models": {"default": {"url": "https://x.example.org"}}},
    "kode": {
        "theme": "dark",
        "mcpServers": ENTRY,
        "modelProfiles": [{"name": "x", "baseURL": "y"}],
        "projects": {"/p": {"mcpServers": {}, "approvedMcprcServers": []}},
        "enabled": True,
    },
    "dragoman": {
        "mcpServers": ENTRY,
        "mcp": {"enabled": True, "gateway": {"port": 1}},
        "agents": {"a": {"url": "x"}},
    },
}


@pytest.mark.parametrize("name", FOREIGN)
def test_keys_of_a_host_that_mean_nothing_here_are_not_told(name: str) -> None:
    settings = read(name, json.dumps(FOREIGN[name]), "settings.json")
    assert told(settings) == []


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("LEGAL_MCP_SERVER_ULR", "LEGAL_MCP_SERVER_URL"),
        ("LEGAL_MPC_SERVER_URL", "LEGAL_MCP_SERVER_URL"),
        ("LEGAL_MCP_TIMOUT", "LEGAL_MCP_TIMEOUT"),
        ("LEGAL_MCP_DESK_SERVR_URL", "LEGAL_MCP_DESK_SERVER_URL"),
    ],
)
def test_a_misspelt_variable_is_told(variable: str, meant: str) -> None:
    (warning,) = load("legal", env={variable: "x", "LEGAL_NOTICE": "y", "LEGAL_ENTITY": "z"}).warnings
    assert f"environment: {variable}: not a variable that is read" in str(warning)
    assert f"did you mean `{meant}`?" in str(warning)


def test_a_misspelt_command_is_named_in_the_error() -> None:
    settings = read("dragoman", '{"mcpServers": {"fs": {"comand": "npx"}}}', "mcp.json")
    assert "did you mean `command` by `comand`?" in str(settings.problems[0])


def test_config_check_and_config_show_print_the_warning(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mcp.json").write_text('{\n"mcpserver": {"fs": {"command": "npx"}}}')
    line = (
        "mcp.json:2: mcpserver: not a key that is read, so 1 server is not used (did you mean `mcpServers`?)"
    )
    assert run(["config", "check"]) == 0
    out = capsys.readouterr().out
    assert f"warning: ./{line}" in out
    assert "0 errors, 1 warning" in out
    assert run(["config", "check", "--strict"]) == 3
    assert run(["config", "show"]) == 0
    assert line in capsys.readouterr().err
