from __future__ import annotations

import sys

import pytest

from dragoman.config.dialects import FORMATS, HOSTS, NAMES, SEEDS, dialect
from dragoman.config.profiles import BUILT_IN, Profile, profile_named
from dragoman.errors import ConfigError

pytestmark = pytest.mark.requirement(
    "excel-1.2",
    "kode-config.global",
    "kode-config.project",
    "legal-config.env",
    "otter-p0.config",
    "rrclaw-config.table",
)


def places(profile: Profile) -> list[str]:
    return [place.path for place in profile.all_places()]


def test_any_application_has_the_usual_places_under_its_own_name() -> None:
    profile = Profile(app="my-agent.v2")
    assert places(profile) == [
        "${workspaceFolder}/mcp.json",
        "${workspaceFolder}/.mcp.json",
        "${workspaceFolder}/my-agent.v2.toml",
        "${XDG_CONFIG_HOME:-~/.config}/my-agent.v2/mcp.json",
        "${XDG_CONFIG_HOME:-~/.config}/my-agent.v2/my-agent.v2.toml",
        "${XDG_CONFIG_HOME:-~/.config}/my-agent.v2/config.toml",
    ]
    assert profile.config_variable() == "MY_AGENT_V2_MCP_CONFIG"
    assert profile.written_file() == "${XDG_CONFIG_HOME:-~/.config}/my-agent.v2/mcp.json"
    assert profile.naming == "mcp_{server}_{tool}"


def test_what_is_given_is_not_derived() -> None:
    profile = Profile(app="x", places=(), variable="X_FILE", write_to="~/x.json")
    assert (places(profile), profile.config_variable(), profile.written_file()) == ([], "X_FILE", "~/x.json")


@pytest.mark.parametrize("name", ["dragoman", *SEEDS, *FORMATS])
def test_every_built_in_profile_is_found_by_name(name: str) -> None:
    assert profile_named(name) is BUILT_IN[name]
    assert profile_named(name).app == name


@pytest.mark.parametrize("name", HOSTS)
def test_every_host_is_a_profile(name: str) -> None:
    profile = profile_named(name)
    assert places(profile) == [place.path for place in dialect(name).places]
    assert {place.dialect for place in profile.all_places()} == {name}
    assert (profile.default_dialect, profile.config_variable()) == (name, "")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("cursor", "~/.cursor/mcp.json"),
        ("codex", "${CODEX_HOME:-~/.codex}/config.toml"),
        ("windsurf", "~/.codeium/windsurf/mcp_config.json"),
        ("cline", "${CLINE_DIR:-~/.cline}/data/settings/cline_mcp_settings.json"),
        ("kiro", "~/.kiro/settings/mcp.json"),
        ("librechat", ""),
    ],
)
def test_a_host_is_written_to_where_its_user_has_the_same_file_everywhere(name: str, written: str) -> None:
    assert profile_named(name).written_file() == written


@pytest.mark.parametrize(
    ("platform", "folder"), [("linux", "${XDG_CONFIG_HOME:-~/.config}"), ("win32", "${APPDATA}")]
)
def test_a_host_with_another_file_on_each_platform_is_written_to_in_the_one_of_this_platform(
    platform: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert profile_named("vscode").written_file() == f"{folder}/Code/User/mcp.json"


@pytest.mark.parametrize(
    ("name", "hint"), [("excelmanu", "did you mean `excelmanus`?"), ("zzz", "known profiles: dragoman, ")]
)
def test_an_unknown_name_is_an_error_that_helps(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown profile `{name}`") as caught:
        profile_named(name)
    assert caught.value.hint.startswith(hint)


def test_an_unknown_dialect_has_no_module() -> None:
    with pytest.raises(KeyError):
        dialect("sections")
    assert {dialect(name).name for name in NAMES} == set(NAMES)
