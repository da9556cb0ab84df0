"""The rules of the configuration hold for the gateway's clients: policy with questions, pins, limits, choice of servers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from tests.behaviour.test_gateway import SERVERS, UPSTREAM
from tests.warm import interpreter, server_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

ASK = '[mcp.policy]\nrules = [{ action = "ask", server = "*", reason = "be careful" }]\n'


class Person:
    """Answers the gateway's forms with yes or no, and those of servers with a number."""

    def __init__(self) -> None:
        self.allows = True
        self.asked: list[types.ElicitRequestFormParams] = []

    async def __call__(self, _context: object, params: Any) -> types.ElicitResult:
        if "allow" in params.requested_schema["properties"]:
            self.asked.append(params)
            return types.ElicitResult(action="accept", content={"allow": self.allows})
        return types.ElicitResult(action="accept", content={"seats": 4})


def toml(folder: Path, rules: str = "", script: str = "plain.py", **more: dict[str, Any]) -> Path:
    entries = ""
    for name, protocol in UPSTREAM.items():
        command, *words = server_command(SERVERS / script)
        fields: dict[str, Any] = {
            "command": command,
            "args": words,
            "protocol": protocol,
            **more.get(name, {}),
        }
        lines = [
            f"{key} = {value if key == 'limits' else json.dumps(value)}" for key, value in fields.items()
        ]
        entries += "\n".join([f"[mcp.servers.{name}]", *lines, ""])
    path = folder / "dragoman.toml"
    path.write_text(entries + rules)
    return path


@asynccontextmanager
async def client(*arguments: str, mode: Any = "auto", person: Any = None) -> AsyncGenerator[Client]:
    command = ["-m", "dragoman", *arguments]
    started = StdioServerParameters(command=interpreter(), args=command, env=dict(os.environ))
    async with (
        asyncio.timeout(50),
        Client(stdio_client(started), mode=mode, cache=None, elicitation_callback=person) as connected,
    ):
        yield connected


async def text(connected: Client, tool: str, arguments: Any = None) -> tuple[bool, str]:
    result = await connected.call_tool(tool, arguments or {})
    assert isinstance(result, types.CallToolResult)
    assert isinstance(result.content[0], types.TextContent)
    return bool(result.is_error), result.content[0].text


async def is_refused(connected: Client) -> None:
    for server in UPSTREAM:
        failed, said = await text(connected, f"mcp_{server}_echo", {"said": "hallo"})
        assert failed
        assert "hallo" not in said
        with pytest.raises(MCPError, match="memo://one"):
            await connected.read_resource(f"dragoman://{server}/memo://one")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_person_at_the_client_decides_what_a_rule_asks_about(mode: str, tmp_path: Path) -> None:
    person = Person()
    config = toml(tmp_path, ASK, "all_features.py")
    async with client("serve", "--config", str(config), mode=mode, person=person) as connected:
        for server in UPSTREAM:
            person.asked.clear()
            assert await text(connected, f"mcp_{server}_echo", {"said": "hallo"}) == (False, "hallo")
            (asked,) = person.asked
            assert f"call the tool `echo` of the server `{server}`" in asked.message
            assert '{"said": "hallo"}' in asked.message
            assert "be careful" in asked.message
            # The server's own question comes after the approval, which is given once.
            assert await text(connected, f"mcp_{server}_form") == (False, "accept {'seats': 4}")
            assert len(person.asked) == 2
            await connected.read_resource(f"dragoman://{server}/memo://one")
            await connected.get_prompt(f"{server}.greet", {"city": "Rom"})
            assert len(person.asked) == 4
        # What was approved before is asked about again, and is not sent.
        person.allows = False
        person.asked.clear()
        await is_refused(connected)
        assert len(person.asked) == 4


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_what_a_client_cannot_be_asked_about_is_not_sent(mode: str, tmp_path: Path) -> None:
    """Without the inbox, in which it would wait for another answer."""
    config = toml(tmp_path, f'{ASK}[mcp]\napprovals = "off"\n', "all_features.py")
    async with client("serve", "--config", str(config), mode=mode) as connected:
        await is_refused(connected)


async def test_an_approval_holds_for_its_arguments_alone(tmp_path: Path) -> None:
    config = toml(tmp_path, ASK, "all_features.py")
    async with client("serve", "--config", str(config), person=Person()) as connected:
        session = connected.session
        asked = await session.call_tool("mcp_new_echo", {"said": "one"}, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        yes: Any = {"dragoman_approval": types.ElicitResult(action="accept", content={"allow": True})}
        with pytest.raises(MCPError):
            await session.call_tool(
                "mcp_new_echo", {"said": "two"}, input_responses=yes, request_state=asked.request_state
            )
        # The answer alone is no approval either: the question comes again.
        again = await session.call_tool(
            "mcp_new_echo", {"said": "one"}, input_responses=yes, allow_input_required=True
        )
        assert isinstance(again, types.InputRequiredResult)
        done = await session.call_tool(
            "mcp_new_echo", {"said": "one"}, input_responses=yes, request_state=asked.request_state
        )
        assert done.structured_content == {"said": "one"}


async def test_limits_hold_for_clients(tmp_path: Path) -> None:
    slow = {"limits": "{ calls_per_second = 0.001, burst = 1 }", "timeout": 1}
    config = toml(tmp_path, new=slow)
    async with client("serve", "--config", str(config)) as connected:
        assert await text(connected, "mcp_new_echo", {"text": "hallo"}) == (False, "hallo")
        failed, said = await text(connected, "mcp_new_echo", {"text": "hallo"})
        assert failed
        assert "hallo" not in said
        assert await text(connected, "mcp_old_echo", {"text": "hallo"}) == (False, "hallo")


async def test_a_tool_that_differs_from_its_pin_is_withheld(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    shutil.copy(SERVERS / "jsonrpc.py", tmp_path)
    source = (SERVERS / "plain.py").read_text()
    script.write_text(source)
    config = toml(tmp_path, new={"args": [str(script)], "trust": "strict"})
    async with client("serve", "--config", str(config)) as connected:
        assert await text(connected, "mcp_new_echo", {"text": "hallo"}) == (False, "hallo")
    script.write_text(source.replace('title="Echo"', 'title="Echo", description="Another."'))
    async with client("serve", "--config", str(config)) as connected:
        with pytest.raises(MCPError):
            await connected.call_tool("mcp_new_echo", {"text": "hallo"})
        names = [tool.name for tool in (await connected.list_tools()).tools]
        assert "mcp_old_echo" in names
        assert "mcp_new_echo" not in names
    approve = [interpreter(), "-m", "dragoman", "--config", str(config), "trust", "approve", "new", "--yes"]
    done = await asyncio.to_thread(
        subprocess.run, approve, capture_output=True, encoding="utf-8", check=False, timeout=50
    )
    assert done.returncode == 0, done.stderr
    async with client("serve", "--config", str(config)) as connected:
        names = [tool.name for tool in (await connected.list_tools()).tools]
        assert "mcp_new_echo" in names
        assert await text(connected, "mcp_new_echo", {"text": "hallo"}) == (False, "hallo")


async def test_some_servers_can_be_chosen(tmp_path: Path) -> None:
    config = toml(tmp_path)
    async with client("serve", "--config", str(config), "--only", "old") as connected:
        names = [tool.name for tool in (await connected.list_tools()).tools]
        assert names
        assert {name.split("_")[1] for name in names} == {"old"}


async def test_the_files_of_a_profile_can_be_served(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": [str(SERVERS / "plain.py")]}
    (tmp_path / ".cursor").mkdir()
    home = tmp_path / "home"
    (home / ".cursor").mkdir(parents=True)
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"mine": entry}}))
    os.environ["HOME"] = str(home)
    async with client("--profile", "cursor", "serve") as connected:
        names = [tool.name for tool in (await connected.list_tools()).tools]
        assert "mcp_mine_echo" in names
