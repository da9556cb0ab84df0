"""The inbox of the gateway: calls of clients wait in it, and are answered from another process."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour.test_gateway_replicas import CAN_BE_ASKED, KEY, Names
from tests.unit.cli.program import dragoman
from tests.unit.gateway.test_app import client_of, post
from tests.waiting import until

from dragoman.events import ApprovalAnswered, ApprovalRequested
from dragoman.gateway.app import asgi_app
from dragoman.gateway.questions import Questions
from dragoman.manager.manager import McpManager
from dragoman.storage.inbox import InboxStore
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

    from dragoman.gateway.app import GatewayApp

ASK = [{"action": "ask", "tool": "add"}]


def notes() -> ScriptedServer:
    server = ScriptedServer("notes")

    @server.tool
    def add(text: str) -> str:
        """Add a note."""
        return f"added {text}"

    return server


@asynccontextmanager
async def gateway(
    server: ScriptedServer, **options: Any
) -> AsyncGenerator[tuple[GatewayApp, httpx2.AsyncClient]]:
    questions = Questions()
    mcp = McpManager(
        [server.spec(share=True)], cache=False, policy=ASK, handlers=questions.handlers(), approvals="inbox"
    )
    options = {"token": "the-token", "state_keys": [KEY], "stateless": True, **options}
    app = asgi_app(mcp, questions=questions, **options)
    async with client_of(app) as client:
        await mcp.wait_ready()
        yield app, client


async def add(client: httpx2.AsyncClient, **more: Any) -> httpx2.Response:
    params = {"name": "mcp_notes_add", "arguments": {"text": "milk"}, **more.pop("inputs", {})}
    return await post(client, "tools/call", params, **more)


async def test_a_call_of_a_client_that_cannot_be_asked_waits_for_dragoman_approvals() -> None:
    server = notes()
    async with gateway(server) as (app, client):
        events = app.gateway.mcp.events()
        call = asyncio.create_task(add(client, meta={"progressToken": "p"}))
        asked = (await until(events, ApprovalRequested)).approval
        assert not server.calls
        assert (asked.caller.principal, asked.caller.client) == ("token", "test")
        shown = await asyncio.to_thread(dragoman, "approvals", "show", asked.id)
        assert "text = milk" in shown.stdout
        said = await asyncio.to_thread(dragoman, "approvals", "approve", asked.id)
        assert (said.returncode, said.stdout) == (0, "Approved: add of notes\n")
        lines = [
            json.loads(line[6:]) for line in (await call).text.splitlines() if line.startswith("data: {")
        ]
        assert lines[0]["params"]["message"] == f"waits for an answer: dragoman approvals show {asked.id}"
        assert lines[-1]["result"]["content"][0]["text"] == "added milk"
        answered = (await until(events, ApprovalAnswered)).approval
        assert (answered.state, answered.answered_by) == ("approved", "dragoman approvals")
        assert len(server.calls) == 1


async def test_a_call_that_is_denied_elsewhere_is_not_sent() -> None:
    server = notes()
    async with gateway(server) as (app, client):
        mcp = app.gateway.mcp
        call = asyncio.create_task(add(client))
        asked = (await until(mcp.events(), ApprovalRequested)).approval
        assert [one.id for one in mcp.trust.pending()] == [asked.id]
        answered = await mcp.trust.answer(asked.id, allow=False, by="ann")
        assert (answered.state, answered.answered_by) == ("denied", "ann")
        result = (await call).json()["result"]
        assert result["isError"]
        assert "the user declined `mcp_notes_add`" in result["content"][0]["text"]
        assert not server.calls


async def test_a_client_that_hangs_up_abandons_its_call() -> None:
    server = notes()
    async with gateway(server) as (app, client):
        events = app.gateway.mcp.events()
        call = asyncio.create_task(add(client))
        await until(events, ApprovalRequested)
        call.cancel()
        assert (await until(events, ApprovalAnswered)).approval.state == "abandoned"
        assert app.gateway.mcp.trust.pending() == []
        assert not server.calls


async def test_a_user_sees_and_answers_only_own_calls() -> None:
    server = notes()
    async with gateway(server, verifier=Names(), token=None) as (app, client):
        headers = {"Authorization": "Bearer alice"}
        mcp = app.gateway.mcp
        alice, bob = mcp.as_user("alice"), mcp.as_user("bob")
        events = alice.events()
        call = asyncio.create_task(add(client, headers=headers))
        asked = (await until(events, ApprovalRequested)).approval
        assert (asked.caller.user, asked.always) == ("alice", [])
        assert bob.trust.pending() == mcp.trust.pending() == []
        for stranger in (bob, mcp):
            with pytest.raises(Exception, match=f"no call with the id `{asked.id}` waits"):
                await stranger.trust.answer(asked.id, allow=True)
        assert not server.calls
        assert [one.id for one in alice.trust.pending()] == [asked.id]
        await alice.trust.answer(asked.id, allow=True)
        assert (await call).json()["result"]["content"][0]["text"] == "added milk"


def inputs(asked: dict[str, Any], *, allow: bool) -> dict[str, Any]:
    (key,) = asked["inputRequests"]
    response = {"action": "accept", "content": {"allow": allow}}
    return {"inputResponses": {key: response}, "requestState": asked["requestState"]}


@pytest.mark.parametrize("answers", [True, False, None], ids=["yes", "no", "from elsewhere"])
async def test_a_call_that_paused_at_one_replica_goes_on_at_another(answers: bool | None) -> None:
    server = notes()
    more: Any = {"capabilities": CAN_BE_ASKED}
    async with AsyncExitStack() as stack:
        (_, first), (_, second) = [await stack.enter_async_context(gateway(server)) for _ in range(2)]
        asked = (await add(first, **more)).json()["result"]
        assert asked["resultType"] == "input_required"
        with InboxStore() as store:
            (entry,) = store.pending()
            if answers is None:
                store.answer(entry.id, allow=True, by="ann")
                result = (await add(second, **more)).json()["result"]
            else:
                given = inputs(asked, allow=answers)
                result = (await add(second, inputs=given, **more)).json()["result"]
            ended = store.get(entry.id)
            assert store.pending() == []
        assert len(server.calls) == (answers is not False)
        assert bool(result.get("isError")) == (answers is False)
        assert ended.state == ("denied" if answers is False else "sent")
        assert ended.answered_by == ("ann" if answers is None else "the caller")


async def test_a_no_of_the_client_counts_until_the_call_is_sent() -> None:
    server = notes()
    more: Any = {"capabilities": CAN_BE_ASKED}
    async with gateway(server) as (_, client):
        asked = (await add(client, **more)).json()["result"]
        with InboxStore() as store:
            (entry,) = store.pending()
            store.answer(entry.id, allow=True, by="ann")
            result = (await add(client, inputs=inputs(asked, allow=False), **more)).json()["result"]
            assert result["isError"]
            assert store.get(entry.id).state == "denied"
        assert not server.calls
