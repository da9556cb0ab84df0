"""What a program sees that runs in `asyncio.run`: the test framework's own loop knows more than that."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest
from tests.behaviour.conftest import listening

from dragoman import CallTimeoutError, Handlers, Http, McpManager, ServerSpec, ToolUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., ServerSpec]


@pytest.mark.usefixtures("pipes")
def test_a_server_can_ask_and_report_in_a_plain_loop(server: Make) -> None:
    seen: list[float] = []
    logged: list[object] = []
    handlers = Handlers(
        sampling=lambda _, __: {
            "role": "assistant",
            "content": {"type": "text", "text": "short"},
            "model": "m",
        },
        elicitation=lambda _, __: {"action": "accept", "content": {"seats": 3, "name": "Li"}},
        logging=lambda _, message: logged.append(message),
    )

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: sys.exit(f"broken: {context}"))
        spec = server("asking", "asking.py", protocol="legacy")
        async with McpManager([spec], handlers=handlers, cache=False) as mcp:
            await mcp.wait_ready(timeout=30)
            booked = await mcp.call("mcp_asking_book", {})
            assert booked.text == "accept: {'seats': 3, 'name': 'Li'}"
            said = await mcp.call("mcp_asking_summarise", {"text": "long"})
            assert said.text == "the model said: short"
            done = await mcp.call(
                "mcp_asking_steps", {"count": 3}, on_progress=lambda progress, *_: seen.append(progress)
            )
            assert done.text == "done"

    asyncio.run(main())

    assert seen == [1, 2, 3]


@pytest.fixture(scope="module")
def make_uvloop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Make a loop of uvloop; its library opens a pipe with the first one and keeps it for the process."""
    uvloop = pytest.importorskip("uvloop", reason="uvloop has no version for Windows")
    uvloop.new_event_loop().close()
    return uvloop.new_event_loop


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_calls_end_on_uvloop_as_on_the_loop_of_asyncio(
    server: Make, make_uvloop: Callable[[], asyncio.AbstractEventLoop], transport: str
) -> None:
    async def use(spec: ServerSpec) -> None:
        async with McpManager([spec], cache=False) as mcp:
            assert await mcp.wait_ready(timeout=30)
            echoes = [mcp.call("mcp_official_echo", {"text": str(number)}) for number in range(50)]
            assert [result.text for result in await asyncio.gather(*echoes)] == list(map(str, range(50)))
            large = await mcp.call("mcp_official_echo", {"text": "x" * 1_000_000})
            assert large.text == "x" * 1_000_000
            late = await mcp.call("mcp_official_slow", timeout=0.2)
            assert isinstance(late.exception, CallTimeoutError)
            waiting = asyncio.ensure_future(mcp.call("mcp_official_slow"))
            lost = await mcp.call("mcp_official_exit")
            assert isinstance(lost.exception, ToolUnavailableError)
            assert isinstance((await waiting).exception, ToolUnavailableError)

    async def main() -> None:
        if transport == "stdio":
            await use(server("official", "official.py", "stdio"))
        else:
            async with listening("http") as url:
                await use(ServerSpec("official", Http(url)))

    with asyncio.Runner(loop_factory=make_uvloop) as runner:
        runner.run(main())
