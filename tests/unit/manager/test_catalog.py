from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dragoman.manager.catalog import ToolCatalog
from dragoman.model import ServerSpec, Stdio, ToolResult
from dragoman.tools.registry import ToolRegistry
from dragoman.trust.gate import Gate

if TYPE_CHECKING:
    from dragoman.events import Event

SPEC = ServerSpec("s", Stdio("x"))
BAD = {"inputSchema": {"type": "nothing"}}


async def remote(name: str, arguments: object, *, timeout: float | None = None) -> ToolResult:
    return ToolResult(success=True, text=name)


@pytest.mark.requirement("excel-3.4", "otter-schema")
def test_every_unusable_tool_of_a_listing_is_named_in_a_warning_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[Event] = []
    registry = ToolRegistry()
    catalog = ToolCatalog(
        registry, None, gate=Gate(), publish=events.append, remote=remote, make_func=lambda *_: print
    )
    listing: list[dict[str, Any]] = [{"name": "a", **BAD}, {"name": "b"}, {"name": "c", **BAD}, {"name": "d"}]
    count = catalog.update(SPEC, listing, "mcp_{server}_{tool}", is_current=True, is_ready=True)
    assert count == 2
    assert [tool.name for tool in registry] == ["mcp_s_b", "mcp_s_d"]
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.partition(" is skipped")[0] for line in said] == ["s: tool `a`", "s: tool `c`"]


class Memory:
    """Remembers what it was given to keep."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def keep(self, spec: ServerSpec, listing: list[dict[str, Any]] | None) -> None:
        self.kept = [str(raw["name"]) for raw in listing or ()]


@pytest.mark.requirement("excel-3.4", "otter-schema", "legal-discovery.cache")
def test_unusable_tool_is_left_out_of_the_cache_and_the_others_are_kept() -> None:
    memory: Any = Memory()
    catalog = ToolCatalog(
        ToolRegistry(), memory, gate=Gate(), publish=print, remote=remote, make_func=lambda *_: print
    )
    listing: list[dict[str, Any]] = [{"name": "a", **BAD}, {"name": "b"}, {"name": "c"}]
    catalog.update(SPEC, listing, "{tool}", is_current=True, is_ready=True)
    assert memory.kept == ["b", "c"]


@pytest.mark.requirement("users-listing", "legal-discovery.cache")
def test_listing_that_has_become_private_is_no_longer_stored() -> None:
    memory: Any = Memory()
    catalog = ToolCatalog(
        ToolRegistry(), memory, gate=Gate(), publish=print, remote=remote, make_func=lambda *_: print
    )
    catalog.update(SPEC, [{"name": "a"}], "{tool}", is_current=True, is_ready=True)
    assert memory.kept == ["a"]
    catalog.update(SPEC, [{"name": "a"}], "{tool}", is_current=True, is_ready=True, is_private=True)
    assert memory.kept == []
