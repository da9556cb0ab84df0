"""Completion in the session: everything that can stand where the cursor is, with what it means."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from tests.warm import interpreter

from dragoman import McpManager, ServerSpec, Stdio
from dragoman.cli.session.line_editor import Listed, SlashCompleter
from dragoman.tools.local import tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@tool
def paint(colour: Literal["red", "blue"], tags: list[str], deep: bool = False) -> str:
    """Paint it.

    Args:
        colour: Which one.
        tags: Some words.
        deep: All of it.
    """
    return f"{colour}{tags}{deep}"


@pytest.fixture
async def completer() -> AsyncIterator[SlashCompleter]:
    studio = ServerSpec("studio", Stdio(interpreter(), ["-m", "dragoman.demo.studio", "--stdio"]))
    async with McpManager([studio]) as mcp:
        mcp.registry.register(paint)
        assert await mcp.wait_ready()
        listed = Listed(mcp)
        await listed.refresh()
        yield SlashCompleter(mcp, listed)


def proposed(completer: SlashCompleter, text: str) -> dict[str, str]:
    found = completer.get_completions(Document(text), CompleteEvent())
    return {text[: len(text) + one.start_position] + one.text: one.display_meta_text for one in found}


async def test_everything_is_completed_with_a_description(completer: SlashCompleter) -> None:
    def of(text: str) -> list[str]:
        return list(proposed(completer, text))

    assert of("/he") == ["/help"]
    assert proposed(completer, "/he")["/help"] == "[COMMAND] Show this list, or explain a command."
    assert of("/mcp re") == ["/mcp reload", "/mcp restart"]
    assert of("/mcp restart ") == ["/mcp restart studio"]
    assert proposed(completer, "/mcp logs s")["/mcp logs studio"] == "ready, stdio"
    assert of("/mcp login studio p") == ["/mcp login studio paste"]
    assert of("/call mcp_studio_gr") == ["/call mcp_studio_greet"]
    assert "/call mcp_studio_greet" in of("/call greet")
    assert of("/call mcp_studio_greet n") == ["/call mcp_studio_greet name="]
    assert proposed(completer, "/call greet n")["/call greet name="] == "str Whom to greet"
    assert of("/call paint c") == ["/call paint colour=", "/call paint colour=red", "/call paint colour=blue"]
    assert of("/call paint colour=b") == ["/call paint colour=blue"]
    assert of("/call paint colour=red co") == []
    assert "/call paint tags=a tags=" in of("/call paint tags=a t")
    assert of("/call paint deep=t") == ["/call paint deep=true"]
    assert proposed(completer, "/call paint deep")["/call paint deep="] == "bool, optional All of it."
    assert of("/call nothing x") == []
    assert of("/read studio") == ["/read studio://palette"]
    assert of("/read studio://palette s") == ["/read studio://palette studio"]
    assert of("/prompt ") == ["/prompt describe_colour"]
    assert of("/prompt describe_colour c") == ["/prompt describe_colour colour="]
    assert of("/prompts ") == ["/prompts studio"]
    assert of("/help sa") == ["/help save"]
    assert of("/quit ") == []
    assert of("what is /he") == []
    assert of("/call paint\nc") == []


async def test_lists_are_asked_for_again_when_a_server_comes_back() -> None:
    studio = ServerSpec("studio", Stdio(interpreter(), ["-m", "dragoman.demo.studio", "--stdio"]), lazy=True)
    changed = asyncio.Event()
    async with McpManager([studio]) as mcp:
        listed = Listed(mcp)
        following = asyncio.create_task(listed.follow(changed.set))
        await asyncio.sleep(0)
        await mcp.restart("studio")
        while not listed.resources:
            changed.clear()
            await changed.wait()
        following.cancel()
        await asyncio.wait({following})
    assert [one.uri for one in listed.resources] == ["studio://palette"]
    assert [one.name for one in listed.prompts] == ["describe_colour"]
