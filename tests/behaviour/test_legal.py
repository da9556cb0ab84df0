"""Legal knowledge servers: three kinds of tools, and a source and a date for every answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.test_fallback import SERVERS, kill_for_good, mortal
from tests.behaviour.test_gateway_parity import call, gateway, texts
from tests.warm import interpreter

from dragoman import McpManager, ServerSpec, Stdio, ToolDef, ToolRegistry, tool
from dragoman.agent.engine import AgentEngine
from dragoman.agent.providers import Say, ScriptedProvider
from dragoman.model import Settings, SourceRef
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("legal-law.tools", "legal-law.attribution", "legal-call.result"),
]


def desk() -> ServerSpec:
    return ServerSpec("law", Stdio(interpreter(), ["-m", "dragoman.demo.legal"], inherit_env=["PYTHONPATH"]))


@pytest.mark.requirement("legal-law.tools")
@pytest.mark.requirement("legal-law.attribution")
async def test_statutes_cases_and_templates_come_with_source_and_date() -> None:
    calls = {
        "search_statutes": {"query": "deposit", "limit": 1},
        "search_cases": {"query": "deposit", "limit": 1},
        "list_templates": {},
    }
    with anyio.fail_after(30):
        async with McpManager([desk()]) as mcp:
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
        async with AgentEngine(model, [desk()]) as agent:
            await agent.run("What may a landlord ask for?")
    found, missing = (message for message in model.requests[-1].messages if message.role == "tool")
    assert not found.is_error
    assert "A deposit shall not exceed two months' rent." in found.text
    assert found.text.splitlines()[-2] == "Sources:"
    assert "(updated 2026-01-30)" in found.text.splitlines()[-1]
    assert found.parts[0].value["results"][0]["article"] == "4"
    assert missing.is_error
    assert missing.text.startswith("No sample law is called `no-such-law`. There are: `labour-standards`")


def configure(monkeypatch: pytest.MonkeyPatch, folder: Path = SERVERS, **variables: str) -> None:
    """Configure the server `law` of the legal assistant, whose `echo` answers in plain text."""
    monkeypatch.setenv("LEGAL_MCP_LAW_SERVER_URL", f"{sys.executable} {folder / 'plain.py'}")
    monkeypatch.setenv("LEGAL_MCP_LAW_TRANSPORT", "stdio")
    for name, value in variables.items():
        monkeypatch.setenv(f"LEGAL_MCP_LAW_{name}", value)


PLAIN = ("mcp_law_echo", {"text": "Art. 585: the parties may agree on damages."})


@pytest.mark.requirement("legal-law.attribution")
@pytest.mark.parametrize(
    ("updated", "shown"), [("2025-06-01", "(updated 2025-06-01)"), ("", "(date unknown)")]
)
async def test_plain_text_has_a_source_and_a_date_in_library_agent_and_gateway(
    monkeypatch: pytest.MonkeyPatch, updated: str, shown: str
) -> None:
    configure(monkeypatch, UPDATED=updated)
    end = f"Sources:\n- law {shown}"
    model = ScriptedProvider([Say(calls=[PLAIN]), Say(calls=[PLAIN]), "done"])
    with anyio.fail_after(30):
        async with McpManager.from_config("legal", trust_project=True) as mcp, gateway(mcp) as client:
            assert await mcp.wait_ready()
            for _ in range(2):
                result = await mcp.call(*PLAIN)
                assert result.text == f"{PLAIN[1]['text']}\n\n{end}"
                assert result.provenance is not None
                assert list(result.provenance.sources) == [SourceRef(title="law", updated=updated)]
                passed_on = await call(client, *PLAIN)
                assert texts(passed_on) == [PLAIN[1]["text"], end]
                assert passed_on["_meta"]["dragoman/sources"][0]["title"] == "law"
                await mcp.reload()
            async with AgentEngine(model, mcp) as agent:
                await agent.run("What does article 585 say?")
    read = [message.text for message in model.requests[-1].messages if message.role == "tool"]
    assert read == [f"{PLAIN[1]['text']}\n\n{end}"] * 2


@pytest.mark.requirement("legal-law.attribution")
@pytest.mark.parametrize(
    ("answer", "date"),
    [
        ({"text": "Art. 585", "updated_at": "2021-01-01"}, "2021-01-01"),
        ({"text": "Art. 585", "date": "1999-09-09"}, "2025-06-01"),
        ({"rows": [{"updated": "2021-01-01"}, {"updated": "2022-02-02"}]}, "2025-06-01"),
    ],
)
async def test_date_of_the_answer_wins_over_the_configured_one(answer: dict[str, Any], date: str) -> None:
    server = ScriptedServer("law")
    server.add(ToolDef(name="find", description="", input_schema={"type": "object"}, func=lambda: answer))
    with anyio.fail_after(30):
        async with McpManager([server.spec(attribution={"updated": "2025-06-01"})], cache=False) as mcp:
            assert await mcp.wait_ready()
            result = await mcp.call("mcp_law_find")
    assert result.provenance is not None
    assert list(result.provenance.sources) == [SourceRef(title="law", updated=date)]


@pytest.mark.requirement("legal-law.attribution")
async def test_error_of_a_legal_server_names_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch)
    with anyio.fail_after(30):
        async with McpManager.from_config("legal", trust_project=True) as mcp:
            assert await mcp.wait_ready()
            result = await mcp.call("mcp_law_fail")
    assert result.error == result.text == "the disk is full"


@tool
def kept_copy(text: str) -> dict[str, str]:
    """Return the copy of the office."""
    return {"text": text, "source": "the copy of the office", "updated": "2020-05-28"}


@tool
def bare_copy(text: str) -> str:
    """Return the copy of the office without saying so."""
    return text


@pytest.mark.requirement("legal-law.attribution", "legal-client.failure")
@pytest.mark.parametrize(
    ("local", "source"),
    [
        (kept_copy, SourceRef(title="the copy of the office", updated="2020-05-28")),
        # The date of the server's data is not the date of the copy.
        (bare_copy, SourceRef(title="bare_copy")),
    ],
)
async def test_local_function_that_answers_for_a_legal_server_is_the_source(
    tmp_path: Path, local: Any, source: SourceRef
) -> None:
    spec = mortal(
        tmp_path / "law", "law", fallback={"echo": local.name}, attribution={"updated": "2025-06-01"}
    )
    registry = ToolRegistry()
    registry.register(local)
    with anyio.fail_after(30):
        settings = Settings(servers=[spec], sources_in_text=True)
        async with McpManager(settings, registry=registry, cache=False) as mcp, gateway(mcp) as client:
            assert await mcp.wait_ready()
            await kill_for_good(mcp, "law", tmp_path / "law")
            result = await mcp.call(*PLAIN)
            passed_on = await call(client, *PLAIN)
    assert result.provenance is not None
    assert list(result.provenance.sources) == [source]
    dated = f"(updated {source.updated})" if source.updated else "(date unknown)"
    assert result.text.endswith(f"Sources:\n- {source.title} {dated}")
    assert texts(passed_on)[0].startswith(f"[answered by `{local.name}`")
    assert texts(passed_on)[-1] == f"Sources:\n- {source.title} {dated}"


@pytest.mark.requirement("legal-law.attribution", "legal-error.lost")
@pytest.mark.parametrize("locale", ["zh_CN.UTF-8", "en_GB.UTF-8"])
async def test_sources_and_notices_are_in_the_language_of_the_reader(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, locale: str
) -> None:
    mortal(tmp_path / "law", "law")
    configure(monkeypatch, tmp_path / "law", UPDATED="2025-06-01", FALLBACK="echo=bare_copy")
    monkeypatch.setenv("LC_ALL", locale)
    is_chinese = locale.startswith("zh")
    model = ScriptedProvider(["yes", "no"])
    registry = ToolRegistry()
    registry.register(bare_copy)
    with anyio.fail_after(30):
        made = McpManager.from_config("legal", trust_project=True, registry=registry)
        async with made as mcp, gateway(mcp, for_model=True) as client:
            assert await mcp.wait_ready()
            end = (await mcp.call(*PLAIN)).text.splitlines()[-2:]
            assert texts(await call(client, *PLAIN))[-1].splitlines() == end
            async with AgentEngine(model, mcp) as agent:
                await agent.run("Are you there?")
                await kill_for_good(mcp, "law", tmp_path / "law")
                noted = (await mcp.call(*PLAIN)).text.splitlines()[0]
                await agent.run("And now?")
    (notice,) = (one.text for one in model.requests[-1].messages if one.text.startswith("[notice]"))
    assert ("`来源：`" if is_chinese else "`Sources:`") in model.requests[0].messages[0].text
    if is_chinese:
        assert end == ["来源：", "- law （更新于 2025-06-01）"]
        assert noted == "[由 `bare_copy` 代为回答，因为 `law` 不可用]"
        assert notice.startswith("[notice] 服务器 `law` 不可用: ")
    else:
        assert end == ["Sources:", "- law (updated 2025-06-01)"]
        assert noted.startswith("[answered by `bare_copy`")
        assert notice.startswith("[notice] server `law` is not available: ")
