"""The bundled legal knowledge server, through the manager: three kinds of tools, each with its source."""

from __future__ import annotations

import sys

import anyio
import pytest

from dragoman import McpManager, ServerSpec, Stdio

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("legal-law.tools")
@pytest.mark.requirement("legal-law.attribution")
async def test_statutes_cases_and_templates_come_with_source_and_date() -> None:
    desk = Stdio(sys.executable, ["-m", "dragoman.demo.legal"], inherit_env=["PYTHONPATH"])
    calls = {
        "search_statutes": {"query": "deposit", "limit": 1},
        "search_cases": {"query": "deposit", "limit": 1},
        "list_templates": {},
    }
    with anyio.fail_after(30):
        async with McpManager([ServerSpec("law", desk)]) as mcp:
            assert await mcp.wait_ready()
            for tool, arguments in calls.items():
                result = (await mcp.call(f"mcp_law_{tool}", arguments)).raise_for_error()
                assert result.provenance is not None
                assert result.provenance.sources, tool
                assert all(source.title and source.updated for source in result.provenance.sources), tool
                assert "Sources:\n- " in result.text
