"""The reference server `everything` in a plain `asyncio.run`: it asks, reports, links, over each transport."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.real.test_real_servers import PATIENCE, everything_on, spec_of, succeed

from dragoman import Http, McpManager, ServerSpec, Sse
from dragoman.agent.handlers import Form, make_handlers
from dragoman.agent.providers import ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@asynccontextmanager
async def everything(transport: str) -> AsyncGenerator[ServerSpec]:
    match transport:
        case "stdio":
            yield spec_of("everything", "stdio")
        case "http":
            async with everything_on("streamableHttp", "/mcp") as url:
                yield ServerSpec("everything", Http(url))
        case _:
            async with everything_on("sse", "/sse") as url:
                yield ServerSpec("everything", Sse(url))


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
def test_it_asks_reports_progress_and_links_resources(transport: str) -> None:
    progress: list[tuple[float, float | None]] = []
    forms: list[Form] = []

    def fill(form: object) -> dict[str, Any]:
        assert isinstance(form, Form)
        forms.append(form)
        return {"name": "Li Na", "check": True}

    async def main() -> None:
        answers = make_handlers(
            lambda: ScriptedProvider(["sampled!"]),
            approve=lambda server, _: server == "everything",
            ask=fill,
            roots=["file:///project"],
        )
        async with everything(transport) as spec, McpManager([spec], handlers=answers, cache=False) as mcp:
            assert await mcp.wait_ready(timeout=PATIENCE), mcp.status()
            sampled = await succeed(mcp, "mcp_everything_trigger-sampling-request", prompt="hi")
            assert "sampled!" in sampled.text
            filled = await succeed(mcp, "mcp_everything_trigger-elicitation-request")
            assert "Li Na" in filled.text
            listed = await succeed(mcp, "mcp_everything_get-roots-list")
            assert "file:///project" in listed.text
            linked = await succeed(mcp, "mcp_everything_get-resource-links", count=2)
            assert [part.kind for part in linked.parts] == ["text", "link", "link"]
            assert all(part.uri.startswith("demo://resource/") for part in linked.parts[1:])
            assert linked.parts[1].uri in linked.text
            embedded = await succeed(
                mcp, "mcp_everything_get-resource-reference", resourceType="Text", resourceId=1
            )
            assert "resource" in [part.kind for part in embedded.parts]
            worked = await mcp.call(
                "mcp_everything_trigger-long-running-operation",
                {"duration": 0.3, "steps": 3},
                on_progress=lambda done, total, _: progress.append((done, total)),
            )
            assert worked.success, worked.error

    asyncio.run(main())

    assert progress == [(1, 3), (2, 3), (3, 3)]
    assert "name" in [field.name for field in forms[0].fields]


def test_other_capabilities_are_not_taken_for_tampering() -> None:
    """It offers more to a client that can answer; what it offers to each is pinned apart."""

    async def offered(**answering: Any) -> tuple[int, list[Any]]:
        spec = spec_of("everything", "stdio")
        answers = None
        if answering:
            answers = make_handlers(lambda: ScriptedProvider([]), ask=lambda _: None, **answering)
        async with McpManager([spec], handlers=answers, cache=False) as mcp:
            assert await mcp.wait_ready(timeout=PATIENCE), mcp.status()
            await asyncio.gather(*mcp._parts.gate.pin_checker.looking())
            return len(mcp.tools()), list(mcp.trust.changes("everything"))

    async def main() -> None:
        able: dict[str, Any] = {"approve": lambda *_: True, "roots": ["file:///project"]}
        few, none = await offered()
        more, nothing = await offered(**able)
        assert more > few
        assert none == nothing == []
        assert await offered() == (few, [])
        assert await offered(**able) == (more, [])

    asyncio.run(main())
