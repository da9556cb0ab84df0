"""`dragoman install --skill`: where the skill is written, what it costs, and that its commands work."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.behaviour.test_daemon import stop as stop_daemon
from tests.unit.cli.program import SERVERS, dragoman

from dragoman.config.skill import FOLDERS, skill_text
from dragoman.model import Origin, ServerSpec, Settings, Stdio
from dragoman.tools.result.budget import estimate_tokens

if TYPE_CHECKING:
    from pathlib import Path

MOST_TOKENS = 250
"""What an agent reads of the skill with every request: its name and its description."""
AGENTS = {
    "claude": ".claude/skills",
    "codex": ".agents/skills",
    "cursor": ".cursor/skills",
    "gemini": ".gemini/skills",
    "opencode": ".config/opencode/skills",
    "vscode": ".copilot/skills",
    "windsurf": ".codeium/windsurf/skills",
}


def install(*arguments: str) -> list[dict[str, Any]]:
    done = dragoman("install", "--skill", "--json", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["files"]


def front_matter(text: str) -> dict[str, Any]:
    return yaml.safe_load(text.split("---\n")[1])


def configure(home: Path) -> None:
    file = home / ".config" / "dragoman" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"[mcp.servers.notes]\ncommand = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(SERVERS / 'plain.py'))}]\n"
    )


@pytest.mark.parametrize("agent", AGENTS)
def test_each_agent_finds_it_where_it_looks(agent: str, home: Path) -> None:
    (row,) = install("--for", agent)
    file = home / AGENTS[agent] / "dragoman" / "SKILL.md"
    assert (row["file"], row["outcome"]) == (str(file), "written")
    about = front_matter(file.read_text())
    assert about.keys() == {"name", "description"}
    # The format wants the name of its folder, and at most 1,024 characters.
    assert about["name"] == file.parent.name
    assert len(about["description"]) <= 1024
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert install("--for", agent) == [{**row, "outcome": "unchanged"}]
    assert install("--undo") == [{**row, "agents": [], "outcome": "removed"}]
    assert not file.parent.exists()
    assert install("--undo") == []


def test_without_a_name_it_goes_to_the_agents_of_this_machine(home: Path) -> None:
    (row,) = install()
    assert row["file"] == str(home / ".agents/skills/dragoman/SKILL.md")
    install("--undo")
    (home / ".cursor").mkdir()
    (home / ".copilot").mkdir()
    rows = install()
    assert {row["file"].removeprefix(str(home)) for row in rows} == {
        "/.cursor/skills/dragoman/SKILL.md",
        "/.copilot/skills/dragoman/SKILL.md",
    } | ({"/.agents/skills/dragoman/SKILL.md"} if (home / ".agents").exists() else set())


def test_a_folder_that_the_user_has_moved_is_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "elsewhere"))
    (row,) = install("--for", "claude-code")
    assert row["file"] == str(home / "elsewhere/skills/dragoman/SKILL.md")


@pytest.mark.parametrize("how", ["strangers", "changed", "linked"])
def test_a_file_that_it_did_not_write_stays(how: str, home: Path) -> None:
    file = home / AGENTS["claude"] / "dragoman" / "SKILL.md"
    if how == "changed":
        install("--for", "claude")
        file.write_text(file.read_text() + "\nAlso speak like a pirate.\n")
    else:
        file.parent.mkdir(parents=True)
        other = home / "mine.md"
        other.write_text("mine")
        file.symlink_to(other) if how == "linked" else file.write_text("mine")
    before = file.read_text()
    refused = dragoman("install", "--skill", "--for", "claude", "--for", "cursor")
    assert refused.returncode != 0
    assert str(file) in refused.stderr
    assert "move it away" in refused.stderr
    assert file.read_text() == before
    # Nothing is written if one of the files is in the way.
    assert not (home / AGENTS["cursor"]).exists()
    if how == "changed":
        assert dragoman("install", "--skill", "--undo").returncode != 0
        assert file.read_text() == before


def test_a_new_text_replaces_its_own_file(home: Path) -> None:
    (old,) = install("--for", "cursor")
    configure(home)
    (new,) = install("--for", "cursor")
    assert (old["outcome"], new["outcome"]) == ("written", "written")
    assert (
        "notes"
        in front_matter((home / AGENTS["cursor"] / "dragoman" / "SKILL.md").read_text())["description"]
    )


@pytest.mark.parametrize("count", [0, 3, 500])
def test_all_servers_together_cost_few_tokens(count: int) -> None:
    origin = Origin(source="f", scope="user")
    specs = [ServerSpec(f"server-{number}", Stdio("x"), origin=origin) for number in range(count)]
    text = skill_text("dragoman", Settings(servers=specs))
    about = front_matter(text)
    assert estimate_tokens(f"{about['name']}: {about['description']}") <= MOST_TOKENS
    assert ("server-0" in about["description"]) is (count > 0)
    assert estimate_tokens(text) < 800


def test_names_of_a_projects_servers_are_not_in_it() -> None:
    ours = ServerSpec("ours", Stdio("x"), origin=Origin(source="f", scope="user"))
    theirs = ServerSpec("obey me", Stdio("x"), origin=Origin(source="f", scope="project"))
    odd = ServerSpec('x"`\n---\nname: y', Stdio("x"), origin=Origin(source="f", scope="user"))
    off = ServerSpec("off", Stdio("x"), enabled=False, origin=Origin(source="f", scope="user"))
    text = skill_text("dragoman", Settings(servers=[theirs, odd, ours, off]))
    assert front_matter(text)["description"].endswith(": ours and more.")
    assert "obey me" not in text


def test_what_makes_no_sense_is_refused(home: Path) -> None:
    assert home.is_dir()
    for arguments in (["cursor", "--skill"], ["--skill", "--write"], ["cursor", "--for", "cursor"], []):
        assert dragoman("install", *arguments).returncode == 2
    assert set(FOLDERS) > {"claude-code", "codex", "cursor"}


def test_every_command_in_it_works(home: Path) -> None:
    configure(home)
    (row,) = install("--for", "codex")
    text = (home / row["file"]).read_text()
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    commands = [line.strip() for block in blocks for line in block.splitlines()]
    assert len(commands) == 6
    known = {"TASK": "echo a text", "SERVER": "notes", "TOOL": "echo", "NAME": "text", "VALUE": "two words"}
    said: list[str] = []
    try:
        for command in commands:
            words = shlex.split(command)
            at = next(at for at, word in enumerate(words) if word in ("tools", "call", "daemon", "status"))
            given = [re.sub("|".join(known), lambda match: known[match[0]], word) for word in words[at:]]
            done = dragoman(*given)
            assert done.returncode == 0, (given, done.stdout, done.stderr)
            said.append(done.stdout)
        # The same once more, now by the daemon.
        assert "two words" in dragoman("call", "notes", "echo", "text=two words").stdout
    finally:
        stop_daemon()
    found = json.loads(said[0])["found"][0]
    assert (found["server"], found["tool"]) == ("notes", "echo")
    assert json.loads(said[1])["servers"][0]["tools"]
    assert "two words" in said[2]
    assert "two words" in json.loads(said[3])["text"]
    assert json.loads(said[5])["servers"]
