from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.manager import catalog as module
from dragoman.manager.catalog import ToolCatalog
from dragoman.model import ServerSpec, Stdio, ToolResult
from dragoman.storage.manifests import ManifestCache, ManifestMemory
from dragoman.tools.registry import SLICE, ToolRegistry
from dragoman.trust.gate import Gate

if TYPE_CHECKING:
    from pathlib import Path

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

    def keep(self, spec: ServerSpec, listing: list[dict[str, Any]], **_: str) -> None:
        self.kept = [str(raw["name"]) for raw in listing]

    def forget(self, spec: ServerSpec) -> None:
        self.kept = []


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


class Run:
    """A run of the program that offers one server, and remembers its listing for the next run."""

    def __init__(self, folder: Path, *, spec: ServerSpec = SPEC, gate: Gate | None = None) -> None:
        self.spec, self.gate = spec, gate or Gate()
        self.memory = ManifestMemory(
            ManifestCache(folder), key=lambda spec: spec.name, hides=self.gate.redactor.holds
        )
        self.events: list[Event] = []
        self.made: list[str] = []
        """The tools of which a definition was turned into one, whenever that was done."""
        self.registry = ToolRegistry()
        self.catalog = ToolCatalog(
            self.registry,
            self.memory,
            gate=self.gate,
            publish=self.events.append,
            remote=remote,
            make_func=self._made,
        )

    def _made(self, _server: str, name: str) -> Any:
        self.made.append(name)
        return print

    async def offer(self, listing: list[dict[str, Any]]) -> list[str]:
        """Load what is known, and list; return the definitions that were read again for it."""
        await self.catalog.load_cached(self.spec, "{tool}", starts=True)
        self.made.clear()
        self.events.clear()
        await self.catalog.read_ahead(self.spec, listing, "{tool}", is_current=lambda: True)
        self.catalog.update(self.spec, listing, "{tool}", is_current=True, is_ready=True)
        await asyncio.gather(*self.memory.saving())
        return list(self.made)


def damage(folder: Path) -> None:
    """Change a character of the only manifest."""
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes().replace(b"t000", b"t999"))


def listed(count: int, **more: Any) -> list[dict[str, Any]]:
    """Return a listing as it is parsed anew for each run."""
    return [{"name": f"t{at:03}", "inputSchema": {"type": "object"}, **more} for at in range(count)]


@pytest.mark.requirement("legal-discovery.cache")
@pytest.mark.parametrize("count", [3, 2 * SLICE + 1])
async def test_listing_of_the_last_run_is_not_read_again(tmp_path: Path, count: int) -> None:
    assert len(await Run(tmp_path).offer(listed(count))) == count
    again = Run(tmp_path)
    assert await again.offer(listed(count)) == []
    assert (len(again.registry), again.events) == (count, [])
    assert await Run(tmp_path).offer(listed(count)) == [], "it is still remembered"


@pytest.mark.requirement("legal-discovery.cache")
@pytest.mark.parametrize("count", [3, 2 * SLICE + 1])
async def test_listing_that_differs_anywhere_is_read(tmp_path: Path, count: int) -> None:
    await Run(tmp_path).offer(listed(count))
    again = Run(tmp_path)
    changed = [
        *listed(count - 1),
        {"name": f"t{count - 1:03}", "inputSchema": {"type": "object"}, "title": "T"},
    ]
    assert len(await again.offer(changed)) == count
    assert again.registry.get(f"t{count - 1:03}").title == "T"  # type: ignore[union-attr]
    assert len(again.events) == 1


@pytest.mark.requirement("legal-discovery.cache", "excel-3.4")
@pytest.mark.parametrize("what", ["limits", "version", "template", "filter", "damage", "unusable tool"])
async def test_listing_is_read_again_unless_all_that_it_went_through_is_the_same(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listing = [*listed(2), {"name": "bad", **BAD}] if what == "unusable tool" else listed(3)
    await Run(tmp_path).offer(listing)
    spec = SPEC
    match what:
        case "limits":
            spec = SPEC.replace(limits={"name_chars": 3})
        case "version":
            monkeypatch.setattr(module, "VERSION", "another")
        case "template":
            spec = SPEC.replace(naming="x_{tool}")
        case "filter":
            spec = SPEC.replace(allowed_tools=["t000"])
        case "damage":
            damage(tmp_path)
        case _:
            pass
    again = Run(tmp_path, spec=spec)
    caplog.clear()
    read = await again.offer([dict(raw) for raw in listing])
    offered = sorted(tool.name for tool in again.registry)
    match what:
        case "limits":
            assert offered == []
        case "template" | "filter":
            # Both are applied to what is remembered.
            assert (read, offered) == ([], ["x_t000", "x_t001", "x_t002"] if what == "template" else ["t000"])
        case "unusable tool":
            assert "tool `bad` is skipped" in caplog.text
            assert offered == ["t000", "t001"]
        case _:
            assert (len(read), offered) == (3, ["t000", "t001", "t002"])


@pytest.mark.requirement("legal-discovery.cache")
async def test_remembered_listing_that_shows_a_value_that_is_secret_by_now_is_forgotten(
    tmp_path: Path,
) -> None:
    listing = listed(2, description="uses gX7pQ2vL9tR4wZ")
    await Run(tmp_path).offer(listing)
    gate = Gate()
    gate.redactor.add(["gX7pQ2vL9tR4wZ"])
    assert await Run(tmp_path, gate=gate).offer(listing) == []
    assert Run(tmp_path).memory.recall(SPEC) is None
