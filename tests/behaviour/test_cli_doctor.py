"""`dragoman doctor` on servers that fail in every way: the stage, the cause, and what to do."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from tests.unit.cli.program import configure, dragoman, entry, misfits
from tests.unit.cli.terminal import at_terminal

from dragoman.cli.commands.doctor import DoctorReport

HEALTHY = ["config", "variables", "command", "start", "handshake", "listing", "schemas", "probe"]


def diagnoses(*names: str, code: int, **environment: str) -> dict[str, Any]:
    done = dragoman("doctor", *names, "--json", "--timeout", "6", **environment)
    assert done.returncode == code, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert misfits(report, DoctorReport) == []
    return {one["name"]: one for one in report["servers"]}


def test_a_healthy_server_passes_every_stage() -> None:
    configure(good=entry("official.py", "stdio"), plain=entry("plain.py"))
    found = diagnoses(code=0)
    assert [stage["stage"] for stage in found["good"]["stages"]] == HEALTHY
    assert {stage["outcome"] for stage in found["good"]["stages"]} == {"ok"}
    assert found["good"]["cause"] is None
    schemas = found["plain"]["stages"][6]
    assert (schemas["outcome"], "bad-schema" in schemas["detail"]) == ("warning", True)


def test_each_ill_server_has_its_stage_its_cause_and_a_hint() -> None:
    old = Path("old.py")
    old.write_text("from mcp.server.nowhere import FastMCP\n", "utf-8")
    configure(
        good=entry("plain.py"),
        typo={"command": "pythonn3"},
        split={"command": "npx -y thing"},
        nodeless={"command": "npx", "args": ["-y", "x"], "env": {"PATH": "/nowhere"}},
        unset=entry("plain.py", env={"A": "${SURELY_NOT_SET}"}),
        homeless=entry("plain.py", cwd="/no/such/folder"),
        dying=entry("dying.py"),
        locked=entry("unlisted.py", "refuse"),
        old={"command": sys.executable, "args": [str(old.absolute())]},
        mute=entry("mute.py"),
    )
    found = diagnoses(code=1)
    assert found["good"]["ok"]
    for name, stage, hint in (
        ("typo", "command", "Did you mean"),
        ("split", "command", """`dragoman set split command=npx args='["-y", "thing"]'`"""),
        ("nodeless", "command", "Node.js"),
        ("unset", "variables", "SURELY_NOT_SET"),
        ("homeless", "command", "`cwd`"),
        ("dying", "handshake", "Run it yourself to see its full output: `"),
        ("locked", "listing", "cannot list"),
        ("old", "handshake", "mcp<2"),
        ("mute", "handshake", "over stdio"),
    ):
        one = found[name]
        last = one["stages"][-1]
        assert (name, last["stage"], last["outcome"]) == (name, stage, "failed")
        assert any(hint in text for text in one["hints"]), one["hints"]
        assert one["cause"]["message"], name
    assert (found["dying"]["exit_code"], found["dying"]["stderr"]) == (3, ["license file missing"])
    assert found["unset"]["cause"]["code"] == "config.missing_variable"


def test_each_ill_address_has_its_stage_and_a_hint(faults: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
    configure(
        good={"type": "http", "url": f"{faults}/sound"},
        closed={"type": "http", "url": f"http://127.0.0.1:{closed}/mcp"},
        nowhere={"type": "http", "url": "http://nowhere.invalid/mcp"},
        page={"type": "http", "url": f"{faults}/all-html"},
        moved={"type": "http", "url": f"{faults}/all-404"},
        token={"type": "http", "url": f"{faults}/login", "headers": {"Authorization": "Bearer wrong"}},
        wrong={"type": "sse", "url": f"{faults}/sound"},
        tls={"type": "http", "url": f"{faults.replace('http:', 'https:')}/sound"},
        guessed={"url": f"{faults}/sound"},
    )
    found = diagnoses(code=1)
    assert found["good"]["ok"]
    assert found["guessed"]["ok"]
    assert [stage["stage"] for stage in found["good"]["stages"]][2:4] == ["address", "connect"]
    for name, stage, hint in (
        ("closed", "connect", "Nothing listens"),
        ("nowhere", "address", "Host not found"),
        ("page", "handshake", "An MCP server answers at"),
        ("moved", "handshake", "/mcp"),
        ("token", "handshake", "the token is wrong"),
        ("wrong", "handshake", "`dragoman set wrong transport=http`"),
        ("tls", "connect", "http://"),
    ):
        one = found[name]
        assert (name, one["stages"][-1]["stage"]) == (name, stage)
        assert any(hint in text for text in one["hints"]), one["hints"]
    assert diagnoses("token", code=5)["token"]["cause"]["code"] == "server.auth_required"


def test_a_proxy_that_is_closed_is_named() -> None:
    configure(far={"type": "http", "url": "http://server.invalid/mcp"})
    found = diagnoses(code=4, http_proxy="http://127.0.0.1:9")["far"]
    assert found["stages"][-1]["stage"] == "connect"
    assert any("NO_PROXY" in hint for hint in found["hints"])


def test_a_projects_server_is_not_started_before_it_is_approved() -> None:
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"sound": entry("faulty.py", "sound")}}), "utf-8")
    found = diagnoses(code=8)["sound"]
    assert found["stages"][-1]["stage"] == "approval"
    assert not Path("sound.log").exists()
    assert dragoman("trust", "approve", "sound", "--yes").returncode == 0
    assert diagnoses(code=0)["sound"]["ok"]


def test_secrets_in_stderr_are_masked() -> None:
    script = Path("leak.py")
    script.write_text("import os, sys\nsys.exit('key ' + os.environ['API_TOKEN'])\n", "utf-8")
    configure(
        leak={
            "command": sys.executable,
            "args": [str(script.absolute())],
            "env": {"API_TOKEN": "${SECRET_X}"},
        }
    )
    done = dragoman("doctor", SECRET_X="hunter2-hunter2")
    assert done.returncode == 4
    assert "hunter2" not in done.stdout + done.stderr
    assert "Last stderr lines:" in done.stdout


def test_problems_of_files_count_and_a_server_that_is_off_is_checked_if_named() -> None:
    path = configure(off=entry("plain.py", enabled=False))
    assert diagnoses("off", code=0)["off"]["ok"]
    path.write_text('{"mcpServers": {"x": {"command": 3}}}', "utf-8")
    done = dragoman("doctor", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["problems"]
    assert os.environ["HOME"]


def test_what_the_doctor_advises_is_written_after_a_look_at_the_diff() -> None:
    path = configure(
        spaced={"command": "no-such-program -y foo"},
        needy={"command": "sh", "args": ["-c", "echo 'Error: API_TOKEN is not set' >&2; exit 1"]},
    )
    before = path.read_text("utf-8")
    done = dragoman("doctor", "--fix", "spaced")
    assert """`dragoman set spaced command=no-such-program args='["-y", "foo"]'`""" in done.stdout
    assert "Fix for `spaced`:" in done.stdout
    assert "dragoman doctor --fix --yes spaced" in done.stderr
    assert path.read_text("utf-8") == before

    with at_terminal("doctor", "--fix", "needy") as person:
        person.wait_until(lambda: person.current == "env.API_TOKEN of `needy`:")
        person.type("pa55word\r")
        person.wait_until(lambda: person.current == "Write it? [y/N]:")
        assert '"API_TOKEN": "•••"' in person.text
        assert "pa55word" not in person.text
        person.type("y\r")
        assert person.wait_for_end() == 4
    assert json.loads(path.read_text("utf-8"))["mcpServers"]["needy"]["env"] == {"API_TOKEN": "pa55word"}

    told = json.loads(dragoman("doctor", "--fix", "--yes", "--json", "spaced").stdout)
    assert misfits(told, DoctorReport) == []
    assert [(one["server"], one["written"]) for one in told["fixes"]] == [("spaced", True)]
    written = json.loads(path.read_text("utf-8"))["mcpServers"]["spaced"]
    assert (written["command"], written["args"]) == ("no-such-program", ["-y", "foo"])
