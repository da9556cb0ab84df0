"""Tasks, apps and skills through the gateway: what servers offer by extensions of the protocol, for its clients."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour.test_apps import modern
from tests.behaviour.test_tasks import requests
from tests.unit.gateway.test_app import TOKEN, client_of, post
from tests.unit.gateway.test_http import older, opened

from dragoman.gateway.app import asgi_app
from dragoman.gateway.questions import Questions
from dragoman.manager.manager import McpManager

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    import httpx2

TASKS, SKILLS = "io.modelcontextprotocol/tasks", "io.modelcontextprotocol/skills"
FOLLOWS: Any = {"extensions": {TASKS: {}}}
VIEWS = pytest.mark.parametrize(("path", "prefix", "inside"), [("/mcp", "mcp_m_", "m"), ("/mcp/m", "", "")])


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


@asynccontextmanager
async def gateway(*specs: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    questions = Questions()
    mcp = McpManager(specs, cache=False, handlers=questions.handlers())
    app = asgi_app(mcp, token=TOKEN, questions=questions)
    async with asyncio.timeout(30), client_of(app) as client:
        assert await mcp.wait_ready()
        yield client


async def ask(client: httpx2.AsyncClient, method: str, path: str = "/mcp", **params: Any) -> dict[str, Any]:
    more = {"capabilities": params.pop("capabilities", FOLLOWS)}
    if method == "resources/read":
        more["headers"] = {"Mcp-Name": params["uri"]}
    answer = (await post(client, method, params, path=path, **more)).json()
    return answer.get("result") or answer["error"]


@VIEWS
async def test_a_client_that_knows_tasks_follows_them(
    path: str, prefix: str, inside: str, state: Path
) -> None:
    async with gateway(modern("m", str(state)), modern("n")) as client:
        extensions = (await ask(client, "server/discover", path))["capabilities"]["extensions"]
        assert extensions == {TASKS: {}, SKILLS: {"directoryRead": True}}
        asks = {"polls": 2, "asks": ["colour"]}
        begun = await ask(client, "tools/call", path, name=f"{prefix}work", arguments=asks)
        task = begun["taskId"]
        assert begun["resultType"] == "task"
        assert re.fullmatch(r"m:secret-0\.[\w-]{24}", task)
        states = [await ask(client, "tasks/get", path, taskId=task) for _ in range(2)]
        assert [one["status"] for one in states] == ["working", "input_required"]
        assert {one["taskId"] for one in states} == {task}
        answers = {
            key: {"action": "accept", "content": {"name": "red"}} for key in states[1]["inputRequests"]
        }
        assert "error" not in await ask(client, "tasks/update", path, taskId=task, inputResponses=answers)
        done = await ask(client, "tasks/get", path, taskId=task)
        assert done["status"] == "completed"
        assert "red" in done["result"]["content"][0]["text"]
        again = (await ask(client, "tools/call", path, name=f"{prefix}work", arguments={}))["taskId"]
        await ask(client, "tasks/cancel", path, taskId=again)
    assert requests(state, "tasks/cancel")[0]["taskId"] == "secret-1"


async def test_a_task_that_is_not_known_is_refused(state: Path) -> None:
    async with gateway(modern("m", str(state)), modern("n")) as client:
        begun = await ask(client, "tools/call", name="mcp_m_work", arguments={"kind": "vanish"})
        own, _, mark = begun["taskId"].rpartition(".")
        assert own == "m:secret-0"
        # Not without its mark, and not with that of another: no client can guess the task of another one.
        guesses = [own, f"{own}.{mark[:-1]}", f"m:secret-1.{mark}", f"n:secret-0.{mark}", f"secret-0.{mark}"]
        for task in (*guesses, "secret-0", "nobody:secret-0", ":x", "m:", ".", f"m:.{mark}"):
            assert (await ask(client, "tasks/get", taskId=task))["message"] == "Task not found"
        assert (await ask(client, "tasks/get", "/mcp/n", taskId=begun["taskId"]))[
            "message"
        ] == "Task not found"
        assert requests(state, "tasks/get") == []
        assert (await ask(client, "tasks/get", taskId=begun["taskId"]))["message"] == "Task has expired"


async def test_a_task_is_followed_for_a_client_that_does_not_know_tasks(state: Path) -> None:
    async with gateway(modern("m", str(state))) as client:
        call: Any = {"name": "mcp_m_work", "arguments": {"polls": 2}}
        result = await ask(client, "tools/call", capabilities={}, **call)
        assert result["content"][0]["text"] == "work done {}"
        async with opened(client) as session:
            answer = (await older(client, "tools/call", call, session=session)).text
            assert "work done {}" in answer


async def test_a_question_of_a_followed_task_goes_to_the_client(state: Path) -> None:
    can_be_asked: Any = {"elicitation": {"form": {}}}
    async with gateway(modern("m", str(state))) as client:
        call: Any = {"name": "mcp_m_work", "arguments": {"asks": ["colour"]}, "capabilities": can_be_asked}
        asked = await ask(client, "tools/call", **call)
        assert asked["resultType"] == "input_required"
        ((key, question),) = asked["inputRequests"].items()
        assert question["params"]["message"] == "The server `m` asks:\n> colour"
        answers = {key: {"action": "accept", "content": {"name": "red"}}}
        inputs = {"inputResponses": answers, "requestState": asked["requestState"]}
        done = await ask(client, "tools/call", **call, **inputs)
        assert "red" in done["content"][0]["text"]
        # A server that asks before it begins a task does so in the server's own rounds.
        call = {"name": "mcp_m_order", "arguments": {"asks": ["first"]}, "capabilities": can_be_asked}
        asked = await ask(client, "tools/call", **call)
        answers = {"first": {"action": "accept", "content": {"name": "Ann"}}}
        inputs = {"inputResponses": answers, "requestState": asked["requestState"]}
        assert (await ask(client, "tools/call", **call, **inputs))["content"][0]["text"] == "ordered for Ann"


async def test_a_question_of_a_task_that_cannot_be_asked_ends_the_call(state: Path) -> None:
    async with gateway(modern("m", str(state))) as client:
        call: Any = {"name": "mcp_m_work", "arguments": {"asks": ["colour"]}}
        refused = await ask(client, "tools/call", capabilities={}, **call)
        assert "cannot be given here" in json.dumps(refused)


@VIEWS
async def test_skills_are_listed_and_read(path: str, prefix: str, inside: str) -> None:
    del prefix
    async with gateway(modern("m"), modern("n")) as client:
        root = f"skill://{inside}/" if inside else "skill://"
        listed = {one["uri"]: one for one in (await ask(client, "skills/list", path))["skills"]}
        assert list(listed) == sorted(listed)
        assert any(uri.startswith("skill://n/acme") for uri in listed) == bool(inside)
        refunds = listed[f"{root}acme/refunds/SKILL.md"]
        assert refunds["frontmatter"]["description"] == "How to refund"
        uris = [file["uri"] for file in refunds["resources"]]
        assert uris == [f"{root}acme/refunds/SKILL.md", f"{root}acme/refunds/mail.md"]
        got = await ask(client, "skills/get", path, uri=refunds["uri"])
        assert got["skill"] == refunds
        for file in refunds["resources"]:
            (content,) = (await ask(client, "resources/read", path, uri=file["uri"]))["contents"]
            assert content["uri"] == file["uri"]
            assert len(content["text"]) == file["size"]
        children = (await ask(client, "resources/directory/read", path, uri=f"{root}live"))["resources"]
        assert [child["uri"] for child in children] == [f"{root}live/SKILL.md"]
        assert (await ask(client, "skills/get", path, uri=f"{root}nothing/SKILL.md"))["code"] == -32602


@VIEWS
async def test_the_view_of_a_tool_can_be_read(path: str, prefix: str, inside: str) -> None:
    async with gateway(modern("m")) as client:
        tools = {tool["name"]: tool for tool in (await ask(client, "tools/list", path))["tools"]}
        uri = tools[f"{prefix}show"]["_meta"]["ui"]["resourceUri"]
        assert uri == (f"ui://{inside}/panel/main" if inside else "ui://panel/main")
        (content,) = (await ask(client, "resources/read", path, uri=uri))["contents"]
        assert content["mimeType"] == "text/html;profile=mcp-app"
        assert content["_meta"]["ui"]["prefersBorder"] is True
