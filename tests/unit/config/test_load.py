from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from dragoman.config.dialect import Place
from dragoman.config.load import candidate_places, load, place_path
from dragoman.config.profiles import Profile
from dragoman.config.templates import ExpansionContext, expand_transport
from dragoman.errors import ConfigError
from dragoman.model import Http, Settings, Stdio

pytestmark = pytest.mark.requirement(
    "excel-1.2",
    "excel-1.6",
    "excel-1.7",
    "excel-1.8",
    "kode-config.global",
    "kode-config.project",
    "rrclaw-config.none",
)

ONE = '{"mcpServers": {"%s": {"command": "x"}}}'


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def names(settings: Settings) -> list[str]:
    return [spec.name for spec in settings.servers]


def statuses(settings: Settings) -> dict[str, str]:
    return {Path(source.path).name: source.status for source in settings.sources}


def test_the_default_profile_reads_project_then_user(tmp_path: Path, home: Path) -> None:
    write(tmp_path / "mcp.json", ONE % "a")
    write(tmp_path / ".mcp.json", '{"mcpServers": {"a": {"command": "hidden"}, "b": {"command": "x"}}}')
    write(tmp_path / "dragoman.toml", '[mcp]\nnaming = "{tool}"\n[mcp.servers.c]\ncommand = "x"')
    write(home / ".config/dragoman/mcp.json", ONE % "d")
    write(home / ".config/dragoman/config.toml", 'mcp.auto_reload = true\nmcp.servers.e.command = "x"')
    settings = load()
    assert names(settings) == ["a", "b", "c", "d", "e"]
    assert [spec.origin.scope for spec in settings.servers] == [
        "project",
        "project",
        "project",
        "user",
        "user",
    ]
    assert settings.servers[0].shadowed[0].source == str(tmp_path / ".mcp.json")
    assert (settings.naming, settings.auto_reload, settings.root) == ("{tool}", True, str(tmp_path))
    assert settings.server("a") is settings.servers[0]
    assert [source.status for source in settings.sources] == ["loaded"] * 4 + ["absent", "loaded"]


def test_nothing_at_all_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    settings = load()
    assert (settings.servers, settings.problems) == ([], [])
    assert {source.status for source in settings.sources} == {"absent"}
    assert caplog.records == []


def test_the_world_around_may_be_given(tmp_path: Path) -> None:
    write(tmp_path / "home/.config/dragoman/mcp.json", ONE % "user")
    write(tmp_path / "project/mcp.json", ONE % "project")
    settings = load(root="project", home=tmp_path / "home", env={}, platform="linux")
    assert names(settings) == ["project", "user"]
    assert settings.root == str(tmp_path / "project")


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_named_file_is_the_only_one(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "mcp.json", ONE % "found")
    write(tmp_path / "named.json", ONE % "named")
    if how == "variable":
        monkeypatch.setenv("DRAGOMAN_MCP_CONFIG", "named.json")
    settings = load(config="named.json" if how == "option" else None)
    assert names(settings) == ["named"]
    assert settings.servers[0].origin.scope == "session"
    assert statuses(settings)["mcp.json"] == "absent"
    assert [source.status for source in settings.sources][:3] == ["loaded", "hidden", "absent"]


def test_the_option_wins_over_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "one.json", ONE % "one")
    monkeypatch.setenv("DRAGOMAN_MCP_CONFIG", str(tmp_path / "two.json"))
    assert names(load(config=tmp_path / "one.json")) == ["one"]


def test_a_named_file_may_start_at_home(home: Path) -> None:
    write(home / "my.json", ONE % "a")
    assert names(load(config="~/my.json")) == ["a"]


@pytest.mark.parametrize(
    ("how", "who"), [("option", "file not found"), ("variable", "named by `DRAGOMAN_MCP_CONFIG`")]
)
def test_a_named_file_that_is_not_there_is_an_error(
    tmp_path: Path, how: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "gone.json")
    if how == "variable":
        monkeypatch.setenv("DRAGOMAN_MCP_CONFIG", path)
    settings = load(config=path if how == "option" else None)
    assert who in str(settings.problems[0])
    assert settings.sources[0].status == "absent"


def test_a_named_file_that_does_not_parse_is_an_error(tmp_path: Path) -> None:
    settings = load(config=write(tmp_path / "x.json", "{"))
    assert settings.sources[0].status == "broken"
    assert str(settings.problems[0]).startswith(f"{tmp_path}/x.json:1: not valid JSON")


@pytest.mark.parametrize(
    ("name", "text", "dialect"),
    [
        (".cursor/mcp.json", ONE % "a", "cursor"),
        ("x.toml", '[mcp_servers.a]\ncommand = "x"', "codex"),
        ("x.yaml", "mcp: {servers: {a: {command: x}}}", "dragoman"),
        ("x.json", ONE % "a", "mcp-json"),
        (".env", "LEGAL_MCP_A_SERVER_URL=x y", "legal"),
    ],
)
def test_the_dialect_of_a_named_file_is_seen_from_it(
    tmp_path: Path, name: str, text: str, dialect: str
) -> None:
    settings = load(config=write(tmp_path / name, text))
    assert names(settings) == ["a"]
    assert settings.sources[0].dialect == dialect


def test_an_application_with_a_dialect_of_its_own_reads_a_named_file_in_it(tmp_path: Path) -> None:
    settings = load("rrclaw", config=write(tmp_path / "x.toml", '[mcp.servers.a]\ncommand = "x"'))
    assert settings.servers[0].origin.dialect == "rrclaw"


def test_a_named_env_file_replaces_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path / "law.env", "LAW_MCP_SERVER_URL=https://file\n")
    profile = Profile(app="law", places=(), variable="", environment="LAW", default_dialect="legal")
    env = {"LAW_MCP_SERVER_URL": "https://environment", "LAW_MCP_B_SERVER_URL": "https://b"}
    assert [spec.transport.url for spec in load(profile, config=file, env=env).servers] == ["https://file"]  # type: ignore[union-attr]
    assert names(load(profile, env=env)) == ["b", "law"]


def test_problems_are_logged_and_kept_and_the_rest_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "mcp.json", '{"mcpServers": {\n"good": {"command": "x"},\n"bad": {"command": 5}}}')
    write(tmp_path / ".mcp.json", "{")
    settings = load()
    assert names(settings) == ["good"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert [record.getMessage() for record in caplog.records] == [
        str(problem) for problem in settings.problems
    ]
    assert f"{tmp_path}/mcp.json:3: mcpServers.bad.command: server `bad` is skipped" in caplog.text
    assert f"{tmp_path}/.mcp.json:1: not valid JSON" in caplog.text
    assert statuses(settings)[".mcp.json"] == "broken"


@pytest.mark.parametrize(
    ("text", "shown"), [("5", "a number"), ('"secret"', "a text"), ("null", "null"), ("[5]", "a list")]
)
def test_a_file_without_an_object_is_an_error(tmp_path: Path, text: str, shown: str) -> None:
    write(tmp_path / ".cursor/mcp.json", text)
    (problem,) = load("cursor").problems
    assert str(problem) == (
        f"{tmp_path}/.cursor/mcp.json:1: expected an object with servers under `mcpServers`, not {shown}"
    )


def test_an_empty_list_is_no_server_and_no_error(tmp_path: Path) -> None:
    write(tmp_path / "mcp.json", "[]")
    assert load().problems == []


def test_a_key_that_stands_twice_is_an_error_with_its_line(tmp_path: Path) -> None:
    write(tmp_path / "mcp.json", '{"mcpServers": {"a": {"command": "x"},\n"a": {"command": "y"}}}')
    settings = load()
    assert settings.servers[0].transport == Stdio("y")
    assert str(settings.problems[0]).startswith(f"{tmp_path}/mcp.json:2: mcpServers.a: duplicate key")


def test_a_directory_in_the_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").mkdir()
    assert "not a regular file" in str(load().problems[0])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_the_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mcp.json")
    assert "not a regular file" in str(load().problems[0])


def test_a_file_in_the_place_of_a_folder_is_silence(tmp_path: Path) -> None:
    write(tmp_path / ".cursor", "")
    assert load("cursor").problems == []


def test_only_the_first_file_may_count(tmp_path: Path) -> None:
    places = [Place(str(tmp_path / name), "user", dialect="mcp-json") for name in ("0", "1", "2", "3")]
    write(tmp_path / "1", ONE % "one")
    write(tmp_path / "2", ONE % "two")
    settings = load(Profile(app="x", places=places, combine="first"))
    assert names(settings) == ["one"]
    assert [source.status for source in settings.sources] == ["absent", "loaded", "hidden", "absent"]


def test_a_first_file_that_does_not_parse_counts_as_absent(tmp_path: Path) -> None:
    places = [Place(str(tmp_path / name), "user", dialect="mcp-json") for name in ("1", "2")]
    write(tmp_path / "1", "{")
    write(tmp_path / "2", ONE % "two")
    settings = load(Profile(app="x", places=places, combine="first"))
    assert (names(settings), len(settings.problems)) == (["two"], 1)


def test_entries_for_this_project_are_the_strongest(tmp_path: Path, home: Path) -> None:
    write(tmp_path / ".mcp.json", '{"mcpServers": {"a": {"command": "project"}}}')
    user = '{"mcpServers": {"a": {"command": "user"}}, "projects": {"%s": {"mcpServers": {"a": {"command": "local"}}}}}'
    write(home / ".claude.json", user % tmp_path)
    (spec,) = load("claude-code").servers
    assert [spec.origin.scope, *(origin.scope for origin in spec.shadowed)] == ["local", "project", "user"]


def test_settings_of_the_files_reach_the_settings(tmp_path: Path) -> None:
    write(tmp_path / "otter.toml", '[mcp]\nenabled = false\nhealth_check_interval = "5s"\nauto_reload = "x"')
    settings = load("otter")
    assert (settings.enabled, settings.health_check_interval, settings.auto_reload) == (False, 5.0, False)
    assert settings.problems[0].location == f"{tmp_path}/otter.toml:4: mcp.auto_reload"  # type: ignore[attr-defined]


def test_inputs_are_read(tmp_path: Path) -> None:
    write(tmp_path / ".vscode/mcp.json", '{"inputs": [{"type": "promptString", "id": "a"}]}')
    assert [each.id for each in load("vscode").inputs] == ["a"]


@pytest.mark.parametrize(
    ("value", "expected"), [("keep", "pa$word ${X}"), ("empty", "pa "), ("nonsense", None)]
)
def test_the_environment_may_say_what_an_unset_variable_becomes(
    tmp_path: Path, value: str, expected: str | None
) -> None:
    write(tmp_path / "mcp.json", '{"mcpServers": {"a": {"transport": "stdio", "command": "pa$word ${X}"}}}')
    (spec,) = load("excelmanus", env={"EXCELMANUS_MCP_UNDEFINED_ENV": value}).servers
    around = ExpansionContext(env={}, root="/", home="/")
    if expected is None:
        assert spec.unset_variables == "error"
    else:
        assert expand_transport(spec, around) == Stdio(expected)


def test_a_place_belongs_to_a_platform_and_to_the_variables_it_needs() -> None:
    profile = Profile(
        app="x",
        places=[
            Place("/everywhere", "user"),
            Place("~/mac", "user", platform="darwin"),
            Place("${APPDATA}/win", "user", platform="win32"),
            Place("${UNSET}/nowhere", "user"),
        ],
    )
    around = ExpansionContext(env={"APPDATA": "/data"}, root="/r", home="/h")

    def paths(platform: str) -> list[str]:
        return [str(path) for _, path in candidate_places(profile, around, platform)]

    assert paths("linux") == ["/everywhere"]
    assert paths("darwin") == ["/everywhere", "/h/mac"]
    assert paths("win32") == ["/everywhere", "/data/win"]
    assert place_path("${UNSET}", around) is None


def test_an_unknown_profile_is_an_error() -> None:
    with pytest.raises(ConfigError, match="unknown profile `x`"):
        load("x")


def test_nothing_of_the_environment_is_in_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGAL_MCP_SERVER_URL", "https://user:pass@example.org")
    monkeypatch.setenv("OTHER", "secret value")
    settings = load("legal")
    assert isinstance(settings.servers[0].transport, Http)
    assert "pass@" not in repr(settings)
    assert "secret value" not in repr(settings)


def test_a_path_that_cannot_be_looked_at_is_absent(tmp_path: Path) -> None:
    write(tmp_path / "named.json", ONE % "a")
    too_long: Any = "x" * 5000
    settings = load(Profile(app="x", places=[Place(f"/{too_long}", "user")]), config="named.json")
    assert [source.status for source in settings.sources] == ["loaded", "absent"]


def test_a_file_with_very_many_servers_is_used_in_part(tmp_path: Path) -> None:
    servers = {f"s{number}": {"command": "x"} for number in range(1_200)}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
    settings = load("claude-code", root=tmp_path, home=tmp_path / "home", env={}, log_problems=False)
    assert len(settings.servers) == 1_000
    assert [str(problem) for problem in settings.problems] == [
        f"{tmp_path / '.mcp.json'}: the file has more than 1,000 servers; the rest is ignored (split the file)"
    ]


def test_a_project_file_may_be_smaller_than_one_of_the_users(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    text = json.dumps({"mcpServers": {"a": {"command": "x"}}, "history": "x" * 2**20})
    (tmp_path / ".mcp.json").write_text(text, "utf-8")
    (home / ".claude.json").write_text(text.replace('"a"', '"b"'), "utf-8")
    settings = load("claude-code", root=tmp_path, home=home, env={}, log_problems=False)
    assert [spec.name for spec in settings.servers] == ["b"]
    assert [problem.message for problem in settings.problems] == ["the file is larger than 1 MiB"]
