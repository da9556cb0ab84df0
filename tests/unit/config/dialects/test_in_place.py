"""Every host's files, where that host keeps them, through the commands that people type."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.config.dialects.test_fixtures import FIXTURES

from dragoman.cli.main import run
from dragoman.config.dialects import FORMATS, HOSTS
from dragoman.config.load import load, place_path
from dragoman.config.profiles import profile_named
from dragoman.config.templates import ExpansionContext

FIRST = ("claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini")
SECOND = [name for name in (*HOSTS, *FORMATS) if name not in FIRST]
PLATFORMS = ("linux", "darwin", "win32")


def files(name: str, kind: str) -> list[Path]:
    return sorted(
        path for path in (FIXTURES / name).rglob(f"{kind}.*") if not path.name.endswith(".expected.json")
    )


def put(name: str, home: Path, kind: str = "full") -> Path:
    """Lay a host's file where the host would have it."""
    around = ExpansionContext(env={}, root=str(Path.cwd()), home=str(home))
    fixtures = files(name, kind)
    for place in profile_named(name).all_places():
        path = place_path(place.path, around)
        if path is None or place.platform not in ("", "linux") or not path.is_relative_to(Path.cwd().parent):
            continue
        for fixture in fixtures:
            if fixture.suffix == path.suffix or path.suffix == ".jsonc":
                path = path.with_name(path.name.replace("*", "one"))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(fixture.read_text("utf-8"), "utf-8")
                return path
    pytest.fail(f"{name} has no place")


@pytest.mark.parametrize("name", SECOND)
def test_a_hosts_servers_are_shown_and_can_be_taken_over(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(name, home)
    found = load(name, log_problems=False)
    assert found.servers
    assert run(["import", name, "--write", "--include-project", "--json", "--to", "taken.json"]) == (
        3 if found.problems else 0
    )
    report = json.loads(capsys.readouterr().out)
    assert {server["status"] for server in report["servers"]} <= {"new", "refused"}
    taken = load("dragoman", config="taken.json")
    assert taken.problems == []
    for spec in taken.servers:
        theirs = found.server(spec.name)
        assert theirs is not None
        assert (spec.transport, spec.enabled, spec.auth) == (theirs.transport, theirs.enabled, theirs.auth)
        assert (spec.allowed_tools, spec.denied_tools) == (theirs.allowed_tools, theirs.denied_tools)
        assert dict(spec.timeouts) == pytest.approx(dict(theirs.timeouts))


@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("command", ["show", "paths", "check"])
def test_a_hosts_files_can_be_looked_at(
    name: str, command: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(name, home, "minimal")
    assert run(["--profile", name, "config", command]) == 0
    said = capsys.readouterr().out
    assert command != "paths" or path.name in said


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_host_has_a_place_on_every_platform(name: str, platform: str, home: Path) -> None:
    env = {"APPDATA": "/appdata", "LOCALAPPDATA": "/local", "ProgramData": "/data"}
    settings = load(name, env=env, home=home, platform=platform)
    assert settings.sources
    assert (settings.servers, settings.problems) == ([], [])


@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("kind", ["minimal", "full"])
def test_a_file_of_a_host_is_understood_wherever_it_lies(name: str, kind: str) -> None:
    for fixture in files(name, kind):
        settings = load(name, config=str(fixture), log_problems=False)
        assert settings.servers
        assert {spec.origin.dialect for spec in settings.servers} == {name}


def test_a_glob_that_matches_nothing_is_a_place_where_nothing_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--profile", "continue", "config", "paths"]) == 0
    assert ".continue/mcpServers/*.yaml" in capsys.readouterr().out


def test_a_glob_is_never_written_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--profile", "continue", "add", "x", "--scope", "project", "--", "cmd"]) == 3
    assert "no file in the project" in capsys.readouterr().err
    assert not Path(".continue").exists()


def test_a_server_is_added_to_a_hosts_own_file(home: Path) -> None:
    assert run(["--profile", "windsurf", "add", "x", "--url", "https://h/mcp"]) == 0
    text = (home / ".codeium/windsurf/mcp_config.json").read_text("utf-8")
    assert json.loads(text) == {"mcpServers": {"x": {"serverUrl": "https://h/mcp"}}}


def test_a_yaml_file_is_read_and_never_changed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put("goose", home)
    text = path.read_text("utf-8")
    assert run(["--profile", "goose", "disable", "tracker"]) == 3
    assert "YAML files are read but not changed" in capsys.readouterr().err
    assert path.read_text("utf-8") == text
