"""Starting, failing, waiting and closing: what the manager promises about its servers."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import anyio
import pytest

from dragoman import (
    ConnectError,
    DragomanError,
    McpManager,
    MissingVariableError,
    ServerSpec,
    ServerState,
    Settings,
    Stdio,
    ToolDef,
    ToolUnavailableError,
    UnknownServerError,
)
from dragoman.errors import InvalidSpecError
from dragoman.events import StateChanged, ToolsChanged
from dragoman.manager.pool import STARTING_AT_ONCE
from dragoman.testing import InstantClock, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Make = Callable[..., ServerSpec]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "excel-2.1",
        "excel-2.4",
        "excel-3.1",
        "excel-4.1",
        "excel-7.1",
        "kode-lifecycle.start",
        "kode-connect.failure",
        "kode-discovery.list",
        "kode-discovery.failure",
        "legal-client.init",
        "rrclaw-manager.connect_all",
        "otter-p0.failure",
    ),
]


@pytest.mark.requirement("rrclaw-manager.connect_all")
@pytest.mark.requirement("excel-2.4")
@pytest.mark.requirement("excel-7.3")
@pytest.mark.requirement("otter-p0.failure")
@pytest.mark.requirement("kode-connect.failure")
async def test_server_that_fails_is_logged_and_skipped_and_the_others_connect(
    server: Make, caplog: pytest.LogCaptureFixture
) -> None:
    specs = [
        server("dies", "dying.py"),
        ServerSpec("absent", Stdio("no-such-command-anywhere")),
        server("good", "plain.py"),
    ]
    with anyio.fail_after(20):
        mcp = await McpManager.connect_all(specs)
        try:
            states = {name: status.state for name, status in mcp.status().items()}
            assert states == {"dies": "backoff", "absent": "failed", "good": "ready"}
            assert (await mcp.call("mcp_good_echo", {"text": "x"})).success
            error = mcp.status()["dies"].error
            assert isinstance(error, ConnectError)
            assert (error.exit_code, error.stderr_tail) == (3, "license file missing")
            assert "license file missing" in (mcp.status()["dies"].last_error or "")
            assert "`no-such-command-anywhere` cannot be started" in (mcp.status()["absent"].last_error or "")
        finally:
            await mcp.shutdown()
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert any("dies" in line and "license file missing" in line for line in logged)
    assert any("absent" in line and "no-such-command-anywhere" in line for line in logged)


@pytest.mark.requirement("rrclaw-manager.connect_all", "rrclaw-config.table")
async def test_servers_by_name_are_specs_or_entries_as_a_file_has_them(
    server: Make, caplog: pytest.LogCaptureFixture
) -> None:
    spec = server("other-name", "plain.py")
    assert isinstance(spec.transport, Stdio)
    command, args = spec.transport.command, list(spec.transport.args)
    entry = {"transport": "stdio", "command": command, "args": args, "allowed_tools": ["echo"]}
    servers = {
        "spec": spec,
        "entry": entry,
        "typo": {"transport": "stdio", "comand": "x"},
        "text": "npx server",
    }
    with anyio.fail_after(30):
        mcp = await McpManager.connect_all(servers, cache=False)  # type: ignore[arg-type]
        try:
            assert {name: status.state for name, status in mcp.status().items()} == {
                "spec": "ready",
                "entry": "ready",
            }
            assert [tool.name for tool in mcp.tools() if tool.server == "entry"] == ["mcp_entry_echo"]
            assert (await mcp.call("mcp_entry_echo", {"text": "x"})).text == "x"
            assert (await mcp.call("mcp_spec_echo", {"text": "y"})).text == "y"
            assert len(mcp.settings.problems) == 2
        finally:
            await mcp.shutdown()
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert any("`typo`" in line and "command" in line for line in logged)
    assert any("`text`" in line and "an object" in line for line in logged)


@pytest.mark.requirement("excel-7.1")
@pytest.mark.requirement("kode-lifecycle.start")
@pytest.mark.requirement("legal-client.init")
async def test_connection_logs_the_servers_name_and_its_number_of_tools(
    server: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dragoman")
    with anyio.fail_after(20):
        async with McpManager([server("pages", "paging.py", "3")]) as mcp:
            await mcp.wait_ready()
    lines = [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "INFO" and record.name == "dragoman"
    ]
    assert any("pages" in line and "3 tools" in line for line in lines)


async def test_the_number_of_tools_in_the_log_leaves_out_hidden_ones(
    server: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dragoman")
    with anyio.fail_after(20):
        async with McpManager([server("few", "plain.py", allowed_tools=["echo", "pair"])]) as mcp:
            await mcp.wait_ready()
            assert mcp.status()["few"].tools == len(mcp.tools()) == 2
    assert "few: connected with 2 tools" in [record.getMessage() for record in caplog.records]


def find(text: str) -> str:
    return text


def test_every_connection_is_logged_also_the_one_after_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dragoman")
    law = ScriptedServer("law", tools=[find])

    async def main() -> None:
        async with McpManager([law.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            for _ in range(2):
                before = law.connections
                law.crash()
                while law.connections == before or not await mcp.wait_ready():  # noqa: ASYNC110 -- a reconnection has no event
                    await asyncio.sleep(0.1)

    InstantClock().run(main())
    said = [
        (one.levelname, one.getMessage()) for one in caplog.records if "connected with" in one.getMessage()
    ]
    assert said == [("INFO", "law: connected with 1 tool")] * 3


async def test_entering_waits_for_no_server_and_a_hanging_one_delays_no_other(server: Make) -> None:
    hanging = server("hangs", "mute.py", timeouts={"connect": 600})
    with anyio.fail_after(20):
        async with McpManager([hanging, server("good", "plain.py")]) as mcp:
            assert mcp.status()["hangs"].state is ServerState.CONNECTING
            assert await mcp.wait_ready(["good"])
            assert (await mcp.call("mcp_good_pair")).success
            assert mcp.status()["hangs"].state is ServerState.CONNECTING
            assert not await mcp.wait_ready(timeout=0)


async def test_server_that_never_shakes_hands_fails_at_its_connect_deadline(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("mute", "mute.py", timeouts={"connect": 0.3})]) as mcp:
            assert not await mcp.wait_ready()
            assert mcp.status()["mute"].state is ServerState.BACKOFF
            assert "no answer within 0.3 s" in (mcp.status()["mute"].last_error or "")


async def test_failure_to_connect_keeps_its_cause(server: Make) -> None:
    mute = server("mute", "mute.py", timeouts={"connect": 0.3}, required=True)
    with anyio.fail_after(20), pytest.raises(ConnectError) as caught:
        await McpManager([mute]).__aenter__()
    failure = caught.value.__cause__
    assert isinstance(failure, ConnectError)
    assert isinstance(failure.__cause__, TimeoutError)


async def test_missing_variable_fails_its_server_only_and_says_where(server: Make) -> None:
    needy = server("needy", "plain.py", env={"TOKEN": "${NOT_SET_ANYWHERE}"})
    with anyio.fail_after(20):
        async with McpManager([needy, server("good", "plain.py")]) as mcp:
            await mcp.wait_ready()
            assert isinstance(mcp.status()["needy"].error, MissingVariableError)
            assert "NOT_SET_ANYWHERE" in (mcp.status()["needy"].last_error or "")
            assert mcp.status()["good"].state is ServerState.READY


@pytest.mark.requirement("kode-discovery.failure")
async def test_failing_listing_degrades_the_server_and_exposes_none_of_its_tools(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("unlisted", "unlisted.py", "refuse")]) as mcp:
            assert not await mcp.wait_ready()
            status = mcp.status()["unlisted"]
            assert (status.state, mcp.tools()) == (ServerState.DEGRADED, [])
            assert "the index is locked" in (status.last_error or "")


@pytest.mark.requirement("kode-discovery.failure")
async def test_tools_are_withdrawn_when_a_later_listing_fails_until_one_succeeds(
    server: Make, tmp_path: Path
) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("s", "unlisted.py", "later", str(tmp_path / "allow"))]) as mcp:
            assert await mcp.wait_ready()
            events = mcp.events()
            assert (await mcp.call("mcp_s_change")).success
            seen: list[ServerState] = []
            async for event in events:
                if isinstance(event, StateChanged):
                    seen.append(event.after)
                    if event.after is ServerState.READY:
                        break
                    assert mcp.tools() == []
                    assert "the index is locked" in (mcp.status()["s"].last_error or "")
                    (tmp_path / "allow").touch()
            assert seen == [ServerState.DEGRADED, ServerState.READY]
            assert mcp.status()["s"].last_error is None
            assert [tool.name for tool in mcp.tools()] == ["mcp_s_change"]


@pytest.mark.requirement("otter-schema")
async def test_malformed_entry_is_skipped_and_its_neighbours_are_offered(
    server: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("unlisted", "unlisted.py", "malformed")]) as mcp:
            assert await mcp.wait_ready()
            assert [tool.original_name for tool in mcp.tools()] == ["good"]
            assert any("broken" in record.getMessage() for record in caplog.records)


@pytest.mark.requirement("rrclaw-schema.default")
async def test_tool_without_an_input_schema_takes_no_arguments(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("s", "unlisted.py", "bare")]) as mcp:
            assert await mcp.wait_ready()
            schemas = {tool.original_name: tool.input_schema for tool in mcp.tools()}
    assert schemas == {name: {"type": "object", "properties": {}} for name in ("bare", "null")}


async def test_server_without_tools_is_ready(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("none", "unlisted.py", "none")]) as mcp:
            assert await mcp.wait_ready()
            assert mcp.tools() == []


@pytest.mark.requirement("excel-3.1")
@pytest.mark.requirement("kode-discovery.list")
async def test_every_page_of_the_listing_is_fetched(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("pages", "paging.py", "4")]) as mcp:
            await mcp.wait_ready()
            assert [tool.original_name for tool in mcp.tools()] == ["t0", "t1", "t2", "t3"]


@pytest.mark.requirement("kode-discovery.list")
def test_every_change_that_a_server_announces_is_listed_not_only_the_first() -> None:
    law = ScriptedServer("law", tools=[find])

    async def main() -> list[list[str]]:
        seen: list[list[str]] = []
        async with McpManager([law.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            events = mcp.events()
            for number in range(3):
                law.add(ToolDef(name=f"t{number}", description="", input_schema={}, func=print))
                while not isinstance(await anext(events), ToolsChanged):
                    pass
                seen.append([tool.original_name for tool in mcp.tools()])
        return seen

    seen = InstantClock().run(asyncio.wait_for(main(), 600))
    assert seen == [["find", "t0"], ["find", "t0", "t1"], ["find", "t0", "t1", "t2"]]


@pytest.mark.requirement("kode-lifecycle.reconnect")
def test_pauses_grow_for_a_server_that_connects_and_dies_again_and_again() -> None:
    law = ScriptedServer("law", tools=[find])

    async def main() -> list[float]:
        pauses: list[float] = []
        async with McpManager([law.spec()], cache=False) as mcp:
            for number in range(1, 5):
                while law.connections < number or not await mcp.wait_ready():  # noqa: ASYNC110 -- no event
                    await asyncio.sleep(0.1)
                law.crash()
                while (pause := mcp.status()["law"].retry_in) is None:  # noqa: ASYNC110 -- no event
                    await asyncio.sleep(0)
                pauses.append(pause)
        return pauses

    pauses = InstantClock().run(asyncio.wait_for(main(), 600))
    assert pauses == sorted(pauses)
    assert pauses[-1] > 4 * pauses[0]


@pytest.mark.requirement("kode-connect.failure")
def test_call_of_a_server_that_cannot_be_reached_tells_the_reason() -> None:
    law = ScriptedServer("law", tools=[find])

    async def main() -> str:
        async with McpManager([law.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            law.stop()
            while mcp.status()["law"].state is ServerState.READY:  # noqa: ASYNC110 -- a scripted end has no event
                await asyncio.sleep(0)
            return (await mcp.call("mcp_law_find", {"text": "a"}, timeout=0.1)).error or ""

    assert "the scripted server" in InstantClock().run(main())


@pytest.mark.requirement("excel-4.1")
async def test_tools_of_a_server_are_registered_in_one_batch(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("pages", "paging.py", "4")], cache=False) as mcp:
            events = mcp.events()
            assert await mcp.wait_ready()
            names = tuple(f"mcp_pages_t{number}" for number in range(4))
            assert tuple(tool.name for tool in mcp.registry) == names
        changes = [event async for event in events if isinstance(event, ToolsChanged)]
    assert changes == [
        ToolsChanged(server="pages", added=names),
        ToolsChanged(server="pages", removed=names),
    ]


@pytest.mark.parametrize(("mode", "tools"), [("repeat", 2), ("endless", 500)])
async def test_listing_without_end_is_cut_short(
    server: Make, mode: str, tools: int, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("pages", "paging.py", mode)]) as mcp:
            await mcp.wait_ready()
            assert len(mcp.tools()) == tools
    assert "cut short" in caplog.text


@pytest.mark.requirement("rrclaw-manager.shutdown")
@pytest.mark.requirement("kode-lifecycle.stop")
@pytest.mark.parametrize("script", ["plain.py", "stubborn.py", "forking.py", "mute.py"])
async def test_shutdown_leaves_no_process_behind(server: Make, script: str) -> None:
    # The check itself is in tests/conftest.py, which knows every process that was started here.
    with anyio.fail_after(20):
        mcp = await McpManager.connect_all(
            [server("one", script, timeouts={"connect": 5 if script != "mute.py" else 0.2})]
        )
        await mcp.shutdown()
        await mcp.shutdown()
        assert mcp.status()["one"].state is ServerState.CLOSED
        assert mcp.tools() == []


async def test_shutdown_during_connecting_ends_at_once(server: Make) -> None:
    with anyio.fail_after(10):
        async with McpManager([server("mute", "mute.py", timeouts={"connect": 600})]) as mcp:
            await next_state(mcp, ServerState.CONNECTING)


async def test_shutdown_cancelled_twice_still_leaves_nothing(server: Make) -> None:
    with anyio.fail_after(20):
        mcp = await McpManager.connect_all([server("stubborn", "stubborn.py")])
        pid = mcp.status()["stubborn"].pid
        assert pid is not None
        closing = asyncio.ensure_future(mcp.shutdown())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_cancelled_body_closes_the_manager(server: Make) -> None:
    mcp = McpManager([server("plain", "plain.py")])
    with anyio.fail_after(20):
        with anyio.CancelScope() as scope:
            async with mcp:
                await mcp.wait_ready()
                scope.cancel()
                await mcp.call("mcp_plain_slow")
        assert mcp.status()["plain"].state is ServerState.CLOSED


async def test_call_after_a_crash_starts_the_server_again(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("plain", "plain.py")]) as mcp:
            await mcp.wait_ready()
            pid = mcp.status()["plain"].pid
            lost = await mcp.call("mcp_plain_exit")
            assert isinstance(lost.exception, ToolUnavailableError)
            assert mcp.status()["plain"].state is ServerState.BACKOFF
            assert (await mcp.call("mcp_plain_echo", {"text": "again"})).text == "again"
            assert mcp.status()["plain"].pid != pid


@pytest.mark.requirement("otter-crash")
@pytest.mark.requirement("excel-7.3")
async def test_idle_server_that_dies_is_noticed_logged_and_started_again(
    server: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("plain", "plain.py")]) as mcp:
            await mcp.wait_ready()
            events = mcp.events()
            number = mcp.status()["plain"].pid
            assert number
            os.kill(number, 9)
            async for event in events:
                if isinstance(event, StateChanged):
                    assert (event.server, event.after) == ("plain", ServerState.BACKOFF)
                    break
            (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
            assert "plain: the connection to server `plain` was lost" in line
            assert "killed by signal 9" in line
            async for event in events:
                if isinstance(event, StateChanged) and event.after is ServerState.READY:
                    break
            assert (await mcp.call("mcp_plain_echo", {"text": "again"})).text == "again"


async def test_restart_gives_a_new_process(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("plain", "plain.py")]) as mcp:
            await mcp.wait_ready()
            before = mcp.status()["plain"].pid
            await asyncio.gather(mcp.restart("plain"), mcp.restart("plain"))
            assert mcp.status()["plain"].state is ServerState.READY
            assert mcp.status()["plain"].pid not in {before, None}


async def test_servers_are_added_and_removed_at_run_time(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("one", "plain.py")]) as mcp:
            await mcp.wait_ready()
            events = mcp.events()
            await mcp.add(server("two", "paging.py", "1"))
            assert "mcp_two_t0" in mcp.registry
            with pytest.raises(InvalidSpecError, match="two servers named `two`"):
                await mcp.add(server("two", "plain.py"))
            await mcp.remove("two")
            assert "mcp_two_t0" not in mcp.registry
            assert list(mcp.status()) == ["one"]
            changes = [await anext(events) for _ in range(4)]
            assert ToolsChanged(server="two", added=("mcp_two_t0",)) in changes
            with pytest.raises(UnknownServerError, match="unknown server `two`"):
                await mcp.remove("two")


async def test_disabled_and_lazy_servers_are_not_started(server: Make) -> None:
    specs = [server("off", "plain.py", enabled=False), server("later", "plain.py", lazy=True)]
    with anyio.fail_after(20):
        async with McpManager(specs) as mcp:
            assert await mcp.wait_ready()
            assert {name: status.state for name, status in mcp.status().items()} == {
                "off": "closed",
                "later": "idle",
            }
        async with McpManager(Settings(servers=[server("any", "plain.py")], enabled=False)) as mcp:
            assert await mcp.wait_ready()
            assert mcp.status()["any"].pid is None


async def test_use_of_a_manager_that_is_not_open_is_an_error(server: Make) -> None:
    mcp = McpManager([])
    with pytest.raises(DragomanError, match="not started"):
        await mcp.call("anything")
    async with mcp:
        pass
    with pytest.raises(DragomanError, match="closed"):
        await mcp.call("anything")
    with pytest.raises(DragomanError, match="closed"):
        async with mcp:
            pass
    with pytest.raises(InvalidSpecError, match="two servers named"):
        McpManager([server("same", "plain.py"), server("same", "plain.py")])


async def test_events_end_with_the_manager(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("plain", "plain.py")]) as mcp:
            events = mcp.events()
            await mcp.wait_ready()
        seen = [event.after async for event in events if isinstance(event, StateChanged)]
    assert seen == [ServerState.READY, ServerState.CLOSED]


async def test_child_gets_the_safe_environment_and_what_its_spec_adds(
    server: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PRIVATE", "WANTED"):
        monkeypatch.setenv(name, name.lower())
    monkeypatch.setenv("TERM", "dumb")
    (tmp_path / "sub").mkdir()
    (tmp_path / "vars.env").write_text("FROM_FILE=file\nOWN=file\n")
    base = server("plain", "plain.py").transport
    assert isinstance(base, Stdio)
    stdio = Stdio(
        base.command,
        base.args,
        env={"OWN": "${WANTED}", "TERM": None},
        env_file=["vars.env"],
        inherit_env=["WANTED"],
        cwd="sub",
    )
    with anyio.fail_after(20):
        async with McpManager([ServerSpec("plain", stdio)]) as mcp:
            await mcp.wait_ready()
            seen = json.loads((await mcp.call("mcp_plain_environment")).text)
    env = seen["env"]
    assert (env["OWN"], env["WANTED"], env["FROM_FILE"]) == ("wanted", "wanted", "file")
    assert "PRIVATE" not in env
    assert "TERM" not in env
    assert "HOME" in env
    assert seen["cwd"] == str(tmp_path / "sub")


async def test_missing_env_file_fails_its_server_by_name(server: Make) -> None:
    base = server("plain", "plain.py").transport
    assert isinstance(base, Stdio)
    with anyio.fail_after(20):
        async with McpManager(
            [ServerSpec("plain", Stdio(base.command, base.args, env_file=["nowhere.env"]))]
        ) as mcp:
            await mcp.wait_ready()
            assert "nowhere.env" in (mcp.status()["plain"].last_error or "")


async def test_nothing_a_child_writes_to_stderr_reaches_our_terminal(
    server: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("dies", "dying.py"), server("plain", "plain.py")]) as mcp:
            await mcp.wait_ready()
            await mcp.call("mcp_plain_exit")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_status_says_what_the_server_is(server: Make, protocol: str) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("plain", "plain.py", protocol=protocol)]) as mcp:
            await mcp.wait_ready()
            status = mcp.status()["plain"]
    assert (status.server_name, status.server_version, status.transport) == ("plain", "7.1", "stdio")
    assert status.protocol_version == "2025-11-25"
    assert status.tools == 16


async def next_state(mcp: McpManager, state: ServerState) -> None:
    if any(status.state is state for status in mcp.status().values()):
        return
    async for event in mcp.events():
        if isinstance(event, StateChanged) and event.after is state:
            return


@pytest.mark.requirement("excel-2.1", "otter-p0.failure")
def test_servers_that_hang_do_not_keep_the_others_from_starting() -> None:
    never = asyncio.Event()
    hung = [ScriptedServer(f"hung{number}", on_connect=never.wait) for number in range(STARTING_AT_ONCE)]
    well = ScriptedServer("well")

    async def main() -> float:
        began = asyncio.get_running_loop().time()
        async with McpManager([one.spec() for one in (*hung, well)], cache=False) as mcp:
            assert await mcp.wait_ready(["well"], timeout=20)
            return asyncio.get_running_loop().time() - began

    assert InstantClock().run(main()) < 5


@pytest.mark.requirement("excel-2.4")
def test_outage_with_the_same_reason_as_the_one_before_is_an_error_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    law = ScriptedServer("law", tools=[find])

    async def main() -> None:
        async with McpManager([law.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            for _ in range(2):
                events = mcp.events()
                law.crash()
                async for event in events:
                    if isinstance(event, StateChanged) and event.after is ServerState.READY:
                        break

    InstantClock().run(main())
    said = [(one.levelname, one.getMessage()) for one in caplog.records if "was lost" in one.getMessage()]
    assert [level for level, _ in said] == ["ERROR", "ERROR"]
    assert len({line for _, line in said}) == 1


@pytest.mark.requirement("excel-3.1", "kode-discovery.list")
async def test_page_without_tools_is_not_the_last_one(server: Make) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("pages", "paging.py", "4", "empty")]) as mcp:
            await mcp.wait_ready()
            assert [tool.name for tool in mcp.tools()] == ["mcp_pages_t1", "mcp_pages_t3"]


@pytest.mark.requirement("legal-client.init", "otter-p1.health")
async def test_start_connects_a_server_at_once_that_waits_for_its_next_attempt() -> None:
    law = ScriptedServer("law", tools=[find])
    with anyio.fail_after(20):
        async with McpManager([law.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            for _ in range(2):
                law.stop()
                await next_state(mcp, ServerState.BACKOFF)
                law.start()
                await mcp.start(["law"])
                assert mcp.status()["law"].state is ServerState.CONNECTING
                assert await mcp.wait_ready()
