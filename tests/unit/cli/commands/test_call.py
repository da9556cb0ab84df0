"""What `dragoman call` says before anything is sent; real runs are in `behaviour/test_cli_calling.py`."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.cli.commands.call import _Given
from dragoman.errors import InvalidArgumentsError
from dragoman.model import ToolDef


def test_a_page_about_a_missing_argument_is_cut_in_the_error() -> None:
    properties = {"a": {"type": "string", "description": "d" * 500}}
    schema = {"type": "object", "properties": properties, "required": ["a"]}
    tool = ToolDef(name="mcp_s_t", original_name="t", server="s", description="", input_schema=schema)
    with pytest.raises(InvalidArgumentsError) as caught:
        asyncio.run(_Given([], None, as_json=True).ask(tool))
    assert "`a: str` – ddd" in str(caught.value)
    assert len(str(caught.value)) < 200
