"""The five applications whose configuration dragoman reads as they do: files, variables, search order, errors."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from dragoman import McpManager
from dragoman.config.load import load
from dragoman.config.templates import ExpansionContext, expand_transport
from dragoman.errors import ConfigError, MissingVariableError
from dragoman.model import Http, ServerSpec, Settings, Sse, Stdio, Transport

PLAIN = Path(__file__).resolve().parents[1] / "servers" / "plain.py"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def transports(settings: Settings) -> dict[str, Transport]:
    return {spec.name: spec.transport for spec in settings.servers}


def server(settings: Settings, name: str) -> ServerSpec:
    spec = settings.server(name)
    assert spec is not None
    return spec


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert {record.levelno for record in caplog.records} <= {logging.ERROR}
    return [record.getMessage() for record in caplog.records]


def places(settings: Settings) -> list[str]:
    assert all(isinstance(problem, ConfigError) for problem in settings.problems)
    return [problem.location for problem in settings.problems]  # type: ignore[attr-defined]


# ExcelManus


SHEETS = """[
  {"name": "sheets", "transport": "stdio", "command": "uvx", "args": ["sheets-mcp"], "env": {"MODE": "ro"}},
  {"name": "rates", "transport": "sse", "url": "https://rates.example.org/sse"}
]"""


@pytest.mark.requirement("excel-1.1")
@pytest.mark.parametrize(
    "text",
    [
        SHEETS,
        f'{{"servers": {SHEETS}}}',
        f'{{"mcpServers": {SHEETS}}}',
        """{"mcpServers": {
            "sheets": {"transport": "stdio", "command": "uvx", "args": ["sheets-mcp"], "env": {"MODE": "ro"}},
            "rates": {"transport": "sse", "url": "https://rates.example.org/sse"}}}""",
    ],
    ids=["list", "servers list", "mcpServers list", "map"],
)
def test_excelmanus_reads_its_servers_from_mcp_json(tmp_path: Path, text: str) -> None:
    write(tmp_path / "mcp.json", text)
    settings = load("excelmanus")
    assert transports(settings) == {
        "sheets": Stdio("uvx", ["sheets-mcp"], env={"MODE": "ro"}),
        "rates": Sse("https://rates.example.org/sse"),
    }
    assert settings.problems == []
    assert settings.naming == "mcp_{server}_{tool}"
    assert {spec.origin.dialect for spec in settings.servers} == {"excelmanus"}


@pytest.mark.requirement("excel-1.2")
def test_excelmanus_looks_in_the_project_first_and_at_home_second(tmp_path: Path, home: Path) -> None:
    user = write(home / ".excelmanus/mcp.json", '[{"name": "user", "transport": "stdio", "command": "x"}]')
    assert list(transports(load("excelmanus"))) == ["user"]
    project = write(tmp_path / "mcp.json", '[{"name": "project", "transport": "stdio", "command": "x"}]')
    settings = load("excelmanus")
    assert list(transports(settings)) == ["project"]
    assert [(source.path, source.status) for source in settings.sources] == [
        (str(project), "loaded"),
        (str(user), "hidden"),
    ]


@pytest.mark.requirement("excel-1.3", "excel-1.4", "excel-1.5")
@pytest.mark.parametrize(
    ("entry", "missing"),
    [
        ('{"transport": "stdio", "command": "x"}', "a server needs a name"),
        ('{"name": "a", "command": "x"}', "`transport` is missing: stdio, http or sse"),
        ('{"name": "a", "transport": "pigeon", "command": "x"}', "`pigeon` is not stdio, http or sse"),
        ('{"name": "a", "transport": "stdio"}', "needs a `command`"),
        ('{"name": "a", "transport": "sse"}', "needs a `url`"),
        ('{"name": "a", "transport": "sse", "url": " "}', "needs a `url`"),
        (
            '{"name": "a", "transport": "sse", "url": "ftp://x/sse"}',
            "a URL that starts with http:// or https://",
        ),
    ],
)
def test_excelmanus_wants_a_name_a_transport_and_a_command_or_an_address(
    tmp_path: Path, entry: str, missing: str
) -> None:
    write(tmp_path / "mcp.json", f"[{entry}]")
    settings = load("excelmanus")
    assert settings.servers == []
    assert missing in str(settings.problems[0])


@pytest.mark.requirement("excel-1.3")
@pytest.mark.parametrize("key", ["transport", "type"])
@pytest.mark.parametrize("word", ["sse", "SSE"])
def test_excelmanus_takes_two_keys_and_any_case_for_the_transport(
    tmp_path: Path, key: str, word: str
) -> None:
    write(tmp_path / "mcp.json", f'[{{"name": "a", "{key}": "{word}", "url": "https://x.example.org/a"}}]')
    assert transports(load("excelmanus")) == {"a": Sse("https://x.example.org/a")}


@pytest.mark.requirement("excel-1.4")
def test_excelmanus_starts_a_command_with_optional_arguments_and_environment(tmp_path: Path) -> None:
    write(
        tmp_path / "mcp.json",
        """[{"name": "plain", "transport": "stdio", "command": "x"},
            {"name": "full", "transport": "stdio", "command": "x", "args": ["a", "", "b"],
             "env": {"A": "1", "EMPTY": ""}}]""",
    )
    assert transports(load("excelmanus")) == {
        "plain": Stdio("x"),
        "full": Stdio("x", ["a", "", "b"], env={"A": "1", "EMPTY": ""}),
    }


@pytest.mark.requirement("excel-1.5")
def test_excelmanus_reaches_an_sse_server_by_its_address(tmp_path: Path) -> None:
    write(tmp_path / "mcp.json", '[{"name": "a", "transport": "sse", "url": "http://127.0.0.1:1/sse"}]')
    assert transports(load("excelmanus")) == {"a": Sse("http://127.0.0.1:1/sse")}


@pytest.mark.requirement("excel-1.6")
def test_excelmanus_logs_and_skips_a_wrong_entry_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(
        tmp_path / "mcp.json",
        """{"mcpServers": {
  "first": {"transport": "stdio", "command": "x"},
  "no-command": {"transport": "stdio"},
  "wrong-args": {"transport": "stdio", "command": "x",
    "args": "--token=hunter2"},
  "not-an-object": 5,
  "last": {"transport": "sse", "url": "https://x/sse"}
}}""",
    )
    settings = load("excelmanus")
    assert list(transports(settings)) == ["first", "last"]
    assert places(settings) == [
        f"{path}:3: mcpServers.no-command",
        f"{path}:5: mcpServers.wrong-args.args",
        f"{path}:6: mcpServers.not-an-object",
    ]
    logged = errors(caplog)
    assert [line.startswith(place) for line, place in zip(logged, places(settings), strict=True)] == [
        True
    ] * 3
    assert "hunter2" not in caplog.text


@pytest.mark.requirement("excel-1.6")
def test_excelmanus_logs_a_file_that_does_not_parse_and_starts_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "mcp.json", '{"mcpServers": {\n  "a": {"transport": "stdio" "command": "x"}}}')
    settings = load("excelmanus")
    assert settings.servers == []
    (line,) = errors(caplog)
    assert line.startswith(f"{path}:2: not valid JSON: expecting ',' delimiter")


@pytest.mark.requirement("excel-1.7")
def test_excelmanus_variable_names_the_file_and_wins(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "mcp.json", '[{"name": "project", "transport": "stdio", "command": "x"}]')
    write(home / ".excelmanus/mcp.json", '[{"name": "user", "transport": "stdio", "command": "x"}]')
    write(tmp_path / "elsewhere/my.json", '[{"name": "named", "transport": "stdio", "command": "x"}]')
    monkeypatch.setenv("EXCELMANUS_MCP_CONFIG", str(tmp_path / "elsewhere/my.json"))
    assert list(transports(load("excelmanus"))) == ["named"]


@pytest.mark.requirement("excel-1.7")
@pytest.mark.parametrize("written", ["elsewhere/my.json", "./elsewhere/my.json", "~/elsewhere/my.json"])
def test_excelmanus_variable_may_be_relative_to_the_project_or_to_home(
    written: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "elsewhere/my.json", '[{"name": "project", "transport": "stdio", "command": "x"}]')
    write(home / "elsewhere/my.json", '[{"name": "user", "transport": "stdio", "command": "x"}]')
    monkeypatch.setenv("EXCELMANUS_MCP_CONFIG", written)
    assert list(transports(load("excelmanus"))) == ["user" if written.startswith("~") else "project"]


@pytest.mark.requirement("excel-1.7")
def test_excelmanus_variable_that_names_no_file_is_a_problem_and_hides_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "mcp.json", '[{"name": "project", "transport": "stdio", "command": "x"}]')
    monkeypatch.setenv("EXCELMANUS_MCP_CONFIG", "gone.json")
    settings = load("excelmanus", missing_ok=True)
    assert settings.servers == []
    assert "file not found (named by `EXCELMANUS_MCP_CONFIG`)" in str(settings.problems[0])


@pytest.mark.requirement("excel-1.8")
@pytest.mark.parametrize("profile", ["excelmanus", "legal", "otter", "kode", "rrclaw", "dragoman"])
def test_no_file_at_all_is_no_server_no_problem_and_no_line_in_the_log(
    profile: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = load(profile)
    assert (settings.servers, settings.problems, caplog.records) == ([], [], [])
    assert settings.enabled


@pytest.mark.requirement("excel-1.8")
@pytest.mark.parametrize("profile", ["excelmanus", "otter", "kode", "rrclaw"])
def test_servers_of_another_host_are_not_the_applications(home: Path, profile: str) -> None:
    write(home / ".cursor/mcp.json", '{"mcpServers": {"theirs": {"command": "x"}}}')
    write(home / ".claude.json", '{"mcpServers": {"theirs": {"command": "x"}}}')
    assert load(profile).servers == []


# The legal assistant


@pytest.mark.requirement("legal-config.env", "legal-client.stdio")
@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (
            {"SERVER_URL": "https://law.example.org/sse", "TRANSPORT": "sse", "TIMEOUT": "15000"},
            ServerSpec("legal", Sse("https://law.example.org/sse"), timeouts={"call": 15.0}),
        ),
        (
            {"SERVER_URL": "python -m law --data 'my laws'", "TRANSPORT": "stdio"},
            ServerSpec("legal", Stdio("python", ["-m", "law", "--data", "my laws"])),
        ),
        (
            {"SERVER_URL": " law-server a b c ", "TRANSPORT": " STDIO ", "TIMEOUT": "  ", "FALLBACK": ""},
            ServerSpec("legal", Stdio("law-server", ["a", "b", "c"])),
        ),
        (
            {"SERVER_URL": "https://law.example.org/mcp"},
            ServerSpec("legal", Http("https://law.example.org/mcp", alternate=True)),
        ),
        (
            {"SERVER_URL": "npx mcp-remote https://law.example.org/mcp"},
            ServerSpec("legal", Stdio("npx", ["mcp-remote", "https://law.example.org/mcp"])),
        ),
    ],
    ids=["sse", "stdio", "blanks", "untyped", "command with an address"],
)
def test_legal_is_configured_by_its_variables(
    env: dict[str, str], expected: ServerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(f"LEGAL_MCP_{name}", value)
    settings = load("legal")
    (spec,) = settings.servers
    assert (spec.name, spec.transport, spec.timeouts) == (
        expected.name,
        expected.transport,
        expected.timeouts,
    )
    assert (spec.origin.source, spec.origin.pointer) == ("environment", "LEGAL_MCP_SERVER_URL")
    assert settings.problems == []


@pytest.mark.requirement("legal-config.env")
def test_legal_tells_which_variable_is_wrong(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LEGAL_MCP_SERVER_URL", "https://user:hunter2@law.example.org/sse")
    monkeypatch.setenv("LEGAL_MCP_TIMEOUT", "soon")
    assert load("legal").servers == []
    (line,) = errors(caplog)
    assert line.startswith("environment: LEGAL_MCP_TIMEOUT: server `legal` is skipped")
    assert "hunter2" not in line


@pytest.mark.requirement("legal-config.many")
def test_legal_has_as_many_servers_as_there_are_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "LEGAL_MCP_SERVER_URL": "https://law.example.org/sse",
        "LEGAL_MCP_FALLBACK": "cases",
        "LEGAL_MCP_CASES_SERVER_URL": "case-law serve",
        "LEGAL_MCP_CASES_TRANSPORT": "stdio",
        "LEGAL_MCP_CASES_TIMEOUT": "2500",
        "LEGAL_MCP_OLD_FORMS_SERVER_URL": "https://forms.example.org/mcp",
        "LEGAL_MCP_OLD_FORMS_TRANSPORT": "http",
    }.items():
        monkeypatch.setenv(name, value)
    settings = load("legal")
    assert transports(settings) == {
        "cases": Stdio("case-law", ["serve"]),
        "old_forms": Http("https://forms.example.org/mcp"),
        "legal": Sse("https://law.example.org/sse", alternate=True),
    }
    assert server(settings, "cases").timeouts == {"call": 2.5}
    assert server(settings, "legal").fallback == ("cases",)
    monkeypatch.setenv("LEGAL_MCP_CASES_INHERIT_ENV", "CASES_KEY, LANG")
    assert transports(load("legal"))["cases"] == Stdio(
        "case-law", ["serve"], inherit_env=["CASES_KEY", "LANG"]
    )
    monkeypatch.setenv("LEGAL_MCP_FALLBACK", "search=localSearch, Search=CASES, cases , search=cases")
    assert server(load("legal"), "legal").fallback == {
        "search": ("localSearch", "cases"),
        "Search": ("cases",),
        "*": ("cases",),
    }


# otter


@pytest.mark.requirement("otter-p0.config")
@pytest.mark.parametrize(
    "place", ["project:otter.toml", "project:.otter/config.toml", "home:.config/otter/config.toml"]
)
def test_otter_reads_its_servers_from_toml(tmp_path: Path, home: Path, place: str) -> None:
    where, _, name = place.partition(":")
    write(
        (tmp_path if where == "project" else home) / name,
        """[[mcp.servers]]
name = "files"
transport = "stdio"
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem", "/srv"]

[[mcp.servers]]
name = "tracker"
transport = "sse"
url = "https://tracker.example.org/sse"
headers = { X-Team = "docs" }
""",
    )
    assert transports(load("otter")) == {
        "files": Stdio("npx", ["-y", "@modelcontextprotocol/server-filesystem", "/srv"]),
        "tracker": Sse("https://tracker.example.org/sse", headers={"X-Team": "docs"}),
    }


@pytest.mark.requirement("otter-p0.config")
def test_otter_prefers_the_nearer_file_server_by_server(tmp_path: Path, home: Path) -> None:
    entry = '[[mcp.servers]]\nname = "%s"\ncommand = "%s"\n'
    write(tmp_path / "otter.toml", entry % ("a", "nearest"))
    write(tmp_path / ".otter/config.toml", entry % ("a", "near") + entry % ("b", "near"))
    write(home / ".config/otter/config.toml", entry % ("b", "far") + entry % ("c", "far"))
    settings = load("otter")
    assert transports(settings) == {"a": Stdio("nearest"), "b": Stdio("near"), "c": Stdio("far")}
    assert server(settings, "a").shadowed[0].source == str(tmp_path / ".otter/config.toml")


@pytest.mark.requirement("otter-p0.config", "otter-config.mcp")
def test_otter_has_a_time_for_calls_and_one_for_connecting(tmp_path: Path) -> None:
    entry = 'name = "a"\ntransport = "stdio"\ncommand = "x"\ntimeout = "7s"\nconnect_timeout = "500ms"\n'
    write(tmp_path / "otter.toml", f"[[mcp.servers]]\n{entry}")
    assert server(load("otter"), "a").timeouts == {"call": 7.0, "connect": 0.5}


@pytest.mark.requirement("otter-config.mcp")
def test_otter_reads_the_switches_of_the_mcp_table(tmp_path: Path) -> None:
    write(
        tmp_path / "otter.toml",
        """[mcp]
enabled = false
auto_reload = true
health_check_interval = "90s"

[[mcp.servers]]
name = "on"
command = "x"
timeout = "30s"

[[mcp.servers]]
name = "off"
command = "x"
timeout = "500ms"
enabled = false
""",
    )
    settings = load("otter")
    assert (settings.enabled, settings.auto_reload, settings.health_check_interval) == (False, True, 90.0)
    assert [(spec.name, spec.enabled, spec.call_timeout) for spec in settings.servers] == [
        ("on", True, 30.0),
        ("off", False, 0.5),
    ]


@pytest.mark.requirement("otter-config.mcp")
async def test_otter_takes_each_switch_from_the_nearest_file_that_has_it(tmp_path: Path, home: Path) -> None:
    write(tmp_path / "otter.toml", "[mcp]\nauto_reload = false\n")
    write(home / ".config/otter/config.toml", '[mcp]\nauto_reload = true\nhealth_check_interval = "5s"\n')
    settings = McpManager.from_config("otter", trust_project=True).settings
    assert (settings.enabled, settings.auto_reload, settings.health_check_interval) == (True, False, 5.0)


@pytest.mark.requirement("otter-config.mcp")
def test_otter_tells_a_wrong_switch_and_uses_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(
        tmp_path / "otter.toml",
        '[mcp]\nhealth_check_interval = "often"\n\n[[mcp.servers]]\nname = "a"\ncommand = "x"\ntimeout = "later"\n'
        '[[mcp.servers]]\nname = "b"\ncommand = "x"\n',
    )
    settings = load("otter")
    assert (settings.health_check_interval, list(transports(settings))) == (30.0, ["b"])
    assert places(settings) == [f"{path}:7: mcp.servers.0.timeout", f"{path}:2: mcp.health_check_interval"]
    assert len(errors(caplog)) == 2


@pytest.mark.requirement("otter-config.alias")
def test_otter_reads_servers_at_the_top_level_too(tmp_path: Path) -> None:
    write(
        tmp_path / "otter.toml",
        '[[mcp_servers]]\nname = "a"\ncommand = "x"\n[[mcp.servers]]\nname = "b"\ncommand = "y"\n',
    )
    assert transports(load("otter")) == {"b": Stdio("y"), "a": Stdio("x")}


@pytest.mark.requirement("otter-p1.env")
async def test_otters_server_gets_the_values_of_variables_and_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path / "otter.toml",
        f"""[[mcp.servers]]
name = "plain"
command = "${{RUNNER}}"
args = ["${{SCRIPTS:-{PLAIN.parent}}}/plain.py"]

[mcp.servers.env]
TOKEN = "Bearer ${{TRACKER_TOKEN}}"
GIVEN = "${{REGION:-nowhere}}"
EMPTY = "${{BLANK:-default of an empty one}}"
UNSET = "${{NOT_SET:-default}}"
LITERAL = "$HOME"
""",
    )
    for name, value in {"RUNNER": sys.executable, "TRACKER_TOKEN": "t0k3n", "REGION": "north"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BLANK", "")
    with anyio.fail_after(20):
        async with McpManager.from_config("otter", trust_project=True, cache=False) as mcp:
            assert await mcp.wait_ready(), mcp.status()
            given = json.loads((await mcp.call("environment")).text)["env"]
    assert {name: given[name] for name in ("TOKEN", "GIVEN", "EMPTY", "UNSET", "LITERAL")} == {
        "TOKEN": "Bearer t0k3n",
        "GIVEN": "north",
        "EMPTY": "default of an empty one",
        "UNSET": "default",
        "LITERAL": "$HOME",
    }


def test_otter_replaces_variables_when_it_connects(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(
        tmp_path / "otter.toml",
        """[[mcp.servers]]
name = "tracker"
url = "${TRACKER_URL:-https://tracker.example.org}/mcp"
headers = { Authorization = "Bearer ${TRACKER_TOKEN}", X-Literal = "$HOME" }

[[mcp.servers]]
name = "files"
command = "${RUNNER}"
args = [
  "--root",
  "${ROOT:-/srv}",
]
""",
    )
    settings = load("otter")
    assert settings.problems == []
    assert "${TRACKER_TOKEN}" in str(server(settings, "tracker").transport.headers)  # type: ignore[union-attr]
    env = {"TRACKER_TOKEN": "t0k3n", "TRACKER_URL": "", "RUNNER": "npx", "ROOT": "/data"}
    around = ExpansionContext(env=env, root=settings.root, home="/home/ana")
    assert expand_transport(server(settings, "tracker"), around) == Http(
        "https://tracker.example.org/mcp",
        headers={"Authorization": "Bearer t0k3n", "X-Literal": "$HOME"},
        alternate=True,
    )
    assert expand_transport(server(settings, "files"), around) == Stdio("npx", ["--root", "/data"])
    del env["TRACKER_TOKEN"]
    with pytest.raises(MissingVariableError) as caught:
        expand_transport(server(settings, "tracker"), around)
    assert caught.value.location == f"{path}:4: mcp.servers.0.headers.Authorization"
    assert caught.value.variable == "TRACKER_TOKEN"


# kode


@pytest.mark.requirement("kode-config.global")
def test_kode_serves_every_project_from_the_users_file(tmp_path: Path, home: Path) -> None:
    write(
        home / ".kode.json",
        '{"mcpServers": {"shell": {"type": "stdio", "command": "npx", "args": ["shell-mcp"]}}}',
    )
    for root in (tmp_path / "one", tmp_path / "two"):
        settings = load("kode", root=root)
        assert transports(settings) == {"shell": Stdio("npx", ["shell-mcp"])}
        assert server(settings, "shell").origin.scope == "user"
    assert settings.naming == "{server}:{tool}"


@pytest.mark.requirement("kode-config.global", "kode-config.project")
@pytest.mark.parametrize("folder", ["home", "project"])
def test_kode_takes_the_type_of_a_server_and_tries_the_other_one_too(
    folder: str, tmp_path: Path, home: Path
) -> None:
    # Without its type, each of these would be taken for the other one.
    old, new = {"type": "sse", "url": "https://a.test/mcp"}, {"type": "http", "url": "https://a.test/sse"}
    file = (home if folder == "home" else tmp_path) / ".kode.json"
    write(file, json.dumps({"mcpServers": {"old": old, "new": new}}))
    assert transports(load("kode")) == {
        "old": Sse("https://a.test/mcp", alternate=True),
        "new": Http("https://a.test/sse", alternate=True),
    }


@pytest.mark.requirement("kode-config.global")
def test_kode_reads_the_users_file_once_when_it_works_in_the_home_folder(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = '{"mcpServers": {"shell": {"type": "stdio", "command": "npx", "args": ["shell-mcp"]}}}'
    write(home / ".kode.json", text)
    write(home / ".mcp.json", text.replace("shell", "other"))
    settings = load("kode", root=home)
    assert [Path(one.path).name for one in settings.sources if one.status == "loaded"] == [
        ".mcp.json",
        ".kode.json",
    ]
    # It is the user's own, which needs no approval; what else is there is the project's.
    assert server(settings, "shell").origin.scope == "user"
    assert server(settings, "shell").shadowed == ()
    assert server(settings, "other").origin.scope == "project"
    assert (settings.problems, settings.warnings, caplog.messages) == ([], [], [])


@pytest.mark.requirement("kode-config.global")
def test_kode_reads_the_users_file_beside_that_of_the_folder_that_the_variable_names(
    tmp_path: Path, home: Path
) -> None:
    def servers(command: str, *names: str) -> str:
        return json.dumps({"mcpServers": {name: {"command": command, "args": []} for name in names}})

    write(home / ".kode.json", servers("file", "a", "b"))
    write(tmp_path / "own/config.json", servers("folder", "b", "c"))
    settings = load("kode", env={"KODE_CONFIG_DIR": str(tmp_path / "own")})
    assert transports(settings) == {"b": Stdio("folder"), "c": Stdio("folder"), "a": Stdio("file")}


@pytest.mark.requirement("kode-config.global")
def test_kode_leaves_out_what_the_user_rejected_in_this_project(tmp_path: Path, home: Path) -> None:
    rejected = {str(tmp_path): {"rejectedMcprcServers": ["x"]}}
    write(home / ".kode.json", json.dumps({"mcpServers": {}, "projects": rejected}))
    write(tmp_path / ".mcprc", '{"x": {"command": "a", "args": []}, "y": {"command": "b", "args": []}}')
    settings = load("kode")
    assert {spec.name: spec.enabled for spec in settings.servers} == {"x": False, "y": True}


@pytest.mark.requirement("kode-config.project")
def test_kode_prefers_the_projects_own_servers(tmp_path: Path, home: Path) -> None:
    names = "abcde"

    def servers(command: str, some: str) -> dict[str, Any]:
        return {"mcpServers": {name: {"command": command, "args": []} for name in some}}

    in_home = servers("global", names) | {"projects": {str(tmp_path): servers("local", "e")}}
    write(home / ".kode.json", json.dumps(in_home))
    write(tmp_path / ".mcp.json", json.dumps(servers("mcp.json", "bcde")))
    write(tmp_path / ".mcprc", json.dumps(servers("mcprc", "cde")["mcpServers"]))
    write(tmp_path / ".kode.json", json.dumps(servers("project", "de")))
    settings = load("kode")
    commands = {name: spec.command for name, spec in transports(settings).items() if isinstance(spec, Stdio)}
    assert commands == {"a": "global", "b": "mcp.json", "c": "mcprc", "d": "project", "e": "local"}
    hidden = [Path(origin.source).name for origin in server(settings, "e").shadowed]
    assert hidden == [".kode.json", ".mcprc", ".mcp.json", ".kode.json"]
    assert list(transports(load("kode", root=tmp_path / "elsewhere"))) == list(names)


@pytest.mark.requirement("kode-config.stdio")
def test_kode_starts_a_command_with_arguments_and_environment(tmp_path: Path) -> None:
    path = write(
        tmp_path / ".kode.json",
        """{"mcpServers": {
  "full": {"type": "stdio", "command": "npx", "args": ["x"], "env": {"A": "1", "npm_config_yes": "true"}},
  "short": {"command": "npx", "args": []},
  "empty": {"type": "stdio", "args": []},
  "bare": {"command": "npx"}
}}""",
    )
    write(tmp_path / ".mcp.json", '{"mcpServers": {"shared": {"command": "npx"}}}')
    settings = load("kode")
    assert transports(settings) == {
        "full": Stdio("npx", ["x"], env={"A": "1", "npm_config_yes": "true"}),
        "short": Stdio("npx"),
        "shared": Stdio("npx"),
    }
    assert places(settings) == [f"{path}:4: mcpServers.empty", f"{path}:5: mcpServers.bare"]
    assert '`args` is missing: kode needs `command` and `args`; add "args": []' in str(settings.problems[1])
    write(tmp_path / "other/.mcprc", '{"bare": {"command": "npx"}}')
    assert load("kode", root=tmp_path / "other").servers == []


@pytest.mark.requirement("kode-config.sse")
def test_kode_reaches_an_address_with_optional_headers(tmp_path: Path) -> None:
    path = write(
        tmp_path / ".kode.json",
        """{"mcpServers": {
  "plain": {"type": "sse", "url": "https://plain.example.org/sse"},
  "keyed": {"type": "sse", "url": "https://keyed.example.org/sse", "headers": {"X-Key": "${KEY}", "X-B": ""}},
  "http": {"type": "http", "url": "https://http.example.org/mcp"},
  "empty": {"type": "sse"}
}}""",
    )
    settings = load("kode")
    assert transports(settings) == {
        "plain": Sse("https://plain.example.org/sse", alternate=True),
        "keyed": Sse("https://keyed.example.org/sse", headers={"X-Key": "${KEY}", "X-B": ""}, alternate=True),
        "http": Http("https://http.example.org/mcp", alternate=True),
    }
    assert places(settings) == [f"{path}:5: mcpServers.empty"]


# RRClaw


RRCLAW = """[default]
provider = "deepseek"

[mcp.servers.files]
transport = "stdio"
command = "npx"
args = ["-y", "files-mcp"]
env = { NODE_ENV = "production" }

[mcp.servers.remote]
transport = "sse"
url = "https://remote.example.org/mcp"

[mcp.servers.remote.headers]
Authorization = "Bearer token"
"""


@pytest.mark.requirement("rrclaw-config.table")
@pytest.mark.parametrize("where", ["config.toml", "home/.rrclaw/config.toml"])
@pytest.mark.parametrize("key", ["transport", "type"])
def test_rrclaw_reads_its_own_dialect_in_both_files_and_two_keys_for_the_transport(
    tmp_path: Path, home: Path, where: str, key: str
) -> None:
    file = home / where.removeprefix("home/") if where.startswith("home/") else tmp_path / where
    write(file, f'[mcp.servers.a]\n{key} = "sse"\nurl = "https://a.example.org/mcp"\nallowed_tools = []\n')
    more = f'[mcp.servers.b]\n{key} = "http"\nurl = "https://b.example.org/mcp"\n'
    write(file, f"{file.read_text('utf-8')}\n{more}")
    spec = server(load("rrclaw"), "a")
    assert spec.transport == Http("https://a.example.org/mcp", alternate=True)
    assert server(load("rrclaw"), "b").transport == Http("https://b.example.org/mcp")
    assert (spec.allowed_tools, spec.origin.dialect) == (None, "rrclaw")


@pytest.mark.requirement("rrclaw-config.table")
@pytest.mark.parametrize("where", ["project", "home"])
def test_rrclaw_reads_one_table_a_server(tmp_path: Path, home: Path, where: str) -> None:
    write(tmp_path / "config.toml" if where == "project" else home / ".rrclaw/config.toml", RRCLAW)
    settings = load("rrclaw")
    assert transports(settings) == {
        "files": Stdio("npx", ["-y", "files-mcp"], env={"NODE_ENV": "production"}),
        "remote": Http(
            "https://remote.example.org/mcp", headers={"Authorization": "Bearer token"}, alternate=True
        ),
    }
    assert [spec.origin.line for spec in settings.servers] == [4, 10]


@pytest.mark.requirement("rrclaw-config.allowed")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", None),
        ("allowed_tools = []", None),
        ('allowed_tools = ["read_file", "list_dir"]', ("read_file", "list_dir")),
    ],
)
def test_rrclaw_exposes_only_allowed_tools_and_all_of_them_by_an_empty_list(
    tmp_path: Path, line: str, expected: tuple[str, ...] | None
) -> None:
    write(tmp_path / "config.toml", f'[mcp.servers.a]\ntransport = "stdio"\ncommand = "x"\n{line}')
    assert server(load("rrclaw"), "a").allowed_tools == expected


@pytest.mark.requirement("rrclaw-config.none")
@pytest.mark.parametrize("text", ['[default]\nprovider = "deepseek"\n', "", "[mcp]\n", "[mcp.servers]\n"])
def test_rrclaw_without_an_mcp_section_has_no_servers_and_no_error(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "config.toml", text)
    settings = load("rrclaw")
    assert (settings.servers, settings.problems, caplog.records) == ([], [], [])


@pytest.mark.requirement("rrclaw-transport.http")
def test_rrclaw_tries_streamable_http_first_where_the_transport_is_sse(tmp_path: Path) -> None:
    write(tmp_path / "config.toml", RRCLAW)
    spec = server(load("rrclaw"), "remote")
    assert spec.transport == Http(
        "https://remote.example.org/mcp", headers={"Authorization": "Bearer token"}, alternate=True
    )
    assert [(note.code, note.key) for note in spec.notes] == [("transport", "transport")]
