"""The library's page of the site says what the sources say, and leaves no public name out."""

from __future__ import annotations

import re

import pytest
from scripts import draw_api

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
