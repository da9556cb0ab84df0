"""The pages about agents and tools: every block of code is run as it stands, with a model over real HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
from tests import warm
from tests.docs.pages import ROOT, blocks
from tests.servers.model_api import ModelApi

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = ROOT / "tests/servers/plain.py"
AGENT = blocks("python", (ROOT / "docs/agent.md").read_text("utf-8"))
TOOLS = blocks("python", (ROOT / "docs/tools.md").read_text("utf-8"))


async def run(example: str, **variables: str) -> str:
    done = await asyncio.to_thread(warm.run, [], code=example, environment=os.environ | variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_the_agent_answers_with_a_real_server_and_a_model_over_http(home: Path) -> None:
    folder = home / ".config/dragoman"
    folder.mkdir(parents=True)
    servers = {"files": {"command": sys.executable, "args": [str(PLAIN)]}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
    script = [
        {"calls": [{"name": "mcp_files_echo", "arguments": {"text": "a.txt"}}]},
        {"text": "There is a.txt."},
    ]
    async with ModelApi(script) as api:
        said = await run(AGENT[0], OPENAI_API_KEY="none", OPENAI_BASE_URL=api.base_url("openai"))

    assert said.startswith("There is a.txt.\n2 steps, ")
    assert api.requests[1].body["messages"][-1]["content"] == "a.txt"


async def test_an_agent_gets_the_tools_of_its_filter_alone() -> None:
    tools, answers = (await run(AGENT[1])).splitlines()
    assert tools == "1 tool"
    assert answers.startswith("['the content of a', 'unknown tool `mcp_files_delete`")


async def test_an_agent_that_asks_makes_only_the_call_that_a_rule_allows() -> None:
    asked, answers = (await run(AGENT[2])).splitlines()
    assert asked == "asked about delete {'page': 'a'}"
    assert answers.startswith("['the text of a', 'the user declined `mcp_pages_delete`")


async def test_the_scripted_example_shows_the_call_and_the_answer() -> None:
    assert await run(AGENT[3]) == "add -> 5\nIt is 5."


@pytest.mark.requirement("otter-later.sampling")
async def test_a_server_asks_the_model_by_the_documented_call() -> None:
    assert (await run(AGENT[4])).splitlines() == [
        "editor asks: A title for: A deposit is two months' rent.",
        "The Deposit",
    ]


async def test_the_export_is_legal_and_leads_back() -> None:
    assert (await run(TOOLS[0])).splitlines() == ["files__read", "('files:read', {'path': 'a'})", "{} {}"]


async def test_a_name_that_two_servers_want_is_an_error_and_the_unambiguous_one_is_called() -> None:
    *error, result = (await run(TOOLS[1])).splitlines()
    assert (error[-1].count("mcp_git_hub_push_"), result) == (2, "pushed")


async def test_a_changed_tool_is_called_by_its_new_name_and_keeps_what_is_fixed() -> None:
    names, text, error, *_ = (await run(TOOLS[2])).splitlines()
    assert names == "['mcp_github_find_issue']"
    assert text == "5 issues of octo/one about crash"
    assert "unknown key `repo`" in error


async def test_a_tool_runs_itself() -> None:
    assert (await run(TOOLS[3])).splitlines() == ["noon in Bern"] * 2


async def test_a_model_can_read_resources_by_calling_tools() -> None:
    assert (await run(TOOLS[4])).splitlines()[1:] == ["A deposit is two months' rent."]


async def test_a_local_tool_answers_for_the_tool_that_it_is_given_to() -> None:
    assert (await run(TOOLS[5])).splitlines() == [
        "[answered by `local_cases`, since `law` is not available]",
        "local cases about rent",
    ]


def test_no_block_is_left_out() -> None:
    assert (len(AGENT), len(TOOLS)) == (5, 6)
