"""Code mode: programs of a model that call the tools of real servers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.code_programs import FEW, HOSTILE
from tests.behaviour.test_apps import managed, modern
from tests.behaviour.test_legal import desk
from tests.behaviour.test_tasks import answer, requests
from tests.real.servers import command
from tests.warm import interpreter

from dragoman import AgentEngine, Handlers, McpManager, ServerSpec, Stdio, ToolRegistry, tool
from dragoman.agent.code import sandbox
from dragoman.agent.code.sandbox import CodeLimits
from dragoman.agent.offer import ToolLimit
from dragoman.agent.providers import Say, ScriptedProvider
from dragoman.errors import AgentError
from dragoman.gateway.code import MOST_AT_ONCE, ProgramTool
from dragoman.observe.call_history import CallHistory
from dragoman.storage.files import data_folder
from dragoman.storage.programs import ProgramStore
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from dragoman.agent.messages import Answer

pytestmark = pytest.mark.usefixtures("interpreter")

ROOT = Path(__file__).resolve().parents[2]
GUARD = 50.0
QUICK = CodeLimits(seconds=0.5, memory=20 * 2**20, calls=20)


def scripted(*programs: str) -> ScriptedProvider:
    return ScriptedProvider([*(Say(calls=[("run_code", {"code": one})]) for one in programs), "Done."])


def outputs(answer: Answer) -> list[str]:
    return [message.text for message in answer.messages if message.role == "tool"]


async def ran(source: Any, *programs: str, **how: Any) -> list[str]:
    """Return what the model reads of each program."""
    with anyio.fail_after(GUARD):
        async with AgentEngine(scripted(*programs), source, code=True, **how) as agent:
            return outputs(await agent.run("Go."))


@tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool
def note(text: str) -> str:
    """Return the length of a text."""
    return str(len(text))


@tool
def take(value: list[Any]) -> str:
    """Take a list."""
    return "taken"


@pytest.fixture
def local() -> ToolRegistry:
    registry = ToolRegistry()
    registry.register_all([add, note, take])
    return registry


def filesystem(folder: Path) -> ServerSpec:
    program, *arguments = command("filesystem", folder)
    return ServerSpec("fs", Stdio(program, arguments))


def weather(**rules: Any) -> tuple[ScriptedServer, ServerSpec]:
    server = ScriptedServer("weather")

    @server.tool
    def temperature(city: str, days: int = 1) -> dict[str, Any]:
        return {"city": city, "celsius": len(city) + days}

    @server.tool
    def warn(city: str) -> str:
        return f"warned {city}"

    return server, server.spec(**rules)


# ── What the model reads


async def test_a_program_loops_over_a_real_server_and_only_what_it_prints_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number}.txt").write_text(f"{number}\n" * 2_000)
    first = (
        "listed = fs.list_directory(path=FOLDER)['content']\n"
        "names = [line.split()[-1] for line in listed.splitlines()]\n"
        "texts = {name: fs.read_text_file(path=FOLDER + '/' + name)['content'] for name in names}\n"
        "print(len(texts))"
    ).replace("FOLDER", repr(str(folder)))
    second = "sum(int(line) for text in texts.values() for line in text.split())"
    said = await ran([filesystem(folder)], first, second)
    assert said == ["12", str(sum(range(12)) * 2_000)]


async def test_variables_functions_and_imports_stay_and_may_change_their_type(local: ToolRegistry) -> None:
    said = await ran(
        local,
        "from local import add as plus\nimport json\nx = plus(1, 2)\ndef twice(t): return t * 2",
        "x = json.loads(twice(x)) + int(plus(1, 1))\nx",
        "x = {'was': x}\nx",
        "x.strip()",
        "d = {'a': local.add(1, 2), 'b': local.add(1, 1)}\nprint(max(d, key=lambda k: d[k]))",
    )
    assert said[:3] == ["The program ended and printed nothing.", "35", '{"was": 35}']
    assert "no attribute" in said[3]
    assert said[4] == "a"


async def test_sources_of_the_calls_are_named_after_the_output() -> None:
    program = "law.search_statutes(query='deposit', limit=1)['results'][0]['title']"
    (said,) = await ran([desk()], program)
    assert "Sources:" in said.splitlines()
    assert "(updated " in said


async def test_long_output_is_cut_and_can_be_read_elsewhere(local: ToolRegistry) -> None:
    (said,) = await ran(local, "print('word ' * 20_000)", result_tokens=500)
    assert len(said) < 4_000
    assert "the file `" in said


@pytest.mark.parametrize("value", ["10**5000", "[{'x': -10**5000}]", "{10**5000: 1}", "{1, 10**5000}"])
async def test_a_last_value_that_cannot_be_written_is_an_error_of_the_program(
    local: ToolRegistry, value: str
) -> None:
    first, second = await ran(local, f"print('before')\nkept = 7\n{value}", "kept")
    assert first.startswith("before\nThe program failed.\nThe last value cannot be shown")
    assert second == "7"


async def test_a_number_that_no_server_can_read_is_an_error_in_the_program() -> None:
    server = ScriptedServer("s")

    @server.tool
    def note(x: Any) -> str:
        """Take anything."""
        return "taken"

    programs = [f"from s import note\nnote(x={value})" for value in ("10**5000", "float('nan')", "[1e999]")]
    async with managed(server.spec()) as mcp:
        for text in await ran(mcp, *programs):
            assert "invalid arguments" in text


async def test_errors_of_tools_are_errors_in_the_program(tmp_path: Path) -> None:
    said = await ran(
        [filesystem(tmp_path)],
        "try:\n    fs.read_text_file(path='/no/such')\nexcept RuntimeError as error:\n    print('caught', error)",
        "fs.read_text_file(path='/no/such')",
    )
    assert said[0].startswith("caught Access denied")
    assert "line 1, in <module>" in said[1]
    assert said[1].endswith("Calls made before: mcp_fs_read_text_file.")


# ── Wrong programs

WRONG = {
    "weather.temperature(city=1)": "Expected `str`, found `Literal[1]`",
    "weather.temperature()": "required parameter `city`",
    "weather.temperature(city='x', day=1)": "`day` does not match",
    "weather.temperatur(city='x')": "Did you mean: weather.temperature(",
    "wether.temperature(city='x')": "Did you mean the module `weather`?",
    "temperature(city='x')": "Call it as weather.temperature(",
    "weather.warn(city='x')['city']": "[invalid-argument-type]",
    "weather.warn(city='x').uper()": "no attribute `uper`",
    "for city in ['x']:\nweather.warn(city=city)": "[invalid-syntax]",
    "return weather.warn(city='x')": "Write the value as the last line",
    "import requests\nweather.warn(city='x')": "Cannot resolve imported module `requests`",
    "def f():\n    yield weather.warn(city='x')\nlist(f())": "build a list in place of `yield`",
    "open('x').read()": "files are not available",
    "weather.warn(city='x') + 1": "Operator `+` is not supported",
}


@pytest.mark.parametrize("program", WRONG)
async def test_a_wrong_program_is_refused_before_its_first_call(program: str) -> None:
    server, spec = weather()
    (said,) = await ran([spec], f"weather.warn(city='first')\n{program}")
    assert said.startswith("The program was not run, and no call was made. Fix this:")
    assert WRONG[program] in said
    assert server.calls == []


async def test_modules_can_be_imported_anywhere_or_not_at_all() -> None:
    server, spec = weather()
    said = await ran(
        [spec],
        "def f():\n    import weather\n    return weather.warn('a')\nf()",
        "from weather import warn\nwarn('b')",
        "weather.warn(city='c')",
    )
    assert said == ["warned a", "warned b", "warned c"]
    assert len(server.calls) == 3


# ── The same rules as for other calls


async def test_tools_that_the_agent_may_not_use_do_not_exist_in_programs() -> None:
    server, spec = weather()
    with anyio.fail_after(GUARD):
        async with McpManager([spec], cache=False) as mcp:
            await mcp.wait_ready()
            view = mcp.registry.view(deny=["*warn"])
            programs = (
                "weather.warn(city='x')",
                "getattr(weather, 'warn')(city='x')",
                "weather.temperature('x')",
            )
            async with AgentEngine(scripted(*programs), mcp, tools=view, code=True) as agent:
                said = outputs(await agent.run("Go."))
    assert "Module `weather` has no member `warn`" in said[0]
    assert "warned" not in said[1]
    assert "celsius" in said[2]
    assert [call.tool for call in server.calls] == ["temperature"]


async def test_policy_log_and_events_see_each_call(tmp_path: Path) -> None:
    server, spec = weather()
    policy = [{"action": "deny", "tool": "warn"}]
    log = tmp_path / "calls.db"
    with anyio.fail_after(GUARD):
        async with McpManager([spec], cache=False, policy=policy, call_log=log) as mcp:
            await mcp.wait_ready()
            program = "for n in range(3): weather.temperature(city='x', days=n)\nweather.warn(city='x')"
            async with AgentEngine(scripted(program), mcp, code=True) as agent:
                (said,) = outputs(await agent.run("Go."))
            assert mcp.metrics()["weather"].tools["mcp_weather_temperature"].calls == 3
        logged = CallHistory(log).list(limit=10)
    assert "deny" in said
    assert sorted(call.tool for call in logged) == ["mcp_weather_temperature"] * 3 + ["mcp_weather_warn"]
    assert [call.tool for call in server.calls] == ["temperature"] * 3


async def test_an_approval_is_asked_in_the_middle_of_a_program_and_leaves_nothing_behind() -> None:
    _, spec = weather()
    kept: list[list[str]] = []

    def approve(request: Any) -> bool:
        folder = data_folder() / "programs"
        kept.append([path.suffix for path in folder.iterdir() if path.suffix == ".program"])
        (path,) = folder.glob("*.program")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        return request.arguments["city"] != "no"

    policy = [{"action": "ask", "tool": "warn"}]
    program = (
        "for city in ('a', 'no', 'b'):\n    try:\n        print(weather.warn(city=city))\n"
        "    except RuntimeError as error:\n        print('refused')"
    )
    with anyio.fail_after(GUARD):
        async with McpManager([spec], cache=False, policy=policy, handlers=Handlers(approval=approve)) as mcp:
            await mcp.wait_ready()
            async with AgentEngine(scripted(program), mcp, code=True) as agent:
                (said,) = outputs(await agent.run("Go."))
                assert await agent.paused_programs() == []
    assert said == "warned a\nrefused\nwarned b"
    assert kept == [[".program"]] * 3
    assert list((data_folder() / "programs").iterdir()) == []


# ── A crash while a person is asked

CRASHING = """
import asyncio, sys
from dragoman import AgentEngine, Handlers, McpManager
from dragoman.agent.providers import Say, ScriptedProvider
from tests.behaviour.test_apps import modern

async def approve(request):
    print("asked", flush=True)
    await asyncio.Event().wait()

async def main():
    program = sys.argv[2]
    model = ScriptedProvider([Say(calls=[("run_code", {"code": program})]), "Done."])
    policy = [{"action": "ask", "tool": "long"}]
    handlers = Handlers(approval=approve)
    async with McpManager([modern("m", sys.argv[1])], cache=False, policy=policy, handlers=handlers) as mcp:
        await mcp.wait_ready()
        async with AgentEngine(model, mcp, code=True) as agent:
            await agent.run("Go.")

asyncio.run(main())
"""


async def test_a_program_that_waits_for_an_approval_goes_on_after_the_host_was_killed(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    program = "print('before')\nfirst = m.short()\nsecond = m.long()\nlen(first) + len(second)"
    with anyio.fail_after(GUARD):
        child = await asyncio.create_subprocess_exec(
            *(interpreter(), "-c", CRASHING, str(state), program),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert child.stdout is not None
        assert await child.stdout.readline() == b"asked\n"
        assert await asyncio.to_thread(ProgramStore().all) == []  # it waits in a living process
        child.send_signal(signal.SIGKILL)
        await child.wait()
        asked: list[str] = []

        def approve(request: Any) -> bool:
            asked.append(request.tool)
            return True

        policy = [{"action": "ask", "tool": "long"}]
        async with (
            managed(modern("m", str(state)), policy=policy, handlers=Handlers(approval=approve)) as mcp,
            AgentEngine(ScriptedProvider(["Done."]), mcp, code=True) as agent,
        ):
            (paused,) = await agent.paused_programs()
            assert (paused.state, paused.tool, paused.code) == ("asking", "mcp_m_long", program)
            result = await agent.resume_program(paused.id)
            await agent.run("What came of it?")
            told = agent.messages[0].text
            with pytest.raises(AgentError, match="cannot be continued"):
                await agent.resume_program(paused.id)
    assert result.text == "before\n8000"
    assert told == "[notice] the program that waited has ended:\nbefore\n8000"
    assert asked == ["mcp_m_long"]
    # No call was made twice.
    assert [one["name"] for one in requests(state, "tools/call")] == ["short", "long"]


async def test_a_question_of_a_server_ends_the_run_and_the_answer_goes_on_elsewhere(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    durable = Handlers(durable_questions=True)
    given = {"first": answer("Ada"), "second": answer("Bob")}
    program = "x = m.order()\nprint('then')\nx.upper()"
    with anyio.fail_after(GUARD):
        async with managed(modern("m", str(state)), handlers=durable) as mcp:
            finished: list[Any] = []
            async with AgentEngine(scripted(program), mcp, code=True) as agent:
                await agent.run("Go.", on_event=finished.append)
            (result,) = [event.result for event in finished if hasattr(event, "result")]
            assert result.input_required.open_questions == ["first", "second"]
        async with (
            managed(modern("m", str(state)), handlers=durable) as mcp,
            AgentEngine(ScriptedProvider(["Done."]), mcp, code=True) as agent,
        ):
            ended = await agent.resume_program(result.meta["dragoman/program"], given)
    assert ended.text == "then\nORDERED FOR ADA, BOB"


async def test_a_call_that_was_sent_before_a_crash_is_not_repeated(tmp_path: Path) -> None:
    server, spec = weather()
    (data_folder() / "programs").mkdir(parents=True, mode=0o700)
    asking = asyncio.Event()
    policy = [{"action": "ask", "tool": "warn"}]
    store = ProgramStore()

    async def approve(_request: Any) -> bool:
        (path,) = store.folder.glob("*.program")
        crashed.append(path.read_bytes())
        asking.set()
        return True

    crashed: list[bytes] = []
    program = "try:\n    print(weather.warn(city='x'))\nexcept RuntimeError as error:\n    print(error)"
    with anyio.fail_after(GUARD):
        async with McpManager([spec], cache=False, policy=policy, handlers=Handlers(approval=approve)) as mcp:
            await mcp.wait_ready()
            async with AgentEngine(scripted(program), mcp, code=True) as agent:
                await agent.run("Go.")
                path = store.folder / "0123456789.program"
                path.write_bytes(crashed[0])
                saved = store.take("0123456789")
                assert saved is not None
                store.save(saved.replace(id="0123456789", state="sent"))
                store.release("0123456789")
                result = await agent.resume_program("0123456789")
                path.write_bytes(crashed[0][:-1] + b"x")
                with pytest.raises(AgentError, match="was changed"):
                    await agent.resume_program("0123456789")
    assert result.text.startswith("the host stopped during `mcp_weather_warn`: it may have run")
    assert len(server.calls) == 1


# ── Limits and hostile programs


@pytest.mark.parametrize("name", FEW)
async def test_hostile_programs_reach_nothing_and_the_next_program_works(
    name: str, local: ToolRegistry
) -> None:
    said = await ran(local, HOSTILE[name], "import local\nlocal.add(a=1, b=2)", code_limits=QUICK)
    assert "root:" not in said[0]
    assert "uid=" not in said[0]
    if name != "sleep":
        assert said[0].startswith("The program was not run") or "The program failed." in said[0]
    assert said[1] == "3"


async def test_too_many_calls_stop_the_program(local: ToolRegistry) -> None:
    said = await ran(local, "n = 0\nwhile True:\n    local.add(a=n, b=1)\n    n += 1", "n", code_limits=QUICK)
    assert "more than 20 calls" in said[0]
    assert "Name `n` used when not defined" in said[1]


async def test_a_cancelled_program_is_gone_and_the_agent_goes_on(local: ToolRegistry) -> None:
    started = asyncio.Event()

    @tool
    async def hang() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    local.register(hang)
    with anyio.fail_after(GUARD):
        model = scripted("local.hang()", "local.add(a=1, b=1)")
        async with AgentEngine(model, local, code=True) as agent:
            task = asyncio.create_task(agent.run("Go."))
            await started.wait()
            task.cancel()
            await asyncio.wait({task})
            assert outputs(await agent.run("Again."))[-1] == "2"


# ── What is offered


def offered(model: ScriptedProvider) -> list[str]:
    return [one["function"]["name"] for one in model.requests[0].tools]


async def test_auto_offers_programs_only_where_the_model_searches(local: ToolRegistry) -> None:
    model = ScriptedProvider(["Done."])
    async with AgentEngine(model, local, code="auto") as agent:
        await agent.run("Go.")
    assert "run_code" not in offered(model)
    script = [Say(calls=[("search_tools", {"query": "add two numbers"})]), "Done."]
    model = ScriptedProvider(script)
    async with AgentEngine(model, local, code="auto", limit=ToolLimit(count=2)) as agent:
        (said,) = outputs(await agent.run("Go."))
    assert {"search_tools", "call_tool", "run_code"} <= set(offered(model))
    assert "add: Add two numbers.\n  local.add(a: int, b: int) -> str\n" in said
    assert "Call one of them with `call_tool`, or in a program as shown." in said


async def test_with_few_tools_direct_calls_stay_and_signatures_are_listed(local: ToolRegistry) -> None:
    model = ScriptedProvider(["Done."])
    async with AgentEngine(model, local, code=True) as agent:
        await agent.run("Go.")
    assert set(offered(model)) == {"add", "note", "take", "run_code"}
    assert "local.add(a: int, b: int) -> str" in json.dumps(model.requests[0].tools)


async def test_without_the_extra_the_error_names_the_command(
    local: ToolRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "find_spec", lambda _: None)
    with pytest.raises(AgentError, match=r"pip install .*dragoman\[code\]"):
        async with AgentEngine(ScriptedProvider([]), local, code=True):
            pass
    async with AgentEngine(ScriptedProvider(["Done."]), local, code="auto") as agent:
        assert (await agent.run("Go.")).text == "Done."


async def test_tools_that_change_between_programs_are_seen(local: ToolRegistry) -> None:
    model = ScriptedProvider(
        [
            Say(calls=[("run_code", {"code": "x = local.add(a=1, b=1)"})]),
            "Done.",
            Say(calls=[("run_code", {"code": "local.fresh()"}), ("run_code", {"code": "x"})]),
            "Done.",
        ]
    )

    @tool
    def fresh() -> str:
        return "new"

    with anyio.fail_after(GUARD):
        async with AgentEngine(model, local, code=True) as agent:
            await agent.run("Go.")
            local.register(fresh)
            said = outputs(await agent.run("Again."))
    assert said[0] == "new"
    assert "Name `x` used when not defined" in said[1]


# ── Behind the gateway


async def test_programs_of_all_endpoints_of_a_gateway_take_turns() -> None:
    started: asyncio.Queue[None] = asyncio.Queue()
    release = asyncio.Semaphore(0)
    server = ScriptedServer("s")

    @server.tool
    async def hold() -> str:
        """Wait to be released."""
        started.put_nowait(None)
        await release.acquire()
        return "held"

    holding = {"code": "from s import hold\nprint(hold())"}
    with anyio.fail_after(GUARD):
        async with managed(server.spec()) as mcp:
            first, second = (ProgramTool(mcp, mcp.tools) for _ in range(2))
            jobs = [asyncio.create_task(first.run(holding)) for _ in range(MOST_AT_ONCE)]
            for _ in jobs:
                await started.get()
            jobs.append(asyncio.create_task(first.run(holding)))
            other = asyncio.create_task(second.run({"code": "print(1)"}))
            release.release()
            # The turn that is free now goes to the program that waits longest.
            await started.get()
            assert not other.done()
            for _ in range(MOST_AT_ONCE):
                release.release()
            assert (await other)["content"][0]["text"] == "1"
            for result in await asyncio.gather(*jobs):
                assert result["content"][0]["text"] == "held"
