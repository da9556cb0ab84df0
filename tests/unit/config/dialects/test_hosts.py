"""What the small functions of the second batch of hosts do beyond what their fixtures show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.config.building import in_effect

from dragoman.config.dialects import dialect
from dragoman.config.documents import parse
from dragoman.config.export import entry
from dragoman.config.load import load
from dragoman.config.merge import Layer, merge
from dragoman.model import Auth, Http, Sse, Stdio, Tls

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.model import Settings

CONTAINERS = {"zed": "context_servers", "goose": "extensions", "opencode": "mcp", "crush": "mcp"}


def read(name: str, data: Any, source: str = "f.json") -> Settings:
    document = parse(json.dumps(data), source, "json")
    found = dialect(name)
    entries = list(found.find(document, "/project"))
    patch = found.patch(document, "/project")
    layer = Layer(document=document, dialect=found, scope="user", entries=entries, patch=patch)
    return in_effect(merge([layer], "replace"))


def one(name: str, fields: dict[str, Any], **beside: Any) -> Any:
    merged = read(name, {CONTAINERS.get(name, "mcpServers"): {"a": fields}, **beside})
    assert merged.problems == []
    return merged.servers[0]


def why_not(name: str, fields: Any, **beside: Any) -> str:
    merged = read(name, {CONTAINERS.get(name, "mcpServers"): {"a": fields}, **beside})
    assert merged.servers == []
    return merged.problems[0].message


def notes(spec: Any) -> dict[str, str]:
    return {note.key: note.message for note in spec.notes}


# cline


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(0.2, 1), (0, 1), (-5, 1), (60, 60), (3600, 3600), (7200, 3600)]
)
def test_cline_holds_a_time_out_within_its_bounds(timeout: float, seconds: int) -> None:
    spec = one("cline", {"command": "x", "timeout": timeout})
    assert spec.timeouts == {"call": seconds}
    assert ("timeout" in notes(spec)) == (timeout != seconds)


def test_cline_takes_what_stands_beside_a_nested_transport_first() -> None:
    spec = one("cline", {"transport": {"type": "stdio", "command": "x", "args": ["y"]}, "args": ["z"]})
    assert spec.transport == Stdio("x", ["z"])
    assert "transport.args" in notes(spec)


def test_cline_names_the_place_of_a_wrong_key_inside_a_transport() -> None:
    message = why_not("cline", {"transport": {"command": "x", "args": 5}})
    assert "`transport.args` (line 1): expected a list of texts" in message
    assert "expected a duration" in why_not("cline", {"command": "x", "timeout": True})


def test_cline_keeps_no_tokens_of_that_host() -> None:
    spec = one("cline", {"url": "https://x", "oauth": {"tokens": "t0ken"}})
    assert (spec.auth, dict(spec.extras)) == (None, {})
    assert "log in again" in notes(spec)["oauth"]


def test_cline_reads_the_first_of_its_files_only(tmp_path: Path, home: Path) -> None:
    for folder, name in ((home / ".cline/data/settings", "new"), (home / "Documents/Cline/MCP", "old")):
        folder.mkdir(parents=True)
        text = json.dumps({"mcpServers": {name: {"command": "x"}}})
        (folder / "cline_mcp_settings.json").write_text(text, "utf-8")
    assert [spec.name for spec in load("cline").servers] == ["new"]
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text('{"mcpServers": {"named": {"command": "x"}}}', "utf-8")
    settings = load("cline", env={"CLINE_MCP_SETTINGS_PATH": str(elsewhere)}, home=home)
    assert [spec.name for spec in settings.servers] == ["named"]


# roo


@pytest.mark.parametrize("timeout", [0.5, 0, 3601])
def test_roo_refuses_a_time_out_beyond_its_bounds(timeout: float) -> None:
    assert "1 to 3600 seconds" in why_not("roo", {"command": "x", "timeout": timeout})


def test_roo_takes_a_duration_that_is_written_as_a_text() -> None:
    assert one("roo", {"command": "x", "timeout": "2h"}).timeouts == {"call": 7200.0}


# continue


def test_continue_takes_a_json_file_for_one_server_of_its_name() -> None:
    merged = read("continue", {"command": "uvx", "args": ["x"], "env": {"A": "${A}", "N": 5}}, "/c/time.json")
    assert [spec.name for spec in merged.servers] == ["time"]
    assert merged.servers[0].transport == Stdio("uvx", ["x"], env={"A": "${A}", "N": "5"})
    assert read("continue", {"models": []}).servers == []


def test_continue_prefers_a_command_and_gives_it_no_token() -> None:
    spec = one("continue", {"command": "x", "url": "https://x", "apiKey": "k"})
    assert spec.transport == Stdio("x")
    assert set(notes(spec)) == {"url", "apiKey"}


def test_continue_makes_a_header_of_a_key() -> None:
    fields = {"url": "https://x", "apiKey": "k", "requestOptions": {"headers": {"A": "b"}}}
    assert one("continue", fields).transport.headers == {"A": "b", "Authorization": "Bearer k"}


@pytest.mark.parametrize(
    ("options", "tls", "lost"),
    [
        ({"verifySsl": True}, None, ""),
        ({"verifySsl": False}, Tls(verify=False), ""),
        ({"caBundlePath": ["a.pem"]}, Tls(ca="a.pem"), ""),
        ({"caBundlePath": ["a.pem", "b.pem"]}, None, "`caBundlePath`: several bundles"),
        ({"clientCertificate": {"cert": "c", "key": "k"}}, Tls(cert="c", key="k"), ""),
        ({"clientCertificate": {"cert": "c"}}, None, "`clientCertificate`: "),
        ({"noProxy": ["x"], "strange\n": 1}, None, "`strange\\n`: this means nothing here"),
    ],
)
def test_continue_turns_request_options_into_certificates(
    options: dict[str, Any], tls: Tls | None, lost: str
) -> None:
    spec = one("continue", {"url": "https://x", "requestOptions": options})
    assert spec.transport == Http("https://x", alternate=True, tls=tls)
    assert lost in notes(spec).get("requestOptions", "")
    assert ("requestOptions" in notes(spec)) == bool(lost)


def test_continue_wants_request_options_in_a_table() -> None:
    spec = one("continue", {"url": "https://x", "requestOptions": 5})
    assert spec.extras == {"requestOptions": 5}


def test_continue_reads_every_block_of_a_folder_in_order(tmp_path: Path, home: Path) -> None:
    blocks = tmp_path / ".continue" / "mcpServers"
    blocks.mkdir(parents=True)
    for name in ("b.yaml", "a.yaml"):
        (blocks / name).write_text(f"mcpServers: [{{name: {name[0]}, command: x}}]", "utf-8")
    (blocks / "c.json").write_text('{"command": "x"}', "utf-8")
    (home / ".continue").mkdir()
    (home / ".continue/config.yaml").write_text("mcpServers: [{name: a, command: y}]", "utf-8")
    settings = load("continue")
    assert [spec.name for spec in settings.servers] == ["a", "b", "c"]
    assert settings.servers[0].shadowed[0].source == str(home / ".continue/config.yaml")
    absent = [source.path for source in settings.sources if source.status == "absent"]
    assert f"{blocks}/*.yml" in absent


# copilot-cli


def test_copilot_takes_a_bare_map_only_if_it_is_one() -> None:
    assert [spec.name for spec in read("copilot-cli", {"a": {"command": "x"}}).servers] == ["a"]
    assert read("copilot-cli", {"theme": "dark", "a": {"command": "x"}}).servers == []
    assert read("copilot-cli", {"mcpServers": {}, "a": {"command": "x"}}).servers == []


def test_copilot_takes_an_address_without_a_type_for_http() -> None:
    assert one("copilot-cli", {"url": "https://x/${A}"}).transport == Http("https://x/$${A}")


# zed


@pytest.mark.parametrize("shared", [True, 0, -1, "90", None])
def test_zed_ignores_a_time_out_for_all_that_is_none(shared: Any) -> None:
    assert one("zed", {"command": "x"}, context_server_timeout=shared).timeouts == {}


def test_zed_names_what_only_an_extension_can_start() -> None:
    assert "an extension of Zed" in why_not("zed", {"source": "extension"})
    assert "an extension of Zed" in why_not("zed", {"settings": {}})
    spec = one("zed", {"source": "extension", "settings": {}, "url": "https://x", "oauth": {}})
    assert set(notes(spec)) == {"source", "settings", "oauth"}
    assert spec.auth is None


def test_zed_merges_its_files_key_by_key(tmp_path: Path, home: Path) -> None:
    for folder, text in (
        (tmp_path / ".zed", '{"context_servers": {"a": {"enabled": false}}}'),
        (home / ".config/zed", '{"context_servers": {"a": {"command": {"path": "x", "args": ["y"]}}}}'),
    ):
        folder.mkdir(parents=True)
        (folder / "settings.json").write_text(text, "utf-8")
    (spec,) = load("zed").servers
    assert (spec.enabled, spec.transport) == (False, Stdio("x", ["y"]))


# goose


def test_goose_says_nothing_about_what_is_off_inside_it() -> None:
    inside = {"enabled": False, "type": "builtin", "name": "memory"}
    assert (read("goose", {"extensions": {"memory": inside}}).problems) == []
    assert "not supported" in why_not("goose", inside | {"enabled": True})
    assert "`type` (line 1): expected" in why_not("goose", {"enabled": False, "type": ["builtin"]})


def test_goose_fills_an_address_from_its_own_variables_first() -> None:
    fields = {
        "type": "streamable_http",
        "uri": "https://$HOST/${PATH_}",
        "headers": {"A": "$B"},
        "envs": {"HOST": "h", "B": 5},
    }
    assert one("goose", fields).transport == Http("https://h/${PATH_}", headers={"A": "${B}"})
    assert "`headers` (line 1)" in why_not("goose", fields | {"headers": 5})


def test_goose_passes_the_names_of_secrets_on() -> None:
    spec = one("goose", {"type": "stdio", "cmd": "x", "env_keys": ["A"], "display_name": "X", "name": "y"})
    assert (spec.transport, spec.title) == (Stdio("x", inherit_env=["A"]), "X")
    assert "env_keys" in why_not("goose", {"type": "stdio", "cmd": "x", "env_keys": "A"})


# opencode


def test_opencode_may_have_a_server_called_servers() -> None:
    merged = read("opencode", {"mcp": {"servers": {"type": "local", "command": ["x"]}}})
    assert [spec.name for spec in merged.servers] == ["servers"]


def test_opencode_switches_a_server_of_a_weaker_file_off(tmp_path: Path, home: Path) -> None:
    (tmp_path / "opencode.json").write_text('{"mcp": {"a": {"enabled": false}}}', "utf-8")
    folder = home / ".config/opencode"
    folder.mkdir(parents=True)
    text = '{"mcp": {"a": {"type": "local", "command": ["x"], "environment": {"A": "{env:A}"}}}} // mine'
    (folder / "opencode.jsonc").write_text(text, "utf-8")
    settings = load("opencode")
    (spec,) = settings.servers
    assert (spec.enabled, spec.transport) == (False, Stdio("x", env={"A": "${A}"}))
    assert settings.problems == []


@pytest.mark.parametrize(
    ("switches", "allowed", "denied"),
    [
        ({"a_x": False}, None, ("x",)),
        ({"a*": False}, None, ("*",)),
        ({"a_*": False, "a_x": True, "a_x_y": False}, ("x",), ("x_y",)),
        ({"a_x": True}, None, ()),
        ({"b_x": False, "bash": False, "a_y": "no"}, None, ()),
    ],
)
def test_opencode_switches_tools_by_their_names(
    switches: dict[str, Any], allowed: tuple[str, ...] | None, denied: tuple[str, ...]
) -> None:
    spec = one("opencode", {"type": "local", "command": ["x"]}, tools=switches)
    assert (spec.allowed_tools, spec.denied_tools) == (allowed, denied)


def test_opencode_knows_two_forms_of_a_time_out() -> None:
    fields = {"type": "local", "command": ["x"]}
    assert one("opencode", fields | {"timeout": 500}).timeouts == {"connect": 0.5}
    spec = one("opencode", fields | {"timeout": {"startup": 500, "request": 750, "odd": 1}})
    assert spec.timeouts == {"connect": 0.5, "call": 0.75}
    assert "timeout.odd" in notes(spec)
    assert "`timeout.request` (line 1)" in why_not("opencode", fields | {"timeout": {"request": "?"}})


# kiro and amazon-q


@pytest.mark.parametrize(
    ("redirect", "auth"),
    [
        ("127.0.0.1:8080", Auth(mode="oauth", callback_port=8080)),
        (":8080", Auth(mode="oauth", callback_port=8080)),
        ("http://127.0.0.1:8080/cb", Auth(mode="oauth", redirect_uri="http://127.0.0.1:8080/cb")),
    ],
)
def test_kiro_takes_a_redirect_without_an_address_for_a_port(redirect: str, auth: Auth) -> None:
    assert one("kiro", {"url": "https://x", "oauth": {"redirectUri": redirect}}).auth == auth


@pytest.mark.parametrize(
    ("tools", "allowed"), [(["*"], None), (["@a"], None), (["@a/x", "@b/y"], ("x",)), ([], ()), (5, None)]
)
def test_an_agent_may_use_the_tools_that_it_names(tools: Any, allowed: tuple[str, ...] | None) -> None:
    assert one("kiro", {"command": "x"}, tools=tools).allowed_tools == allowed
    assert one("amazon-q", {"command": "x"}, tools=tools).allowed_tools == allowed


def test_amazon_q_has_its_own_spelling_of_a_variable() -> None:
    fields = {"command": "${env:A}", "env": {"A": "${env:A}", "B": "${B}"}}
    assert one("amazon-q", fields).transport == Stdio("$${env:A}", env={"A": "${A}", "B": "$${B}"})


# librechat


def test_librechat_never_gives_one_servers_value_to_another() -> None:
    asked = {"customUserVars": {"TOKEN": {"title": "T", "sensitive": False}}}
    fields = {"url": "https://x", "headers": {"A": "{{TOKEN}} {{ OTHER }}"}}
    merged = read("librechat", {"mcpServers": {"a": fields | asked, "b": fields | asked}})
    headers = [spec.transport.headers["A"] for spec in merged.servers]  # type: ignore[union-attr]
    assert headers == ["${input:a.TOKEN} ${input:OTHER}", "${input:b.TOKEN} ${input:OTHER}"]
    assert [(item.id, item.secret) for item in merged.inputs] == [
        ("a.TOKEN", False),
        ("b.TOKEN", False),
    ]


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        ({"key": "k"}, {"Authorization": "Bearer k"}),
        ({"key": "k", "authorization_type": "basic"}, {"Authorization": "Basic k"}),
        ({"key": "k", "authorization_type": "custom", "custom_header": "X"}, {"X": "k"}),
        ({"source": "user"}, {"Authorization": "Bearer ${input:a.apiKey}"}),
    ],
)
def test_librechat_makes_a_header_of_a_key(key: dict[str, str], headers: dict[str, str]) -> None:
    assert one("librechat", {"url": "https://x", "apiKey": key}).transport == Sse(
        "https://x", headers=headers
    )


def test_librechat_refuses_a_key_without_its_header() -> None:
    assert "it lacks the `key`" in why_not("librechat", {"url": "https://x", "apiKey": {}})
    custom = {"key": "k", "authorization_type": "custom"}
    assert "it lacks the `key`" in why_not("librechat", {"url": "https://x", "apiKey": custom})
    spec = one("librechat", {"url": "https://x", "apiKey": "k"})
    assert spec.extras == {"apiKey": "k"}


@pytest.mark.parametrize(
    ("fields", "auth"),
    [
        ({"requiresOAuth": True}, Auth(mode="oauth")),
        ({"requiresOAuth": False}, Auth(mode="none")),
        ({"requiresOAuth": "?"}, None),
        ({"requiresOAuth": True, "oauth": {"client_id": "c"}}, Auth(mode="oauth", client_id="c")),
    ],
)
def test_librechat_says_whether_a_login_is_needed(fields: dict[str, Any], auth: Auth | None) -> None:
    assert one("librechat", {"url": "https://x"} | fields).auth == auth


def test_librechat_starts_a_server_at_once_unless_told() -> None:
    assert not one("librechat", {"command": "x", "startup": True}).lazy
    assert one("librechat", {"command": "x", "startup": False}).lazy


# crush


@pytest.mark.parametrize(
    ("text", "template"),
    [
        ("$A ${B} ${C:-d}", "${A} ${B} ${C:-d}"),
        ("${A:?set it}", "${A}"),
        ("${A?set it}", "${A}"),
        ("${A-b}", "${A:-b}"),
        ("a$(cat key)b", "a${input:output of cat key}b"),
        ("costs $5 {x}", "costs $5 {x}"),
    ],
)
def test_crush_has_a_shells_variables(text: str, template: str) -> None:
    assert one("crush", {"command": "x", "env": {"A": text}}).transport.env == {"A": template}


@pytest.mark.parametrize("text", ["${A:+b}", "${A%x}", "${#A}", "$(a $(b))", "`date`", "$((1+1))", "$(a"])
def test_crush_runs_no_command_and_passes_none_on_as_a_text(text: str) -> None:
    assert "`args` (line 1): " in why_not("crush", {"command": "x", "args": [text]})


@pytest.mark.parametrize(
    ("fields", "auth"),
    [
        ({"oauth": True}, Auth(mode="oauth")),
        ({"oauth": False}, Auth(mode="none")),
        ({"oauth_client_id": "$ID"}, Auth(mode="oauth", client_id="${ID}")),
        ({"oauth": False, "oauth_client_id": "c"}, Auth(mode="none", client_id="c")),
    ],
)
def test_crush_says_whether_a_login_is_wanted(fields: dict[str, Any], auth: Auth) -> None:
    assert one("crush", {"type": "http", "url": "https://x"} | fields).auth == auth


# fastmcp


@pytest.mark.parametrize(
    ("url", "kind"),
    [("https://x/sse", Sse), ("https://x/sse?a=1", Sse), ("https://x/sse/b", Sse), ("https://x/ssex", Http)],
)
def test_fastmcp_sees_the_transport_from_the_path(url: str, kind: type) -> None:
    assert one("fastmcp", {"url": url}).transport == kind(url)
    assert one("fastmcp", {"url": url, "transport": "streamable-http"}).transport == Http(url)


def test_fastmcp_gives_a_command_no_token() -> None:
    spec = one("fastmcp", {"command": "x", "type": "stdio", "auth": "t0ken", "tools": {"a": 5}})
    assert spec.transport == Stdio("x")
    assert spec.denied_tools == ()
    assert "auth" in notes(spec)


def test_fastmcp_takes_a_bare_map() -> None:
    assert [spec.name for spec in read("fastmcp", {"a": {"command": "x"}}).servers] == ["a"]


def test_the_sandbox_of_vs_code_is_read_and_written_back() -> None:
    top = {"sandbox": {"filesystem": {"allowWrite": ["/all"]}, "network": {"allowedDomains": []}}}

    def read_one(fields: dict[str, Any], **beside: Any) -> Any:
        return read("vscode", {"servers": {"a": {"command": "x", **fields}}, **beside}).servers[0]

    assert read_one({}, **top).transport.sandbox is None
    assert read_one({"sandboxEnabled": False, "sandbox": {"network": {}}}).transport.sandbox is None
    plain = read_one({"sandboxEnabled": True})
    assert plain.transport.sandbox == {"level": "strict"}
    both = read_one({"sandboxEnabled": True, "sandbox": {"filesystem": {"allowRead": ["~/x"]}}}, **top)
    assert both.transport.sandbox == {"level": "strict", "read": ("~/x",), "write": (), "network": "off"}
    for spec in (plain, both):
        written, losses = entry(spec, dialect("vscode"))
        assert written["sandboxEnabled"] is True
        assert losses == []
    loose = both.replace(transport=both.transport.replace(sandbox="credentials"))
    assert [loss.key for loss in entry(loose, dialect("vscode"))[1]] == ["sandbox"]
