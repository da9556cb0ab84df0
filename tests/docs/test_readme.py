"""The README's promises: every block of code in it is run, or loaded, as it stands."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Block, all_blocks, blocks
from tests.real.servers import NPM

from dragoman import Profile, Stdio
from dragoman.config.load import load
from dragoman.config.profiles import profile_named
from dragoman.model import Timeouts

README = (ROOT / "README.md").read_text("utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text("utf-8")
INTERACTIVE = {
    "dragoman chat",
    "dragoman top",
    "dragoman web",
    "dragoman serve",
    "dragoman map",
    "dragoman daemon",
}
"""Commands that run until they are stopped, or need more words: they have their own tests."""
PROGRAM = Path(sys.executable).with_name("dragoman")


def commands(text: str = README) -> list[str]:
    """Every command of the shell blocks, and every one that is quoted in a sentence."""
    lines = [line.partition(" #")[0].strip() for block in blocks("sh", text) for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return list(dict.fromkeys([*filter(None, lines), *re.findall(r"`((?:dragoman|make) [^`]+)`", prose)]))


def at_a_terminal(command: str, environment: dict[str, str]) -> tuple[int, str]:
    """Run a command as a person does who answers yes when asked; return its exit code and the screen."""
    controller, end = pty.openpty()
    process = subprocess.Popen(["/bin/sh", "-c", command], stdin=end, stdout=end, stderr=end, env=environment)
    os.close(end)
    seen = b""
    try:
        while select.select([controller], [], [], 30)[0]:
            seen += os.read(controller, 65536)
            if seen.rstrip().endswith(b"]:"):
                os.write(controller, b"y\n")
    except OSError:  # on Linux the end of a terminal is an error
        pass
    finally:
        os.close(controller)
    return process.wait(), seen.decode("utf-8", "replace")


def test_every_block_is_of_a_language_that_is_checked_here() -> None:
    languages = re.findall(r"^```(\w*)\n(?=.*?^```$)", README, re.DOTALL | re.MULTILINE)
    assert {language for language in languages if language} == {"sh", "python", "toml"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in which `npx` finds the packages that the tests install, so that it needs no network."""
    shutil.copy(NPM / "package.json", tmp_path)
    (tmp_path / "node_modules").symlink_to(NPM / "node_modules")
    (tmp_path / "README.md").write_text("This is what the example reads.\n", "utf-8")
    return tmp_path


def test_the_python_example_runs_as_it_stands(project: Path) -> None:
    (example,) = blocks("python", README)
    (project / "example.py").write_text(example, "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "example.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=project,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"1\d tools; This is what the example reads\.\n", done.stdout)


def test_the_configuration_loads_without_a_problem_and_is_the_server_it_shows() -> None:
    (block,) = blocks("toml", README)
    Path("dragoman.toml").write_text(block, "utf-8")
    settings = load()
    assert settings.problems == []
    (spec,) = settings.servers
    assert spec.name == "files"
    assert spec.notes == ()
    assert spec.extras == {}
    assert spec.transport == Stdio(
        "npx", ["-y", "@modelcontextprotocol/server-filesystem", "."], env={"TOKEN": "${FILES_TOKEN:-none}"}
    )
    assert spec.timeouts == Timeouts(call=10.0)
    assert len(block.strip().splitlines()) == 5


@pytest.mark.parametrize("command", [command for command in commands() if command.startswith("make ")])
def test_every_make_target_exists(command: str) -> None:
    _, target, *variables = command.split()
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE), "the target has no line in `make help`"
    done = subprocess.run(["make", "-n", target, *variables], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_of_the_program_runs_in_a_fresh_home_one_after_the_other(home: Path) -> None:
    (home / "notes").mkdir()
    listed = [one for one in commands() if one.startswith("dragoman ") and one not in INTERACTIVE]
    assert len(listed) >= 5
    environment = os.environ | {"PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"}
    for command in listed:
        code, screen = at_a_terminal(command, environment)
        assert code == 0, f"{command}: {screen}"
        assert ("[y/N]" in screen or "[Y/n]" in screen) == command.startswith("dragoman add "), screen
    (spec,) = load().servers
    assert (spec.name, spec.kind) == ("filesystem", "stdio")
    assert isinstance(spec.transport, Stdio)
    assert spec.transport.args[-1] == str(home / "notes")


def test_the_commands_are_spelled_as_the_program_spells_them() -> None:
    for command in commands():
        words = shlex.split(command)
        if words[0] == "dragoman" and len(words) > 1 and words[1] != "--profile":
            done = subprocess.run([PROGRAM, words[1], "--help"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, command
            assert "Usage: dragoman " in done.stdout


def test_the_profiles_it_names_exist() -> None:
    sentence = re.search(r"Built in are ([^;]+);", README)
    assert sentence is not None
    names = re.findall(r"`([\w-]+)`", sentence[1])
    assert len(names) == 5
    assert [profile_named(name).app for name in names] == names
    assert Profile(app="myagent").config_variable() == "MYAGENT_MCP_CONFIG"


def _without_comments(block: Block) -> list[str]:
    """Return the lines of a block without their comments, which the Chinese page has in Chinese."""
    return [line.partition("  #")[0].rstrip() for line in block.text.splitlines()]


def test_the_chinese_readme_has_the_same_blocks_and_links() -> None:
    english, chinese = (
        [_without_comments(block) for block in all_blocks(text)] for text in (README, CHINESE)
    )
    assert chinese == english
    english, chinese = (re.findall(r"\]\(([^)]+)\)", text) for text in (README, CHINESE))
    assert english[0] == "README.zh-CN.md"
    assert chinese[0] == "README.md"
    # A page that exists in Chinese is the one that the Chinese page leads to.
    assert [link.replace(".zh-CN.md", ".md") for link in chinese[1:]] == english[1:]
    assert all(
        (link.endswith(".md") and (ROOT / link.replace(".md", ".zh-CN.md")).exists()) == (".zh-CN" in theirs)
        for link, theirs in zip(english[1:], chinese[1:], strict=True)
    )
    assert set(commands(CHINESE)) == set(commands(README))
    assert re.findall(r"^#+ ", CHINESE, re.MULTILINE) == re.findall(r"^#+ ", README, re.MULTILINE)


def _table(text: str) -> list[list[str]]:
    """Return the cells of the first table."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip(" *") for cell in row.split("|")[1:-1]] for row in rows]


MEASURED = {
    "new process to the tools of 5 servers": "5 servers, from a new process",
    "CPU of a call, stdio": "stdio, alone: CPU",
    "CPU of a call, HTTP, 32 at once": "HTTP, 32 at once: CPU",
    "memory, 20 servers over stdio": "stdio: RSS",
}
"""The columns of docs/performance.md that rows of the comparison come from; the other rows are its `Failures`."""
FAILURES = {
    "works again after `kill -9` of a server": "works again after `kill -9`",
    "one dead server among five: the others": "one dead server among five: the other four",
    "left after a proper end, of 5 servers with a helper process each": (
        "processes left after a proper end, of 5 servers with a helper each"
    ),
}


def test_the_comparison_has_the_measured_figures() -> None:
    page = (ROOT / "docs/performance.md").read_text("utf-8")
    head, _, *rows = _table(README)
    names = [re.sub(r"(?:, mcp)? [\d.]+$", "", name).replace("-slim", "") for name in head[1:]]
    for name, version in zip(names, head[1:], strict=True):
        assert re.search(
            rf"^\| `?{re.escape(name)}`? \| [^|]*{re.escape(version.split()[-1])}", page, re.M
        ), name
    assert f"date: {_date(README)};" in page
    assert len(rows) == len(MEASURED) + len(FAILURES)
    for label, *cells in rows:
        for name, cell in zip(names, cells, strict=True):
            shown = (
                _measured(page, MEASURED[label], name) if label in MEASURED else _failure(page, label, name)
            )
            assert shown.startswith(cell), (label, name, shown)


def _date(text: str) -> str:
    found = re.search(r"Measured on (\d{4}-\d\d-\d\d)", text)
    assert found is not None
    return found[1]


def _measured(page: str, column: str, name: str) -> str:
    """Return a figure: the row of a client, in the table with this column."""
    (table,) = [part for part in re.split(r"\n\n", page) if part.startswith("|") and f"| {column} |" in part]
    head, _, *rows = _table(table)
    (row,) = [row for row in rows if row[0].strip("`") == name.strip("`")]
    return row[head.index(column)].strip("*").partition("<br>")[0].strip("*")


def _failure(page: str, label: str, name: str) -> str:
    head, _, *rows = _table(page.partition("\n## Failures\n")[2])
    (row,) = [row for row in rows if row[0] == FAILURES[label]]
    return row[[one.strip("`") for one in head].index(name.strip("`"))].strip("*")


def test_the_chinese_comparison_has_the_same_figures() -> None:
    figures = [[re.findall(r"[\d.]+", cell) for cell in row[1:]] for row in _table(README)]
    theirs = [[re.findall(r"[\d.]+", cell) for cell in row[1:]] for row in _table(CHINESE)]
    assert [[one[:1] for one in row] for row in figures] == [[one[:1] for one in row] for row in theirs]


def test_it_is_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) <= 130


def test_the_packaging_says_the_python_that_the_readme_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    oldest = re.search(r"Python (\d\.\d+) or newer", README)
    assert oldest is not None
    assert project["requires-python"] == f">={oldest[1]}"
    assert project["readme"] == "README.md"
