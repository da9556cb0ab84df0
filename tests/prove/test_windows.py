"""Generated runs on local models with small windows: nothing that the model needs is ever cut."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.behaviour.clerk import Clerk, asked, registry
from tests.servers.local_models import LocalModels, count

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

    from dragoman.tools.registry import ToolRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(7200)]
RUNS = int(os.environ.get("WINDOW_RUNS", "1000"))
KINDS = ("ollama", "llamacpp", "vllm", "lmstudio")
WINDOWS = (4_096, 8_192, 32_768, 131_072)
TOOLS = (5, 20, 60, 120, 250, 500)
SAID = ("the harbour lies in the fog, ", "港口在雾中，", '{"file": "f.txt", "line": 12}\n')


async def test_no_run_loses_a_tool_in_use_the_question_or_the_system_prompt(proof: Proof) -> None:
    chance = random.Random(proof.seed)
    registries: dict[tuple[int, int, str], ToolRegistry] = {}
    steps = searched = 0
    for run in range(RUNS):
        kind, window, tools = chance.choice(KINDS), chance.choice(WINDOWS), chance.choice(TOOLS)
        made = (tools, chance.choice((5, 60, 400, 4_000)), chance.choice(SAID))
        if made not in registries:
            registries[made] = registry(made[0], words=made[1], said=made[2])
        clerk = Clerk(tools, parallel=chance.choice((1, 1, 3)))
        most = window if kind == "ollama" else 131_072
        async with LocalModels(kind, window=window, most=most, script=clerk) as server:
            with anyio.fail_after(120):
                text, _ = await asked(server, registries[made])
        told = f"run {run}: {kind}, {window} tokens, {made}, {clerk.parallel} at once"
        assert text == "The seventh.", told
        assert not clerk.missing, f"{told}: {clerk.missing}"
        assert not any(server.cuts), f"{told}: {server.cuts}"
        assert not server.refused, told
        assert max(count(body.get("tools", [])) for body in server.requests) <= 0.35 * window, told
        steps += len(server.requests)
        searched += any(tool["function"]["name"] == "search_tools" for tool in server.requests[0]["tools"])
    proof.record(runs=RUNS, requests=steps, with_search=searched)
