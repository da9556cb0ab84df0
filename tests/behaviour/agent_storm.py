"""An agent whose servers are killed, or whose question is cancelled: the small test and the proof share it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman import ServerSpec, Stdio
from dragoman.agent.engine import AgentEngine
from dragoman.agent.messages import ToolFinished, Transcript
from dragoman.agent.providers import Say, ScriptedProvider

if TYPE_CHECKING:
    from dragoman.agent.messages import AgentEvent, Message, ModelRequest

SERVER = Path(__file__).resolve().parents[1] / "servers" / "plain.py"


def plain(name: str) -> ServerSpec:
    return ServerSpec(name, Stdio(sys.executable, [str(SERVER)]), parallel=name.endswith("p"))


def assert_whole(messages: list[Message]) -> None:
    """Check what every API demands: after each turn its calls' answers, one each, in order."""
    at = 0
    while at < len(messages):
        calls = messages[at].calls
        answers = messages[at + 1 : at + 1 + len(calls)]
        assert [answer.call_id for answer in answers] == [call.id for call in calls]
        assert all(answer.role == "tool" for answer in answers)
        at += 1 + len(calls)
        assert at == len(messages) or messages[at].role != "tool"


@dataclass
class Killing:
    answered: int = 0
    failed: int = 0


async def kill_while_it_works(*, calls: int, servers: int, victims: int, seed: int, path: Path) -> Killing:
    """Make many calls in one turn, and kill servers while they run."""
    chance = random.Random(seed)
    names = [f"s{number}{'p' if number % 2 else ''}" for number in range(servers)]
    wanted = [(f"mcp_{chance.choice(names)}_echo", {"text": f"call {at}"}) for at in range(calls)]
    model = ScriptedProvider([Say(calls=wanted), "done"])
    doomed = chance.sample(names, victims)
    moments = sorted(chance.sample(range(1, calls // 2), victims))
    finished = 0
    async with AgentEngine(model, [plain(name) for name in names], transcript=path) as agent:
        assert agent.manager is not None

        def heard(event: AgentEvent) -> None:
            nonlocal finished
            if isinstance(event, ToolFinished):
                finished += 1
                if moments and finished >= moments[0]:
                    moments.pop(0)
                    pid = agent.manager.status()[doomed.pop()].pid  # type: ignore[union-attr]
                    assert pid
                    os.kill(pid, signal.SIGKILL)

        answer = await agent.run("go", on_event=heard)
        assert answer.text == "done"
        assert not doomed
        assert_whole(list(agent.messages))
        assert Transcript(path).read() == list(agent.messages)
        results = [message for message in agent.messages if message.role == "tool"]
    assert len(results) == calls
    for at, message in enumerate(results):
        assert message.is_error or message.text == f"call {at}", "an answer crossed over"
    failed = sum(message.is_error for message in results)
    return Killing(answered=calls - failed, failed=failed)


async def cancel_anywhere(*, points: int, seed: int, path: Path) -> int:
    """Cancel a question at random turns of the loop, again and again; return how many were cut short."""
    chance = random.Random(seed)

    def script(request: ModelRequest) -> Say | str:
        if request.messages[-1].role == "tool":
            return "done"
        return Say(calls=[(f"mcp_{chance.choice('ab')}_echo", {"text": "x"}) for _ in range(6)])

    cut = 0
    async with AgentEngine(ScriptedProvider(script), [plain("a"), plain("b")], transcript=path) as agent:
        for _ in range(points):
            task = asyncio.create_task(agent.run("go"))
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
                if task.done():
                    break
            task.cancel()
            await asyncio.wait({task})
            cut += task.cancelled()
            assert_whole(list(agent.messages))
        assert Transcript(path).read() == list(agent.messages)
        assert (await agent.run("go")).text == "done"
    return cut
