"""What `dragoman doctor` makes of servers that say much, nothing, or have nothing to offer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.unit.cli.program import SERVERS, configure, dragoman, dragoman_process, entry

HELP = """import sys
print("Error: no access token, pass --token or set WATCHER_TOKEN", file=sys.stderr)
for number in range(60):
    print(f"  --option-{number}  does something", file=sys.stderr)
sys.exit(1)
"""


def diagnosis(name: str, *, code: int) -> dict[str, Any]:
    done = dragoman("doctor", name, "--json", "--timeout", "20")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)["servers"][0]


def test_a_reason_before_a_long_help_text_is_found() -> None:
    script = Path("helpful.py")
    script.write_text(HELP, "utf-8")
    configure(helpful={"command": sys.executable, "args": [str(script.absolute())]})
    found = diagnosis("helpful", code=4)
    assert "It needs the variable `WATCHER_TOKEN`" in found["hints"][0]
    assert len(found["stderr"]) == 20
    assert found["stderr"][-1].startswith("  --option-59")


def test_a_server_without_anything_works_and_is_told_of() -> None:
    configure(empty=entry("empty.py"), full=entry("plain.py"))
    found = diagnosis("empty", code=0)
    assert found["ok"]
    assert [hint for hint in found["hints"] if "has no tools and no prompts" in hint]
    assert diagnosis("full", code=0)["hints"] == []


def test_a_program_that_is_not_in_a_directory_is_looked_for_there_alone() -> None:
    folder = Path("bin")
    folder.mkdir()
    (folder / "mcp-server").touch()
    configure(
        near={"command": str(folder.absolute() / "mcp-serve")},
        far={"command": str(folder.absolute() / "mcp")},
    )
    (meant, *_) = diagnosis("near", code=4)["hints"]
    assert meant == f"Did you mean `mcp-server`? `dragoman set near command={folder.absolute()}/mcp-server`"
    assert not any("Did you mean" in hint for hint in diagnosis("far", code=4)["hints"])


def test_what_failed_before_is_told_without_the_servers_name_again() -> None:
    with subprocess.Popen(
        [sys.executable, str(SERVERS / "http_faults.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip().rstrip("/")
        configure(lost={"url": f"{address}/all-404"})
        found = diagnosis("lost", code=4)
        process.stdin.close()
    detail = found["stages"][-1]["detail"]
    assert "; before that (" in detail
    assert "cannot connect to server" not in detail


def test_its_log_does_not_disturb_the_progress() -> None:
    done = dragoman_process("doctor", "--", sys.executable, "-c", "print('hello'); raise SystemExit(1)")
    assert done.returncode == 4
    assert "unusable message" not in done.stderr
