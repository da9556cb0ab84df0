from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.errors import CallDeniedError, DragomanError
from dragoman.model import ServerSpec, Stdio, ToolDef
from dragoman.pinboard import Pinboard
from dragoman.trust.redactor import Redactor

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.events import DefinitionsChanged


STRICT = ServerSpec("s", Stdio("x"), trust="strict")
WARN = replace(STRICT, trust="warn")
OFF = replace(STRICT, trust="off")


def tool(name: str = "t", description: str = "Does it.") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


class Board:
    """A board whose events are kept."""

    def __init__(self, root: Path) -> None:
        self.redactor = Redactor(["qX7pL0vR2m"])
        self.events: list[DefinitionsChanged] = []
        self.board = Pinboard(str(root), redactor=self.redactor, publish=self.events.append)  # type: ignore[arg-type]


async def test_a_strict_server_offers_nothing_before_a_look(tmp_path: Path) -> None:
    board = Board(tmp_path).board
    assert board.withheld(STRICT, ["t"]) == {"t"}
    assert board.hides_instructions(STRICT)
    assert board.withheld(WARN, ["t"]) == board.withheld(OFF, ["t"]) == frozenset()
    assert not board.hides_instructions(WARN)
    await board.vet(STRICT, [tool()], "")
    assert board.withheld(STRICT, ["t"]) == frozenset()
    assert not board.hides_instructions(STRICT)


async def test_a_change_is_told_once_and_without_secrets(tmp_path: Path) -> None:
    one = Board(tmp_path)
    await one.board.vet(STRICT, [tool()], "")
    for _ in range(3):
        await one.board.vet(STRICT, [tool(description="Does qX7pL0vR2m.")], "")
    (event,) = one.events
    assert (event.tools, event.withheld) == (("t",), ("t",))
    assert "qX7pL0vR2m" not in str(event)
    assert [change.name for change in one.board.changes("s")] == ["t"]
    await one.board.vet(STRICT, [tool()], "")
    assert one.board.changes("s") == one.board.changes("none") == []
    assert len(one.events) == 1


async def test_a_look_that_fails_withholds_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    board = Board(tmp_path).board
    await board.vet(STRICT, [tool()], "")

    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("dragoman.pinboard.pins_of", broken)
    await board.vet(STRICT, [tool()], "")
    assert board.withheld(STRICT, ["t"]) == {"t"}
    assert "could not be compared" in caplog.text


async def test_approving_needs_a_look(tmp_path: Path) -> None:
    board = Board(tmp_path).board
    for spec in (STRICT, OFF):
        with pytest.raises(DragomanError, match="has listed nothing"):
            await board.approve(spec, tools=None, in_project=False)
        await board.vet(OFF, [tool()], "")
    await board.vet(STRICT, [tool()], "")
    await board.vet(STRICT, [tool(description="Other.")], "")
    assert board.withheld(STRICT, ["t"]) == {"t"}
    await board.approve(STRICT, tools=["t"], in_project=True)
    assert board.withheld(STRICT, ["t"]) == frozenset()
    assert (tmp_path / "dragoman.lock").exists()


async def test_a_remembered_listing_is_compared_without_what_it_lacks(tmp_path: Path) -> None:
    one = Board(tmp_path)
    await one.board.vet(STRICT, [tool("a"), tool("b"), tool("c")], "")
    schemas = '[{"type": "object"}, null]'
    entries: Any = [({"name": "a", "description": "Does it."}, schemas), ({"name": "b"}, schemas)]
    assert one.board.fits(STRICT, entries) == {"b"}
    assert one.board.fits(WARN, entries) == frozenset()
    one.board.forget("s")
    one.board.look_at_remembered(WARN, entries)
    one.board.look_at_remembered(OFF, entries)
    await asyncio.gather(*one.board.looking())
    assert [event.tools for event in one.events] == [("b",)]


async def test_a_withheld_name_is_refused_by_whoever_is_asked(tmp_path: Path) -> None:
    board = Board(tmp_path).board
    assert board.refusal("mcp_s_t") is None
    board.keep_back("s", {"mcp_s_t": "t"})
    refusal = board.refusal("mcp_s_t")
    assert refusal is not None
    assert (refusal.server, refusal.rule) == ("s", "trust=strict")
    read = ToolDef(name="mcp_s_t", description="", input_schema={}, server="s", original_name="t")
    with pytest.raises(CallDeniedError, match="`mcp_s_t` was not called") as caught:
        board.check(STRICT, read)
    assert (caught.value.server, caught.value.rule) == ("s", "trust=strict")
    board.check(WARN, read)
    await board.vet(STRICT, [tool()], "")
    board.check(STRICT, read)
    await board.revisit(ServerSpec("unknown", Stdio("x")))
    board.forget("s")
    assert board.refusal("mcp_s_t") is None
