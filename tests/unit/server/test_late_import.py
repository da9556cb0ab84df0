from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from dragoman.server.late_import import DeferredPackage, defer_package, is_loaded, late_import_module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

CIRCLE = """
import late_circle_gate
late_circle_gate.entered.append("{here}")
late_circle_gate.together.wait(0.2)
import late_circle_{there}
"""


async def test_modules_that_import_each_other_are_imported_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = "import threading\nentered = []\ntogether = threading.Event()\n"
    (tmp_path / "late_circle_gate.py").write_text(gate, "utf-8")
    for here, there in (("a", "b"), ("b", "a")):
        text = CIRCLE.format(here=here, there=there)
        (tmp_path / f"late_circle_{here}.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    names = ["late_circle_a", "late_circle_b"] * 3
    found = await asyncio.gather(*map(late_import_module, names))
    assert [module.__name__ for module in found] == names
    assert sorted(sys.modules["late_circle_gate"].entered) == ["a", "b"]
    assert is_loaded("late_circle_a")
    assert not is_loaded("late_circle_gate")


async def test_module_that_cannot_be_imported_can_be_asked_for_again() -> None:
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError):
            await late_import_module("no_such_module_at_all")
    assert not is_loaded("no_such_module_at_all")


# ── Packages that run their `__init__.py` when a name of it is used


SESSION = """
import asyncio, sys
from dragoman.server.late_import import late_import_module

asyncio.run(late_import_module("dragoman.server.protocol.sdk"))
print(*sorted({"starlette", "uvicorn", "httpx2", "mcp.server", "mcp.client.session"} & set(sys.modules)))
"""
OTHERS = """
import mcp
from mcp.client import Client
from mcp import *
import mcp.server.mcpserver

assert Client is mcp.Client is mcp.client.Client
assert ClientSession is mcp.client.session.ClientSession
assert type(mcp) is type(mcp.client) is type(sys)
assert not hasattr(mcp, "nonsense")
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_session_does_not_import_the_server_half_of_the_sdk() -> None:
    assert run(SESSION) == "mcp.client.session"


def test_another_user_of_the_sdk_in_the_process_notices_nothing() -> None:
    assert run(SESSION + OTHERS) == "mcp.client.session"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "late_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from late_package.part import seen, slow\n"
        "seen.append('begins')\nslow()\n__all__ = ['seen', 'value']\nvalue = 1\n",
        "utf-8",
    )
    (folder / "part.py").write_text("seen = []\ndef slow():\n    pass\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder.name
    for name in (folder.name, f"{folder.name}.part"):
        sys.modules.pop(name, None)


def test_package_runs_once_at_the_first_use_of_a_name(package: str) -> None:
    defer_package(package)
    found = import_module(package)
    part = import_module(f"{package}.part")
    assert found.part is part
    assert getattr(found, "__warningregistry__", None) is None
    assert isinstance(found, DeferredPackage)
    assert part.seen == []
    assert found.value == 1
    assert found.__all__ == ["seen", "value"]
    assert part.seen == ["begins"]
    assert not isinstance(found, DeferredPackage)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = found.nonsense


def test_other_threads_wait_until_the_package_has_run(package: str) -> None:
    defer_package(package)
    found, part = import_module(package), import_module(f"{package}.part")
    running, may_end = threading.Event(), threading.Event()

    def slow() -> None:
        running.set()
        assert may_end.wait(10)

    part.slow = slow
    values: list[int] = []
    threads = [threading.Thread(target=lambda: values.append(found.value)) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert running.wait(10)
    may_end.set()
    for thread in threads:
        thread.join(10)
    assert values == [1, 1, 1]
    assert part.seen == ["begins"]


def test_package_that_fails_can_be_tried_again(package: str) -> None:
    defer_package(package)
    found, part = import_module(package), import_module(f"{package}.part")

    def fail() -> None:
        raise OSError("no")

    part.slow, works = fail, part.slow
    with pytest.raises(OSError, match="no"):
        _ = found.value
    part.slow = works
    assert found.value == 1


def test_package_that_is_imported_already_stays_as_it_is(package: str) -> None:
    found = import_module(package)
    defer_package(package)
    defer_package("no_such_package_at_all")
    assert import_module(package) is found
    assert not isinstance(found, DeferredPackage)
