"""A wire of the SDK's that breaks down under a call: noticed at once, and replaced by another."""

from __future__ import annotations

import anyio
import pytest
from tests.behaviour.conftest import listening

from dragoman import Http, McpManager, ServerSpec, Sse, ToolUnavailableError

pytestmark = pytest.mark.requirement(
    "legal-client.sse",
    "legal-error.lost",
    "otter-crash",
    "otter-p1.health",
)


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_calls_after_the_breakdown_never_meet_a_server_that_only_seems_ready(transport: str) -> None:
    with anyio.fail_after(50):
        async with listening(transport) as url:
            spec = ServerSpec("s", Http(url) if transport == "http" else Sse(url), wire="sdk")
            async with McpManager([spec], cache=False) as mcp:
                assert await mcp.wait_ready()
                # The SDK's transport cannot send this, and its task ends with it.
                assert not (
                    await mcp.call("mcp_s_echo", {"text": "x"}, headers={"X-User": "a\nb"}, timeout=1)
                ).success
                failures: list[Exception | None] = []
                while not (result := await mcp.call("mcp_s_echo", {"text": "x"})).success:
                    failures.append(result.exception)
                assert result.text == "x"
                assert all(isinstance(failure, ToolUnavailableError) for failure in failures)
                assert not any("is ready" in str(failure) for failure in failures)
                # Over SSE only the next call learns that nothing can be sent.
                assert len(failures) <= (transport == "sse")
