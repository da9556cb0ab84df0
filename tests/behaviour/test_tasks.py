"""Tasks (SEP-2663) and calls that ask a person, against a process that keeps its tasks."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.behaviour.test_apps import managed, modern
from tests.unit.cli.test_slash import answer as answer_to

from dragoman import CallTimeoutError, DragomanError, Handlers, McpManager, ProtocolError, ToolFailedError
from dragoman.blocking import McpManager as BlockingManager
from dragoman.cli import slash
from dragoman.model import Continuation
from dragoman.server.tasks import MAX_QUESTIONS, TaskFollower
from dragoman.storage.files import data_folder
from dragoman.storage.tasks import TaskRecord, TaskStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.anyio


def requests(state: Path, method: str = "") -> list[Any]:
    log = state.with_suffix(".log")
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [params for name, params in lines if name == method] if method else lines


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


class Person:
    """Answers forms, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, server: str, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request["message"])
        return {"action": "accept", "content": {"name": request["message"].upper()}}


# ── Tasks


@pytest.mark.usefixtures("pipes")
async def test_must_be_prepared_for_a_task_and_follows_it_to_its_end(state: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        result = await mcp.call("mcp_m_work", {"polls": 3})
        assert result.text == "work done {}"
        assert await mcp.tasks.list() == []
    assert [one["taskId"] for one in requests(state, "tasks/get")] == ["secret-0"] * 3


async def test_must_declare_tasks_on_every_request(state: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        await mcp.call("mcp_m_work")
    for params in requests(state, "tools/call") + requests(state, "tasks/get"):
        declared = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"]
        assert declared["io.modelcontextprotocol/tasks"] == {}


async def test_should_honour_the_poll_interval(state: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await mcp.call("mcp_m_work", {"polls": 3, "poll": 200})).success
        # Not an upper bound of time: three questions need three intervals.
        assert loop.time() - began >= 0.6
    assert len(requests(state, "tasks/get")) == 3


async def test_may_go_on_with_the_states_that_the_server_announces(state: Path) -> None:
    person = Person()
    slow = {"kind": "announce", "poll": 3_600_000}
    async with managed(modern("m", str(state)), handlers=Handlers(elicitation=person)) as mcp:
        assert (await mcp.call("mcp_m_work", slow)).text == "announce done {}"
        assert (await mcp.call("mcp_m_work", {**slow, "asks": ["a"]})).success
        assert await mcp.tasks.list() == []
    assert person.asked == ["a"]
    listened = [one["notifications"] for one in requests(state, "subscriptions/listen")]
    assert listened == [{"taskIds": ["secret-0"]}, {"taskIds": ["secret-1"]}]
    assert requests(state, "tasks/get") == []


class State(dict[str, Any]):
    """A state that can be referred to weakly."""


class Announcing:
    """A session that announces states."""

    direct = has_tasks = False

    def __init__(self) -> None:
        self.task_watchers: dict[str, Callable[[dict[str, Any]], None]] = {}


async def test_of_many_announced_states_only_the_newest_is_kept(state: Path) -> None:
    record = TaskRecord(id="1", server="m", server_key="k", task_id="t", tool="w", original_name="w")
    follower, session = TaskFollower(record, cast("Any", None), TaskStore(state)), Announcing()
    follower._listen(cast("Any", session))
    kept: list[Any] = []
    for number in range(1000):
        made = State(taskId="t", status="working", statusMessage=str(number))
        kept.append(weakref.ref(made))
        session.task_watchers["t"](made)
    del made
    assert [one()["statusMessage"] for one in kept if one() is not None] == ["999"]


async def test_the_end_of_a_task_is_not_lost_in_a_flood_of_states(state: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        result = await mcp.call("mcp_m_work", {"kind": "flood", "poll": 3_600_000})
    assert result.text == "flood done {}"


@pytest.mark.parametrize("kind", ["number", "blocks", "block"])
async def test_an_invalid_result_of_a_task_is_an_error_of_its_call(state: Path, kind: str) -> None:
    async with managed(modern("m", str(state))) as mcp:
        result = await mcp.call("mcp_m_work", {"kind": kind})
    assert isinstance(result.exception, ProtocolError)
    assert "with an invalid result" in str(result.error)


async def test_times_of_a_task_may_be_integers_of_any_size(state: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        assert (await mcp.call("mcp_m_work", {"ttl": str(10**400), "polls": 1})).success


async def test_a_task_that_failed_is_the_error_of_its_call(state: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        result = await mcp.call("mcp_m_work", {"kind": "fail"})
    assert isinstance(result.exception, ProtocolError)
    assert result.exception.rpc_code == -32603
    assert "out of paper" in str(result.error)


async def test_a_task_that_vanishes_is_a_clear_error_and_is_forgotten(state: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        result = await mcp.call("mcp_m_work", {"kind": "vanish"})
        assert await mcp.tasks.list() == []
    assert isinstance(result.exception, ToolFailedError)
    assert "is gone" in str(result.error)
    assert "Task has expired" in str(result.error)


async def test_should_treat_the_time_to_live_as_a_backstop(state: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        result = await mcp.call("mcp_m_work", {"polls": 10_000, "ttl": 100})
    assert "did not end within its time to live" in str(result.error)


async def test_must_cancel_a_task_by_tasks_cancel_and_never_by_a_notification(state: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        call = asyncio.ensure_future(mcp.call("mcp_m_work", {"polls": 10_000}))
        while not requests(state, "tasks/get"):  # noqa: ASYNC110 -- the server writes a file
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await mcp.tasks.list() == []
        timed_out = await mcp.call("mcp_m_work", {"polls": 10_000}, timeout=0.3)
    assert isinstance(timed_out.exception, CallTimeoutError)
    assert [one["taskId"] for one in requests(state, "tasks/cancel")] == ["secret-0", "secret-1"]


async def test_a_cancelled_task_is_forgotten_even_if_its_state_was_just_being_stored(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving, saved, forgotten = threading.Event(), threading.Event(), threading.Event()
    save, forget = TaskStore.save, TaskStore.forget

    def slow_save(store: TaskStore, record: TaskRecord) -> None:
        if requests(state, "tasks/get"):
            saving.set()
            forgotten.wait(0.5)  # a save that is left alone comes after the removal
        save(store, record)
        if saving.is_set():
            saved.set()

    def noticed_forget(store: TaskStore, identifier: str) -> None:
        forget(store, identifier)
        forgotten.set()

    monkeypatch.setattr(TaskStore, "save", slow_save)
    monkeypatch.setattr(TaskStore, "forget", noticed_forget)
    async with managed(modern("m", str(state))) as mcp:
        call = asyncio.ensure_future(mcp.call("mcp_m_work", {"polls": 10_000}))
        await asyncio.to_thread(saving.wait)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(saved.wait)
        assert await mcp.tasks.list() == []


async def test_must_ask_questions_of_a_task_by_the_same_handler_once_each(state: Path) -> None:
    person = Person()
    async with managed(modern("m", str(state)), handlers=Handlers(elicitation=person)) as mcp:
        result = await mcp.call("mcp_m_work", {"asks": ["a", "b"]})
    assert person.asked == ["a", "b"]
    assert json.loads(result.text.removeprefix("work done "))["b"] == {
        "action": "accept",
        "content": {"name": "B"},
    }
    (sent,) = requests(state, "tasks/update")
    assert list(sent["inputResponses"]) == ["a", "b"]


async def test_a_task_that_asks_without_end_is_cancelled(state: Path) -> None:
    person = Person()
    async with managed(modern("m", str(state)), handlers=Handlers(elicitation=person)) as mcp:
        result = await mcp.call("mcp_m_work", {"asks": [str(number) for number in range(MAX_QUESTIONS + 1)]})
        assert f"asked more than {MAX_QUESTIONS} questions" in str(result.error)
        assert await mcp.tasks.list() == []
    assert person.asked == []
    assert [one["taskId"] for one in requests(state, "tasks/cancel")] == ["secret-0"]


async def test_a_question_without_a_handler_is_an_error_and_the_task_can_be_resumed(state: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        result = await mcp.call("mcp_m_work", {"asks": ["a"]})
        assert "waits for input that cannot be given here" in str(result.error)
        (task,) = await mcp.tasks.list()
        assert task.status == "input_required"
    person = Person()
    async with managed(modern("m", str(state)), handlers=Handlers(elicitation=person)) as mcp:
        assert (await mcp.tasks.resume(task)).success
    assert person.asked == ["a"]


async def test_should_store_task_ids_as_secrets(state: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        result = await mcp.call("mcp_m_work", {"polls": 1}, detach=True)
        assert result.task is not None
        assert "secret-0" not in repr(result) + result.text
        (file,) = (data_folder() / "tasks").glob("*.task")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert (await mcp.tasks.list()) == [result.task]
        assert (await mcp.tasks.resume(result.task)).text == "work done {}"
        assert await mcp.tasks.list() == []


async def test_a_session_lists_tasks_and_waits_for_one(state: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        assert await answer_to(mcp, "/tasks") == "No tasks.\n"
        task = (await mcp.call("mcp_m_work", {"polls": 2}, detach=True)).task
        assert task is not None
        listed = await answer_to(mcp, "/tasks")
        assert f"{task.id} mcp_m_work" in listed
        assert "working, 0 s: 2 to go" in listed
        with pytest.raises(slash.UsageError, match=r"Unknown task `x`\. /tasks lists them\."):
            await answer_to(mcp, "/tasks x")
        assert "work done {}" in await answer_to(mcp, f"/tasks {task.id}")
        assert await answer_to(mcp, "/tasks") == "No tasks.\n"


CRASHING = """
import asyncio, os, sys
from dragoman import McpManager, ServerSpec, Stdio
async def main():
    async with McpManager([ServerSpec("m", Stdio(sys.executable, sys.argv[1:]))], cache=False) as mcp:
        await mcp.wait_ready()
        await mcp.call("mcp_m_work", {"polls": 3}, detach=True)
        os.kill(os.getpid(), 9)
asyncio.run(main())
"""


async def test_should_resume_a_task_after_a_crash_of_the_client(state: Path) -> None:
    spec = modern("m", str(state))
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CRASHING, *spec.transport.args],
        capture_output=True,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    async with managed(spec) as mcp:
        (task,) = await mcp.tasks.list()
        assert (await mcp.tasks.resume(task.id)).text == "work done {}"


async def test_a_task_is_never_sent_to_another_server_of_the_same_name(state: Path, tmp_path: Path) -> None:
    async with managed(modern("m", str(state))) as mcp:
        task = (await mcp.call("mcp_m_work", detach=True)).task
    assert task is not None
    other = tmp_path / "other.json"
    async with managed(modern("m", str(other))) as mcp:
        assert await mcp.tasks.list() == []
        with pytest.raises(DragomanError, match="nothing was sent"):
            await mcp.tasks.resume(task)
        with pytest.raises(DragomanError, match="unknown task"):
            await mcp.tasks.resume("0000")
    assert requests(other) == []


# ── Calls that ask a person

DURABLE = Handlers(durable_questions=True)


def answer(name: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


async def paused(mcp: McpManager, **arguments: Any) -> Continuation:
    result = await mcp.call("mcp_m_order", arguments, on_input="return")
    assert not result.success
    assert result.input_required is not None
    return result.input_required


async def test_a_call_that_asks_ends_with_its_questions_and_goes_on_in_another_process(state: Path) -> None:
    async with managed(modern("m", str(state)), handlers=DURABLE) as mcp:
        kept = (await paused(mcp)).to_json()
    continuation = Continuation.from_json(kept)
    assert continuation.open_questions == ["first", "second"]
    async with managed(modern("m", str(state)), handlers=DURABLE) as mcp:
        result = await mcp.tasks.resume(
            continuation, {"first": answer("Ada"), "second": {"action": "decline"}}
        )
    assert result.text == "ordered for Ada, decline"
    assert requests(state, "tools/call")[-1]["requestState"] == "state-7"


async def test_a_host_can_ask_one_question_at_a_time(state: Path) -> None:
    async with managed(modern("m", str(state)), handlers=DURABLE) as mcp:
        step = await mcp.tasks.resume(await paused(mcp), {"first": answer("Ada")})
        assert step.input_required is not None
        assert step.input_required.open_questions == ["second"]
        assert len(requests(state, "tools/call")) == 1
        result = await mcp.tasks.resume(step.input_required, {"second": answer("Bob")})
    assert result.text == "ordered for Ada, Bob"


@pytest.mark.parametrize(
    "change",
    [
        {"arguments": {"asks": ["x"]}},
        {"state": "state-8"},
        {"tool": "mcp_m_short"},
        {"server": "n"},
        {"answers": {"first": answer("Eve")}},
        {"signature": ""},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_continuation_that_was_changed_is_refused_and_nothing_runs(state: Path, change: Any) -> None:
    async with managed(modern("m", str(state)), handlers=DURABLE) as mcp:
        forged = (await paused(mcp)).replace(**change)
        with pytest.raises(DragomanError, match="was changed"):
            await mcp.tasks.resume(forged, {"first": answer("Ada"), "second": answer("Bob")})
    assert len(requests(state, "tools/call")) == 1


async def test_a_continuation_is_used_once(state: Path) -> None:
    given = {"first": answer("Ada"), "second": answer("Bob")}
    async with managed(modern("m", str(state)), handlers=DURABLE) as mcp:
        continuation = await paused(mcp)
        assert (await mcp.tasks.resume(continuation, given)).success
        with pytest.raises(DragomanError, match="continued already"):
            await mcp.tasks.resume(continuation, given)
    assert len(requests(state, "tools/call")) == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"third": answer("x")}, "no question has the key `third`"),
        ({"first": "Ada"}, "needs an `action`"),
        ({"first": {"action": "accept", "content": {"name": 5}}}, "expected a string"),
    ],
)
async def test_answers_that_do_not_fit_are_refused_and_nothing_runs(
    state: Path, given: Any, said: str
) -> None:
    async with managed(modern("m", str(state)), handlers=DURABLE) as mcp:
        with pytest.raises(DragomanError, match=said):
            await mcp.tasks.resume(await paused(mcp), given)
    assert len(requests(state, "tools/call")) == 1


async def test_questions_of_a_call_that_waits_are_asked_one_after_the_other(state: Path) -> None:
    person = Person()
    async with managed(modern("m", str(state)), handlers=Handlers(elicitation=person)) as mcp:
        result = await mcp.call("mcp_m_order")
    assert person.asked == ["first", "second"]
    assert result.text == "ordered for FIRST, SECOND"


# ── Without `await`


def test_tasks_and_questions_without_await(state: Path) -> None:
    with BlockingManager([modern("m", str(state))], cache=False, handlers=DURABLE) as mcp:
        assert mcp.wait_ready()
        detached = mcp.call("mcp_m_work", {"polls": 2}, detach=True)
        assert mcp.tasks.list() == [detached.task]
        assert mcp.tasks.resume(mcp.tasks.list()[0]).text == "work done {}"
        abandoned = mcp.call("mcp_m_work", {"polls": 10_000}, detach=True).task
        assert abandoned is not None
        mcp.tasks.cancel(abandoned)
        assert mcp.tasks.list() == []
        asked = mcp.call("mcp_m_order", on_input="return").input_required
        assert asked is not None
        result = mcp.tasks.resume(asked, {"first": answer("Ada"), "second": answer("Bob")})
    assert result.text == "ordered for Ada, Bob"
    assert [one["taskId"] for one in requests(state, "tasks/cancel")] == ["secret-1"]
