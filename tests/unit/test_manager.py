from __future__ import annotations

import pytest

from dragoman.errors import UnknownServerError
from dragoman.manager import McpManager
from dragoman.model import Http, ServerSpec, ServerState, Settings
from dragoman.tools.registry import ToolRegistry

SPEC = ServerSpec("law", Http("http://127.0.0.1:9/mcp"))


async def test_observing_starts_nothing() -> None:
    mcp = McpManager(Settings(servers=[SPEC]))
    assert mcp.status()["law"].state is ServerState.IDLE
    assert mcp.status()["law"].transport == "http"
    assert mcp.tools() == []


async def test_given_registry_is_the_one_in_use_even_if_it_is_empty() -> None:
    registry = ToolRegistry()
    assert McpManager([], registry=registry).registry is registry


async def test_unknown_server_is_named_with_those_there_are() -> None:
    async with McpManager([ServerSpec("law", SPEC.transport, enabled=False)]) as mcp:
        with pytest.raises(UnknownServerError, match="there are: `law`") as caught:
            await mcp.restart("laws")
    assert caught.value.suggestions == ("law",)


async def test_trust_in_the_project_is_kept_for_whoever_asks() -> None:
    assert McpManager([], trust_project=True).trust_project
    assert not McpManager([]).trust_project
