"""The library's page of the site says what the sources say, and leaves no public name out."""

from __future__ import annotations

import ast
import re

import pytest
from scripts import draw_api
from tests.docs.pages import PAGES, ROOT, blocks

import dragoman
import dragoman.agent
import dragoman.testing

PAGE = draw_api.page()


@pytest.mark.parametrize("module", [dragoman, dragoman.agent, dragoman.testing], ids=lambda one: one.__name__)
def test_every_public_name_is_there(module: object) -> None:
    names = [name for name in getattr(module, "__all__", []) if not name.startswith("_")]
    assert names
    assert [name for name in names if f"### `{name}`\n" not in PAGE and f"| `{name}` | `" not in PAGE] == []


def test_every_class_function_and_method_of_the_page_has_a_docstring() -> None:
    sections = re.split(r"^#{3,4} ", PAGE, flags=re.MULTILINE)[1:]
    told = {one.partition("\n")[0]: re.sub(r"```text\n.*?```", "", one, flags=re.DOTALL) for one in sections}
    assert len(told) > 100
    constants = re.findall(r"^### (`\w+`)\n\n```text\n\w+ = ", PAGE, re.MULTILINE)
    silent = {name for name, text in told.items() if not text.partition("\n")[2].strip()}
    assert silent - set(constants) == set()


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
