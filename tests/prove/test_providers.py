"""Every provider of the table by the contract of all, and the bridge to the others in an environment of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour import test_provider_contract as contract
from tests.behaviour.models import CALLS
from tests.prove.frameworks import python_of
from tests.servers.model_api import ModelApi

from dragoman.agent.providers.open import PROVIDERS

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
DRIVER = Path(__file__).with_name("drive_any_llm.py")
KEY = "an-odd-key-4711"
NAMES = [name for name in PROVIDERS if name not in {"local", "any-llm"}]
CASES = (
    contract.test_text_streams_in_pieces_and_the_usage_is_counted,
    contract.test_parallel_calls_and_their_results,
    contract.test_thoughts_are_shown_and_go_back_before_a_call,
    contract.test_calls_of_another_model_are_taken,
    contract.test_a_refusal_is_no_error,
    contract.test_a_stream_that_is_cut_has_what_came,
    contract.test_a_stream_without_an_end_is_broken,
    contract.test_the_key_goes_into_its_header_alone,
    contract.test_how_much_it_thinks_is_set_as_the_api_wants,
)


@pytest.mark.parametrize("name", NAMES)
async def test_a_provider_keeps_the_contract(name: str, proof: Proof) -> None:
    for case in CASES:
        await case(name)
    if name != "ollama":
        for place in ("status", "stream"):
            await contract.test_an_error_that_quotes_the_key_is_masked(name, place)
    proof.record(cases=len(CASES) + 1)


async def drive(server: ModelApi, *conversation: dict[str, Any]) -> dict[str, Any]:
    """Ask a model through any-llm, in its environment; return what came."""
    python = await asyncio.to_thread(python_of, "any-llm")
    words = [python, DRIVER, server.base_url("openai"), KEY, json.dumps(conversation)]
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout + done.stderr
    return json.loads(done.stdout.strip().rpartition("\n")[2])


async def test_the_bridge_keeps_the_contract(proof: Proof) -> None:
    asked = {"role": "user", "text": "hi"}
    async with ModelApi([{"thought": "hm", "text": "Grüße; 你好"}]) as server:
        said = await drive(server, asked)
    assert (said["text"], said["finish"], said["pieces"] > 1) == ("Grüße; 你好", "stop", True)
    assert (said["input"], said["output"]) == (100, 20)
    assert KEY in server.requests[0].headers["authorization"]
    async with ModelApi([{"text": "see", "calls": CALLS}]) as server:
        said = await drive(server, asked)
    assert said["calls"] == [["add", {"a": 1, "b": "zwei"}], ["now", {}]]
    assert said["finish"] == "tool_calls"
    async with ModelApi([{"text": "ok"}]) as server:
        turn = {
            "role": "assistant",
            "calls": [{"id": "c1", "name": "add", "raw": '{"a": 1}', "arguments": {"a": 1}}],
        }
        said = await drive(server, asked, turn, {"role": "tool", "call_id": "c1", "name": "add", "text": "3"})
    assert (said["text"], server.complaints) == ("ok", [])
    async with ModelApi([{"status": 401, "error": f"Incorrect API key provided: {KEY}"}]) as server:
        said = await drive(server, asked)
    assert said["status"] == 401
    assert "Incorrect API key" in said["error"]
    async with ModelApi([{"text": "the beginning of it", "broken": "cut"}]) as server:
        said = await drive(server, asked)
    assert "the beginning" in said["partial"]
    async with ModelApi([{"text": "the beginning", "broken": "no finish"}]) as server:
        said = await drive(server, asked)
    assert "without a finish reason" in said["error"]
    async with ModelApi([{"status": 503}], repeat=True) as server:
        assert (await drive(server, asked))["status"] == 503
    assert len(server.requests) == 1
    proof.record(cases=7)
