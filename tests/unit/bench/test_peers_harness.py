"""The harness itself, without anything from elsewhere: dragoman and the floor, with as few rounds as there can be."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.__main__ import main as bench
from bench.peers import conduct, run, scene, speed
from bench.peers.field import BY_NAME, PEERS
from bench.peers.speed import Effort
from bench.peers.talk import Driver, PeerGoneError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from bench.peers.field import Peer
    from bench.peers.result import Row

ROOT = Path(__file__).resolve().parents[3]
OURS, FLOOR = (replace(BY_NAME[name], environment="") for name in ("dragoman", "floor"))
TINY = Effort(1, 1, 1, 1, 32, (2,), (4,), 2)


async def rows_of(rows: AsyncGenerator[Row]) -> dict[str, Row]:
    return {row.name: row async for row in rows}


@pytest.mark.parametrize("peer", [OURS, FLOOR], ids=lambda peer: peer.name)
@pytest.mark.usefixtures("warm_python")
async def test_a_peer_starts_calls_and_stops_as_it_is_told(peer: Peer, tmp_path: Path) -> None:
    async with Driver(peer, folder=str(tmp_path)) as driver, scene.http(3) as url:
        servers = [scene.stdio("one", tools=2), {"name": "two", "url": url}, scene.dead()]
        began = await driver.ask("start", servers=servers, deadline=30.0)
        assert {name: tools for name, (_, tools) in began["ready"].items()} == {"one": 2, "two": 3}
        assert set(began["value"]) == {"dead"}
        for name in ("one", "two"):
            answer = await driver.ask("call", server=name, text="hello", deadline=30.0, timeout=None)
            assert (answer["outcome"], answer["value"]) == ("done", "hello")
        made = await driver.ask("calls", server="one", count=3, at_once=1)
        assert 0 < made["median"] <= made["seconds"] * 3
        assert (await driver.ask("state"))["rss"] > 2**20
        assert (await driver.ask("stop", deadline=30.0))["outcome"] == "done"


async def test_an_answer_that_never_comes_is_seen_as_hanging(tmp_path: Path) -> None:
    async with Driver(FLOOR, folder=str(tmp_path)) as driver:
        await driver.ask("start", servers=[scene.stdio("s0")], deadline=30.0)
        muted = await driver.ask("call", server="s0", text="!mute", deadline=0.1, timeout=None)
        assert muted["outcome"] == "hangs"
        limited = await driver.ask("call", server="s0", text="!mute", deadline=30.0, timeout=0.1)
        assert limited["outcome"] == "fails"
        await driver.ask("stop", deadline=30.0)


SPEEDS: dict[Callable[[Sequence[Peer], Effort, str], AsyncGenerator[Row]], list[str]] = {
    speed.starts: [
        *("start-2-all", "first-2-all", "start-2-known", "start-2-cpu", "first-2-cpu"),
        *("start-list-whole_cpu", "first-list-whole_cpu", "start-2-close"),
    ],
    speed.mixed_starts: ["mixed-4"],
    speed.cold_starts: ["cold-5"],
    speed.calls: [
        f"{wire}-{at_once}-{kind}"
        for wire in ("stdio", "http")
        for at_once in (1, 32)
        for kind in ("cpu", "time")
    ],
}


@pytest.mark.parametrize("measure", SPEEDS, ids=lambda measure: measure.__name__)
@pytest.mark.usefixtures("warm_python")
async def test_speed_has_a_figure_for_each_peer_in_each_row(
    measure: Callable[[Sequence[Peer], Effort, str], AsyncGenerator[Row]], tmp_path: Path
) -> None:
    rows = await rows_of(measure([OURS, FLOOR], TINY, str(tmp_path)))
    assert list(rows) == SPEEDS[measure]
    for row in rows.values():
        assert set(row.figures) == {"dragoman", "floor"}, row.name
        assert all(figure.value for figure in row.figures.values()), row


async def test_imports_are_counted_without_the_interpreter(tmp_path: Path) -> None:
    rows = await rows_of(speed.imports([FLOOR], TINY, str(tmp_path)))
    assert rows["import"].figures["floor"].value
    assert rows["import-name"].figures == {}


async def test_memory_is_of_a_process_that_has_all_tools(tmp_path: Path) -> None:
    rows = await rows_of(speed.memory([FLOOR], TINY, str(tmp_path)))
    assert {"memory-stdio", "memory-http"} <= set(rows)
    assert (rows["memory-stdio"].figures["floor"].value or 0) > 2**20


LOOKS = [
    look
    for look, rows in conduct.LOOKS.items()
    if {"killed", "failing", "descriptors", "left-close"} & {*rows}
]


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.__name__)
async def test_conduct_sees_recovery_and_leftovers(
    look: Callable[[Driver], Awaitable[conduct.Seen]], tmp_path: Path
) -> None:
    async with Driver(OURS, folder=str(tmp_path)) as driver:
        seen = await look(driver)
    assert tuple(seen) == conduct.LOOKS[look]
    assert {name: figure.good for name, figure in seen.items()} == dict.fromkeys(seen, True)


async def test_what_a_crash_leaves_is_counted_and_ended(tmp_path: Path) -> None:
    mark = "a-mark-of-this-test"
    command = [sys.executable, "-S", "-c", "input()", "--mark", mark]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    left = await scene.settled(mark, 0.0)
    assert left == {process.pid: "helper"}
    scene.end(left)
    assert await process.wait() < 0
    assert scene.processes(mark) == {}


async def test_a_script_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text("raise SystemExit('no such thing')", "utf-8")
    async with Driver(replace(FLOOR, script=str(script)), folder=str(tmp_path)) as driver:
        with pytest.raises(PeerGoneError, match="ended the process with 1: no such thing"):
            await driver.ask("state")


async def test_a_script_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "hangs.py"
    script.write_text("import sys\nsys.stdin.read()", "utf-8")
    async with Driver(replace(FLOOR, script=str(script)), folder=str(tmp_path)) as driver:
        with pytest.raises(PeerGoneError, match="gave no answer"):
            await driver.ask("state", within=0.1)


def test_each_round_begins_with_another_peer() -> None:
    order = [peer.name for peer in speed.turns([OURS, FLOOR], 3)]
    assert order == ["dragoman", "floor", "floor", "dragoman", "dragoman", "floor"]


def test_one_failed_round_hides_the_figures_of_the_others() -> None:
    best = speed.Best()
    best.take("start", "floor", 2.0)
    best.take("start", "floor", 1.0)
    best.take("start", "dragoman", 1.0)
    best.fail("start", "dragoman", "hangs")
    row = best.row("start", [OURS, FLOOR], section="start", title="", unit="ms")
    assert row.figures["floor"].value == 1.0
    assert (row.figures["dragoman"].value, row.figures["dragoman"].text) == (None, "— (hangs)")


def test_every_peer_has_a_script_and_a_lock() -> None:
    for peer in PEERS:
        assert Path(peer.driver).is_file()
        lock = "run.txt" if peer.environment == "dragoman" else f"peers/{peer.environment}.txt"
        assert (ROOT / "requirements" / lock).is_file(), peer.name


@pytest.mark.parametrize(
    "arguments", [["novelty"], ["calls", "--quick"], ["peers", "--only", "novelty"], ["peers", "--rows"]]
)
def test_wrong_arguments_are_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(arguments) == 2
    assert "peers" in capsys.readouterr().out


def test_facts_name_no_machine() -> None:
    facts = run.facts()
    assert list(facts) == ["date", "Python", "system", "cores", "load before the run"]
    assert not any("/" in value for value in facts.values())
