"""The blocking classes are those that scripts/write_blocking.py makes of the async ones."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "write_blocking.py"


@pytest.fixture(scope="module")
def writing() -> Any:
    spec = importlib.util.spec_from_file_location("write_blocking", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_files_are_what_the_async_classes_say() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def written(writing: Any, code: str, module: str = "dragoman.manager.tasks") -> str:
    """Return what is written for a method of a class in `module`."""
    (method,) = ast.parse(code).body
    writer = writing.Writer(writing.PAGES[1])
    text = writing.HEAD.format(says="x") + f"class X:\n{writer.method(module, method)}"
    return writing.formatted(text, ROOT / "src/dragoman/blocking/facets.py").partition("class X:\n")[2]


def test_an_awaited_method_runs_on_the_loop(writing: Any) -> None:
    code = '''
async def pause(self, task: Task, *, seconds: float = 1.0) -> ToolResult:
    """Pause it; then `await mcp.call(…)`."""
'''
    assert written(writing, code) == (
        "    def pause(self, task: Task, *, seconds: float = 1.0) -> ToolResult:\n"
        '        """Pause it; then `mcp.call(…)`."""\n'
        "        return self._runner.run(lambda: self._async.pause(task, seconds=seconds))\n"
    )


def test_a_plain_method_reads_on_the_loop(writing: Any) -> None:
    assert written(writing, "def count(self) -> int: ...") == (
        "    def count(self) -> int:\n        return self._runner.read(self._async.count)\n"
    )


def test_a_function_that_may_wait_gets_a_thread(writing: Any) -> None:
    code = "async def ask(self, paste: Callable[[], Awaitable[str]] | None = None) -> None: ..."
    assert written(writing, code, "dragoman.manager.logins") == (
        "    def ask(self, paste: Callable[[], str] | None = None) -> None:\n"
        "        self._runner.run(lambda: self._async.ask(paste and in_thread(paste)))\n"
    )
