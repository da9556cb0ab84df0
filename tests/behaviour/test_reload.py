"""A changed configuration takes effect while the program runs: what is touched, in which order, and what is not."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.conftest import end_of

from dragoman import (
    ConfigError,
    ConnectError,
    McpManager,
    ServerSpec,
    ServerState,
    Settings,
    Stdio,
    ToolUnavailableError,
)
from dragoman.events import CallStarted, ConfigReloaded, StateChanged, ToolsChanged
from dragoman.server.protocol.deadlines import Deadline
from dragoman.server.protocol.outgoing import Outgoing
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dragoman import ToolResult
    from dragoman.server.supervisor import Supervisor

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("otter-p2.reload")]

SERVERS = Path(__file__).resolve().parents[1] / "servers"
TRACED = f"""
import fcntl, json, os, sys, time
sys.path.insert(0, {str(SERVERS)!r})
from jsonrpc import NO_ANSWER, serve, text, tool
options = dict(pair.split("=", 1) for pair in sys.argv[1:])

def trace(what):
    with open(options["log"], "a") as log:
        log.write(f"{{what}} {{options['as']}}\\n")

if "lock" in options:
    lock = open(options["lock"], "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("the lock is taken")
trace("start")
if "gate" in options:
    open(options["gate"]).read()
if "broken" in options:
    sys.exit("broken")
waiting = []
def call(params, request_id):
    if params["name"] == "wait":
        waiting.append(request_id)
        return NO_ANSWER
    if params["name"] == "release":
        from jsonrpc import answer
        for one in waiting:
            answer(one, result=text(options["as"]))
    return text(options["as"])
tools = [tool(name) for name in ("who", "wait", "release", *options.get("tools", "").split())]
serve({{"tools/list": lambda _: {{"tools": tools}}, "tools/call": call}})
trace("stop")
"""


class Site:
    """A folder with a configuration file, and servers that write down when they start and stop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "servers.json"
        self.log = folder / "log"
        (folder / "traced.py").write_text(TRACED)

    def write(self, *servers: dict[str, Any], **settings: Any) -> None:
        entries = {server["name"]: {k: v for k, v in server.items() if k != "name"} for server in servers}
        self.put(json.dumps({"mcp": {**settings, "servers": entries}}, indent=2))

    def put(self, text: str) -> None:
        new = self.folder / "servers.new"
        new.write_text(text)
        new.replace(self.file)

    def server(self, name: str, version: str = "1", *options: str, **more: Any) -> dict[str, Any]:
        args = [str(self.folder / "traced.py"), f"as={name}{version}", f"log={self.log}", *options]
        return {"name": name, "command": sys.executable, "args": args, **more}

    def trace(self) -> list[str]:
        return self.log.read_text().split("\n")[:-1]

    @asynccontextmanager
    async def running(self, *servers: dict[str, Any], **settings: Any) -> AsyncIterator[McpManager]:
        self.write(*servers, **settings)
        with anyio.fail_after(40):
            async with McpManager.from_config(config=self.file, trust_project=True) as mcp:
                assert await mcp.wait_ready()
                yield mcp


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def who(mcp: McpManager, name: str) -> str:
    (tool,) = [one for one in mcp.tools() if (one.server, one.original_name) == (name, "who")]
    return (await tool.execute()).raise_for_error().text


async def under_way(mcp: McpManager, tool: str) -> asyncio.Task[ToolResult]:
    """Begin a call, and return when it has begun."""
    events = mcp.events()
    call = asyncio.create_task(mcp.call(tool))
    async for event in events:
        if isinstance(event, CallStarted):
            return call
    raise AssertionError


@pytest.mark.requirement("otter-p2.reload")
async def test_only_what_changed_is_touched(site: Site) -> None:
    first = [site.server("kept"), site.server("changed"), site.server("gone")]
    async with site.running(*first) as mcp:
        pids = {name: status.pid for name, status in mcp.status().items()}
        site.write(site.server("new"), site.server("changed", "2"), site.server("kept"))
        report = await mcp.reload()
        assert report == ConfigReloaded(
            kept=("kept",), started=("new",), replaced=("changed",), stopped=("gone",)
        )
        assert list(mcp.status()) == ["new", "changed", "kept"]
        assert mcp.status()["kept"].pid == pids["kept"]
        assert [await who(mcp, name) for name in mcp.status()] == ["new1", "changed2", "kept1"]
        assert not [tool for tool in mcp.tools() if tool.server == "gone"]
        await end_of(pids["gone"])
        await end_of(pids["changed"])


async def test_entry_that_is_merely_moved_changes_nothing(site: Site) -> None:
    async with site.running(site.server("a"), site.server("b")) as mcp:
        pids = [mcp.status()[name].pid for name in ("a", "b")]
        events = mcp.events()
        site.put("\n\n" + json.dumps({"mcpServers": {n: site.server(n) for n in ("b", "a")}}, indent=7))
        report = await mcp.reload()
        assert (sorted(report.kept), report.replaced, report.failed) == (["a", "b"], (), {})
        assert [mcp.status()[name].pid for name in ("a", "b")] == pids
        assert mcp.status()["a"].origin.line != 3
        assert await anext(events) == report


async def test_old_server_answers_until_the_new_one_is_ready(site: Site) -> None:
    gate = site.folder / "gate"
    os.mkfifo(gate)
    async with site.running(site.server("s")) as mcp:
        events = mcp.events()
        old = mcp.status()["s"].pid
        site.write(site.server("s", "2", f"gate={gate}", "tools=extra"))
        reloading = asyncio.create_task(mcp.reload())
        # Opening waits for the other end: the new server runs, and is not ready.
        opened = await asyncio.to_thread(gate.open, "w")
        assert (await who(mcp, "s"), mcp.status()["s"].pid) == ("s1", old)
        assert mcp.status()["s"].state is ServerState.READY
        opened.close()
        assert (await reloading).replaced == ("s",)
        assert await who(mcp, "s") == "s2"
        assert "mcp_s_extra" in mcp.registry
        await end_of(old)
        assert site.trace() == ["start s1", "start s2", "stop s1"]
    seen = [event async for event in events]
    # For those who listen the server was ready all the time.
    assert [e.after for e in seen if isinstance(e, StateChanged)] == [ServerState.CLOSED]
    assert next(e for e in seen if isinstance(e, ToolsChanged)).added == ("mcp_s_extra",)


async def release(old: Supervisor) -> None:
    """Let a call that waits on a server end, by its supervisor: the manager may have another one already."""
    call = Outgoing("release", {}, Deadline.after(10))
    async with old.acquire(call.deadline) as connection:
        await connection.call_tool(call)


async def test_calls_under_way_end_on_the_old_connection(site: Site) -> None:
    async with site.running(site.server("s")) as mcp:
        old = mcp._parts.supervisors["s"]
        pid = mcp.status()["s"].pid
        pending = await under_way(mcp, "mcp_s_wait")
        site.write(site.server("s", "2"))
        await mcp.reload()
        assert await who(mcp, "s") == "s2"
        assert not pending.done()

        await release(old)
        assert (await pending).text == "s1"
        await end_of(pid)


async def test_call_of_a_removed_server_may_end(site: Site) -> None:
    async with site.running(site.server("s")) as mcp:
        old = mcp._parts.supervisors["s"]
        pid = mcp.status()["s"].pid
        pending = await under_way(mcp, "mcp_s_wait")
        site.write()
        assert (await mcp.reload()).stopped == ("s",)
        assert (mcp.status(), mcp.tools()) == ({}, [])

        await release(old)
        assert (await pending).text == "s1"
        await end_of(pid)


async def test_server_in_the_way_of_the_new_one_is_stopped_first(site: Site) -> None:
    lock = f"lock={site.folder / 'lock'}"
    async with site.running(site.server("s", "1", lock)) as mcp:
        site.write(site.server("s", "2", lock))
        report = await mcp.reload()
        assert (report.replaced, report.failed) == (("s",), {})
        assert await who(mcp, "s") == "s2"
        assert site.trace() == ["start s1", "stop s1", "start s2"]


async def test_new_server_that_does_not_start_gives_way_to_the_old_one(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    async with site.running(site.server("s")) as mcp:
        tools = mcp.tools()
        site.write(site.server("s", "2", "broken=yes"))
        report = await mcp.reload()
        assert report.replaced == ()
        assert isinstance(report.failed["s"], ConnectError)
        assert "broken" in str(report.failed["s"])
        assert await who(mcp, "s") == "s1"
        assert mcp.tools() == tools
        assert site.trace() == ["start s1", "start s2", "stop s1", "start s2", "start s1"]
        assert "keeping the old one" in caplog.text
        site.write(site.server("s", "3"))
        assert (await mcp.reload()).replaced == ("s",)
        assert await who(mcp, "s") == "s3"


async def test_new_server_that_cannot_exist_leaves_the_old_one_untouched(site: Site) -> None:
    async with site.running(site.server("s"), site.server("t")) as mcp:
        pids = [status.pid for status in mcp.status().values()]
        needy = site.server("t") | {"env": {"KEY": "${NOT_SET_ANYWHERE}"}}
        site.write(site.server("s") | {"command": "no-such-command-anywhere"}, needy)
        report = await mcp.reload()
        assert set(report.failed) == {"s", "t"}
        assert "NOT_SET_ANYWHERE" in str(report.failed["t"])
        assert [status.pid for status in mcp.status().values()] == pids
        assert [await who(mcp, name) for name in ("s", "t")] == ["s1", "t1"]


async def test_stop_first_stops_first_and_calls_wait(site: Site) -> None:
    async with site.running(site.server("s", replace="stop-first")) as mcp:
        site.write(site.server("s", "2", replace="stop-first"))
        reloading = asyncio.create_task(mcp.reload())
        events = mcp.events()
        async for event in events:
            if isinstance(event, StateChanged) and event.after is ServerState.CONNECTING:
                break
        assert await who(mcp, "s") == "s2"
        assert (await reloading).replaced == ("s",)
        assert site.trace() == ["start s1", "stop s1", "start s2"]


async def test_stop_first_comes_back_if_the_new_one_does_not_start(site: Site) -> None:
    async with site.running(site.server("s", replace="stop-first")) as mcp:
        site.write(site.server("s", "2", "broken=yes", replace="stop-first"))
        assert list((await mcp.reload()).failed) == ["s"]
        assert await who(mcp, "s") == "s1"
        assert site.trace() == ["start s1", "stop s1", "start s2", "start s1"]


async def test_broken_file_leaves_its_servers_running_and_says_why(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    async with site.running(site.server("s"), naming="mcp_{server}_{tool}") as mcp:
        pid = mcp.status()["s"].pid
        for text in ('{"mcp": {"servers": {', '"a text"'):
            site.put(text)
            report = await mcp.reload()
            assert (report.kept, report.stopped) == (("s",), ())
            problem = report.problems[0]
            assert isinstance(problem, ConfigError)
            assert problem.source == str(site.file)
            assert str(problem) in caplog.text
        site.file.unlink()
        assert (await mcp.reload()).kept == ("s",)
        assert (mcp.status()["s"].pid, await who(mcp, "s")) == (pid, "s1")
        site.write(site.server("s", "2"))
        report = await mcp.reload()
        assert (report.replaced, report.problems) == (("s",), ())


async def test_entry_that_became_invalid_leaves_its_server_running(site: Site) -> None:
    async with site.running(site.server("s"), site.server("t")) as mcp:
        site.write({"name": "s", "args": ["x"]}, site.server("t", "2"))
        report = await mcp.reload()
        assert (report.kept, report.replaced, len(report.problems)) == (("s",), ("t",), 1)
        assert [await who(mcp, name) for name in ("s", "t")] == ["s1", "t2"]


async def test_rules_change_without_a_new_process(site: Site) -> None:
    async with site.running(site.server("s", "1", "tools=extra")) as mcp:
        pid = mcp.status()["s"].pid
        events = mcp.events()
        denied = site.server("s", "1", "tools=extra", denied_tools=["extra"], timeout=7)
        site.write(denied, naming="{tool}")
        report = await mcp.reload()
        assert report.kept == ("s",)
        assert [tool.name for tool in mcp.tools()] == ["release", "wait", "who"]
        assert (mcp.status()["s"].pid, mcp.settings.servers[0].call_timeout) == (pid, 7)
        assert isinstance(await anext(events), ToolsChanged)


async def test_servers_are_switched_off_and_on(site: Site) -> None:
    async with site.running(site.server("s")) as mcp:
        pid = mcp.status()["s"].pid
        site.write(site.server("s", enabled=False))
        assert (await mcp.reload()).stopped == ("s",)
        await end_of(pid)
        assert (mcp.status()["s"].state, mcp.tools()) == (ServerState.CLOSED, [])
        assert (await mcp.reload()).kept == ()
        site.write(site.server("s"))
        assert (await mcp.reload()).started == ("s",)
        assert await who(mcp, "s") == "s1"
        site.write(site.server("s"), enabled=False)
        assert (await mcp.reload()).stopped == ("s",)
        assert mcp.tools() == []
        site.write(site.server("s", "2", lazy=True))
        assert (await mcp.reload()).started == ("s",)
        assert mcp.status()["s"].state is ServerState.IDLE


async def test_server_that_was_switched_off_and_is_then_removed_is_forgotten(site: Site) -> None:
    async with site.running(site.server("s"), site.server("off", enabled=False)) as mcp:
        site.write(site.server("s"))
        assert (await mcp.reload()).kept == ("s",)
        assert list(mcp.status()) == ["s"]
        await mcp.add(ServerSpec("off", Stdio(sys.executable, [str(SERVERS / "plain.py")])))
        assert mcp.status()["off"].state is ServerState.READY


async def test_server_that_a_program_added_survives_a_reload(site: Site) -> None:
    async with site.running(site.server("s")) as mcp:
        await mcp.add(ServerSpec("own", mcp.settings.servers[0].transport))
        pid = mcp.status()["own"].pid
        site.write()
        assert (await mcp.reload()).stopped == ("s",)
        assert mcp.status()["own"].pid == pid


async def test_concurrent_reloads_are_one_after_another(site: Site) -> None:
    async with site.running(site.server("s")) as mcp:
        site.write(site.server("s", "2"))
        reports = await asyncio.gather(*(mcp.reload() for _ in range(5)))
        assert sorted(len(report.replaced) for report in reports) == [0, 0, 0, 0, 1]
        assert site.trace().count("start s2") == 1


async def test_twenty_reloads_under_load_lose_no_call_of_an_unchanged_server(site: Site) -> None:
    async with site.running(site.server("kept"), site.server("changed", "0")) as mcp:
        pid = mcp.status()["kept"].pid
        done = asyncio.Event()
        answers: dict[str, list[bool]] = {"kept": [], "changed": []}

        async def load(name: str) -> None:
            while not done.is_set():
                answers[name].append((await mcp.call(f"mcp_{name}_who")).success)

        async with asyncio.TaskGroup() as group:
            for name in ("kept", "changed") * 3:
                group.create_task(load(name))
            for number in range(1, 21):
                site.write(site.server("kept"), site.server("changed", str(number)))
                assert (await mcp.reload()).replaced == ("changed",)
            done.set()
        assert mcp.status()["kept"].pid == pid
        assert await who(mcp, "changed") == "changed20"
        # A server that is replaced start-first loses none either.
        assert all(all(outcome) and outcome for outcome in answers.values())


@pytest.mark.parametrize("how", ["start-first", "stop-first"])
async def test_cancelled_reload_leaves_one_server_and_nothing_else(site: Site, how: str) -> None:
    gate = site.folder / "gate"
    os.mkfifo(gate)
    async with site.running(site.server("s", replace=how)) as mcp:
        old = mcp.status()["s"].pid
        site.write(site.server("s", "2", f"gate={gate}", replace=how))
        reloading = asyncio.create_task(mcp.reload())
        opened = await asyncio.to_thread(gate.open, "w")
        reloading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reloading
        opened.close()
        if how == "start-first":
            assert (await who(mcp, "s"), mcp.status()["s"].pid) == ("s1", old)
        else:
            assert await who(mcp, "s") == "s2"
        site.write(site.server("s", "3"))
        assert (await mcp.reload()).replaced == ("s",)
        assert await who(mcp, "s") == "s3"
        await end_of(old)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144])
async def test_reload_cancelled_at_any_step_leaves_the_old_or_the_new(site: Site, steps: int) -> None:
    async with site.running(site.server("s"), site.server("t", replace="stop-first")) as mcp:
        site.write(site.server("s", "2"), site.server("t", "2", replace="stop-first"))
        reloading = asyncio.create_task(mcp.reload())
        for _ in range(steps):
            await asyncio.wait({reloading}, timeout=0.002)
        reloading.cancel()
        await asyncio.wait({reloading})
        assert await who(mcp, "s") in {"s1", "s2"}
        assert await who(mcp, "t") in {"t1", "t2"}
        await mcp.reload()
        assert [await who(mcp, name) for name in ("s", "t")] == ["s2", "t2"]


@pytest.mark.requirement("otter-close", "excel-2.5", "rrclaw-manager.shutdown")
async def test_shutdown_ends_the_call_of_a_removed_server(site: Site) -> None:
    with anyio.fail_after(20):
        async with site.running(site.server("s")) as mcp:
            pid = mcp.status()["s"].pid
            pending = await under_way(mcp, "mcp_s_wait")
            site.write()
            await mcp.reload()
            await mcp.shutdown()
            assert isinstance((await pending).exception, ToolUnavailableError)
            await end_of(pid)


@pytest.mark.requirement("otter-close", "excel-2.5")
async def test_shutdown_during_a_reload_leaves_nothing(site: Site) -> None:
    gate = site.folder / "gate"
    os.mkfifo(gate)
    async with site.running(site.server("s")) as mcp:
        site.write(site.server("s", "2", f"gate={gate}"), site.server("t", "1", f"gate={gate}"))
        reloading = asyncio.create_task(mcp.reload())
        opened = await asyncio.to_thread(gate.open, "w")
        await mcp.shutdown()
        # Both new servers wait for the gate: nobody reads it any more.
        with pytest.raises(BrokenPipeError):
            os.write(opened.fileno(), b"x")
        opened.close()
        assert set((await reloading).failed) == {"s", "t"}
        assert all(status.state is ServerState.CLOSED for status in mcp.status().values())


async def reloaded(events: Any) -> ConfigReloaded:
    async for event in events:
        if isinstance(event, ConfigReloaded):
            return event
    raise AssertionError


@pytest.mark.requirement("otter-config.mcp", "otter-p2.reload")
async def test_reload_that_switches_all_off_stops_the_servers_until_it_switches_them_on(site: Site) -> None:
    async with site.running(site.server("s"), enabled=True) as mcp:
        for _ in range(2):
            site.write(site.server("s"), enabled=False)
            assert (await mcp.reload()).stopped == ("s",)
            assert (list(mcp.tools()), [one for one in mcp.status().values() if one.pid]) == ([], [])
            site.write(site.server("s"), enabled=True)
            assert (await mcp.reload()).started == ("s",)
            assert await who(mcp, "s") == "s1"


@pytest.mark.requirement("otter-config.mcp")
@pytest.mark.requirement("otter-p2.reload")
async def test_auto_reload_applies_a_file_that_changes(site: Site) -> None:
    def otter(*versions: str, auto: bool = True) -> str:
        lines = [f"[mcp]\nauto_reload = {str(auto).lower()}"]
        for version in versions:
            entry = site.server("s", version)
            lines.append(
                f'[[mcp.servers]]\nname = "s"\ncommand = "{entry["command"]}"\nargs = {entry["args"]}'
            )
        return "\n".join(lines)

    file = site.folder / "otter.toml"
    file.write_text(otter("1"))
    with anyio.fail_after(40):
        async with McpManager.from_config("otter", root=site.folder, trust_project=True) as mcp:
            assert await mcp.wait_ready()
            events = mcp.events()
            file.write_text(otter("2"))
            assert (await reloaded(events)).replaced == ("s",)
            # otter names tools as their servers do.
            assert (await mcp.call("who")).raise_for_error().text == "s2"
            # A file that is broken for a moment stops neither the server nor the watch.
            file.write_text(otter("2") + "\n[[")
            report = await reloaded(events)
            assert (report.kept, len(report.problems)) == (("s",), 1)
            file.write_text(otter("3"))
            assert (await reloaded(events)).replaced == ("s",)
            file.write_text(otter("3", auto=False))
            assert (await reloaded(events)).kept == ("s",)
            for task in mcp._lifetime.reloader._watcher.stop() if mcp._lifetime.reloader._watcher else ():
                await task


async def test_auto_reload_finds_a_file_that_was_not_there(site: Site, home: Path) -> None:
    user = home / ".config" / "dragoman" / "config.toml"
    user.parent.mkdir(parents=True)
    user.write_text("[mcp]\nauto_reload = true\n")
    with anyio.fail_after(40):
        async with McpManager.from_config(root=site.folder, trust_project=True) as mcp:
            assert mcp.status() == {}
            events = mcp.events()
            (site.folder / "mcp.json").write_text(json.dumps({"mcpServers": {"s": site.server("s")}}))
            report = await reloaded(events)
            assert report.started == ("s",)
            assert await who(mcp, "s") == "s1"


async def test_without_auto_reload_nothing_is_watched(site: Site) -> None:
    async with site.running(site.server("s")) as mcp:
        assert mcp._lifetime.reloader._watcher is not None
        assert mcp._lifetime.reloader._watcher.stop() == set()


@pytest.mark.requirement("rrclaw-config.allowed", "otter-p2.reload")
async def test_narrower_filter_holds_from_the_reload_on_and_not_only_once_the_new_server_is_there() -> None:
    def find() -> str:
        return "found"

    def remove() -> str:
        return "removed"

    may_connect, asked = asyncio.Event(), asyncio.Event()

    async def on_connect() -> None:
        asked.set()
        await may_connect.wait()

    old = ScriptedServer("law", tools=[find, remove])
    new = ScriptedServer("law", tools=[find, remove], on_connect=on_connect)
    with anyio.fail_after(30):
        async with McpManager(Settings(servers=[old.spec()]), cache=False) as mcp:
            await mcp.wait_ready()
            assert {tool.original_name for tool in mcp.tools()} == {"find", "remove"}
            settings = Settings(servers=[new.spec(allowed_tools=["find"], replacement="stop-first")])
            reloading = asyncio.create_task(mcp.reload(settings))
            await asked.wait()
            assert {tool.original_name for tool in mcp.tools()} == {"find"}
            may_connect.set()
            assert (await reloading).replaced == ("law",)
            assert {tool.original_name for tool in mcp.tools()} == {"find"}
