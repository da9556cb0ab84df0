"""`dragoman config show | check | paths`: origins, problems, places, and never a secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.cli.main import run
from dragoman.config.load import approvals, load
from dragoman.trust.masking import MASK

if TYPE_CHECKING:
    from collections.abc import Callable

PLANTED = "s3cr3t-planted"
GITHUB = "ghp_" + "Planted0" * 5


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command and return what it printed to its output; its exit code has to be the given one."""

    def show(*arguments: str, code: int = 0) -> str:
        assert run(list(arguments)) == code, capsys.readouterr().err
        return capsys.readouterr().out

    return show


def write(path: Path | str, servers: dict[str, Any]) -> None:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}, indent=1), "utf-8")


def secretive() -> dict[str, Any]:
    return {
        "child": {
            "command": "npx",
            "args": [
                *("--token", PLANTED, f"--api-key={PLANTED}", "-e", f"PGPASSWORD={PLANTED}", GITHUB),
                *(
                    "--header",
                    f"X-Api-Key: {PLANTED}",
                    f"https://h/mcp?key={PLANTED}",
                    f"postgres://u:{PLANTED}@h/x",
                ),
                json.dumps({"apiKey": PLANTED}),
            ],
            "env": {"HARMLESS": PLANTED, "REF": "${TOKEN}", "DEFAULT": f"${{TOKEN:-{PLANTED}}}"},
        },
        "line": {"command": f"npx server --token {PLANTED}"},
        "remote": {
            "url": f"https://ann:{PLANTED}@example.com/mcp?key={PLANTED}#{PLANTED}",
            "headers": {"Authorization": f"Bearer {PLANTED}", "X-Ref": "Bearer ${TOKEN}"},
        },
        "old": {"type": "sse", "url": f"https://example.com/{GITHUB}/sse", "headers": {"Cookie": PLANTED}},
        "wrong-env": {"command": "x", "env": {"TOKEN": [PLANTED]}},
        "wrong-envs": {"command": "x", "env": PLANTED},
        "wrong-args": {"command": "x", "args": {"--token": PLANTED}},
        "wrong-headers": {"url": "https://example.com", "headers": {"Authorization": f"{PLANTED}\n"}},
        "wrong-url": {"url": f"ftp://ann:{PLANTED}@example.com"},
        "wrong-auth": {"url": "https://example.com", "auth": {"client_secret": [PLANTED]}},
        "unknown": {"command": "x", "apiKey": PLANTED, "nested": {"token": PLANTED}},
    }


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
@pytest.mark.parametrize("command", ["show", "check", "paths"])
def test_no_command_prints_a_secret(
    command: str, json_flag: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    write("mcp.json", secretive())
    run(["config", command, *json_flag])
    captured = capfd.readouterr()
    assert captured.out
    for secret in (PLANTED, GITHUB, PLANTED[2:]):
        assert secret not in captured.out + captured.err


def test_debug_prints_no_secret_either(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    write("mcp.json", secretive())
    run(["--debug", "config", "check"])
    captured = capfd.readouterr()
    assert "wrong-env" in caplog.text
    assert PLANTED not in captured.out + captured.err + caplog.text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broken.json", '{"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "%s" oops}}}}'),
        ("broken.toml", '[mcp.servers.a]\ncommand = "x"\nenv = { TOKEN = "%s" oops }'),
        ("broken.yaml", 'mcpServers:\n  a:\n    command: x\n    env: {TOKEN: "%s" oops: ]'),
    ],
)
def test_a_file_that_does_not_parse_is_not_quoted(
    name: str, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text(text.replace("%s", PLANTED), "utf-8")
    assert run(["config", "check", "--config", name]) == 3
    captured = capfd.readouterr()
    assert f"error: ./{name}:" in captured.out
    assert PLANTED not in captured.out + captured.err


def test_references_stay_readable(shown: Callable[..., str]) -> None:
    write("mcp.json", secretive())
    text = shown("config", "show")
    assert "REF=${TOKEN}" in text
    assert f"DEFAULT=${{TOKEN:-{MASK}}}" in text
    assert "X-Ref: Bearer ${TOKEN}" in text
    assert f"https://{MASK}@example.com/mcp?key={MASK}#{MASK}" in text


def test_show_and_check_name_what_of_the_project_is_not_in_effect(
    home: Path, shown: Callable[..., str]
) -> None:
    write(home / ".config/dragoman/mcp.json", {"files": {"command": "mine"}})
    Path("dragoman.toml").write_text('[mcp]\nnaming = "{tool}"\n\n[mcp.servers.files]\ncommand = "theirs"\n')
    text = shown("config", "show")
    assert "command   mine" in text
    assert "note      the project's file" in text
    assert "files  stdio  not approved (no effect)" in text
    assert 'Not approved (no effect): ./dragoman.toml:2: mcp.naming = "{tool}"' in text
    document = json.loads(shown("config", "show", "--json"))
    assert document["naming"] == "mcp_{server}_{tool}"
    assert [server["command"] for server in document["unapproved"]] == ["theirs"]
    assert [(one["pointer"], one["line"]) for one in document["without_effect"]] == [("mcp.naming", 2)]
    assert "./dragoman.toml:2: mcp.naming: this setting of the project is not approved" in shown(
        "config", "check"
    )


def approve(name: str) -> None:
    """Approve a project's server as its file has it."""
    spec = load().server(name)
    assert spec is not None
    approvals().approve(spec, Path.cwd())


def test_show_names_the_origin_and_what_it_hides(home: Path, shown: Callable[..., str]) -> None:
    write("mcp.json", {"files": {"command": "strong"}})
    write(".mcp.json", {"files": {"command": "weak"}})
    write(
        home / ".config/dragoman/mcp.json", {"files": {"command": "weakest"}, "notes": {"command": "other"}}
    )
    approve("files")
    text = shown("config", "show", "files")
    assert "command   strong" in text
    assert "from      ./mcp.json:3 (project, " in text
    assert "overrides ./.mcp.json:3 (project, " in text
    assert "overrides ~/.config/dragoman/mcp.json:3 (user, " in text
    assert "notes" not in text
    (server,) = json.loads(shown("config", "show", "files", "--json"))["servers"]
    assert server["origin"]["source"] == str(Path.cwd() / "mcp.json")
    assert [origin["scope"] for origin in server["shadowed"]] == ["project", "user"]


def test_show_prints_every_rule_of_a_server(shown: Callable[..., str]) -> None:
    Path("dragoman.toml").write_text(
        """
        [mcp.servers.one]
        command = "serve it"
        args = ["two words", "$HOME"]
        env = { GONE = "x" }
        cwd = "sub"
        enabled = false
        timeouts = { connect = 1.5, call = "2m" }
        allowed_tools = ["read_*"]
        denied_tools = ["read_secret"]
        fallback = ["two"]
        [mcp.servers.two]
        url = "https://example.com/sse"
        allowed_tools = []
        fallback = { read = ["one", "local_read"], "*" = "one" }
        """,
        "utf-8",
    )
    rows = [line.split(maxsplit=1) for line in shown("config", "show").splitlines()]
    assert rows[:8] == [
        ["one", "stdio  disabled"],
        ["command", "'serve it' 'two words' $HOME"],
        ["env", f"GONE={MASK}"],
        ["cwd", "sub"],
        ["timeouts", "connect 1.5 s, call 120 s"],
        ["allows", "read_*"],
        ["denies", "read_secret"],
        ["fallback", "two"],
    ]
    assert ["allows", "nothing"] in rows
    assert ["fallback", "read: one, local_read"] in rows
    assert ["fallback", "*: one"] in rows
    assert any(row[0] == "note" and "legacy SSE" in row[1] for row in rows)


def test_show_json_has_a_stable_shape(shown: Callable[..., str]) -> None:
    write(
        "mcp.json",
        {"files": {"command": "npx", "args": ["-y"], "odd": 1}, "web": {"url": "https://example.com/mcp"}},
    )
    document = json.loads(shown("config", "show", "--json"))
    assert set(document) == {
        *(
            "profile",
            "root",
            "enabled",
            "auto_reload",
            "call_log",
            "daemon",
            "health_check_interval",
            "naming",
            "servers",
            "unapproved",
            "without_effect",
            "problems",
        )
    }
    files, web = document["servers"]
    assert {
        key: files[key] for key in ("name", "transport", "enabled", "command", "args", "extras", "shadowed")
    } == {
        "name": "files",
        "transport": "stdio",
        "enabled": True,
        "command": "npx",
        "args": ["-y"],
        "extras": ["odd"],
        "shadowed": [],
    }
    assert files["origin"] == {
        "source": str(Path.cwd() / "mcp.json"),
        "line": 3,
        "pointer": "mcpServers.files",
        "dialect": files["origin"]["dialect"],
        "scope": "project",
    }
    assert (web["transport"], web["url"], web["alternate"]) == ("http", "https://example.com/mcp", True)
    assert [note["code"] for note in web["notes"]] == ["transport"]


def test_show_without_configuration_says_what_to_do_next(shown: Callable[..., str]) -> None:
    text = shown("config", "show")
    assert text.startswith("No servers. Import them: dragoman import --all.")
    for command in ("dragoman config paths", "dragoman add NAME", "dragoman import --all"):
        assert command in text


def test_show_says_that_mcp_is_switched_off(home: Path, shown: Callable[..., str]) -> None:
    file = home / ".config/dragoman/dragoman.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[mcp]\nenabled = false\n[mcp.servers.a]\ncommand = "x"\n', "utf-8")
    text = shown("config", "show")
    assert "MCP is disabled" in text.splitlines()[0]
    assert "a  stdio" in text


def test_show_points_to_check_when_there_are_problems(capsys: pytest.CaptureFixture[str]) -> None:
    write("mcp.json", {"a": {"command": 1}, "b": {"command": 2}, "c": {"command": "x"}})
    assert run(["config", "show"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("c  stdio")
    assert captured.err == "2 configuration problems: run `dragoman config check`\n"


def test_show_of_an_unknown_server_suggests_one(capsys: pytest.CaptureFixture[str]) -> None:
    write("mcp.json", {"files": {"command": "x"}})
    assert run(["config", "show", "file"]) == 9
    assert capsys.readouterr().err == "error: unknown server `file` (did you mean files?)\n"
    assert run(["config", "show", "zzz"]) == 9
    assert "configured: files" in capsys.readouterr().err


def test_hostile_text_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\u001b[2J\u202e\u009b31m\u200b\r"
    sound = {"command": f"x{hostile}", "args": [hostile], "env": {f"A{hostile}": "b"}, hostile: 1}
    write("mcp.json", {"a": sound, f"b{hostile}": {"command": "x"}, "c": {"type": hostile}})
    for arguments in (["show"], ["show", "--json"], ["check"], ["check", "--json"], ["show", hostile]):
        run(["config", *arguments])
        captured = capsys.readouterr()
        assert len(captured.out + captured.err) > 40
        assert not set(captured.out + captured.err) & set(hostile) - set("[2J31m"), arguments


def test_check_of_a_sound_configuration_is_silent_about_errors(shown: Callable[..., str]) -> None:
    write("mcp.json", {"a": {"command": "x"}})
    assert shown("config", "check") == "1 server in 1 source: 0 errors, 0 warnings\n"
    assert json.loads(shown("config", "check", "--json")) == {"ok": True, "problems": [], "warnings": []}


@pytest.mark.requirement("excel-1.6")
def test_check_reports_everything_at_once_with_file_and_line(home: Path, shown: Callable[..., str]) -> None:
    write("mcp.json", {"good": {"command": "x"}, "bad": {"command": 7}, "worse": {"args": []}})
    Path(".mcp.json").write_text('{"mcpServers": {\n  "lost": ]\n}}', "utf-8")
    write(home / ".config/dragoman/mcp.json", {"home": {"command": "y"}})
    lines = shown("config", "check", code=3).splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 3
    assert any(line.startswith("error: ./.mcp.json:2: not valid JSON") for line in errors)
    assert any(line.startswith("error: ./mcp.json:") and "mcpServers.bad.command" in line for line in errors)
    assert any(line.startswith("error: ./mcp.json:") and "mcpServers.worse" in line for line in errors)
    assert lines[-1] == "2 servers in 2 sources: 3 errors, 0 warnings"
    names = [server["name"] for server in json.loads(shown("config", "show", "--json"))["servers"]]
    assert sorted(names) == ["good", "home"]


def test_check_json_gives_each_problem_its_place(shown: Callable[..., str]) -> None:
    write("mcp.json", {"bad": {"command": 7, "timeout": "soon"}})
    report = json.loads(shown("config", "check", "--json", code=3))
    (problem,) = report["problems"]
    assert not report["ok"]
    assert set(problem) == {"code", "source", "line", "pointer", "message", "hint", "problems"}
    assert (problem["code"], problem["source"], problem["line"]) == (
        "config.invalid",
        str(Path.cwd() / "mcp.json"),
        4,
    )
    assert len(problem["problems"]) == 2


def test_check_warns_of_what_is_well_written_but_will_not_work(shown: Callable[..., str]) -> None:
    write("mcp.json", {"a": {"command": "${UNSET_COMMAND}", "fallback": ["nobody"]}})
    text = shown("config", "check")
    assert "warning: ./mcp.json:" in text
    assert "UNSET_COMMAND" in text
    assert "the fallback `nobody` of server `a`" in text
    assert text.endswith("0 errors, 2 warnings\n")
    assert shown("config", "check", "--strict", code=3) == text
    warnings = json.loads(shown("config", "check", "--json"))["warnings"]
    assert [warning["code"] for warning in warnings] == ["config.missing_variable", "config"]


def test_check_warns_of_variables_that_only_a_login_needs(shown: Callable[..., str]) -> None:
    auth = {"client_id": "${UNSET_ID}", "issuer": "https://login.example"}
    write("mcp.json", {"a": {"type": "http", "url": "https://${UNSET_HOST}/mcp", "auth": auth}})
    text = shown("config", "check")
    assert "the variable `UNSET_HOST` has no value; `url` of server `a` needs it" in text
    assert "the variable `UNSET_ID` has no value; `auth.client_id` of server `a` needs it" in text


def test_a_named_file_that_is_absent_is_a_problem(shown: Callable[..., str]) -> None:
    text = shown("config", "check", "--config", "nowhere.json", code=3)
    assert text.startswith("error: ./nowhere.json: file not found")


def test_paths_lists_the_places_strongest_first_with_what_was_found(
    home: Path, shown: Callable[..., str]
) -> None:
    write(".mcp.json", {"a": {"command": "x"}, "b": {"command": "y"}})
    Path("dragoman.toml").write_text("oops", "utf-8")
    rows = [line.split() for line in shown("config", "paths").splitlines()]
    assert rows == [
        ["absent", "./mcp.json", "project"],
        ["loaded", "./.mcp.json", "project", "2", "servers"],
        ["broken", "./dragoman.toml", "project"],
        ["absent", "~/.config/dragoman/mcp.json", "user"],
        ["absent", "~/.config/dragoman/dragoman.toml", "user"],
        ["absent", "~/.config/dragoman/config.toml", "user"],
    ]


def test_paths_json_and_a_named_file_that_hides_the_others(
    shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("mcp.json", {"a": {"command": "x"}})
    write("named.json", {"n": {"command": "x"}})
    monkeypatch.setenv("DRAGOMAN_MCP_CONFIG", "named.json")
    places = json.loads(shown("config", "paths", "--json"))
    assert set(places[0]) == {"path", "scope", "dialect", "status", "servers"}
    found = [
        (Path(place["path"]).name, place["scope"], place["status"], place["servers"]) for place in places[:3]
    ]
    assert found == [
        ("named.json", "session", "loaded", 1),
        ("mcp.json", "project", "hidden", 0),
        (".mcp.json", "project", "absent", 0),
    ]


def test_another_profile_is_read_from_its_own_places(home: Path, shown: Callable[..., str]) -> None:
    write("mcp.json", {"ours": {"command": "x"}})
    write(home / ".kode.json", {"theirs": {"type": "stdio", "command": "y", "args": []}})
    document = json.loads(shown("--profile", "kode", "config", "show", "--json"))
    assert document["profile"] == "kode"
    assert [server["name"] for server in document["servers"]] == ["theirs"]


def test_an_unknown_profile_is_an_error_that_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "paths", "--profile", "nobody"]) == 3
    error = capsys.readouterr().err
    assert "nobody" in error
    assert "excelmanus" in error
