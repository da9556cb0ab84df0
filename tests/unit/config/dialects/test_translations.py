"""What the small functions of single dialects do beyond what their fixtures show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.config.building import in_effect

from dragoman.config.dialect import names_at, settings_patch, table_at
from dragoman.config.dialects import dialect
from dragoman.config.dialects.agents import finder
from dragoman.config.documents import environment, parse
from dragoman.config.load import load
from dragoman.config.merge import Layer, merge
from dragoman.model import Auth, Http, Sse, Stdio

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.model import Settings


def read(name: str, data: Any, source: str = "f.json") -> Settings:
    document = parse(json.dumps(data), source, "json")
    found = dialect(name)
    entries = list(found.find(document, "/project"))
    patch = found.patch(document, "/project")
    layer = Layer(document=document, dialect=found, scope="user", entries=entries, patch=patch)
    return in_effect(merge([layer], "replace"))


def one(name: str, fields: dict[str, Any]) -> Any:
    key = {"vscode": "servers", "codex": "mcp_servers"}.get(name, "mcpServers")
    merged = read(name, {key: {"a": fields}})
    assert merged.problems == []
    return merged.servers[0]


def why_not(name: str, fields: dict[str, Any]) -> str:
    key = {"codex": "mcp_servers"}.get(name, "mcpServers")
    merged = read(name, {key: {"a": fields}})
    assert merged.servers == []
    return merged.problems[0].message


# claude-code


@pytest.mark.parametrize(("timeout", "expected"), [(1000, {"call": 1.0}), (999, {}), (0.5, {})])
def test_claude_code_ignores_a_time_out_below_a_second(timeout: float, expected: dict[str, float]) -> None:
    spec = one("claude-code", {"command": "x", "timeout": timeout})
    assert spec.timeouts == expected
    assert spec.notes[0].key == "timeout"


@pytest.mark.parametrize("timeout", [True, 0, -5, "soon"])
def test_claude_code_refuses_what_is_no_time_out(timeout: Any) -> None:
    assert "expected a duration" in why_not("claude-code", {"command": "x", "timeout": timeout})


def test_claude_code_wants_a_login_in_a_table() -> None:
    fields = {"type": "http", "url": "https://x", "oauth": 5}
    assert "`oauth` (line 1): expected an object" in why_not("claude-code", fields)


# codex


def test_codex_takes_headers_from_variables() -> None:
    fields = {"url": "https://x", "env_http_headers": {"X": "TRACE"}, "bearer_token_env_var": "TOKEN"}
    assert one("codex", fields).transport == Http(
        "https://x", headers={"Authorization": "Bearer ${TOKEN}", "X": "${TRACE}"}
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bearer_token_env_var": "NO-NAME"}, "`bearer_token_env_var` (line 1): expected the name of"),
        ({"bearer_token_env_var": 5}, "`bearer_token_env_var` (line 1): expected the name of"),
        ({"env_http_headers": {"X": "a b"}}, "`env_http_headers` (line 1): expected the name of"),
        ({"env_http_headers": 5}, "`env_http_headers` (line 1): expected an object"),
        ({"http_headers": 5, "bearer_token_env_var": "TOKEN"}, "`http_headers` (line 1): expected an object"),
        ({"oauth": 5, "scopes": ["a"]}, "`oauth` (line 1): expected an object"),
        ({"scopes": 5}, "`scopes` (line 1): expected a list of texts"),
    ],
)
def test_codex_refuses_what_names_no_variable(fields: dict[str, Any], message: str) -> None:
    assert message in why_not("codex", {"url": "https://x"} | fields)


def test_codex_refuses_variables_without_a_name() -> None:
    assert "`env_vars.0` (line 1): expected a text" in why_not("codex", {"command": "x", "env_vars": [{}]})
    assert "`env_vars` (line 1): expected" in why_not("codex", {"command": "x", "env_vars": 5})


def test_codex_has_no_variables_of_its_own() -> None:
    spec = one("codex", {"command": "${A}", "args": [["x"], 5][1:], "env": {"A": "${B}", "N": 5}})
    assert spec.transport == Stdio("$${A}", ["5"], env={"A": "$${B}", "N": "5"})


def test_codex_logs_in_by_scopes_alone() -> None:
    spec = one("codex", {"url": "https://x", "auth": "oauth", "scopes": ["a"]})
    assert spec.auth == Auth(mode="oauth", scopes=("a",))
    assert one("codex", {"url": "https://x", "auth": "oauth"}).auth == Auth(mode="oauth")


def test_codex_merges_files_key_by_key(tmp_path: Path, home: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/config.toml").write_text(
        '[mcp_servers.a]\nenabled = false\nenv_vars = ["B"]', "utf-8"
    )
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(
        '\n\n[mcp_servers.a]\ncommand = "x"\nenv = {A = "1"}\n[mcp_servers.b]\ncommand = "x"\ntool_timeout_sec = "?"',
        "utf-8",
    )
    settings = load("codex")
    (spec,) = settings.servers
    assert (spec.enabled, spec.transport) == (False, Stdio("x", env={"A": "1"}, inherit_env=["B"]))
    assert spec.origin.source.startswith(str(tmp_path))
    assert spec.shadowed[0].source.startswith(str(home))
    assert settings.problems[0].location == f"{home}/.codex/config.toml:8: mcp_servers.b.tool_timeout_sec"  # type: ignore[attr-defined]


# gemini


def test_gemini_tries_an_untyped_address_as_http_first() -> None:
    assert one("gemini", {"url": "https://x/sse"}).transport == Http("https://x/sse", alternate=True)
    assert one("gemini", {"httpUrl": "https://x/sse"}).transport == Http("https://x/sse")
    assert one("gemini", {"url": "$BASE/mcp", "type": "sse"}).transport == Sse("${BASE}/mcp")


def test_gemini_keeps_what_it_cannot_use_of_a_login() -> None:
    spec = one(
        "gemini", {"url": "https://x", "oauth": {"clientId": "c", "tokenUrl": "https://t", "mode": "none"}}
    )
    assert spec.auth == Auth(mode="none", client_id="c")
    assert spec.extras == {"oauth": {"tokenUrl": "https://t"}}


def test_gemini_without_lists_switches_nothing_off() -> None:
    merged = read("gemini", {"mcp": {"allowed": 5}, "mcpServers": {"a": {"command": "x"}}})
    assert merged.servers[0].enabled


# vscode


@pytest.mark.parametrize(
    ("inputs", "count", "problems"),
    [
        (None, 0, []),
        ([], 0, []),
        (5, 0, ["inputs"]),
        ([5, {"id": "a"}, {"type": "promptString"}], 0, ["inputs.0", "inputs.1", "inputs.2"]),
        ([{"id": "a", "type": "pickString", "options": 5, "description": None}], 1, []),
    ],
)
def test_vscode_asks_for_what_can_be_asked_for(inputs: Any, count: int, problems: list[str]) -> None:
    merged = read("vscode", {"inputs": inputs})
    assert len(merged.inputs) == count
    assert [problem.pointer for problem in merged.problems] == problems
    assert all(each.description == "" for each in merged.inputs)


def test_vscode_never_takes_the_default_of_a_command() -> None:
    merged = read("vscode", {"inputs": [{"id": "a", "type": "command", "command": "c", "default": "d"}]})
    assert merged.inputs[0].default is None


# kode


def test_kode_reads_a_bare_map_from_its_own_file_only() -> None:
    bare = {"a": {"command": "x", "args": []}, "hooks": 5}
    assert [spec.name for spec in read("kode", bare, "/x/.mcprc").servers] == ["a"]
    assert len(read("kode", bare, "/x/.mcprc").problems) == 1
    assert read("kode", bare, "/x/.kode.json").servers == []
    assert read("kode", bare, "/x/.kode.json").problems == []
    wrapped = read("kode", {"mcpServers": bare}, "/x/.mcprc")
    assert [spec.name for spec in wrapped.servers] == ["a"]


# dragoman


@pytest.mark.parametrize(
    ("data", "names", "problems"),
    [
        ([{"name": "a", "command": "x"}], ["a"], 0),
        ({"$schema": "s", "a": {"command": "x"}, "b": {"args": []}}, ["a"], 1),
        ({"a": {"command": "x"}, "theme": "dark"}, [], 0),
        ({"a": {"colour": "x"}}, [], 0),
        ({}, [], 0),
        (
            {
                "mcpServers": {"a": {"command": "x"}},
                "servers": {"a": {"command": "y"}, "b": {"command": "z"}},
            },
            ["a", "b"],
            1,
        ),
        ({"mcpServers": 5}, [], 1),
    ],
)
def test_a_portable_file_may_have_any_of_the_usual_shapes(data: Any, names: list[str], problems: int) -> None:
    merged = read("mcp-json", data)
    assert [spec.name for spec in merged.servers] == names
    assert len(merged.problems) == problems


def test_usual_spellings_of_other_hosts_are_understood() -> None:
    spec = one(
        "mcp-json", {"cmd": "x", "environment": {"A": "1"}, "workingDirectory": "/w", "initTimeout": 500}
    )
    assert spec.transport == Stdio("x", env={"A": "1"}, cwd="/w")
    assert spec.timeouts == {"connect": 0.5}
    assert one("mcp-json", {"httpUrl": "https://x"}).transport == Http("https://x", alternate=True)


# legal


def legal(env: dict[str, str], prefix: str = "LEGAL") -> Settings:

    document = environment(env)
    found = dialect("legal").replace(find=finder(prefix))
    entries = list(found.find(document, ""))
    return in_effect(
        merge([Layer(document=document, dialect=found, scope="user", entries=entries)], "replace")
    )


def test_legal_counts_no_server_without_an_address() -> None:
    merged = legal({"LEGAL_MCP_TIMEOUT": "5000", "LEGAL_MCP_SERVER_URL": " "})
    assert (merged.servers, merged.problems) == ([], [])


def test_legal_takes_any_prefix() -> None:
    merged = legal({"MY_APP_MCP_SERVER_URL": "https://x", "LEGAL_MCP_SERVER_URL": "https://y"}, "MY_APP")
    assert [spec.name for spec in merged.servers] == ["my_app"]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"SERVER_URL": "law 'open", "TRANSPORT": "stdio"}, "a quote or a backslash without its end"),
        ({"SERVER_URL": "ftp://x"}, "expected a URL that starts with http"),
        ({"SERVER_URL": "law serve", "TRANSPORT": "sse"}, "expected a URL that starts with http"),
        (
            {"SERVER_URL": "https://x", "TRANSPORT": "pigeon"},
            "`LEGAL_MCP_TRANSPORT`: `pigeon` is not stdio, http or sse",
        ),
        ({"SERVER_URL": "https://x", "TIMEOUT": "-1"}, "`LEGAL_MCP_TIMEOUT`: expected a duration above zero"),
    ],
)
def test_legal_names_the_wrong_variable(env: dict[str, str], message: str) -> None:
    merged = legal({f"LEGAL_MCP_{key}": value for key, value in env.items()})
    assert merged.servers == []
    assert message in merged.problems[0].message
    assert merged.problems[0].source == "environment"


def test_legal_reads_only_what_can_be_an_environment() -> None:
    document = parse("[1]", "f", "json")
    assert list(finder("LEGAL")(document, "")) == []
    assert list(finder("LEGAL")(parse('{"LEGAL_MCP_SERVER_URL": 5}', "f", "json"), "")) == []


# sections


def test_a_table_at_a_path_is_found_or_empty() -> None:
    document = parse('{"a": {"b": {"c": 1}, "d": 5}}', "f", "json")
    assert table_at(document, ("a", "b")) == {"c": 1}
    assert table_at(document, ("a", "d")) == {}
    assert table_at(document, ("a", "d", "e")) == {}
    assert names_at({"x": ["a", 5, "b"]}, "x") == ["a", "b"]
    assert names_at({"x": "a"}, "x") is None


def test_settings_are_read_or_told() -> None:
    text = 'mcp = { enabled = 1, auto_reload = true, health_check_interval = "x", naming = "{server}" }'
    patch = settings_patch(parse(text, "f", "toml"), ("mcp",))
    assert patch.said == {"auto_reload": True}
    assert [pointer for pointer, _ in patch.problems] == [
        ("mcp", "enabled"),
        ("mcp", "health_check_interval"),
        ("mcp", "naming"),
    ]
    assert settings_patch(parse("mcp = 5", "f", "toml"), ("mcp",)).problems == [
        (("mcp",), "expected a table, not the number 5")
    ]


def test_an_unknown_dialect_is_an_error() -> None:
    with pytest.raises(KeyError):
        dialect("sections")
