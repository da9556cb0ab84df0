"""Bulk work over real servers: each row once, whatever happens to the server or to this process."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from tests.warm import interpreter

from dragoman import McpManager, ServerSpec, Stdio, ToolUnavailableError, UnknownToolError
from dragoman.blocking import McpManager as BlockingManager
from dragoman.errors import BulkError
from dragoman.model import CallRequest, Handlers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

SCRIPT = str(Path(__file__).resolve().parents[1] / "servers" / "rowwise.py")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").touch()
    return tmp_path / "notes"


@pytest.fixture
def rowwise(server: Callable[..., ServerSpec], notes: Path) -> Callable[..., ServerSpec]:
    def make(**more: object) -> ServerSpec:
        return server("rows", "rowwise.py", str(notes), **more)

    return make


def rows(count: int) -> list[dict[str, str]]:
    return [{"text": f"row {number}"} for number in range(1, count + 1)]


def noted(notes: Path) -> Counter[str]:
    return Counter(notes.read_text("utf-8").splitlines())


async def test_every_row_is_called_once_and_errors_stand_beside_results(
    rowwise: Callable[..., ServerSpec], notes: Path
) -> None:
    given = [*rows(300), {"text": "fail 301"}, {"txt": "?"}]
    async with McpManager([rowwise()]) as mcp:
        outcomes = {one.row: one async for one in mcp.map("mcp_rows_note", given, concurrency=16)}
    assert sorted(outcomes) == list(range(1, 303))
    assert outcomes[7].text == "noted row 7"
    assert outcomes[7].result is not None
    assert (outcomes[301].status, outcomes[301].error) == ("failed", "noted fail 301")
    assert outcomes[302].code == "tool.invalid_arguments"
    assert set(noted(notes).values()) == {1}
    assert len(noted(notes)) == 301


async def test_rows_come_from_any_iterable_and_a_template_makes_arguments(
    rowwise: Callable[..., ServerSpec], notes: Path
) -> None:
    async def stream() -> AsyncIterator[dict[str, int]]:
        for number in (1, 2, 3):
            yield {"n": number}

    async with McpManager([rowwise()]) as mcp:
        run = mcp.map("mcp_rows_note", stream(), arguments={"text": "async {n}", "number": "{n}"}, limit=2)
        report = await run.wait()
        assert (report.rows, report.ok, report.open) == (2, 2, 0)
        again = mcp.map("mcp_rows_note", ({"text": word} for word in ("a", "b")))
        assert (await again.wait()).ok == 2
        with pytest.raises(BulkError, match="only once"):
            await again.wait()
    assert noted(notes) == Counter(["async 1", "async 2", "a", "b"])


async def test_rows_may_be_one_object_that_changes_and_a_row_that_is_none_fails_alone(
    rowwise: Callable[..., ServerSpec], notes: Path
) -> None:
    def reused() -> Iterator[dict[str, str] | None]:
        row: dict[str, str] = {}
        for word in ("a", "b", "c"):
            row["text"] = word
            yield row
            if word == "a":
                yield None

    async with McpManager([rowwise()]) as mcp:
        run = mcp.map("mcp_rows_note", cast("Iterator[dict[str, str]]", reused()))
        outcomes = {one.row: one async for one in run}
    assert [outcomes[row].status for row in (1, 2, 3, 4)] == ["ok", "failed", "ok", "ok"]
    assert outcomes[2].error == "the row is NoneType, not a mapping"
    assert noted(notes) == Counter("abc")


@pytest.mark.requirement("otter-concurrency")
async def test_as_many_calls_run_at_once_as_the_caller_and_the_server_allow(
    rowwise: Callable[..., ServerSpec],
) -> None:
    async with McpManager([rowwise(max_concurrency=3)]) as mcp:
        run = mcp.map("mcp_rows_meet", [{"together": 3}] * 9, concurrency=16)
        assert (await run.plan()).concurrency == 3
        assert [one.text async for one in run] == ["3"] * 9


async def test_a_rate_spreads_the_calls(rowwise: Callable[..., ServerSpec]) -> None:
    async with McpManager([rowwise()]) as mcp:
        await mcp.wait_ready()
        began = time.monotonic()
        await mcp.map("mcp_rows_note", rows(11), rate=50).wait()
        assert time.monotonic() - began >= 10 / 50


async def test_the_plan_checks_every_row_and_calls_nothing(
    rowwise: Callable[..., ServerSpec], notes: Path, tmp_path: Path
) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("a,n\nx,1\n,2\ny,many\nz,\n", "utf-8")
    arguments = {"text": "{a}", "number": "{n}"}
    async with McpManager([rowwise()]) as mcp:
        run = mcp.map("mcp_rows_note", table, arguments=arguments, journal=tmp_path / "j")
        plan = await run.plan()
        assert (plan.rows, plan.calls, plan.invalid) == (4, 2, 2)
        assert plan.sample == {"text": "x", "number": 1}
        assert [row for row, _ in plan.problems] == [2, 3]
        assert noted(notes) == Counter()
        assert not (tmp_path / "j").exists()
        report = await run.wait()
        assert (report.ok, report.failed) == (2, 2)
        with pytest.raises(BulkError, match="no column `b`"):
            await mcp.map("mcp_rows_note", table, arguments={"text": "{b}"}).plan()
        with pytest.raises(BulkError, match="only once"):
            await mcp.map("mcp_rows_note", iter(rows(1))).plan()
        with pytest.raises(UnknownToolError):
            await mcp.map("mcp_rows_nothing", rows(1)).wait()
    assert noted(notes) == Counter(["x", "z"])


@pytest.mark.requirement("excel-5.4")
async def test_a_call_that_may_have_run_is_unknown_and_its_row_is_not_repeated(
    rowwise: Callable[..., ServerSpec], notes: Path, tmp_path: Path
) -> None:
    given = [*rows(5), {"text": "die 6"}, *rows(9)[6:], {"text": "quiet 10"}]
    journal = tmp_path / "j"
    async with McpManager([rowwise()]) as mcp:
        report = await mcp.map("mcp_rows_note", given, concurrency=1, journal=journal, timeout=3).wait()
        assert (report.ok, report.unknown, report.unknown_rows) == (8, 2, [6, 10])
        report = await mcp.map("mcp_rows_note", given, journal=journal).wait()
        assert (report.unknown_rows, report.earlier) == ([6, 10], 10)
        assert set(noted(notes).values()) == {1}
        run = mcp.map("mcp_rows_note", given, journal=journal, repeat_unknown=True, limit=9)
        report = await run.wait()
        assert (report.ok, report.unknown) == (9, 0)
        assert [one.status for one in run.outcomes() if one] == ["ok"] * 9
    assert noted(notes)["die 6"] == 2


async def test_a_call_of_a_tool_that_is_safe_to_repeat_is_repeated(
    rowwise: Callable[..., ServerSpec], notes: Path
) -> None:
    given = [{"text": "a"}, {"text": "die b"}, {"text": "c"}]
    async with McpManager([rowwise(trust_annotations=True)]) as mcp:
        report = await mcp.map("mcp_rows_look", given, concurrency=1).wait()
    assert (report.ok, report.unknown) == (3, 0)
    assert noted(notes)["die b"] == 2


@pytest.mark.parametrize("by_map", [True, False])
async def test_one_yes_is_for_one_run_even_of_a_tool_that_is_safe_to_repeat(
    rowwise: Callable[..., ServerSpec], notes: Path, *, by_map: bool
) -> None:
    asked: list[str] = []

    def yes(question: CallRequest) -> bool:
        asked.append(question.tool)
        return True

    spec, policy = rowwise(trust_annotations=True), [{"action": "ask", "tool": "look"}]
    async with McpManager([spec], policy=policy, handlers=Handlers(approval=yes)) as mcp:
        await mcp.wait_ready()
        if by_map:
            await mcp.map("mcp_rows_look", [{"text": "die b"}], concurrency=1).wait()
        else:
            assert not (await mcp.call("mcp_rows_look", {"text": "die b"})).success
    assert noted(notes)["die b"] == len(asked)


KILLED = """
import asyncio, os, signal, sys
from dragoman import McpManager, ServerSpec, Stdio
script, notes, journal, last = sys.argv[1:]
async def main():
    rows = [{"text": f"row {number}"} for number in range(1, 401)]
    async with McpManager([ServerSpec("rows", Stdio(sys.executable, [script, notes]))]) as mcp:
        async for outcome in mcp.map("mcp_rows_note", rows, journal=journal, concurrency=8):
            if outcome.row == int(last):
                os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def test_after_a_kill_the_next_run_goes_on_and_repeats_nothing(
    rowwise: Callable[..., ServerSpec], notes: Path, tmp_path: Path
) -> None:
    journal = tmp_path / "j"
    for last in (120, 260):
        command = [interpreter(), "-c", KILLED, SCRIPT, str(notes), str(journal), str(last)]
        killed = await asyncio.create_subprocess_exec(*command)
        assert await killed.wait() == -signal.SIGKILL
    async with McpManager([rowwise()]) as mcp:
        run = mcp.map("mcp_rows_note", rows(400), journal=journal)
        plan = await run.plan()
        assert plan.done >= 250
        report = await run.wait()
        assert report.ok + report.unknown == 400
        assert report.open == 0
        assert report.unknown <= 2 * 8
        outcomes = list(run.outcomes())
        assert [one.row for one in outcomes if one] == list(range(1, 401))
        ran = noted(notes)
        assert set(ran.values()) == {1}
        assert {f"row {one.row}" for one in outcomes if one and one.status == "ok"} <= set(ran)
        assert {row for row in range(1, 401) if f"row {row}" not in ran} <= set(report.unknown_rows)
        again = await mcp.map("mcp_rows_note", rows(400), journal=journal, repeat_unknown=True).wait()
        assert (again.ok, again.unknown) == (400, 0)
    lines = [line for line in journal.read_text("utf-8").splitlines() if '"status":"ok"' in line]
    assert len(lines) == 400


async def test_a_row_that_was_sent_must_not_change_and_rows_can_be_added(
    rowwise: Callable[..., ServerSpec], notes: Path, tmp_path: Path
) -> None:
    journal = tmp_path / "j"
    async with McpManager([rowwise()]) as mcp:
        await mcp.map("mcp_rows_note", rows(3), journal=journal).wait()
        changed = [*rows(2), {"text": "another"}, *rows(4)[3:]]
        with pytest.raises(BulkError, match=r"row 3 is not the row that was sent"):
            await mcp.map("mcp_rows_note", changed, journal=journal).plan()
        with pytest.raises(BulkError, match=r"row 3 is not the row that was sent"):
            await mcp.map("mcp_rows_note", changed, journal=journal).wait()
        with pytest.raises(BulkError, match=r"the input has 2 rows, and the journal .* has row 3"):
            await mcp.map("mcp_rows_note", rows(2), journal=journal).wait()
        assert (await mcp.map("mcp_rows_note", rows(5), journal=journal).wait()).ok == 5
    assert noted(notes) == Counter(row["text"] for row in rows(5))


async def test_leaving_the_loop_ends_the_run(rowwise: Callable[..., ServerSpec], tmp_path: Path) -> None:
    journal = tmp_path / "j"
    async with McpManager([rowwise()]) as mcp:
        run = mcp.map("mcp_rows_note", rows(5000), journal=journal, concurrency=4)
        stream = aiter(run)
        async for _ in stream:
            break
        await stream.aclose()
        report = run.report()
        assert 0 < report.ok < 100
        assert report.unknown <= 4
        stopped = mcp.map("mcp_rows_note", rows(5000), journal=tmp_path / "k", concurrency=4)
        async for _ in stopped:
            stopped.stop()
        assert stopped.report().unknown == 0
        assert stopped.report().open > 4000


@pytest.fixture
def gone(tmp_path: Path) -> Path:
    """A server that can be removed."""
    for name in ("rowwise.py", "jsonrpc.py"):
        shutil.copy(Path(SCRIPT).with_name(name), tmp_path)
    return tmp_path / "rowwise.py"


async def test_without_its_server_a_run_stops_with_the_error(gone: Path, tmp_path: Path) -> None:
    spec = ServerSpec("rows", Stdio(sys.executable, [str(gone), str(tmp_path / "notes")]))
    journal = tmp_path / "j"
    async with McpManager([spec]) as mcp:
        await mcp.wait_ready()
        await asyncio.to_thread(gone.unlink)
        given = [{"text": "die 1"}, *rows(6)[1:]]
        run = mcp.map("mcp_rows_note", given, journal=journal, concurrency=2, patience=0.5)
        with pytest.raises(ToolUnavailableError):
            await run.wait()
        report = run.report()
    assert 1 in report.unknown_rows
    assert report.ok + report.unknown + report.open == 6
    assert report.open >= 3


def test_the_blocking_manager_maps_too(notes: Path, tmp_path: Path) -> None:
    spec = ServerSpec("rows", Stdio(sys.executable, [SCRIPT, str(notes)]))
    with BlockingManager([spec]) as mcp:
        mcp.wait_ready()
        run = mcp.map("mcp_rows_note", rows(20), journal=tmp_path / "j")
        assert run.plan().calls == 20
        assert sorted(one.row for one in run) == list(range(1, 21))
        assert run.report().ok == run.progress().ok == 20
        assert [one.text for one in run.outcomes() if one][:2] == ["noted row 1", "noted row 2"]
        assert mcp.map("mcp_rows_note", rows(22), journal=tmp_path / "j").wait().earlier == 20
        for _ in mcp.map("mcp_rows_note", rows(5000)):
            break
    assert noted(notes)["row 1"] == 2
