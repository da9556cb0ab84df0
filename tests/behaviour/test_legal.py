"""The bundled legal knowledge server, through the manager: three kinds of tools, each with its source."""

from __future__ import annotations

import sys

import anyio
import pytest

from dragoman import McpManager, ServerSpec, Stdio
from dragoman.agent.engine import AgentEngine
from dragoman.agent.providers import Say, ScriptedProvider

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("legal-law.tools", "legal-law.attribution", "legal-call.result"),
]


DESK = ServerSpec("law", Stdio(sys.executable, ["-m", "dragoman.demo.legal"], inherit_env=["PYTHONPATH"]))


@pytest.mark.requirement("legal-law.tools")
@pytest.mark.requirement("legal-law.attribution")
async def test_statutes_cases_and_templates_come_with_source_and_date() -> None:
    calls = {
        "search_statutes": {"query": "deposit", "limit": 1},
        "search_cases": {"query": "deposit", "limit": 1},
        "list_templates": {},
    }
    with anyio.fail_after(30):
        async with McpManager([DESK]) as mcp:
            assert await mcp.wait_ready()
            for tool, arguments in calls.items():
                result = (await mcp.call(f"mcp_law_{tool}", arguments)).raise_for_error()
                assert result.provenance is not None
                assert result.provenance.sources, tool
                assert all(source.title and source.updated for source in result.provenance.sources), tool
                assert "Sources:" not in result.text


@pytest.mark.requirement("legal-call.result", "legal-error.tool")
async def test_the_agent_reads_what_comes_back_as_text_whether_it_went_well_or_not() -> None:
    good = ("mcp_law_lookup_statute", {"law": "residential-tenancy", "article": "4"})
    bad = ("mcp_law_lookup_statute", {"law": "no-such-law", "article": "4"})
    model = ScriptedProvider([Say(calls=[good, bad]), "done"])
    with anyio.fail_after(30):
        async with AgentEngine(model, [DESK]) as agent:
            await agent.run("What may a landlord ask for?")
    found, missing = (message for message in model.requests[-1].messages if message.role == "tool")
    assert not found.is_error
    assert "A deposit shall not exceed two months' rent." in found.text
    assert found.text.splitlines()[-2] == "Sources:"
    assert "(updated 2026-01-30)" in found.text.splitlines()[-1]
    assert found.parts[0].value["results"][0]["article"] == "4"
    assert missing.is_error
    assert missing.text.startswith("No sample law is called `no-such-law`. There are: `labour-standards`")
