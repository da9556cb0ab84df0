from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp.shared.dispatcher import Dispatcher
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, REQUEST_TIMEOUT
from pydantic import TypeAdapter

from dragoman.errors import ConnectionLostError, InvalidArgumentsError, ProtocolError
from dragoman.server.attempt import ConnectionEnd
from dragoman.server.protocol import dispatcher as dispatching
from dragoman.server.protocol.deadlines import Deadline
from dragoman.server.protocol.dispatcher import (
    JUNK_LOGGED,
    MAX_NOTIFICATIONS,
    MAX_REQUESTS,
    WireDispatcher,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dragoman.server.protocol.wire import SendInfo

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("otter-p0.methods", "legal-call.timeout", "kode-call.async"),
]


class FakeWire:
    """Keeps what is sent; the test answers."""

    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], SendInfo]] = []
        self.abandoned: list[tuple[Any, str, bool]] = []

    def send(self, message: bytes, envelope: SendInfo) -> None:
        self.sent.append((json.loads(message), envelope))

    def abandon(self, message: bytes, envelope: SendInfo, reason: str, *, tell: bool = True) -> bool:
        self.abandoned.append((envelope.request_id, reason, tell))
        return False


class Talk:
    """A dispatcher on a fake wire, with handlers that take down what they get."""

    def __init__(self, **more: Any) -> None:
        self.wire = FakeWire()
        self.dispatcher = WireDispatcher("s", **more)
        self.dispatcher.wire = self.wire
        self.notified: list[tuple[str, Any]] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def on_request(self, context: Any, method: str, params: Any) -> dict[str, Any]:
        self.context = context
        await self.hold.wait()
        match method:
            case "refuse":
                raise MCPError(code=-5, message="no", data=[1])
            case "invalid":
                TypeAdapter(int).validate_python("x")
            case "crash":
                raise RuntimeError("secret")
            case "ask":
                return await context.send_raw_request("sub", {})
            case "report":
                await context.progress(1, 2, "half")
                await context.notify("n", None)
        return {"got": params}

    async def on_notify(self, context: Any, method: str, params: Any) -> None:
        if method == "bad":
            raise RuntimeError("handler")
        self.notified.append((method, params))

    def say(self, message: object) -> None:
        self.dispatcher.rpc.receive(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def answer(self, **outcome: Any) -> None:
        self.say({"id": self.wire.sent[-1][0]["id"], **outcome})

    def begin(self, method: str = "m", params: Any = None, **opts: Any) -> asyncio.Task[dict[str, Any]]:
        return asyncio.ensure_future(self.dispatcher.send_raw_request(method, params, opts))

    @asynccontextmanager
    async def running(self, intercept: Any = None) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            await group.start(self.dispatcher.run, self.on_request, self.on_notify, intercept)
            yield
            self.dispatcher.end(ConnectionEnd(reason="over"))


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_the_seam_of_the_sdk_is_where_it_was() -> None:
    wanted = {"send_raw_request", "notify", "run"}
    assert wanted <= set(dir(Dispatcher))
    assert set(
        Dispatcher.__abstractmethods__ if hasattr(Dispatcher, "__abstractmethods__") else wanted
    ) <= wanted | set(dir(WireDispatcher))


# ── requests of ours


async def test_request_gets_its_result() -> None:
    talk = Talk()
    task = asyncio.ensure_future(talk.dispatcher.send_raw_request("m", {"a": 1}, {"headers": {"h": "1"}}))
    await turns(2)
    (message, envelope), *_ = talk.wire.sent
    assert (message["method"], message["params"]) == ("m", {"a": 1})
    assert (envelope.method, envelope.request_id, envelope.headers) == ("m", message["id"], {"h": "1"})
    talk.answer(result={"x": 1})
    assert await task == {"x": 1}


@pytest.mark.parametrize(
    ("method", "filled_in"),
    [
        ("tools/call", {"resultType": "complete"}),
        ("prompts/list", {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}),
        ("server/discover", {}),
    ],
)
async def test_what_a_modern_server_forgets_to_say_is_filled_in(
    method: str, filled_in: dict[str, Any]
) -> None:
    talk = Talk()
    talk.dispatcher.is_modern = True
    for said in ({}, {"resultType": "input_required"}):
        task = talk.begin(method)
        await turns(2)
        talk.answer(result=said)
        assert await task == {**filled_in, **said}


async def test_listing_with_an_unreadable_entry_is_taken_without_it() -> None:
    talk = Talk()
    task = talk.begin("tools/list")
    await turns(2)
    talk.answer(result={"tools": [{"name": "a"}, {"name": "b", "x": float("nan")}]})
    assert [tool["name"] for tool in (await task)["tools"]] == ["a"]


async def test_error_of_the_server_is_the_sessions_error_with_ours_as_its_cause() -> None:
    talk = Talk()
    task = talk.begin()
    await turns(2)
    talk.answer(error={"code": -7, "message": "no", "data": {"why": 1}})
    with pytest.raises(MCPError) as caught:
        await task
    assert (caught.value.code, caught.value.message, caught.value.data) == (-7, "no", {"why": 1})
    assert isinstance(caught.value.__cause__, ProtocolError)


@pytest.mark.parametrize("tell", [True, False])
async def test_time_out_tells_the_server_unless_told_not_to(tell: bool) -> None:
    talk = Talk()
    with anyio.fail_after(5), pytest.raises(MCPError) as caught:
        await talk.begin(timeout=0.01, cancel_on_abandon=tell)
    assert caught.value.code == REQUEST_TIMEOUT
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert all(told is tell for _, _, told in talk.wire.abandoned)
    assert talk.dispatcher.rpc.waiting == 0


async def test_deadline_of_the_whole_call_ends_a_request_and_may_be_put_off() -> None:
    talk = Talk()
    loop = asyncio.get_running_loop()
    until = Deadline(loop.time() + 0.02)
    task = asyncio.ensure_future(talk.dispatcher.request("m", None, {"timeout": 60}, end=until))
    await turns(2)
    until.at += 0.05
    with anyio.fail_after(5), pytest.raises(MCPError):
        await task
    assert loop.time() >= until.at


async def test_deadline_that_has_passed_ends_a_request_at_once() -> None:
    talk = Talk()
    with anyio.fail_after(5), pytest.raises(MCPError):
        await talk.begin(timeout=-1)


async def test_end_of_the_wire_gives_each_call_of_a_tool_an_error_of_its_own() -> None:
    talk = Talk()
    calls = [talk.begin("tools/call") for _ in range(3)]
    await turns(2)
    talk.dispatcher.end(ConnectionEnd(reason="it is gone"))
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in errors] == [ConnectionLostError] * 3
    assert len({id(error) for error in errors}) == 3


@pytest.mark.parametrize("method", ["server/discover", "other"])
async def test_question_for_the_era_has_a_limit_of_its_own(method: str) -> None:
    talk = Talk(probe_seconds=0.01)
    task = talk.begin(method, timeout=0.2)
    began = asyncio.get_running_loop().time()
    with anyio.fail_after(5), pytest.raises(MCPError):
        await task
    assert (asyncio.get_running_loop().time() - began < 0.2) == (method == "server/discover")


async def test_cancelled_request_is_given_up_and_its_late_answer_is_passed_over() -> None:
    talk = Talk()
    task = talk.begin()
    await turns(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert talk.wire.abandoned == [(1, "the caller cancelled it", True)]
    talk.answer(result={})
    assert talk.dispatcher.rpc.junk == 0


@pytest.mark.parametrize(("method", "kind"), [("initialize", ConnectionLostError), ("m", MCPError)])
async def test_end_of_the_wire_is_no_answer_while_negotiating(method: str, kind: type) -> None:
    talk = Talk()
    task = talk.begin(method)
    await turns(2)
    talk.dispatcher.end(ConnectionEnd(reason="it was killed"))
    with pytest.raises(kind, match="was lost: it was killed") as caught:
        await task
    assert getattr(caught.value, "code", CONNECTION_CLOSED) in (CONNECTION_CLOSED, "server.lost")
    with pytest.raises(kind, match="was lost: it was killed"):
        await talk.begin(method)
    await talk.dispatcher.notify("n", None)
    assert len(talk.wire.sent) == 1


async def test_cancelling_after_the_end_sends_nothing() -> None:
    talk = Talk()
    task = talk.begin()
    await turns(2)
    talk.dispatcher.end(ConnectionEnd(reason="over"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert talk.wire.abandoned == []


async def test_parameters_that_cannot_be_written_are_the_callers_error() -> None:
    talk = Talk()
    with pytest.raises(MCPError) as caught:
        await talk.begin("m", {"x": "\ud800"})
    assert isinstance(caught.value.__cause__, InvalidArgumentsError)


async def test_before_the_wire_is_open_nothing_can_be_sent() -> None:
    dispatcher = WireDispatcher("s")
    with pytest.raises(ConnectionLostError, match="not open") as caught:
        await dispatcher.send_raw_request("m", None)
    assert not caught.value.may_have_run


async def test_progress_reaches_its_handler_in_order() -> None:
    talk, seen = Talk(), []

    async def on_progress(*facts: Any) -> None:
        seen.append(facts)

    async with talk.running():
        task = talk.begin(on_progress=on_progress)
        await turns(2)
        for number in range(3):
            talk.say({"method": "notifications/progress", "params": {"progressToken": 1, "progress": number}})
        talk.answer(result={})
        await task
        await turns()
    assert [fact[0] for fact in seen] == [0, 1, 2]


# ── what the server sends


async def test_notifications_are_delivered_in_order_and_one_bad_handler_harms_none() -> None:
    talk = Talk()
    async with talk.running():
        for method in ("a", "bad", "b"):
            talk.say({"method": method})
        await turns()
    assert [method for method, _ in talk.notified] == ["a", "b"]


async def test_interceptor_comes_first_and_may_keep_a_notification() -> None:
    talk, seen = Talk(), []

    def intercept(method: str, params: Any) -> bool:
        seen.append(method)
        if method == "odd":
            raise RuntimeError
        return method == "mine"

    async with talk.running(intercept):
        for method in ("mine", "odd", "theirs"):
            talk.say({"method": method})
        assert seen == ["mine", "odd", "theirs"]
        await turns()
    assert [method for method, _ in talk.notified] == ["odd", "theirs"]


async def test_flood_of_notifications_lets_others_run_and_drops_the_oldest() -> None:
    talk, others = Talk(), 0
    async with talk.running():
        for number in range(MAX_NOTIFICATIONS + 100):
            talk.say({"method": "n", "params": {"number": number}})
        while not talk.notified or talk.notified[-1][1]["number"] < MAX_NOTIFICATIONS + 99:
            await asyncio.sleep(0)
            others += 1
    assert talk.notified[0][1] == {"number": 100}
    assert others >= MAX_NOTIFICATIONS / dispatching.TURN_DELIVERIES


@pytest.mark.parametrize(
    ("method", "outcome"),
    [
        ("ok", {"result": {"got": None}}),
        ("refuse", {"error": {"code": -5, "message": "no", "data": [1]}}),
        ("invalid", {"error": {"code": INVALID_PARAMS, "message": "Invalid request parameters", "data": ""}}),
        ("crash", {"error": {"code": INTERNAL_ERROR, "message": "the client could not answer"}}),
    ],
)
async def test_request_of_the_server_is_answered(method: str, outcome: Any) -> None:
    talk = Talk()
    async with talk.running():
        talk.say({"id": "r1", "method": method})
        await turns()
        ((message, envelope),) = talk.wire.sent
    assert message == {"jsonrpc": "2.0", "id": "r1", **outcome}
    assert envelope.request_id is None


async def test_handler_may_ask_and_report_while_it_works_and_not_after() -> None:
    talk = Talk()
    async with talk.running():
        talk.say({"id": 1, "method": "report", "params": {"_meta": {"progressToken": "t"}}})
        await turns()
        methods = [message.get("method") for message, _ in talk.wire.sent]
        assert methods == ["notifications/progress", "n", None]
        assert talk.wire.sent[0][0]["params"] == {
            "progressToken": "t",
            "progress": 1,
            "total": 2,
            "message": "half",
        }
        assert not talk.context.can_send_request
        with pytest.raises(NoBackChannelError):
            await talk.context.send_raw_request("late", None)
        await talk.context.notify("late", None)
        await talk.context.progress(1)
        assert len(talk.wire.sent) == 3
        talk.say({"id": 2, "method": "ask"})
        await turns()
        talk.answer(result={"deep": 1})
        await turns()
        assert talk.wire.sent[-1][0]["result"] == {"deep": 1}


async def test_unrequested_progress_is_not_reported() -> None:
    talk = Talk()
    async with talk.running():
        talk.say({"id": 1, "method": "report"})
        await turns()
    assert "notifications/progress" not in [message.get("method") for message, _ in talk.wire.sent]


async def test_too_many_requests_at_once_and_a_repeated_id_are_refused() -> None:
    talk = Talk()
    talk.hold.clear()
    async with talk.running():
        for number in [*range(MAX_REQUESTS + 5), 0]:
            talk.say({"id": number, "method": "ok"})
        refused = [message["id"] for message, _ in talk.wire.sent if message["error"]["code"] == -32000]
        assert refused == [*range(MAX_REQUESTS, MAX_REQUESTS + 5), 0]
        talk.hold.set()
        await turns(20)
        assert len(talk.wire.sent) == MAX_REQUESTS + 6
        talk.say({"id": 0, "method": "ok"})
        await turns()
        assert talk.wire.sent[-1][0]["result"] == {"got": None}


async def test_request_that_the_server_gives_up_is_not_answered() -> None:
    talk = Talk()
    talk.hold.clear()
    async with talk.running():
        talk.say({"id": 7, "method": "ok"})
        await turns(2)
        for odd in ([], {}, None, "nobody", 8):
            talk.say({"method": "notifications/cancelled", "params": {"requestId": odd}})
        talk.say({"method": "notifications/cancelled"})
        assert not talk.context.cancel_requested.is_set()
        talk.say({"method": "notifications/cancelled", "params": {"requestId": 7}})
        await turns()
        talk.hold.set()
        await turns()
    assert talk.wire.sent == []


async def test_request_before_the_session_runs_is_refused() -> None:
    talk = Talk()
    talk.say({"id": 1, "method": "ok"})
    talk.say({"method": "n"})
    assert talk.wire.sent[0][0]["error"]["code"] == -32000


async def test_end_of_the_wire_ends_the_session_and_its_handlers() -> None:
    talk = Talk()
    talk.hold.clear()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            await group.start(talk.dispatcher.run, talk.on_request, talk.on_notify)
            talk.say({"id": 1, "method": "ok"})
            await turns(2)
            talk.dispatcher.end(ConnectionEnd(reason="gone"))
    assert talk.dispatcher.ended.result().reason == "gone"
    assert talk.wire.sent == []
    talk.dispatcher.end(ConnectionEnd(reason="later"))
    assert talk.dispatcher.ended.result().reason == "gone"


async def test_cancelled_session_fails_waiting_calls() -> None:
    talk = Talk()
    task = talk.begin()
    async with anyio.create_task_group() as group:
        await group.start(talk.dispatcher.run, talk.on_request, talk.on_notify)
        group.cancel_scope.cancel()
    with pytest.raises(MCPError, match="the session was closed"):
        await task


async def test_junk_is_logged_a_few_times_only(caplog: pytest.LogCaptureFixture) -> None:
    talk = Talk()
    for _ in range(100):
        talk.dispatcher.rpc.receive(b"junk")
    lines = [record.getMessage() for record in caplog.records if "unusable" in record.getMessage()]
    assert len(lines) == JUNK_LOGGED
    assert lines[-1].endswith("further ones are only counted")
    assert talk.dispatcher.rpc.junk == 100
