"""`dragoman.testing` under a real manager: what users' own tests stand on."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from dragoman import (
    CallTimeoutError,
    DragomanError,
    Handlers,
    McpManager,
    ProtocolError,
    ServerState,
    ToolDef,
    ToolFailedError,
    ToolResult,
    ToolUnavailableError,
    tool,
)
from dragoman.blocking.manager import McpManager as BlockingManager
from dragoman.events import StateChanged, ToolsChanged
from dragoman.model import Part
from dragoman.testing import InstantClock, ScriptedServer
from dragoman.trust.masking import spec_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

HOUR = 3600.0


def with_manager(
    server: ScriptedServer,
    job: Callable[[McpManager], Awaitable[Any]],
    handlers: Handlers | None = None,
    **rules: Any,
) -> InstantClock:
    """Run a job with a manager of one server, under an instant clock."""
    clock = InstantClock()

    async def main() -> None:
        async with McpManager([server.spec(**rules)], cache=False, handlers=handlers) as mcp:
            await mcp.wait_ready()
            await job(mcp)

    clock.run(main())
    return clock


async def until(mcp: McpManager, state: ServerState, begin: Callable[[], None]) -> None:
    events = mcp.events()
    begin()
    async for event in events:
        if isinstance(event, StateChanged) and event.after is state:
            return


# The clock


def real_seconds(main: Coroutine[Any, Any, Any], clock: InstantClock) -> float:
    began = time.perf_counter()
    clock.run(main)
    return time.perf_counter() - began


def test_what_sleeps_wakes_in_the_right_order_and_at_the_right_time() -> None:
    woken: list[tuple[str, float]] = []
    clock = InstantClock()

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append((name, round(clock.elapsed, 3)))

    async def main() -> None:
        await asyncio.gather(sleeper("c", 3 * HOUR), sleeper("a", 1), sleeper("b", HOUR))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(HOUR):
                await asyncio.Event().wait()

    assert real_seconds(main(), clock) < HOUR / 60
    assert woken == [("a", 1.0), ("b", HOUR), ("c", 3 * HOUR)]
    assert clock.elapsed == pytest.approx(4 * HOUR)
    assert clock.skipped == pytest.approx(4 * HOUR)


def test_a_function_in_a_thread_is_waited_for_before_any_timer_is_jumped_to() -> None:
    release = threading.Event()
    clock = InstantClock()

    async def main() -> str:
        work = asyncio.ensure_future(asyncio.to_thread(release.wait, 30))
        asyncio.get_running_loop().call_soon(release.set)
        done, _ = await asyncio.wait({work}, timeout=HOUR)
        return "work" if work in done else "timer"

    assert clock.run(main()) == "work"
    assert clock.skipped == 0


def test_a_pipe_that_is_watched_is_real() -> None:
    clock = InstantClock()

    async def main() -> bytes:
        child = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", "echo out", stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(HOUR):
            out, _ = await child.communicate()
        return out

    assert clock.run(main()) == b"out\n"
    assert clock.elapsed < HOUR


def test_monotonic_is_the_loops_time_on_the_loops_thread_and_nowhere_else() -> None:
    real = time.monotonic

    async def main() -> tuple[float, float]:
        await asyncio.sleep(HOUR)
        assert time.monotonic() == asyncio.get_running_loop().time()
        return time.monotonic(), await asyncio.to_thread(time.monotonic)

    shown, beside = InstantClock().run(main())
    assert shown - beside > HOUR - 60
    assert time.monotonic is real


@pytest.mark.parametrize("uptime", [0.1, 31_111_111.77, 987_654_321.123])
def test_time_passes_however_long_the_machine_has_been_up(uptime: float) -> None:
    clock = InstantClock()
    clock.now = uptime

    async def main() -> None:
        for wait in (0.02, 1e-7, 0.3, HOUR):
            await asyncio.sleep(wait)

    clock.run(main())
    assert clock.skipped == pytest.approx(HOUR + 0.32)


def test_two_clocks_in_two_threads_do_not_disturb_each_other() -> None:
    async def sleeps(seconds: float) -> float:
        before = time.monotonic()
        await asyncio.sleep(seconds)
        return round(time.monotonic() - before, 3)

    found: dict[float, float] = {}
    hours = [HOUR, 2 * HOUR, 3 * HOUR]
    threads = [
        threading.Thread(
            target=lambda seconds=seconds: found.update({seconds: InstantClock().run(sleeps(seconds))})
        )
        for seconds in hours
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {seconds: seconds for seconds in hours}


class TestUnderAnotherRunner:
    """The clock's loop is any runner's `loop_factory`; here anyio's."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "asyncio", {"loop_factory": InstantClock().loop}

    async def test_a_day_passes(self) -> None:
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(24 * HOUR)
        assert asyncio.get_running_loop().time() - before == pytest.approx(24 * HOUR)


# The server


def law() -> ScriptedServer:
    server = ScriptedServer("law")

    @server.tool
    def article(number: int) -> dict[str, Any]:
        """Find an article.

        Args:
            number: Which one.
        """
        return {"number": number, "text": f"Art. {number}"}

    @server.tool
    async def slow() -> str:
        """Take an hour."""
        await asyncio.sleep(HOUR)
        return "late"

    return server


def test_a_manager_lists_and_calls_the_functions() -> None:
    server = law()

    async def job(mcp: McpManager) -> None:
        assert [one.name for one in mcp.tools()] == ["mcp_law_article", "mcp_law_slow"]
        schema = mcp.tools()[0].input_schema
        assert schema["properties"]["number"] == {"type": "integer", "description": "Which one."}
        result = await mcp.call("mcp_law_article", {"number": 4})
        assert (result.success, result.structured) == (True, {"number": 4, "text": "Art. 4"})
        status = mcp.status()["law"]
        assert (status.server_name, status.server_version, status.pid) == ("law", "1.0", None)

    with_manager(server, job)
    assert [(call.tool, call.arguments) for call in server.calls] == [("article", {"number": 4})]
    assert server.connections == 1
    assert server.wires == set()


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ("plain", "plain", None),
        (None, "", None),
        ([1, 2], "[1, 2]", None),
        ({"a": 1}, '{"a": 1}', {"a": 1}),
        (ToolResult(success=True, text="said", structured={"b": 2}, meta={"k": "v"}), "said", {"b": 2}),
    ],
)
def test_what_a_function_returns_is_the_answer(value: Any, text: str, structured: Any) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    answer = ToolDef(name="answer", description="", input_schema=schema, func=lambda: value)

    async def job(mcp: McpManager) -> None:
        result = await mcp.call("mcp_s_answer")
        assert result.success
        assert result.text.startswith(text)
        assert result.structured == structured

    with_manager(ScriptedServer("s", tools=[answer]), job)


def test_parts_go_over_as_they_are() -> None:
    parts = [
        Part(kind="image", data=b"\x89PNG", mime_type="image/png"),
        Part(kind="link", uri="law://4", text="Art. 4"),
        Part(kind="resource", uri="law://5", text="Art. 5"),
        Part(kind="resource", uri="law://6", data=b"\0"),
    ]

    def answer() -> ToolResult:
        return ToolResult(success=True, parts=parts)

    def single() -> Part:
        return parts[1]

    async def job(mcp: McpManager) -> None:
        came = (await mcp.call("mcp_s_answer")).parts
        assert [(one.kind, one.uri, one.data) for one in came] == [(p.kind, p.uri, p.data) for p in parts]
        assert [one.kind for one in (await mcp.call("mcp_s_single")).parts] == ["link"]

    with_manager(ScriptedServer("s", tools=[answer, single]), job)


def test_what_a_function_raises_is_the_failure() -> None:
    def breaks() -> str:
        raise ValueError("the disk is full")

    def refuses() -> str:
        raise ProtocolError("not today", rpc_code=-32602, data={"why": "because"})

    def fails() -> ToolResult:
        return ToolResult(success=False, text="no such article")

    async def job(mcp: McpManager) -> None:
        broken, refused, failed = [await mcp.call(f"mcp_s_{name}") for name in ("breaks", "refuses", "fails")]
        assert (type(broken.exception), broken.error) == (ToolFailedError, "the disk is full")
        assert isinstance(refused.exception, ProtocolError)
        assert (refused.exception.rpc_code, refused.exception.data) == (-32602, {"why": "because"})
        assert (type(failed.exception), failed.error) == (ToolFailedError, "no such article")
        assert isinstance((await mcp.call("mcp_s_none")).exception, DragomanError)

    with_manager(ScriptedServer("s", tools=[breaks, refuses, fails]), job)


def test_a_call_that_takes_too_long_ends_at_once_under_the_clock_and_the_server_is_told() -> None:
    server = law()

    async def job(mcp: McpManager) -> None:
        result = await mcp.call("mcp_law_slow")
        assert isinstance(result.exception, CallTimeoutError)
        assert result.duration == pytest.approx(600, abs=1)
        assert (await mcp.call("mcp_law_slow", timeout=2 * HOUR)).text == "late"

    clock = with_manager(server, job, timeouts={"call": 600.0})
    assert [call.cancelled for call in server.calls] == [True, False]
    assert clock.skipped > HOUR


def test_a_crash_loses_the_call_and_the_manager_comes_back() -> None:
    server = law()

    @server.tool
    def die() -> str:
        server.crash("out of memory")
        return "never"

    async def job(mcp: McpManager) -> None:
        lost = await mcp.call("mcp_law_die")
        assert isinstance(lost.exception, ToolUnavailableError)
        assert lost.exception.may_have_run
        assert "out of memory" in str(lost.error)
        assert (await mcp.call("mcp_law_article", {"number": 1})).success

    with_manager(server, job)
    assert server.connections == 2


def test_a_stopped_server_is_tried_again_and_again_until_it_starts() -> None:
    server = law()

    async def job(mcp: McpManager) -> None:
        await until(mcp, ServerState.BACKOFF, server.stop)
        await asyncio.sleep(HOUR)
        status = mcp.status()["law"]
        assert status.state in (ServerState.BACKOFF, ServerState.CONNECTING)
        assert "the scripted server is stopped" in str(status.last_error)
        assert not (await mcp.call("mcp_law_article", {"number": 1})).success
        await until(mcp, ServerState.READY, server.start)
        assert (await mcp.call("mcp_law_article", {"number": 1})).success

    clock = with_manager(server, job)
    assert clock.skipped > HOUR
    assert server.connections == 2


def test_a_connection_can_be_refused_or_slow() -> None:
    tries: list[float] = []

    async def moody() -> None:
        tries.append(time.monotonic())
        if len(tries) < 3:
            raise ValueError("not in the mood")
        await asyncio.sleep(20)

    server = ScriptedServer("s", on_connect=moody)

    async def job(mcp: McpManager) -> None:
        assert "not in the mood" in str(mcp.status()["s"].last_error)
        await until(mcp, ServerState.READY, lambda: None)
        assert time.monotonic() - tries[-1] == pytest.approx(20)

    with_manager(server, job)
    assert len(tries) == 3


def test_a_change_of_the_list_reaches_the_manager() -> None:
    server = law()

    async def job(mcp: McpManager) -> None:
        events = mcp.events()

        @server.tool
        def chapter(number: int) -> str:
            return f"chapter {number}"

        changes = (event async for event in events if isinstance(event, ToolsChanged))
        added = await anext(changes)
        assert list(added.added) == ["mcp_law_chapter"]
        server.remove("article")
        removed = await anext(changes)
        assert list(removed.removed) == ["mcp_law_article"]
        assert (await mcp.call("mcp_law_chapter", {"number": 2})).text == "chapter 2"

    with_manager(server, job)


def test_a_tool_reports_progress_and_asks_the_application() -> None:
    server = ScriptedServer("s")
    heard: list[Any] = []

    @server.tool
    async def book() -> str:
        server.current.progress(1, 2, "half way")
        form = {"message": "How many?", "requestedSchema": {"type": "object", "properties": {}}}
        return str((await server.current.ask("elicitation/create", form))["action"])

    async def job(mcp: McpManager) -> None:
        result = await mcp.call("mcp_s_book", on_progress=lambda *told: heard.append(told))
        assert result.text == "accept"

    with_manager(
        server, job, Handlers(elicitation=lambda _server, _asked: {"action": "accept", "content": {}})
    )
    assert heard == [(1.0, 2.0, "half way")]
    with pytest.raises(DragomanError, match="no current call"):
        server.current  # noqa: B018 -- reading it is the test


def test_resources_prompts_and_instructions_are_offered() -> None:
    server = ScriptedServer(
        "s",
        resources={"law://1": "the text", "law://2": b"\0\1"},
        prompts={"explain": "Explain {topic}."},
        instructions="Cite the article.",
    )

    async def job(mcp: McpManager) -> None:
        assert [one.uri for one in await mcp.resources()] == ["law://1", "law://2"]
        assert [one.text for one in await mcp.read("law://1")] == ["the text"]
        assert [one.data for one in await mcp.read("law://2")] == [b"\0\1"]
        (prompt,) = await mcp.prompts()
        assert [one["name"] for one in prompt.arguments] == ["topic"]
        (message,) = await mcp.prompt("explain", {"topic": "deposits"}, server="s")
        assert message["content"]["text"] == "Explain deposits."
        assert mcp.instructions() == {"s": "Cite the article."}
        with pytest.raises(DragomanError):
            await mcp.read("law://3", server="s")

    with_manager(server, job)


def test_it_serves_a_blocking_manager_and_can_be_told_from_another_thread() -> None:
    server = law()
    with BlockingManager([server.spec()], cache=False) as mcp:
        assert mcp.wait_ready()
        events = mcp.events()
        assert mcp.call("mcp_law_article", {"number": 3}).success
        server.crash()
        while not (isinstance(event := next(events), StateChanged) and event.after is ServerState.READY):
            pass
        assert mcp.call("mcp_law_article", {"number": 3}).success
    assert server.connections == 2


def test_a_lazy_unused_server_is_let_go_in_no_time() -> None:
    server = law()

    async def job(mcp: McpManager) -> None:
        assert mcp.status()["law"].state is ServerState.IDLE
        # The call names the server, so it waits for the first connection.
        assert (await mcp.call("mcp_law_article", {"number": 1})).success
        await mcp.restart("law")
        used = time.monotonic()
        assert (await mcp.call("mcp_law_article", {"number": 1})).success
        await until(mcp, ServerState.IDLE, lambda: None)
        assert time.monotonic() - used >= HOUR

    clock = with_manager(server, job, lazy=True, timeouts={"idle": HOUR})
    # What is not skipped was waited for: for threads, mostly.
    assert clock.elapsed - clock.skipped < HOUR / 60


def test_no_listing_on_disk_is_mistaken_for_another_servers(tmp_path: Path) -> None:
    first, second = law().spec(), law().spec()
    assert spec_key(first, "") != spec_key(second, "")
    assert first != second
    assert repr(ScriptedServer("law")) == "ScriptedServer('law')"


def test_a_tool_without_a_function_is_refused() -> None:
    remote = ToolDef(name="far", description="", input_schema={})
    with pytest.raises(DragomanError, match="needs its `func`"):
        ScriptedServer("s", tools=[remote])


def test_a_decorated_function_is_taken_as_it_is() -> None:
    @tool(name="named", annotations={"readOnlyHint": True}, title="Named")
    def function() -> str:
        return "x"

    server = ScriptedServer("s", tools=[function])
    assert server.tool(function) is function

    async def job(mcp: McpManager) -> None:
        (listed,) = mcp.tools()
        assert (listed.original_name, listed.title, listed.annotations) == (
            "named",
            "Named",
            {"readOnlyHint": True},
        )

    with_manager(server, job)
