"""The bridge of the adapters: what every framework gets of a manager, without any framework."""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dragoman import Handlers, McpManager, ServerSpec, Stdio
from dragoman.adapters import bridge as bridge_module
from dragoman.adapters.bridge import MISSING, Bridge, images, question
from dragoman.blocking.manager import McpManager as BlockingManager
from dragoman.errors import DragomanError
from dragoman.events import StateChanged
from dragoman.model import ServerState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ADAPTERS = Path(bridge_module.__file__).parent
SERVER = Path(__file__).parents[1] / "servers/adapted.py"
BROKEN = ServerSpec("ledger", Stdio(sys.executable, ["-c", "raise SystemExit('no licence')"]))
DURABLE = Handlers(durable_questions=True)
LARGE = {"size": {"action": "accept", "content": {"size": "L"}}}


def shop(*arguments: object) -> ServerSpec:
    return ServerSpec("shop", Stdio(sys.executable, [str(SERVER), *map(str, arguments)]))


@pytest.fixture
async def mcp(tmp_path: Path) -> AsyncIterator[McpManager]:
    async with McpManager([shop(tmp_path / "orders")], handlers=DURABLE, cache=False) as made:
        await made.wait_ready()
        yield made


@pytest.mark.parametrize("file", sorted(ADAPTERS.glob("*.py")), ids=lambda file: file.stem)
def test_an_adapter_is_at_most_120_lines(file: Path) -> None:
    if file.stem not in ("bridge", "ray"):
        assert len(file.read_text("utf-8").splitlines()) <= 120


async def test_a_broken_server_is_shown_to_the_model_that_might_use_it() -> None:
    async with McpManager([shop(), BROKEN], cache=False) as mcp:
        await mcp.wait_ready()
        bridge = Bridge(mcp, "ai-sdk")
        assert "`ledger`: not available" in bridge.offered()[MISSING].description
        assert "`ledger`: not available" in (await bridge.call(MISSING, {})).text
        assert MISSING in Bridge(mcp, "ai-sdk", allow=["ledger:post", "shop:*"]).offered()
        assert MISSING not in Bridge(mcp, "ai-sdk", allow=["shop:*"]).offered()
        await mcp.remove("ledger")
        assert MISSING not in bridge.offered()
        assert (await bridge.call(MISSING, {})).text == "All servers can be used."


async def test_a_broken_server_stays_shown_while_it_is_tried_again(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    # Fails at once the first time; later it does not answer, so the second attempt lasts.
    script = "import pathlib, sys, time; p = pathlib.Path(sys.argv[1]); p.exists() and time.sleep(60); p.touch(); exit(1)"
    ledger = ServerSpec("ledger", Stdio(sys.executable, ["-c", script, str(seen)]))
    async with McpManager([ledger], cache=False) as mcp:
        bridge = Bridge(mcp, "ai-sdk")
        async for event in mcp.events():
            if isinstance(event, StateChanged) and event.after is ServerState.CONNECTING and seen.exists():
                break
        assert mcp.status()["ledger"].state is ServerState.CONNECTING
        assert "`ledger`: not available" in bridge.offered()[MISSING].description


async def test_a_question_is_plain_json_and_is_answered_once(mcp: McpManager, tmp_path: Path) -> None:
    bridge = Bridge(mcp, "ai-sdk", pauses=True)
    asked = question(await bridge.call("mcp_shop_order", {}))
    assert asked is not None
    assert asked["questions"]["size"]["message"] == "Which size?"
    asked = json.loads(json.dumps(asked))
    # A wrong answer sends nothing, and the question stays open.
    wrong = await bridge.resume(asked, {"size": {"action": "accept", "content": {"size": "XXL"}}})
    assert not wrong.success
    assert "nothing was sent" in wrong.text
    assert (await bridge.resume(asked, LARGE)).text == "ordered L"
    again = await bridge.resume(asked, LARGE)
    assert "continued already: nothing was sent" in again.text
    assert (tmp_path / "orders").read_text().split("\n")[:-1] == ["asked", "ordered L"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_word_answers_every_question(mcp: McpManager, action: str) -> None:
    bridge = Bridge(mcp, "ai-sdk", pauses=True)
    asked = question(await bridge.call("mcp_shop_order", {}))
    assert asked is not None
    assert (await bridge.resume(asked, action)).text == f"ordered {action}"


@pytest.mark.parametrize("given", [None, 5, ["size"], "maybe", {"other": {"action": "decline"}}])
async def test_answers_that_are_none_are_a_failure_and_send_nothing(
    mcp: McpManager, given: Any, tmp_path: Path
) -> None:
    bridge = Bridge(mcp, "ai-sdk", pauses=True)
    asked = question(await bridge.call("mcp_shop_order", {}))
    assert asked is not None
    result = await bridge.resume(asked, given)
    assert not result.success
    assert (tmp_path / "orders").read_text().split() == ["asked"]


async def test_a_changed_question_is_refused(mcp: McpManager, tmp_path: Path) -> None:
    bridge = Bridge(mcp, "ai-sdk", pauses=True)
    asked = question(await bridge.call("mcp_shop_order", {}))
    assert asked is not None
    raw = json.loads(asked["continuation"])
    changed = {**asked, "continuation": json.dumps({**raw, "arguments": {"item": 2}})}
    for bad in (changed, {**asked, "continuation": "x"}, {}):
        assert not (await bridge.resume(bad, LARGE)).success
    assert (tmp_path / "orders").read_text().split() == ["asked"]


async def test_a_handler_answers_where_the_application_has_one() -> None:
    async def answer(server: str, params: Any) -> Any:
        return LARGE["size"]

    handlers = Handlers(elicitation=answer, durable_questions=True)
    async with McpManager([shop()], handlers=handlers, cache=False) as mcp:
        await mcp.wait_ready()
        bridge = Bridge(mcp, "ai-sdk", pauses=True)
        assert not bridge.pauses
        assert (await bridge.call("mcp_shop_order", {})).text == "ordered L"


async def test_progress_is_reported_in_the_context_of_the_call(mcp: McpManager) -> None:
    user = contextvars.ContextVar("user", default="none")
    heard: list[Any] = []
    bridge = Bridge(mcp, "ai-sdk", on_progress=lambda *report: heard.append((user.get(), *report)))
    user.set("Ann")
    assert (await bridge.call("mcp_shop_steps", {})).success
    assert heard == [("Ann", "mcp_shop_steps", number, 3, f"step {number}") for number in (1, 2, 3)]


async def test_names_are_legal_where_a_framework_wants_more_than_the_api(mcp: McpManager) -> None:
    bridge = Bridge(mcp, "gemini", illegal=r"[^A-Za-z0-9_]")
    offered = bridge.offered()
    assert all(re.fullmatch(r"\w+", name, re.ASCII) for name in offered)
    (odd,) = [name for name in offered if "where" in name]
    assert (await bridge.call(odd, {"text": "found"})).text == "found"


async def test_any_thread_may_call_whether_it_has_a_loop_or_not(mcp: McpManager) -> None:
    bridge = Bridge(mcp, "ai-sdk", pauses=True)

    def elsewhere() -> tuple[Any, ...]:
        names = bridge.offered()
        plain = bridge.call_and_wait("mcp_shop_echo", {"text": "a thread"})
        own = asyncio.run(bridge.call("mcp_shop_echo", {"text": "a loop of its own"}))
        unknown = bridge.call_and_wait("nothing", {})
        asked = asyncio.run(bridge.call("mcp_shop_order", {}))
        ended = asyncio.run(bridge.resume(question(asked) or {}, LARGE))
        return len(names), plain.text, own.text, unknown.success, ended.text

    found = await asyncio.to_thread(elsewhere)
    assert found == (len(bridge.offered()), "a thread", "a loop of its own", False, "ordered L")


async def test_a_call_that_blocks_the_loop_it_needs_fails_and_does_not_hang(
    mcp: McpManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "LOOP_PATIENCE", 0.05)
    bridge = Bridge(mcp, "ai-sdk")
    with pytest.raises(DragomanError, match="without `await`"):
        bridge.call_and_wait("mcp_shop_echo", {"text": "here"})

    failures: list[DragomanError] = []

    def agent() -> None:
        for call in (
            bridge.offered,
            lambda: bridge.call_and_wait("mcp_shop_echo", {"text": "x"}),
            lambda: asyncio.run(bridge.call("mcp_shop_echo", {"text": "x"})),
        ):
            try:
                call()
            except DragomanError as exc:
                failures.append(exc)

    # What frameworks do that run an agent in a thread and wait for it on the loop.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(agent).result()
    assert ["the event loop of the manager does not answer" in str(one) for one in failures] == [True] * 3
    assert (await bridge.call("mcp_shop_echo", {"text": "fine again"})).text == "fine again"


def test_the_blocking_manager_asks_and_resumes_too(tmp_path: Path) -> None:
    with BlockingManager([shop(tmp_path / "orders")], handlers=DURABLE, cache=False) as mcp:
        mcp.wait_ready()
        bridge = Bridge(mcp, "ai-sdk", pauses=True)
        asked = question(bridge.call_and_wait("mcp_shop_order", {}))
        assert asked is not None
        assert asyncio.run(bridge.resume(asked, LARGE)).text == "ordered L"
        assert images(bridge.call_and_wait("mcp_shop_image", {}))[0][1] == "image/png"


async def test_a_user_of_the_program_is_asked_by_the_framework_too(mcp: McpManager) -> None:
    ann = mcp.as_user("ann")
    await ann.wait_ready()
    bridge = Bridge(ann, "ai-sdk", pauses=True)
    asked = question(await bridge.call("mcp_shop_order", {}))
    assert asked is not None
    assert (await bridge.resume(asked, LARGE)).text == "ordered L"
