"""The inbox of the gateway: calls of clients wait in it, and are answered from another process."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import pytest
from aiohttp import web
from tests.behaviour.test_gateway_replicas import CAN_BE_ASKED, KEY, Names
from tests.unit.cli.program import dragoman
from tests.unit.gateway.test_app import client_of, post
from tests.waiting import PATIENCE, until

from dragoman.events import ApprovalAnswered, ApprovalRequested
from dragoman.gateway.app import asgi_app
from dragoman.gateway.questions import Questions
from dragoman.manager import webhook
from dragoman.manager.manager import McpManager
from dragoman.model import PendingApproval, Settings
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
    server: ScriptedServer, *, settings: Settings | None = None, **options: Any
) -> AsyncGenerator[tuple[GatewayApp, httpx2.AsyncClient]]:
    questions = Questions()
    mcp = McpManager(
        settings or [server.spec(share=True)],
        cache=False,
        policy=ASK,
        handlers=questions.handlers(),
        approvals="inbox",
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
        assert result.get("isError", False) == (answers is False)
        said = "the user declined" if answers is False else "added milk"
        assert said in result["content"][0]["text"]
        assert ended.state == ("denied" if answers is False else "sent")
        assert ended.answered_by == ("ann" if answers is None else "the caller")


async def test_an_answer_of_the_client_after_another_is_too_late() -> None:
    server = notes()
    more: Any = {"capabilities": CAN_BE_ASKED}
    async with gateway(server) as (_, client):
        for allow, runs in ((True, True), (False, False)):
            asked = (await add(client, **more)).json()["result"]
            with InboxStore() as store:
                (entry,) = store.pending()
                store.answer(entry.id, allow=allow, by="ann")
                result = (await add(client, inputs=inputs(asked, allow=not allow), **more)).json()["result"]
                assert result.get("isError", False) != runs
                assert store.get(entry.id).answered_by == "ann"
                assert store.pending() == []
        assert len(server.calls) == 1


class Hook:
    """The webhook of a user: it keeps what it is told."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.told: asyncio.Queue[tuple[dict[str, Any], web.Request, bytes]] = asyncio.Queue()
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/hook", self._take)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/hook"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 200:
            self.told.put_nowait((json.loads(body), request, body))
        return web.Response(status=status)


SECRET = "a secret of the user's own"


def settings(server: ScriptedServer, hook: Hook) -> Settings:
    webhook = {"address": hook.url, "secret": SECRET, "public_url": "https://gate.example/"}
    return Settings(servers=[server.spec(share=True)], approval_webhook=webhook)


@pytest.mark.parametrize("user", ["", "alice"])
async def test_a_webhook_is_told_and_its_code_answers_once(
    user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "PAUSES", (0.0, 0.0))
    server = notes()
    more: dict[str, Any] = {"verifier": Names(), "token": None} if user else {}
    headers = {"Authorization": f"Bearer {user or 'the-token'}"}
    async with Hook(503) as hook, gateway(server, settings=settings(server, hook), **more) as (_, client):
        call = asyncio.create_task(add(client, headers=headers))
        told, request, body = await asyncio.wait_for(hook.told.get(), PATIENCE)
        timestamp = request.headers["X-Dragoman-Timestamp"]
        signed = hmac.new(SECRET.encode(), f"{timestamp}.".encode() + body, "sha256").hexdigest()
        assert request.headers["X-Dragoman-Signature"] == f"sha256={signed}"
        assert (told["tool"], told["arguments"], told["rule"]) == (
            "mcp_notes_add",
            {"text": "milk"},
            "ask add",
        )
        place = f"/approvals/{told['id']}"
        assert told["link"] == told["answer"]["url"] == f"https://gate.example{place}"
        code = told["answer"]["code"]

        async def answer(body: Any, path: str = place, **given: Any) -> tuple[int, dict[str, Any]]:
            found = await client.post(path, json=body, **given)
            return found.status_code, found.json()

        # The link shows, to those who have the token; it answers nothing, and neither does the token.
        assert (await client.get(place)).status_code == 401
        shown = await client.get(place, headers=headers)
        assert (shown.status_code, shown.json()["state"]) == (200, "pending")
        assert (await client.get(place, headers=headers, params={"code": code})).json()["state"] == "pending"
        listed = (await client.get("/approvals", headers=headers)).json()["approvals"]
        assert [one["id"] for one in listed] == [told["id"]]
        forged = [
            code[:-1] + ("A" if code[-1] != "A" else "B"),
            code[1:],
            "",
            "-.",
            f"-.{'x' * 43}",
            f"{'0' * 40}.x",
        ]
        for wrong in [*forged, f"../../x.{code}", told["id"]]:
            assert (await answer({"code": wrong, "allow": True}, headers=headers))[0] == 403
        assert (await answer({"code": code, "allow": True}, "/approvals/0123456789"))[0] == 403
        for body_of in (
            {"code": code},
            {"code": code, "allow": "yes"},
            {"code": 1, "allow": True},
            [],
            {"allow": True},
        ):
            assert (await answer(body_of, headers=headers))[0] == 400
        assert (await answer({"code": code, "allow": True}, headers={"Origin": "https://evil.example"}))[
            0
        ] == 403
        assert not server.calls
        assert await answer({"code": code, "allow": True}) == (200, {"id": told["id"], "state": "approved"})
        assert (await call).json()["result"]["content"][0]["text"] == "added milk"
        status, again = await answer({"code": code, "allow": True})
        assert (status, "already approved by the webhook" in again["error"]) == (409, True)
        assert len(server.calls) == 1


async def test_a_webhook_is_told_of_a_call_whose_client_is_asked_between_two_requests() -> None:
    server = notes()
    more: Any = {"capabilities": CAN_BE_ASKED}
    async with Hook() as hook, gateway(server, settings=settings(server, hook)) as (_, client):
        assert (await add(client, **more)).json()["result"]["resultType"] == "input_required"
        told, *_rest = await asyncio.wait_for(hook.told.get(), PATIENCE)
        given = {"code": told["answer"]["code"], "allow": True}
        assert (await client.post(f"/approvals/{told['id']}", json=given)).status_code == 200
        result = (await add(client, **more)).json()["result"]
        assert result["content"][0]["text"] == "added milk"


async def test_a_manager_that_closes_ends_the_calls_that_wait() -> None:
    server = notes()
    async with McpManager([server.spec()], cache=False, policy=ASK, approvals="inbox") as mcp:
        await mcp.wait_ready()
        events = mcp.events()
        call = asyncio.create_task(mcp.call("mcp_notes_add", {"text": "milk"}))
        asked = (await until(events, ApprovalRequested)).approval
    assert (await call).exception.code == "tool.denied"
    with InboxStore() as store:
        assert store.get(asked.id).state == "abandoned"
    assert not server.calls


async def test_users_read_only_their_own_over_http() -> None:
    server = notes()
    async with gateway(server, verifier=Names(), token=None) as (app, client):
        alice = app.gateway.mcp.as_user("alice")
        events = alice.events()
        call = asyncio.create_task(add(client, headers={"Authorization": "Bearer alice"}))
        asked = (await until(events, ApprovalRequested)).approval
        stranger = {"Authorization": "Bearer bob"}
        assert (await client.get("/approvals", headers=stranger)).json() == {"approvals": []}
        assert (await client.get(f"/approvals/{asked.id}", headers=stranger)).status_code == 404
        call.cancel()
        await until(events, ApprovalAnswered)


async def test_a_webhook_that_cannot_be_reached_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "PAUSES", (0.0, 0.0))
    async with Hook() as gone:
        url = gone.url
    gone.url = f"{url}?key=hunter2-and-more"
    now = time.time()
    entry = PendingApproval(id="x", server="s", tool="t", original_name="t", asked_at=now, expires_at=now)
    await webhook.tell_webhook({"address": gone.url, "secret": SECRET}, entry, code="code")
    assert "was not told that `x` waits: ClientConnectorError" in caplog.text
    assert "hunter2" not in caplog.text
    assert SECRET not in caplog.text
