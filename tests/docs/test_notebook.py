"""docs/how-to/notebook.md: its cells share their names and a running loop, and `await` at their top, as in IPython."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
from typing import Any

from tests.docs.pages import ROOT, all_blocks
from tests.docs.running import difference, matches

PAGE = (ROOT / "docs/how-to/notebook.md").read_text("utf-8")


async def run_cell(code: str, names: dict[str, Any]) -> str:
    """Run a cell the way IPython does where a loop is running already, and return what it prints."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        waiting = eval(compile(code, "cell", "exec", flags), names)
        if inspect.isawaitable(waiting):
            await waiting
    return printed.getvalue()


async def test_the_cells_run_one_after_the_other() -> None:
    names: dict[str, Any] = {}
    printed = ""
    for block in all_blocks(PAGE):
        if block.language == "python":
            printed = await run_cell(block.text, names)
        else:
            assert block.language == "text"
            assert matches(block.text, printed), difference(block.text, printed)
    assert names["answer"].steps == 2
