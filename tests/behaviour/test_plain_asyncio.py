"""What a program sees that runs in `asyncio.run`: the test framework's own loop knows more than that."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from dragoman import Handlers, McpManager, ServerSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., ServerSpec]


@pytest.mark.parametrize("wire", ["dragoman", "sdk"])
def test_a_server_can_ask_and_report_in_a_plain_loop(server: Make, wire: str) -> None:
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
        spec = server("asking", "asking.py", protocol="legacy", wire=wire)
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
