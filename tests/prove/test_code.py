"""Code mode: hostile and wrong programs, and 24 tasks done directly and by programs, with their tokens."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.code_programs import HOSTILE
from tests.behaviour.test_code import QUICK, add, note, outputs, take
from tests.behaviour.test_legal import desk
from tests.prove.code_tasks import TASKS, fill
from tests.prove.code_wrong import right_programs, wrong_programs
from tests.real.servers import command

from dragoman import AgentEngine, McpManager, ServerSpec, Stdio, ToolDef, ToolRegistry, tool
from dragoman.agent.code.sandbox import CodeLimits
from dragoman.agent.offer import ToolLimit
from dragoman.agent.providers import Say, ScriptedProvider
from dragoman.testing import ScriptedServer
from dragoman.tools.result.budget import estimate_tokens

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

    from dragoman.agent.messages import ModelRequest

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("interpreter")]
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
CANARY = "canary-of-the-environment"
ESCAPED = Path("/tmp/dragoman-escape")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_hostile_programs_reach_nothing(monkeypatch: pytest.MonkeyPatch, proof: Proof) -> None:
    monkeypatch.setenv("HOME_CANARY", CANARY)
    registry = ToolRegistry()
    registry.register_all([add, note, take])
    most_memory = most_cpu = slowest = 0.0
    refused = 0
    for name, program in HOSTILE.items():
        calls = [("run_code", {"code": one}) for one in (program, "local.add(a=1, b=2)")]
        model = ScriptedProvider([*(Say(calls=[one]) for one in calls), "Done."])
        async with AgentEngine(model, registry, code=True, code_limits=QUICK) as agent:
            before, cpu, began = resident(), time.process_time(), time.monotonic()
            with anyio.fail_after(50):
                first, then = outputs(await agent.run("Go."))
            slowest = max(slowest, time.monotonic() - began)
            most_cpu = max(most_cpu, time.process_time() - cpu)
            most_memory = max(most_memory, resident() - before)
        assert then == "3", name
        # The end of a long output names the file that has all of it.
        home = os.environ["HOME"] if "the file `" not in first else CANARY
        assert not any(word in first for word in (CANARY, "root:", "uid=", "/bin/", home)), name
        assert not await anyio.Path(ESCAPED).exists(), name
        refused += first.startswith("The program was not run")
    proof.record(
        programs=len(HOSTILE),
        escapes=0,
        refused_before_they_ran=refused,
        most_memory_mb=round(most_memory / 2**20, 1),
        most_cpu_s=round(most_cpu, 2),
        slowest_s=round(slowest, 2),
    )
    assert len(HOSTILE) >= 60
    assert most_memory <= 50 * 2**20
    assert most_cpu <= 1.0


def shop() -> ScriptedServer:
    """Return a server with typed results."""
    server = ScriptedServer("shop")
    item = {"type": "object", "properties": {"name": TEXT, "stock": NUMBER}, "required": ["name", "stock"]}
    found = {"items": {"type": "array", "items": item}, "total": NUMBER}

    def find(query: str, limit: int = 5) -> dict[str, Any]:
        return {"items": [{"name": query, "stock": limit}], "total": 1}

    def price(item: str, amount: int) -> dict[str, Any]:
        return {"cents": 100 * amount, "currency": "EUR"}

    for func, properties in ((find, found), (price, {"cents": NUMBER, "currency": TEXT})):
        output = {"type": "object", "properties": properties, "required": list(properties)}
        made = tool(func)
        server.add(
            ToolDef(
                name=made.name,
                description=made.description,
                input_schema=made.input_schema,
                output_schema=output,
                func=made.func,
            )
        )

    @server.tool
    def order(items: list[str], express: bool = False) -> str:
        return f"ordered {len(items)}"

    return server


async def test_wrong_programs_are_refused_before_their_first_call(tmp_path: Path, proof: Proof) -> None:
    await asyncio.to_thread(fill, tmp_path)
    programs = wrong_programs(random.Random(proof.seed), 200, str(tmp_path / "logs"))
    server = shop()
    program, *arguments = command("filesystem", tmp_path)
    kinds: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    with_fix = 0
    async with McpManager(
        [server.spec(), desk(), ServerSpec("fs", Stdio(program, arguments))], cache=False
    ) as mcp:
        await mcp.wait_ready()
        async with AgentEngine(ScriptedProvider([]), mcp, code=True) as agent:
            runner = agent._code
            assert runner is not None
            for code in right_programs(str(tmp_path / "logs")):
                assert (await runner.run(code)).success, code
            for kind, code in programs:
                before = sum(one.calls for one in mcp.metrics().values())
                result = await runner.run(code)
                after = sum(one.calls for one in mcp.metrics().values())
                is_refused = result.text.startswith("The program was not run") and before == after
                kinds[kind] += 1
                missed[kind] += not is_refused
                told = [line for line in result.text.splitlines()[1:] if not line.startswith(("- ", "    "))]
                with_fix += is_refused and bool(told)
    refused = len(programs) - missed.total()
    proof.record(
        programs=len(programs),
        kinds=len(kinds),
        refused=refused,
        with_a_hint=with_fix,
        missed=", ".join(f"{kind} {count}" for kind, count in missed.items() if count) or "none",
    )
    assert refused >= 0.9 * len(programs)
    assert with_fix == refused


# ── Tasks, directly and by programs


def spent(requests: list[ModelRequest]) -> int:
    """Return the tokens that a model reads in these requests."""
    total = 0
    for request in requests:
        said = [
            [one.role, one.text, [[call.name, call.raw] for call in one.calls]] for one in request.messages
        ]
        total += estimate_tokens(json.dumps([said, list(request.tools)], ensure_ascii=False))
    return total


class Direct:
    """A model that makes the calls of a task, as many at once as the task allows."""

    def __init__(self, steps: Any) -> None:
        self._steps = steps
        self._asked = 0
        self.answer = ""

    def __call__(self, request: ModelRequest) -> Say | str:
        try:
            if not self._asked:
                calls = next(self._steps)
            else:
                calls = self._steps.send(
                    [one.text for one in request.messages if one.role == "tool"][-self._asked :]
                )
        except StopIteration as stop:
            self.answer = str(stop.value)
            return self.answer
        self._asked = len(calls)
        return Say(calls=calls)


async def test_tasks_have_the_same_answers_for_a_part_of_the_tokens(tmp_path: Path, proof: Proof) -> None:
    await asyncio.to_thread(fill, tmp_path)
    program, *arguments = command("filesystem", tmp_path)
    git, *more = command("git", "--repository", tmp_path / "repo")
    clock, *rest = command("time")
    specs = [
        ServerSpec("fs", Stdio(program, arguments)),
        ServerSpec("git", Stdio(git, more)),
        ServerSpec("time", Stdio(clock, rest)),
        desk(),
    ]
    shares: dict[str, float] = {}
    direct_tokens = code_tokens = 0
    async with McpManager(specs, cache=False) as mcp:
        assert await mcp.wait_ready(timeout=40)
        for name, task in TASKS.items():
            with anyio.fail_after(120):
                script = Direct(task.steps(str(tmp_path)))
                model = ScriptedProvider(script)
                async with AgentEngine(model, mcp) as agent:
                    await agent.run(task.question)
                code = task.program.replace("ROOT", json.dumps(str(tmp_path)))
                search = Say(calls=[("search_tools", {"queries": [task.question], "limit": 3})])
                coder = ScriptedProvider([search, Say(calls=[("run_code", {"code": code})]), "Done."])
                limit = ToolLimit(count=1)
                async with AgentEngine(coder, mcp, code="auto", limit=limit) as agent:
                    said = outputs(await agent.run(task.question))[-1]
            assert said.partition("\nSources:")[0].strip() == script.answer.strip(), name
            assert script.answer.strip(), name
            one, other = spent(model.requests), spent(coder.requests)
            shares[name] = other / one
            direct_tokens, code_tokens = direct_tokens + one, code_tokens + other
    proof.record(
        tasks=len(TASKS),
        same_answers=len(TASKS),
        tokens_directly=direct_tokens,
        tokens_by_code=code_tokens,
        share_percent=round(100 * code_tokens / direct_tokens, 1),
        under_15_percent=sum(share <= 0.15 for share in shares.values()),
        above=", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share > 0.15) or "none",
    )
    assert len(TASKS) >= 24
    assert code_tokens <= 0.15 * direct_tokens


async def test_a_call_of_a_program_costs_little_on_top_of_the_call(proof: Proof) -> None:
    server = shop()
    count = 1_000
    async with McpManager([server.spec()], cache=False) as mcp:
        await mcp.wait_ready()
        limits = CodeLimits(calls=count)
        async with AgentEngine(ScriptedProvider([]), mcp, code=True, code_limits=limits) as agent:
            runner = agent._code
            assert runner is not None
            code = "for n in range({}):\n    shop.price(item='x', amount=n)"
            await runner.run(code.format(10))
            best = direct = 1e9
            for _ in range(3):
                began = time.perf_counter()
                assert (await runner.run(code.format(count))).success
                best = min(best, (time.perf_counter() - began) / count)
                began = time.perf_counter()
                for number in range(count):
                    await mcp.call("mcp_shop_price", {"item": "x", "amount": number})
                direct = min(direct, (time.perf_counter() - began) / count)
    proof.record(calls=count, direct_ms=round(1e3 * direct, 3), on_top_ms=round(1e3 * (best - direct), 3))
    assert best - direct <= 0.001


def test_stubs_of_all_real_tools_satisfy_pyright(tmp_path: Path, proof: Proof) -> None:
    from tests.unit.agent.code.test_stubs import DATA, made

    from dragoman.agent.code.stubs import modules_of

    data = json.loads(DATA.read_text("utf-8"))
    tools = [
        made(one["name"], one.get("inputSchema") or {}, one.get("outputSchema"), server=server)
        for server, listed in data.items()
        for one in listed
    ]
    modules = modules_of(tools)
    for module in modules.values():
        (tmp_path / f"{module.name}.pyi").write_text(module.documented(), "utf-8")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    pyright = DATA.parents[2] / ".cache/pyright/node_modules/.bin/pyright"
    done = subprocess.run([pyright, "-p", tmp_path], capture_output=True, text=True, check=False)
    proof.record(tools=len(tools), modules=len(modules), lines=done.stdout.count("\n"))
    assert done.returncode == 0, done.stdout[-2_000:]
