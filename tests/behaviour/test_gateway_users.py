"""The users of a gateway: each has servers, credentials, rules and tasks of their own, and none of another's.

The gateway is the real program, and users come with access tokens of a real issuer. Behind it are a server
behind a URL that knows users by their token, processes that know them by a variable, and servers that would
give anything to anyone.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.behaviour.conftest import SERVERS
from tests.behaviour.test_gateway import served
from tests.behaviour.test_gateway_replicas import CAN_BE_ASKED, Names, answer
from tests.servers.users_http import UsersServer
from tests.unit.gateway.test_app import AUDIENCE, Issuer, client_of, post
from tests.unit.gateway.test_http import OLDER, older, open_session

from dragoman.cli.main import main
from dragoman.gateway.app import asgi_app
from dragoman.gateway.auth import UserTokens
from dragoman.gateway.questions import Questions
from dragoman.manager.manager import McpManager
from dragoman.model import ServerSpec, Stdio, UserLimits
from dragoman.testing import InstantClock, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from dragoman.gateway.app import GatewayApp

pytestmark = pytest.mark.requirement("users-gateway", "users-tasks")

TASKS: Any = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
USERS = """
[users.alice]
env = { USER_TOKEN = "${ALICE_TOKEN}" }

[users.bob]
env = { USER_TOKEN = "bob-secret" }
policy = [
    { action = "deny", server = "own", tool = "mutter" },
    { action = "deny", server = "all", resource = "memo://*" },
]
"""


class Person:
    """A user of the gateway with a token of their own."""

    def __init__(self, client: httpx2.AsyncClient, token: str) -> None:
        self._client = client
        self._token = token
        self._headers = {"Authorization": f"Bearer {token}"}

    async def ask(self, method: str, /, path: str = "/mcp", **params: Any) -> dict[str, Any]:
        """Send a modern request; return its result or its error."""
        more: Any = {"capabilities": params.pop("capabilities", TASKS)}
        headers = {**self._headers, **({"Mcp-Name": params["uri"]} if "uri" in params else {})}
        answer = (await post(self._client, method, params, path=path, headers=headers, **more)).json()
        return answer.get("result") or answer["error"]

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return await self.ask("tools/call", name=tool, arguments=arguments)

    async def who(self, server: str) -> dict[str, Any]:
        """Return what a server knows of the user."""
        return json.loads((await self.call(f"mcp_{server}_who", text="hi"))["content"][0]["text"])

    async def tools(self) -> list[str]:
        return [tool["name"] for tool in (await self.ask("tools/list"))["tools"]]

    async def older(self, method: str, params: Any, session: str = "") -> httpx2.Response:
        return await older(self._client, method, params, session=session, who=self._token)

    @asynccontextmanager
    async def listening(self, path: str = "/mcp", **wanted: Any) -> AsyncGenerator[News]:
        """Open a stream of announcements."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": TASKS,
        }
        body = {
            "jsonrpc": "2.0",
            "id": 5,
            "method": "subscriptions/listen",
            "params": {"notifications": wanted, "_meta": meta},
        }
        headers = {
            **self._headers,
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "subscriptions/listen",
        }
        async with self._client.stream("POST", path, json=body, headers=headers) as response:
            news = News(response)
            news.granted = (await news.next())["params"]["notifications"]
            yield news


class News:
    """The messages of a stream."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.aiter_lines()
        self.granted: dict[str, Any] = {}

    async def next(self) -> dict[str, Any]:
        async for line in self._lines:
            if line.startswith("data: {"):
                return json.loads(line[6:])
        pytest.fail("the stream ended")

    async def until(self, found: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Return the parameters of all messages up to the one that is looked for."""
        seen = [(await self.next())["params"]]
        while not found(seen[-1]):
            seen.append((await self.next())["params"])
        return seen


@asynccontextmanager
async def people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[Person, Person, UsersServer]]:
    """Serve two users; give them, and the server that they have accounts at."""
    issuer = Issuer()
    async with UsersServer() as remote, issuer.running():
        entry = {"command": sys.executable}
        servers = {
            "remote": {"url": f"{remote.base}/legacy", "headers": {"Authorization": "Bearer ${USER_TOKEN}"}},
            "own": {
                **entry,
                "args": [str(SERVERS / "users_stdio.py")],
                "env": {"USER_TOKEN": "${USER_TOKEN}"},
            },
            # These two do not know their callers: what keeps users apart is the gateway alone.
            "m": {**entry, "args": [str(SERVERS / "modern.py"), str(tmp_path / "tasks.json")]},
            "all": {**entry, "args": [str(SERVERS / "all_features.py")]},
        }
        config, users = tmp_path / "servers.json", tmp_path / "users.toml"
        config.write_text(json.dumps({"mcpServers": servers}))
        users.write_text(USERS)
        monkeypatch.setenv("ALICE_TOKEN", "alice-secret")
        command = ["-m", "dragoman", "serve", "--config", str(config), "--http", "0"]
        command += ["--issuer", issuer.url, "--audience", AUDIENCE, "--users", str(users)]
        async with (
            asyncio.timeout(50),
            served(command) as url,
            httpx2.AsyncClient(base_url=url.removesuffix("/mcp"), timeout=20) as client,
        ):
            yield (
                Person(client, issuer.token(sub="alice")),
                Person(client, issuer.token(sub="bob")),
                remote,
            )
            strange = Person(client, issuer.token(sub="mallory"))
            headers = strange._headers
            assert (await post(client, "tools/list", headers=headers)).status_code == 403
            nameless = {"Authorization": f"Bearer {issuer.token(sub=None, client_id='alice')}"}
            assert (await post(client, "tools/list", headers=nameless)).status_code == 401
    assert remote.crossed == []


@pytest.mark.requirement("users-gateway")
async def test_users_have_their_own_credentials_listings_and_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with people(tmp_path, monkeypatch) as (alice, bob, remote):
        tools = dict(zip(("alice", "bob"), await asyncio.gather(alice.tools(), bob.tools()), strict=True))
        pids: set[int] = set()
        for name, user, other in (("alice", alice, "bob"), ("bob", bob, "alice")):
            assert f"mcp_remote_of_{name}" in tools[name]
            assert f"mcp_remote_of_{other}" not in tools[name]
            assert (await user.call(f"mcp_remote_of_{other}", text="hi"))["code"] == -32602
            # No token of a client is passed on: servers get what the file of users says.
            assert (await user.who("remote"))["token"] == f"{name}-secret"
            own = await user.who("own")
            assert own["token"] == f"{name}-secret"
            pids.add(own["pid"])
        assert len(pids) == 2
        assert {key for key in remote.seen if key.startswith("call ")} == {
            "call alice-secret",
            "call bob-secret",
        }
        assert "isError" not in await alice.call("mcp_own_mutter", text="hi")
        refused = await bob.call("mcp_own_mutter", text="hi")
        assert refused["isError"]
        assert "Blocked by rule" in refused["content"][0]["text"]
        uri = "dragoman://all/memo://one"
        assert (await alice.ask("resources/read", uri=uri))["contents"][0]["text"] == "memo memo://one"
        assert (await bob.ask("resources/read", uri=uri))["data"] == {"code": "tool.denied"}


@pytest.mark.requirement("users-gateway")
async def test_nothing_of_one_user_can_be_used_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with people(tmp_path, monkeypatch) as (alice, bob, _):
        await asyncio.gather(alice.tools(), bob.tools())
        # A task: its server would tell anyone about it.
        work = {"kind": "announce", "poll": 3_600_000, "asks": ["colour"]}
        task = (await alice.call("mcp_m_work", **work))["taskId"]
        assert task.startswith("m:secret-0.")
        async with alice.listening(taskIds=[task]) as news:
            assert news.granted == {"taskIds": [task]}
            waits = (await news.until(lambda one: one["status"] == "input_required"))[-1]
            assert waits["taskId"] == task
            (key,) = waits["inputRequests"]
            answers = {key: {"action": "accept", "content": {"name": "red"}}}
            for stolen in (task, task.partition(".")[0], "m:secret-0.AAAA", "m:secret-0."):
                for verb in ("get", "update", "cancel"):
                    refused = await bob.ask(f"tasks/{verb}", taskId=stolen, inputResponses=answers)
                    assert (refused["code"], refused["message"]) == (-32602, "Task not found")
            refused = await bob.ask("tasks/get", "/mcp/m", taskId=task)
            assert refused["message"] == "Task not found"
            async with bob.listening(taskIds=[task, "m:secret-0"]) as nothing:
                assert nothing.granted == {}
            await alice.ask("tasks/update", taskId=task, inputResponses=answers)
            done = (await news.until(lambda one: one["status"] == "completed"))[-1]
            assert "red" in done["result"]["content"][0]["text"]
        assert (await alice.ask("tasks/get", taskId=task))["status"] == "completed"
        # At the address of one server its ids are its own, and bound in the same way.
        work = {"name": "work", "arguments": {"kind": "announce", "poll": 3_600_000}}
        task = (await alice.ask("tools/call", "/mcp/m", **work))["taskId"]
        assert task.startswith("m:secret-1.")
        async with alice.listening("/mcp/m", taskIds=[task, "m:secret-1"]) as news:
            assert news.granted == {"taskIds": [task]}
            states = await news.until(lambda one: one["status"] == "completed")
            assert {one["taskId"] for one in states} == {task}

        # A question, and the state that its answer comes with.
        form: Any = {"name": "mcp_all_form", "arguments": {}, "capabilities": CAN_BE_ASKED}
        asked = await alice.ask("tools/call", **form)
        inputs = answer(asked)
        refused = await bob.ask("tools/call", **form, **inputs)
        assert refused["message"] == "Invalid or expired requestState"
        assert (await alice.ask("tools/call", **form, **inputs))["content"][0]["text"] == (
            "accept {'seats': 3}"
        )

        # A subscription: changes are announced to those alone who may read the resource.
        uri = "dragoman://all/memo://one"
        async with alice.listening(resourceSubscriptions=[uri]) as hers:
            assert hers.granted == {"resourceSubscriptions": [uri]}
            async with bob.listening(resourceSubscriptions=[uri], toolsListChanged=True) as his:
                assert his.granted == {"toolsListChanged": True}
                await alice.call("mcp_all_touch")
                assert (await hers.next())["params"]["uri"] == uri
                # His own server changes; hers does not.
                await bob.call("mcp_all_change")
                while "mcp_all_extra" not in await bob.tools():
                    assert (await his.next())["method"] == "notifications/tools/list_changed"
        assert "mcp_all_extra" not in await alice.tools()

        # A session of the older protocol.
        hello = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        session = (await alice.older("initialize", hello)).headers["mcp-session-id"]
        call = {"name": "mcp_own_who", "arguments": {"text": "hi"}}
        assert (await bob.older("tools/call", call, session)).status_code == 404
        assert "alice-secret" in (await alice.older("tools/call", call, session)).text

        # A cursor is a place in a list, and each has their own.
        cursor = "bWNwX3JlbW90ZQ=="  # mcp_remote
        listed = (await bob.ask("tools/list", cursor=cursor))["tools"]
        assert [tool["name"] for tool in listed] == ["mcp_remote_of_bob", "mcp_remote_wait", "mcp_remote_who"]


# ── The pool of users


@asynccontextmanager
async def pool(server: ScriptedServer, limits: UserLimits) -> AsyncGenerator[tuple[GatewayApp, Any]]:
    app = asgi_app(McpManager([server.spec()], cache=False, users=limits), verifier=Names())
    async with asyncio.timeout(30), client_of(app) as client:

        async def call(user: str, tool: str = "mcp_s_ping") -> httpx2.Response:
            params: Any = {"name": tool, "arguments": {}}
            return await post(client, "tools/call", params, headers={"Authorization": f"Bearer {user}"})

        yield app, call


async def test_the_pool_of_users_is_bounded() -> None:
    server, began, go = ScriptedServer("s"), asyncio.Event(), asyncio.Event()

    @server.tool
    def ping() -> str:
        """Answer."""
        return "pong"

    @server.tool
    async def wait() -> str:
        """Answer later."""
        began.set()
        await go.wait()
        return "at last"

    async with pool(server, UserLimits(open=2, alone=True)) as (app, call):
        for number in range(5):
            assert (await call(f"u{number}")).status_code == 200
            assert len(app._users.endpoints()) <= 2
        # Counters outlive the users.
        assert 'dragoman_server_calls_total{server="s"} 5' in app.metrics()
        assert (await call("u0")).status_code == 200
        waiting = [asyncio.create_task(call(user, "mcp_s_wait")) for user in ("a", "b")]
        while len(app._users._open.keys() & {"a", "b"}) < 2:  # noqa: ASYNC110 -- both begin in a moment
            await asyncio.sleep(0)
        await began.wait()
        refused = await call("c")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        go.set()
        assert [one.status_code for one in await asyncio.gather(*waiting)] == [200, 200]
        assert (await call("c")).status_code == 200


async def test_a_user_who_is_not_let_in_any_more_is_out_with_the_next_request() -> None:
    known: dict[str, dict[str, Any]] = {"ann": {}, "bob": {}}
    limits = UserLimits(alone=True)
    app = asgi_app(
        McpManager([ScriptedServer("s").spec()], cache=False, users=limits), verifier=Names(), users=known.get
    )
    async with asyncio.timeout(30), client_of(app) as client:
        sessions = {user: await open_session(client, user) for user in known}
        (_, ann), _ = app._users._open.items()
        kept = ann.endpoint.gateway.sessions.get(sessions["ann"], "ann")
        known.pop("ann")
        for user, status in (("ann", 403), ("bob", 200)):
            answer = await older(client, "ping", {}, session=sessions[user], who=user)
            assert answer.status_code == status
        await kept.ended.wait()
        known["ann"] = {}
        assert (await older(client, "ping", {}, session=sessions["ann"], who="ann")).status_code == 404


async def test_a_user_reads_no_metrics_of_the_others() -> None:
    server = ScriptedServer("s")

    @server.tool
    def ping() -> str:
        """Answer."""
        return "pong"

    limits = UserLimits(open=2, alone=True)
    app = asgi_app(McpManager([server.spec()], cache=False, users=limits), verifier=Names())
    async with asyncio.timeout(30), client_of(app) as client:
        call: Any = {"name": "mcp_s_ping", "arguments": {}}
        # Four users in a gateway for two: most of what is counted belongs to users who have ended.
        for user in ("cat", "dan", "bob", "bob", "ann"):
            answer = await post(client, "tools/call", call, headers={"Authorization": f"Bearer {user}"})
            assert answer.status_code == 200
        for user, calls in (("ann", 1), ("bob", 2), ("eve", 0)):
            shown = (await client.get("/metrics", headers={"Authorization": f"Bearer {user}"})).text
            assert f'dragoman_server_calls_total{{server="s"}} {calls}\n' in shown
            assert "dragoman_gateway" not in shown
        assert 'dragoman_server_calls_total{server="s"} 5\n' in app.metrics()
        assert 'outcome="ok"} 5\n' in app.metrics()


async def test_a_user_whose_request_waits_for_an_answer_is_not_ended() -> None:
    features = ServerSpec("s", Stdio(sys.executable, [str(SERVERS / "all_features.py")]), protocol="legacy")
    questions = Questions()
    limits = UserLimits(open=1, alone=True)
    mcp = McpManager([features], cache=False, users=limits, handlers=questions.handlers())
    app = asgi_app(mcp, verifier=Names(), questions=questions)
    async with asyncio.timeout(50), client_of(app) as client:
        ann, bob = Person(client, "ann"), Person(client, "bob")
        form: Any = {"name": "mcp_s_form", "arguments": {}, "capabilities": CAN_BE_ASKED}
        asked = await ann.ask("tools/call", **form)
        refused = await post(client, "tools/list", headers=bob._headers)
        assert refused.status_code == 503
        done = await ann.ask("tools/call", **form, **answer(asked))
        assert done["content"][0]["text"] == "accept {'seats': 3}"
        assert (await post(client, "tools/list", headers=bob._headers)).status_code == 200


def test_users_without_requests_end_after_a_while() -> None:
    server = ScriptedServer("s")

    @server.tool
    def ping() -> str:
        """Answer."""
        return "pong"

    async def main() -> None:
        async with pool(server, UserLimits(idle=5, alone=True)) as (app, call):
            assert (await call("a")).status_code == 200
            assert app.gateway.mcp.status()["s"].state == "idle"
            await asyncio.sleep(4)
            assert len(app._users.endpoints()) == 1
            await asyncio.sleep(4)
            assert app._users.endpoints() == []
            assert app.gateway.mcp.users() == {}
            assert (await call("a")).status_code == 200

    InstantClock().run(main())


@pytest.mark.requirement("users-room")
def test_request_that_takes_longer_than_the_idle_time_of_its_user_is_not_cut_off() -> None:
    server = ScriptedServer("s")

    @server.tool
    async def work() -> str:
        """Answer later."""
        await asyncio.sleep(20)
        return "done"

    async def main() -> None:
        async with pool(server, UserLimits(idle=5, alone=True)) as (app, call):
            # A long answer is a stream.
            assert '"text":"done"' in (await call("a", "mcp_s_work")).text.replace(" ", "")
            assert len(app._users.endpoints()) == 1

    InstantClock().run(main())


# ── The file of users


async def test_users_can_have_tokens_of_the_file() -> None:
    verifier = UserTokens({"t1": "alice", "t2": "bob"})
    assert (await verifier.verify("t2")).user == "bob"
    with pytest.raises(Exception, match="wrong token"):
        await verifier.verify("t3")


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("[users.a]\ntoken = 't'\n[users.b]", [], "has no token for `b`"),
        ("", [], "has no token for `any user`"),
        ("[users.a]\ntoken = 't'", ["--token", "x"], "leave --token and --no-token out"),
        ("[users.a]\ntoken = 't'", ["--issuer", "https://i", "--audience", "https://g"], "--issuer says who"),
        ("[users.a]\ntoken = 't'", ["--user-claim", "email"], "--user-claim needs --issuer"),
    ],
)
def test_a_file_of_users_that_does_not_fit_ends_the_gateway(
    content: str, options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users, config = tmp_path / "users.toml", tmp_path / "servers.json"
    users.write_text(content)
    config.write_text('{"mcpServers": {}}')
    words = ["serve", "--config", str(config), "--http", "0", "--users", str(users), *options]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())
