"""Shell completion: names from files and the cache, and never a server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.program import configure, dragoman, entry

from dragoman import ServerSpec, Stdio
from dragoman.storage.manifests import ManifestCache, default_folder
from dragoman.trust.masking import spec_key

LISTING: list[dict[str, Any]] = [
    {
        "name": "paint",
        "description": "Paint\nsomething.",
        "inputSchema": {
            "type": "object",
            "properties": {"colour": {"enum": ["red", "blue"]}, "size": {"type": "integer"}},
        },
    },
    {"name": "print", "inputSchema": {"type": "object"}},
]


@pytest.fixture
def known() -> None:
    """Configure a server that cannot be started, and remember what it offered."""
    configure(studio={"command": "/no/such/program"}, other=entry("plain.py"))
    spec = ServerSpec("studio", Stdio("/no/such/program"))
    assert ManifestCache(default_folder()).write(spec_key(spec, str(Path.cwd())), LISTING)


def completed(*words: str) -> list[str]:
    """Return what the program proposes for the last word, as fish asks for it."""
    environment = {
        **os.environ,
        "_DRAGOMAN_COMPLETE": "fish_complete",
        "COMP_WORDS": " ".join(["dragoman", *words]),
        "COMP_CWORD": words[-1],
    }
    done = subprocess.run(
        [Path(sys.executable).with_name("dragoman")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.stderr == ""
    return [line.partition(",")[2].partition("\t")[0] for line in done.stdout.splitlines() if "," in line]


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (["sta"], ["status"]),
        (["status", ""], ["studio", "other"]),
        (["status", "st"], ["studio"]),
        (["call", "mcp_"], ["mcp_studio_paint", "mcp_studio_print"]),
        (["call", "studio", "p"], ["paint", "print"]),
        (["call", "studio", "paint", ""], ["colour=", "colour=red", "colour=blue", "size="]),
        (["call", "mcp_studio_paint", "s"], ["size="]),
        (["call", "nobody", "paint", ""], []),
        (["tools", "--format", "an"], ["anthropic"]),
        (["trust", "a"], ["approve"]),
    ],
)
def test_words_are_proposed_without_starting_anything(words: list[str], proposed: list[str]) -> None:
    assert completed(*words) == proposed


def test_a_broken_file_proposes_nothing_and_says_nothing() -> None:
    configure().write_text("{", "utf-8")
    assert completed("status", "") == []


def test_the_configuration_that_the_line_names_is_read() -> None:
    Path("other.json").write_text('{"mcpServers": {"elsewhere": {"command": "x"}}}', "utf-8")
    assert completed("--config", "other.json", "status", "") == ["elsewhere"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_script_of_a_shell_calls_this_program(shell: str) -> None:
    done = dragoman("completion", shell)
    assert done.returncode == 0
    assert f"{'fish' if shell == 'powershell' else shell}_complete" in done.stdout
    assert "_DRAGOMAN_COMPLETE" in done.stdout


@pytest.mark.skipif(shutil.which("pwsh") is None, reason="PowerShell is not installed")
@pytest.mark.usefixtures("known")
def test_powershell_takes_the_script() -> None:
    script = dragoman("completion", "powershell").stdout
    ask = "(TabExpansion2 'dragoman status st' 18).CompletionMatches.CompletionText"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["pwsh", "-NoProfile", "-Command", f"{script}\n{ask}"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    assert done.stdout.split() == ["studio"], done.stderr


def test_bash_takes_the_script() -> None:
    script = dragoman("completion", "bash").stdout
    done = subprocess.run(
        ["bash", "-c", f"{script}\ncomplete -p dragoman"], capture_output=True, text=True, check=False
    )
    assert "_dragoman_completion" in done.stdout, done.stderr


@pytest.mark.usefixtures("known")
def test_known_tools_are_listed_without_importing_anything_heavy() -> None:
    script = "import sys\nfrom dragoman.cli.main import run\ncode = run(['tools', 'studio'])\nprint(*sys.modules, code)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *modules, code = done.stdout.splitlines()[-1].split()
    assert code == "0"
    loaded = {name.partition(".")[0] for name in modules}
    assert loaded & {"mcp", "mcp_types", "pydantic", "rich", "aiohttp", "prompt_toolkit"} == set()
    assert "  paint(" in done.stdout
