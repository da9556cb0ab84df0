"""docs/api.md says what the sources say, and leaves no public name out."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from tests.docs.pages import PAGES, ROOT, blocks

import dragoman
import dragoman.agent
import dragoman.testing

PAGE = (ROOT / "docs/api.md").read_text("utf-8")


def test_the_page_is_what_the_sources_say() -> None:
    script = ROOT / "scripts/draw_api.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", [dragoman, dragoman.agent, dragoman.testing], ids=lambda one: one.__name__)
def test_every_public_name_is_there(module: object) -> None:
    names = [name for name in getattr(module, "__all__", []) if not name.startswith("_")]
    assert names
    assert [name for name in names if f"### `{name}`\n" not in PAGE and f"| `{name}` | `" not in PAGE] == []


def test_every_name_that_a_page_imports_is_there() -> None:
    missing: set[str] = set()
    for page in (ROOT / "README.md", *PAGES):
        for block in blocks("python", page.read_text("utf-8")):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dragoman":
                    missing |= {
                        f"{page.name}: from {node.module} import {one.name}"
                        for one in node.names
                        if f"### `{one.name}`\n" not in PAGE and f"| `{one.name}` | `" not in PAGE
                    }
    assert missing == set()
