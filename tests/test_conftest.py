"""The checks that conftest.py makes after each test really catch what they are there for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

LEAKY = """
import asyncio, os, subprocess, sys
from pathlib import Path
from hypothesis import given, strategies

KEPT = []

def test_leaves_a_process():
    KEPT.append(subprocess.Popen(["sleep", "100"]))

def test_leaves_a_grandchild():
    script = "import subprocess; subprocess.Popen(['sleep', '100'], start_new_session=True)"
    subprocess.run([sys.executable, "-c", script], check=True)

def test_leaves_a_zombie():
    if not (pid := os.fork()):
        os._exit(0)

def test_leaves_a_descriptor():
    os.open(os.devnull, os.O_RDONLY)

async def test_leaves_a_task():
    asyncio.create_task(asyncio.Event().wait(), name="left")

async def test_clean_async():
    process = await asyncio.create_subprocess_exec("sleep", "100")
    process.kill()
    await process.wait()

def test_clean():
    assert "OPENAI_API_KEY" not in os.environ
    assert Path.home().name.startswith("home")
    assert not list(Path.home().iterdir())
    assert not list(Path.cwd().iterdir())

@given(strategies.integers())
def test_clean_property(number):
    assert number == number
"""


def test_whatever_a_test_leaves_behind_is_an_error(tmp_path: Path) -> None:
    here = Path(__file__).resolve().parent
    shutil.copy(here / "conftest.py", tmp_path / "conftest.py")
    shutil.copy(here.parent / "pyproject.toml", tmp_path / "pyproject.toml")
    (tmp_path / "test_leaky.py").write_text(LEAKY, "utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rEf",
            "--tb=line",
            "-p",
            "no:cacheprovider",
            "test_leaky.py",
        ],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OPENAI_API_KEY": "key"},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = {
        line.split("::")[1].split()[0] for line in done.stdout.splitlines() if line.startswith("ERROR ")
    }
    assert errors == {
        "test_leaves_a_process",
        "test_leaves_a_grandchild",
        "test_leaves_a_zombie",
        "test_leaves_a_descriptor",
        "test_leaves_a_task",
    }, done.stdout
    assert "8 passed, 5 errors" in done.stdout
