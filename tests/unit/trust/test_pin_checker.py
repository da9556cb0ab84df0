from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.errors import CallDeniedError, DragomanError
from dragoman.model import CODE, Handlers, Origin, ServerSpec, Stdio, ToolDef
from dragoman.trust.pin_checker import PinChecker, declared_by
from dragoman.trust.pin_store import CHECKED, Pins
from dragoman.trust.pins import PinChange, ServerPins, describe, dump_lock, pins_of
from dragoman.trust.redaction import Redactor

if TYPE_CHECKING:
    from pathlib import Path

    from dragoman.events import DefinitionsChanged


STRICT = ServerSpec("s", Stdio("x"), trust="strict")
WARN = STRICT.replace(trust="warn")
OFF = STRICT.replace(trust="off")


def tool(name: str = "t", description: str = "Does it.") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


class Board:
    """A board whose events are kept."""

    def __init__(self, root: Path) -> None:
        self.redactor = Redactor(["qX7pL0vR2m"])
        self.events: list[DefinitionsChanged] = []
        self.board = PinChecker(str(root), redactor=self.redactor, publish=self.events.append)  # type: ignore[arg-type]


async def test_a_strict_server_offers_nothing_before_a_look(tmp_path: Path) -> None:
    board = Board(tmp_path).board
    assert board.withheld(STRICT, ["t"]) == {"t"}
    assert board.hides_instructions(STRICT)
    assert board.withheld(WARN, ["t"]) == board.withheld(OFF, ["t"]) == frozenset()
    assert not board.hides_instructions(WARN)
    await board.check_listing(STRICT, [tool()], "")
    assert board.withheld(STRICT, ["t"]) == frozenset()
    assert not board.hides_instructions(STRICT)


async def test_a_change_is_told_once_and_without_secrets(tmp_path: Path) -> None:
    one = Board(tmp_path)
    await one.board.check_listing(STRICT, [tool()], "")
    for _ in range(3):
        await one.board.check_listing(STRICT, [tool(description="Does qX7pL0vR2m.")], "")
    (event,) = one.events
    assert (event.tools, event.withheld) == (("t",), ("t",))
    assert "qX7pL0vR2m" not in str(event)
    assert [change.name for change in one.board.changes("s")] == ["t"]
    await one.board.check_listing(STRICT, [tool()], "")
    assert one.board.changes("s") == one.board.changes("none") == []
    assert len(one.events) == 1


async def test_a_look_that_fails_withholds_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    board = Board(tmp_path).board
    await board.check_listing(STRICT, [tool()], "")

    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("dragoman.trust.pin_checker.pins_of", broken)
    await board.check_listing(STRICT, [tool(description="Other.")], "")
    assert board.withheld(STRICT, ["t"]) == {"t"}
    assert "could not compare its tools" in caplog.text


async def test_listings_that_come_together_are_compared_in_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    servers = [WARN, WARN.replace(name="other")]
    first, again = Board(tmp_path).board, Board(tmp_path).board
    run = asyncio.to_thread
    threads: list[object] = []

    async def counted(work: Any, *args: Any) -> Any:
        threads.append(work)
        return await run(work, *args)

    monkeypatch.setattr("dragoman.trust.pin_checker.asyncio.to_thread", counted)
    # A listing that is not known gets a check of its own besides.
    for board, expected in ((first, 3), (again, 1)):
        threads.clear()
        for spec in servers:
            await board.check_listing(spec, [tool()], "")
        await asyncio.gather(*board.looking())
        assert len(threads) == expected
    assert (again.changes("s"), again.changes("other"), caplog.text) == ([], [], "")
    for spec, entry in zip(servers, (tool(), tool(description="Other.")), strict=True):
        await again.check_listing(spec, [entry], "")
    await asyncio.gather(*again.looking())
    assert again.changes("s") == []
    assert [change.name for change in again.changes("other")] == ["t"]


async def test_approving_needs_a_look(tmp_path: Path) -> None:
    board = Board(tmp_path).board
    for spec in (STRICT, OFF):
        with pytest.raises(DragomanError, match="has not listed anything"):
            await board.approve(spec, tools=None, in_project=False)
        await board.check_listing(OFF, [tool()], "")
    await board.check_listing(STRICT, [tool()], "")
    await board.check_listing(STRICT, [tool(description="Other.")], "")
    assert board.withheld(STRICT, ["t"]) == {"t"}
    with pytest.raises(DragomanError, match="were not reviewed yet"):
        await board.approve(STRICT, tools=["t"], in_project=True)
    shown = board.changes("s").fingerprint
    await board.approve(STRICT, tools=["t"], in_project=True, fingerprint=shown)
    assert board.withheld(STRICT, ["t"]) == frozenset()
    assert (tmp_path / "dragoman.lock").exists()


async def test_a_remembered_listing_is_compared_without_what_it_lacks(tmp_path: Path) -> None:
    one = Board(tmp_path)
    await one.board.check_listing(STRICT, [tool("a"), tool("b"), tool("c")], "")
    schemas = '[{"type": "object"}, null]'
    entries: Any = [({"name": "a", "description": "Does it."}, schemas), ({"name": "b"}, schemas)]
    assert one.board.matches(STRICT, entries) == {"b"}
    assert one.board.matches(WARN, entries) == frozenset()
    one.board.forget("s")
    one.board.check_cached(WARN, entries)
    one.board.check_cached(OFF, entries)
    await asyncio.gather(*one.board.looking())
    assert [event.tools for event in one.events] == [("b",)]


async def test_a_withheld_name_is_refused_everywhere(tmp_path: Path) -> None:
    board = Board(tmp_path).board
    assert board.refusal("mcp_s_t") is None
    board.set_withheld("s", {"mcp_s_t": "t"})
    refusal = board.refusal("mcp_s_t")
    assert refusal is not None
    assert (refusal.server, refusal.rule) == ("s", "trust=strict")
    read = ToolDef(name="mcp_s_t", description="", input_schema={}, server="s", original_name="t")
    with pytest.raises(CallDeniedError, match="`mcp_s_t` is withheld") as caught:
        board.check(STRICT, read)
    assert (caught.value.server, caught.value.rule) == ("s", "trust=strict")
    board.check(WARN, read)
    await board.check_listing(STRICT, [tool()], "")
    board.check(STRICT, read)
    await board.revisit(ServerSpec("unknown", Stdio("x")))
    board.forget("s")
    assert board.refusal("mcp_s_t") is None


async def test_only_what_was_told_is_approved(tmp_path: Path) -> None:
    """A newer listing that was not shown is never approved on the way."""
    one = Board(tmp_path)
    await one.board.check_listing(WARN, [tool()], "")
    await asyncio.gather(*one.board.looking())
    await one.board.check_listing(WARN, [tool(description="Second.")], "")
    await asyncio.gather(*one.board.looking())
    # A third one comes, and is looked at a moment later.
    await one.board.check_listing(WARN, [tool(description="Third.")], "")
    shown = one.events[-1].fingerprint
    await one.board.approve(WARN, tools=None, in_project=False, fingerprint=shown)
    await asyncio.gather(*one.board.looking())
    (change,) = one.board.changes("s")
    assert "- Second." in str(change)
    assert "+ Third." in str(change)
    assert len(one.events) == 2


async def test_an_approval_with_a_fingerprint_is_of_what_was_shown(tmp_path: Path) -> None:
    one = Board(tmp_path)
    for description in ("First.", "Second.", "Third."):
        await one.board.check_listing(STRICT, [tool(description=description)], "")
    second, third = one.events
    for wrong in (second.fingerprint, "", "sha256:0"):
        with pytest.raises(DragomanError, match="changed again since they were shown"):
            await one.board.approve(STRICT, tools=None, in_project=False, fingerprint=wrong)
    assert one.board.withheld(STRICT, ["t"]) == {"t"}
    changes = one.board.changes("s")
    assert (changes.fingerprint, changes.is_withheld) == (third.fingerprint, True)
    assert list(changes.texts) == list(third.changes)
    await one.board.approve(STRICT, tools=None, in_project=False, fingerprint=changes.fingerprint)
    assert one.board.withheld(STRICT, ["t"]) == frozenset()
    assert not one.board.changes("s").is_withheld


async def test_definitions_of_which_only_the_hash_is_known_are_told_apart(tmp_path: Path) -> None:
    one = Board(tmp_path)
    for letter in "abc":
        await one.board.check_listing(STRICT, [tool(description=letter * 70_000)], "")
    first, second = one.events
    assert first.changes == second.changes
    assert first.fingerprint != second.fingerprint


async def test_what_was_compared_only_now_has_to_be_shown_first(tmp_path: Path) -> None:
    await Board(tmp_path).board.check_listing(STRICT, [tool()], "")
    board = Board(tmp_path).board
    await board.check_listing(WARN, [tool(description="Other.")], "")
    with pytest.raises(DragomanError, match="were not reviewed yet"):
        await board.approve(WARN, tools=None, in_project=False)
    await board.approve(WARN, tools=None, in_project=False, fingerprint=board.changes("s").fingerprint)
    assert board.changes("s") == []


async def test_a_default_of_asking_withholds_unless_a_server_says_otherwise(tmp_path: Path) -> None:
    plain = STRICT.replace(trust=None)
    asks = PinChecker(str(tmp_path), redactor=Redactor(), publish=lambda _: None, default="ask")
    for spec, holds in ((plain, True), (WARN, False), (OFF, False), (STRICT, True)):
        assert asks.holds_back(spec) is holds
    await asks.check_listing(plain, [tool()], "")
    await asks.check_listing(plain, [tool(description="Other."), tool("new")], "")
    assert asks.withheld(plain, ["t", "new"]) == {"t", "new"}
    assert asks.withheld(WARN, ["t"]) == frozenset()
    asks.set_withheld("s", {"mcp_s_t": "t"}, asks.rule(plain))
    refusal = asks.refusal("mcp_s_t")
    assert refusal is not None
    assert refusal.rule == "trust=ask"
    library = Board(tmp_path).board
    assert not library.holds_back(plain)


async def test_what_cannot_be_pinned_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("dragoman.trust.pin_store.data_folder", lambda: tmp_path / "file")
    one = Board(tmp_path)
    await one.board.check_listing(STRICT, [tool()], "Obey.")
    assert one.board.withheld(STRICT, ["t"]) == {"t"}
    assert one.board.hides_instructions(STRICT)
    one.board.set_withheld("s", {"mcp_s_t": "t"})
    refusal = one.board.refusal("mcp_s_t")
    assert "its tools cannot be pinned" in str(refusal)
    assert "cannot be written: Not a directory" in str(refusal)
    assert 'set `trust = "warn"` in its entry' in str(refusal)


def test_declared_capabilities_have_a_short_name() -> None:
    async def answer(*_: object) -> dict[str, Any]:
        return {}

    assert declared_by(None, "s") == declared_by(Handlers(logging=answer), "s") == ""
    assert declared_by(Handlers(sampling=answer, roots=lambda name: ["x"] if name == "s" else None), "s") == (
        "roots+sampling"
    )
    assert declared_by(Handlers(elicitation=answer, roots=lambda _: None), "s") == "elicitation"


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tools each comparison with pins had; one by hash is not there."""
    found: list[int] = []

    def counted(tools: Any, **more: Any) -> ServerPins:
        found.append(len(tools))
        return pins_of(tools, **more)

    monkeypatch.setattr("dragoman.trust.pin_checker.pins_of", counted)
    return found


def many(description: str = "Does it.") -> list[dict[str, Any]]:
    first, *rest = (tool(f"t{number}") for number in range(10))
    return [{**first, "description": description}, *rest]


async def test_unchanged_long_listing_is_compared_by_its_hash(tmp_path: Path, compared: list[int]) -> None:
    await Board(tmp_path).board.check_listing(STRICT, many(), "")
    one = Board(tmp_path)
    await one.board.check_listing(STRICT, many(), "")
    assert compared == [10]
    assert one.board.withheld(STRICT, ["t0", "t1"]) == frozenset()
    await one.board.check_listing(STRICT, many("Does harm."), "")
    assert one.board.withheld(STRICT, ["t0", "t1"]) == {"t0"}
    await one.board.check_listing(STRICT, many(), "Obey me.")
    assert one.board.hides_instructions(STRICT)
    assert len(compared) == 3


async def test_changed_listing_never_counts_as_compared(tmp_path: Path, compared: list[int]) -> None:
    await Board(tmp_path).board.check_listing(STRICT, many(), "")
    for _ in range(3):
        one = Board(tmp_path)
        await one.board.check_listing(STRICT, many("Does harm."), "")
        assert one.board.withheld(STRICT, ["t0", "t1"]) == {"t0"}
    assert len(compared) == 4


async def test_edited_lock_file_is_compared_whole(tmp_path: Path, compared: list[int]) -> None:
    await Board(tmp_path).board.check_listing(STRICT, many(), "")
    path = Pins(tmp_path).user_path(STRICT)
    content = json.loads(path.read_text("utf-8"))
    del content["servers"]["s"]["tools"]["t3"]
    path.write_text(json.dumps(content), "utf-8")
    one = Board(tmp_path)
    await one.board.check_listing(STRICT, many(), "")
    assert one.board.withheld(STRICT, ["t0", "t3"]) == {"t3"}
    path.unlink()
    path.with_suffix(CHECKED).write_text("0", "ascii")
    await one.board.check_listing(STRICT, many("Used first."), "")
    assert one.board.withheld(STRICT, ["t0", "t3"]) == frozenset()
    assert len(compared) == 3


async def test_lock_file_of_the_project_is_compared_whole(tmp_path: Path, compared: list[int]) -> None:
    await Board(tmp_path).board.check_listing(STRICT, many(), "")
    theirs = dump_lock({"s": pins_of(many("Theirs."))})
    (tmp_path / "dragoman.lock").write_text(theirs, "utf-8")
    one = Board(tmp_path)
    await one.board.check_listing(STRICT, many(), "")
    assert one.board.withheld(STRICT, ["t0", "t3"]) == {"t0"}
    assert len(compared) == 2


async def test_listing_that_was_compared_by_its_hash_can_be_approved(tmp_path: Path) -> None:
    await Board(tmp_path).board.check_listing(STRICT, many(), "")
    board = Board(tmp_path).board
    await board.check_listing(STRICT, many(), "")
    await board.approve(STRICT, tools=None, in_project=True)
    assert '"t3"' in (tmp_path / "dragoman.lock").read_text("utf-8")


async def test_changes_are_described_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()

    def noted(change: PinChange) -> list[str]:
        threads.add(threading.get_ident())
        return describe(change)

    monkeypatch.setattr("dragoman.trust.pin_checker.describe", noted)
    await Board(tmp_path).board.check_listing(STRICT, many(), "")
    one = Board(tmp_path)
    await one.board.check_listing(STRICT, many("Does harm."), "")
    assert len(one.events) == 1
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("origin", "advice"),
    [
        (CODE, "review: `mcp.trust.changes('s')`"),
        (Origin(source="mcp.json", scope="user"), "review: dragoman trust show s"),
    ],
)
async def test_the_advice_for_a_change_works_for_this_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, origin: Origin, advice: str
) -> None:
    board, spec = Board(tmp_path).board, STRICT.replace(origin=origin)
    await board.check_listing(spec, [tool()], "")
    await board.check_listing(spec, [tool(description="Other.")], "")
    assert advice in caplog.text
