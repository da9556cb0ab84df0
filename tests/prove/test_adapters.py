"""Each adapter inside its framework: a real agent runs, with a scripted model and a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.environment import create, fingerprint, install_lock, is_current, python_in, write_stamp

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements/adapters/frameworks.txt"
AGENTS = Path(__file__).with_name("adapters")
SERVER = ROOT / "tests/servers/plain.py"


@pytest.fixture(scope="module")
def frameworks() -> Path:
    """The interpreter of an environment that has the frameworks and what dragoman needs, from the lock."""
    environment = ROOT / ".cache" / "adapters"
    stamp = fingerprint(LOCK)
    if not is_current(environment, "lock", stamp):
        create(environment)
        install_lock(environment, LOCK)
        write_stamp(environment, "lock", stamp)
    return python_in(environment)


def run(python: Path, program: Path | str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )


def lines_of(python: Path, name: str) -> list[str]:
    done = run(python, AGENTS / f"{name}_agent.py", SERVER)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


UNFIT = "invalid arguments for `mcp_plain_echo` (nothing was sent): `text`: expected a string, got 3"


def test_a_langchain_agent_calls_remote_and_local_tools_and_reads_their_failures(frameworks: Path) -> None:
    offered, *answers = lines_of(frameworks, "langchain")
    assert {"mcp_plain_echo", "configure"} < set(offered.split())
    assert "mcp_plain_exit" not in offered
    assert answers == [
        "mcp_plain_echo success hello",
        f"mcp_plain_echo error {UNFIT}",
        "mcp_plain_fail error the disk is full",
        "configure success a 2 me",
        "image ['text', 'image'] image/png",
        "thread from a thread",
        "loop DragomanError",
        "blocking no loop at all",
        "blocking a loop beside",
    ]


def test_a_pydantic_ai_agent_has_the_tools_of_each_moment(frameworks: Path) -> None:
    offered, *answers = lines_of(frameworks, "pydantic_ai")
    assert "mcp_plain_echo" in offered.split()
    assert "mcp_plain_exit" not in offered
    assert "late" not in offered.split()
    assert answers == [
        "mcp_plain_echo success hello",
        f"mcp_plain_echo retried {UNFIT}",
        "mcp_plain_fail failed the disk is full",
        "mcp_plain_image success ['text', 'image/png']",
        "late success late, but now",
        'test model {"mcp_plain_echo":"a"}',
    ]


def test_an_agent_of_openais_sdk_goes_on_whatever_becomes_of_a_call(frameworks: Path) -> None:
    offered, *answers = lines_of(frameworks, "openai_agents")
    assert {"mcp_plain_echo", "double"} < set(offered.split())
    assert "mcp_plain_exit" not in offered
    assert answers[:-2] == [
        "hello",
        UNFIT,
        "the disk is full",
        "['input_text', 'input_image']",
        "42",
    ]
    assert answers[-2].startswith("`double` was not called: its arguments are not valid JSON")
    assert answers[-1] == "done"


@pytest.mark.parametrize("adapter", ["langchain", "pydantic_ai", "openai_agents"])
def test_an_adapter_without_its_framework_says_what_to_install(adapter: str) -> None:
    done = run(Path(sys.executable), "-c", f"import dragoman.adapters.{adapter}")
    extra = adapter.replace("_", "-")
    assert f"install `dragoman[{extra}]`" in done.stderr


@pytest.mark.parametrize("adapter", ["langchain", "pydantic_ai", "openai_agents"])
def test_an_adapter_imports_no_other_framework(adapter: str, frameworks: Path) -> None:
    packages = {"langchain": "langchain_core", "pydantic_ai": "pydantic_ai", "openai_agents": "agents"}
    script = f"import sys, dragoman.adapters.{adapter}\nprint(*sys.modules)"
    done = run(frameworks, "-c", script)
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in done.stdout.split()} & set(packages.values())
    assert loaded == {packages[adapter]}


@pytest.mark.parametrize("block", range(3))
def test_every_example_of_the_page_runs_as_it_stands(block: int, frameworks: Path, tmp_path: Path) -> None:
    from tests.docs.test_readme import blocks

    example = blocks("python", (ROOT / "docs/adapters.md").read_text("utf-8"))[block]
    (tmp_path / "example.py").write_text(example, "utf-8")
    done = run(frameworks, tmp_path / "example.py")
    assert done.returncode == 0, done.stderr
    assert "Art. 4" in done.stdout


def test_the_lock_pins_every_package_with_hashes_and_no_address() -> None:
    text = LOCK.read_text("utf-8")
    assert "://" not in text
    assert text.count("==") <= text.count("--hash=sha256:")
