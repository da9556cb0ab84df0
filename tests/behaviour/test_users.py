"""Many users in one program: nothing of one reaches another, and the pool of users is bounded."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.conftest import SERVERS
from tests.behaviour.test_apps import modern
from tests.servers.authorization import Authorization
from tests.servers.users_http import UsersServer

from dragoman import AgentEngine, DragomanError, Handlers, Http, McpManager, ServerSpec, Stdio, tool
from dragoman.agent.providers import ScriptedProvider
from dragoman.blocking import McpManager as BlockingManager
from dragoman.manager.manager import parts_of
from dragoman.model import Auth, CallRequest, UserLimits
from dragoman.observe.call_history import CallHistory
from dragoman.storage.files import user_data_folder
from dragoman.storage.programs import SavedProgram, new_id
from dragoman.testing import InstantClock, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from dragoman.model import ToolResult

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "users-headers",
        "users-listing",
        "users-login",
        "users-tasks",
        "users-process",
        "users-policy",
        "users-room",
        "users-log",
    ),
]
LEGACY, MODERN = "legacy", "modern"
WHO = {"text": "hi"}


def stdio(name: str, log_file: str | None = None, **more: Any) -> ServerSpec:
    """Return a server whose processes say who they are."""
    env: dict[str, str | None] = {"USER_TOKEN": "${USER_TOKEN:-nobody}", "WHO": "${WHO:-}"}
    child = Stdio(sys.executable, [str(SERVERS / "users_stdio.py")], env=env, log_file=log_file)
    return ServerSpec(name, child, lazy=True, **more)


def files() -> ScriptedServer:
    """Return a server in this process, with two tools."""
    server = ScriptedServer("files")

    @server.tool
    def read() -> str:
        return "read"

    @server.tool
    def write() -> str:
        return "written"

    return server


@asynccontextmanager
async def program(
    *specs: ServerSpec, limits: UserLimits | None = None, **more: Any
) -> AsyncIterator[tuple[McpManager, UsersServer]]:
    """Run a manager of an HTTP server for users, over both protocols, and of other servers."""
    async with UsersServer() as server:
        remote = [ServerSpec(path, Http(f"{server.base}/{path}"), lazy=True) for path in (LEGACY, MODERN)]
        async with McpManager([*remote, *specs], users=limits, cache=more.pop("cache", False), **more) as mcp:
            yield mcp, server
    assert server.crossed == []


def said(result: ToolResult) -> dict[str, Any]:
    """Return what a server of ours answered."""
    assert result.success, result.error
    return json.loads(result.text)


def holding(folder: Path, content: bytes) -> list[Path]:
    """Return the files under a folder that have this in them."""
    return [path for path in folder.rglob("*") if path.is_file() and content in path.read_bytes()]


def wait_for_text(file: Path, text: str) -> None:
    """Wait until another process has written a text."""
    while not file.exists() or text not in file.read_text("utf-8"):
        time.sleep(0.01)


# ── What each user has for themselves


@pytest.mark.requirement("users-headers")
async def test_users_have_their_own_headers_sessions_and_listings() -> None:
    async with program() as (mcp, server):
        alice = mcp.as_user("alice", headers={"Authorization": "Bearer alice"})
        bob = mcp.as_user("bob", auth="bob")
        assert await alice.wait_ready()
        assert await bob.wait_ready()
        for user in (alice, bob):
            own = {
                f"mcp_{path}_{name}"
                for path in (LEGACY, MODERN)
                for name in (f"of_{user.user}", "wait", "who")
            }
            assert {one.name for one in user.tools()} == own
            assert user.registry.to_openai_schema()
        answers = await asyncio.gather(
            *(
                one.call(f"mcp_{path}_who", {"text": one.user})
                for _ in range(20)
                for one in (alice, bob)
                for path in (LEGACY, MODERN)
            )
        )
        assert {(said(one)["token"], said(one)["text"]) for one in answers} == {
            ("alice", "alice"),
            ("bob", "bob"),
        }
        assert sorted(server.sessions.values()) == ["alice", "bob"]
        # The manager itself has no part in it.
        assert mcp.tools() == []
        assert {one.state for one in mcp.status().values()} == {"idle"}


@pytest.mark.requirement("users-listing")
async def test_a_listing_for_one_user_is_never_stored_or_offered_to_another(
    tmp_path: Path, home: Path
) -> None:
    async with program(stdio("own"), cache=tmp_path / "cache") as (mcp, _):
        alice = mcp.as_user("alice", auth="alice-5e1fd0c7", env={"WHO": "alice"})
        assert await alice.wait_ready()
        assert any("of_alice" in one.name for one in alice.tools())
        await alice.close()  # What it stores is stored by now.
        own = user_data_folder("alice")
        stored = await asyncio.to_thread(holding, home, b"of_alice")
        assert all(own in path.parents for path in stored)
        # A tool of another user is as unknown as one that does not exist.
        bob = mcp.as_user("bob", auth="bob-81ac02de", env={"WHO": "bob"})
        assert bob.tools() == []
        refused = await bob.call("mcp_legacy_of_alice", WHO)
        assert refused.exception is not None
        assert refused.exception.code == "tool.unknown"
        assert "of_alice" not in str([one.name for one in bob.tools()])
    assert not await asyncio.to_thread(holding, tmp_path, b"of_alice")


@pytest.mark.requirement("users-process")
async def test_stdio_servers_have_a_process_per_user_unless_they_are_shared() -> None:
    async with program(stdio("own"), stdio("one", share=True)) as (mcp, _):
        pids: dict[str, list[int]] = {"own": [], "one": []}
        for user in ("alice", "bob"):
            manager = mcp.as_user(user, env={"USER_TOKEN": "the same" if user else ""})
            for name, found in pids.items():
                found.append(said(await manager.call(f"mcp_{name}_who", WHO))["pid"])
        await mcp.start(["one"])
        await mcp.wait_ready(["one"])
        assert len(set(pids["own"])) == 2
        assert len(set(pids["one"])) == 1


async def test_a_process_of_its_own_has_the_environment_of_its_user_and_no_other_is_shared() -> None:
    async with program(stdio("own"), stdio("one", share=True)) as (mcp, _):
        answers = {
            (user, name): said(
                await mcp.as_user(user, env={"USER_TOKEN": f"t-{user}"}).call(f"mcp_{name}_who", WHO)
            )
            for user in ("alice", "bob")
            for name in ("own", "one")
        }
        assert {user: one["token"] for (user, _), one in answers.items()} == {
            "alice": "t-alice",
            "bob": "t-bob",
        }
        assert len({one["pid"] for one in answers.values()}) == 4


@pytest.mark.requirement("users-process")
async def test_variables_of_a_user_are_added_to_those_that_were_given_before() -> None:
    async with program(stdio("own")) as (mcp, _):
        alice = mcp.as_user("alice", env={"USER_TOKEN": "t"})
        mcp.as_user("alice", env={"WHO": "me"})
        assert said(await alice.call("mcp_own_of_me", WHO))["token"] == "t"


@pytest.mark.requirement("users-process")
async def test_log_messages_and_stderr_of_a_shared_process_reach_no_other_user(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    heard: dict[str, list[Any]] = {"alice": [], "bob": []}

    def handlers(user: str) -> Handlers:
        return Handlers(logging=lambda _, message: heard[user].append(message["data"]))

    async with program(stdio("one", share=True, log_file=str(log))) as (mcp, _):
        alice, bob = (mcp.as_user(user, handlers=handlers(user)) for user in heard)
        await mcp.start(["one"])
        assert await mcp.wait_ready(["one"])
        said(await alice.call("mcp_one_tell", {"text": "alice's own"}))
        assert heard == {"alice": ["alice's own"], "bob": []}
        # From here on it could be about a call of either.
        said(await bob.call("mcp_one_who", WHO))
        said(await alice.call("mcp_one_tell", {"text": "of either"}))
        assert heard == {"alice": ["alice's own"], "bob": []}
        said(await alice.call("mcp_one_mutter", {"text": "private of alice"}))
        with anyio.fail_after(20):
            await asyncio.to_thread(wait_for_text, log, "private of alice")
        assert bob.logs("one") == []
        assert mcp.logs("one") == ["private of alice"]


@asynccontextmanager
async def two_users() -> AsyncIterator[tuple[dict[str, McpManager], dict[str, list[Any]]]]:
    """Run two users of one process that asks when it likes; each says yes, and notes what reached them."""
    reached: dict[str, list[Any]] = {"alice": [], "bob": []}

    def handlers(user: str) -> Handlers:
        def confirm(_: str, question: dict[str, Any]) -> dict[str, Any]:
            reached[user].append(question["message"])
            return {"action": "accept", "content": {}}

        return Handlers(elicitation=confirm, logging=lambda _, message: reached[user].append(message["data"]))

    child = Stdio(sys.executable, [str(SERVERS / "asking_late.py")])
    async with McpManager([ServerSpec("bank", child, lazy=True, share=True)], cache=False) as mcp:
        users = {user: mcp.as_user(user, handlers=handlers(user)) for user in reached}
        for user in users.values():
            await user.start(["bank"])
            assert await user.wait_ready(["bank"])
        yield users, reached


UNCLEAR = "it is not clear whose request it belongs to"


async def test_a_question_reaches_a_user_who_is_alone_at_the_server() -> None:
    async with two_users() as (users, reached):
        for _ in range(2):
            assert '"accept"' in (await users["alice"].call("mcp_bank_ask")).text
        assert {name: len(asked) for name, asked in reached.items()} == {"alice": 2, "bob": 0}


@pytest.mark.parametrize("ending", ["answered", "time", "cancelled", "disconnected"])
async def test_the_request_of_another_user_makes_later_questions_unclear(ending: str) -> None:
    async with two_users() as (users, reached):
        if ending == "answered":
            # Nothing keeps the server from asking about this call after its answer.
            assert (await users["alice"].call("mcp_bank_outcome")).success
        elif ending == "time":
            assert not (await users["alice"].call("mcp_bank_transfer", timeout=0.2)).success
        else:
            transfer = asyncio.create_task(users["alice"].call("mcp_bank_transfer"))
            # The server has read the transfer before this, and asks for it only now.
            assert (await users["alice"].call("mcp_bank_outcome")).success
            transfer.cancel()
            await asyncio.wait({transfer})
        if ending == "disconnected":
            await users["alice"].close()
        assert UNCLEAR in (await users["bob"].call("mcp_bank_ask")).text
        assert (await users["bob"].call("mcp_bank_tell")).success
        assert reached == {"alice": [], "bob": []}


async def test_while_two_users_have_requests_in_progress_neither_is_asked() -> None:
    async with two_users() as (users, reached):
        waiting = asyncio.create_task(users["alice"].call("mcp_bank_wait"))
        assert (await users["alice"].call("mcp_bank_outcome")).success
        assert (await users["bob"].call("mcp_bank_release")).text == "released"
        assert UNCLEAR in (await waiting).text
        assert reached == {"alice": [], "bob": []}


async def test_a_question_or_message_after_the_answer_never_reaches_another_user() -> None:
    async with two_users() as (users, reached):
        assert (await users["alice"].call("mcp_bank_leave")).text == "left"
        assert (await users["alice"].call("mcp_bank_tell_late")).text == "told"
        with anyio.fail_after(20):
            while not (await users["bob"].call("mcp_bank_outcome")).text:
                pass
        assert reached["bob"] == []


async def test_what_a_server_asks_is_not_handled_in_the_context_of_the_call_that_opened_it() -> None:
    caller: ContextVar[str] = ContextVar("caller", default="")
    seen: list[str] = []

    def confirm(_server: str, _question: dict[str, Any]) -> dict[str, Any]:
        seen.append(caller.get())
        return {"action": "accept", "content": {}}

    child = Stdio(sys.executable, [str(SERVERS / "asking_late.py")])
    handlers = Handlers(elicitation=confirm)
    async with McpManager([ServerSpec("bank", child, lazy=True)], handlers=handlers, cache=False) as mcp:
        caller.set("alice")
        await mcp.start(["bank"])
        assert await mcp.wait_ready(["bank"])
        caller.set("bob")
        assert '"accept"' in (await mcp.call("mcp_bank_ask")).text
    assert seen == [""]


async def test_the_same_id_gives_the_same_manager_and_takes_new_credentials() -> None:
    async with program() as (mcp, server):
        alice = mcp.as_user("alice", auth="first")
        await alice.wait_ready([MODERN])
        assert said(await alice.call("mcp_modern_who", WHO))["token"] == "first"
        assert mcp.as_user("alice", auth="second", headers={"X-More": "1"}) is alice
        assert said(await alice.call("mcp_modern_who", WHO))["token"] == "second"
        assert mcp.as_user("alice") is alice
        assert said(await alice.call("mcp_modern_who", WHO))["token"] == "second"
        assert server.seen["call second"] == 2


async def test_headers_can_be_for_one_server_only_and_async() -> None:
    async def headers(name: str) -> dict[str, str]:
        return {"authorization": "Bearer alice"} if name == MODERN else {}

    async with program(header_provider=lambda _: {"Authorization": "Bearer program"}) as (mcp, _):
        alice = mcp.as_user("alice", headers=headers)
        tokens = [said(await alice.call(f"mcp_{path}_who", WHO))["token"] for path in (MODERN, LEGACY)]
        assert tokens == ["alice", "program"]
        bob = mcp.as_user("bob", auth={LEGACY: "bob"})
        tokens = [said(await bob.call(f"mcp_{path}_who", WHO))["token"] for path in (MODERN, LEGACY)]
        assert tokens == ["program", "bob"]


@pytest.mark.requirement("users-policy")
async def test_a_users_rules_can_only_be_stricter() -> None:
    asked: list[CallRequest] = []

    def approve(request: CallRequest) -> bool:
        asked.append(request)
        return request.user == "alice"

    deny_wait = {"rules": [{"tool": "wait", "action": "deny"}, {"tool": "of_*", "action": "ask"}]}
    async with program(policy=deny_wait, handlers=Handlers(approval=approve)) as (mcp, _):
        lax: dict[str, Any] = {"default": "allow", "rules": [{"tool": "*", "action": "allow"}]}
        alice = mcp.as_user("alice", auth="alice", policy=lax)
        bob = mcp.as_user("bob", auth="bob", policy={"rules": [{"tool": "who", "action": "deny"}]})
        codes = {
            (user.user, name): getattr((await user.call(f"mcp_modern_{name}", WHO)).exception, "code", "")
            for user in (alice, bob)
            for name in ("wait", "who", f"of_{user.user}")
        }
        denied = "tool.denied"
        assert codes == {
            ("alice", "wait"): denied,
            ("alice", "who"): "",
            ("alice", "of_alice"): "",
            ("bob", "wait"): denied,
            ("bob", "who"): denied,
            ("bob", "of_bob"): denied,
        }
        assert [one.user for one in asked] == ["alice", "bob"]


@pytest.mark.requirement("users-policy")
async def test_rules_of_the_program_hold_for_every_user_whatever_theirs_say() -> None:
    rules = {"rules": [{"tool": "write", "action": "deny"}]}
    asked: list[CallRequest] = []
    # Saying nothing is not a no.
    yes = Handlers(approval=lambda request: asked.append(request) is None)

    async def denied(user: McpManager) -> list[str]:
        results = {name: await user.call(f"mcp_files_{name}") for name in ("read", "write")}
        return [name for name, result in results.items() if not result.success]

    async with McpManager([files().spec()], cache=False, policy=rules, handlers=yes) as mcp:
        assert await denied(mcp.as_user("without rules")) == ["write"]
        asks = {"rules": [{"tool": "*", "action": "ask"}]}
        assert asked == []
        assert await denied(mcp.as_user("asks", policy=asks)) == ["write"]
        assert [(one.user, one.original_name) for one in asked] == [("asks", "read")]
        none = {"rules": [{"tool": "read", "action": "deny"}]}
        changes = mcp.as_user("changes", policy=none)
        assert await denied(changes) == ["read", "write"]
        mcp.as_user("changes", policy={"rules": []})
        assert await denied(changes) == ["write"]
        mcp.as_user("changes", policy=none)
        assert await denied(changes) == ["read", "write"]


@pytest.mark.requirement("users-tasks")
async def test_tasks_and_continuations_of_one_user_are_refused_for_another(tmp_path: Path) -> None:
    handlers = Handlers(durable_questions=True)
    async with program(modern("m", str(tmp_path / "state.json")), handlers=handlers) as (mcp, _):
        alice, bob = mcp.as_user("alice"), mcp.as_user("bob")
        task = (await alice.call("mcp_m_work", {"polls": 2}, detach=True)).task
        asked = (await alice.call("mcp_m_order", on_input="return")).input_required
        assert task is not None
        assert asked is not None
        assert [one.id for one in await alice.tasks.list()] == [task.id]
        assert await bob.tasks.list() == []
        assert await mcp.tasks.list() == []
        # A server of the same name that the task did not begin with does not know it.
        (record,) = parts_of(alice).call_context.tasks.all()
        parts_of(alice).call_context.tasks.save(record.replace(id="of another", server_key="another"))
        assert [one.id for one in await alice.tasks.list()] == [task.id]
        answers = {key: {"action": "accept", "content": {"name": "Ada"}} for key in asked.questions}
        for other in (bob, mcp):
            with pytest.raises(DragomanError, match="unknown task"):
                await other.tasks.resume(task)
            with pytest.raises(DragomanError, match="unknown task"):
                await other.tasks.cancel(task)
            with pytest.raises(DragomanError, match="another user's: nothing was sent"):
                await other.tasks.resume(asked, answers)
        assert (await alice.tasks.resume(asked, answers)).success
        assert (await alice.tasks.resume(task)).success


async def test_the_agent_of_one_user_cannot_read_what_the_agent_of_another_has_kept() -> None:
    program_of_ada = SavedProgram(
        id=new_id(), state="asking", tool="t", server="s", arguments={"a": 1}, code="", created=time.time()
    )
    async with (
        program() as (mcp, _),
        AgentEngine(ScriptedProvider([]), mcp.as_user("ada"), code=True) as ada,
        AgentEngine(ScriptedProvider([]), mcp.as_user("bob"), code=True) as bob,
    ):
        kept = ada._spill.keep_text("the papers of ada")
        assert "papers" in ada._spill.read(str(kept))
        with pytest.raises(FileNotFoundError):
            bob._spill.read(str(kept))
        mine, theirs = (agent._runner()._store for agent in (ada, bob))
        mine.save(program_of_ada)
        mine.release(program_of_ada.id)
        assert theirs.all() == []
        assert theirs.take(program_of_ada.id) is None
        # Even a file that is moved to another user's folder is not theirs.
        (file,) = mine.folder.glob("*.program")
        (theirs.folder / file.name).write_bytes(file.read_bytes())
        assert theirs.take(program_of_ada.id) is None
        assert [one.id for one in mine.all()] == [program_of_ada.id]


@pytest.mark.requirement("users-log")
async def test_calls_are_counted_and_logged_for_their_user_with_their_secrets_masked(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    async with program(call_log=path) as (mcp, _):
        alice = mcp.as_user("alice", auth="zulu7f3a91bcQ")
        bob = mcp.as_user("bob", auth="yank91bc7f3aW")
        for user in (alice, bob, bob):
            said(await user.call("mcp_modern_who", {"text": "it is zulu7f3a91bcQ"}))
        assert [one.metrics()[MODERN].calls for one in (alice, bob)] == [1, 2]
        assert mcp.metrics()[MODERN].calls == 0
    history = CallHistory(path)
    assert [one.user for one in history.list()] == ["bob", "bob", "alice"]
    assert len(history.list(user="alice")) == 1
    assert history.list(user="ali") == []
    # The one whose secret it is, whichever way it came there.
    (alices,) = history.list(user="alice")
    assert "zulu7f3a91bcQ" not in f"{alices.arguments} {alices.result}"


# ── Logins


class Persons:
    """Shows the address of each login to the user whose it is."""

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}
        self.changed = asyncio.Event()

    def __call__(self, _: str, request: dict[str, Any]) -> None:
        self.shown[request["user"]] = request["url"]
        self.changed.set()

    async def wait(self, *users: str) -> None:
        with anyio.fail_after(30):
            while not set(users) <= self.shown.keys():
                self.changed.clear()
                await self.changed.wait()


@pytest.mark.requirement("users-login")
async def test_each_user_logs_in_with_an_address_of_their_own() -> None:
    persons = Persons()
    auth = Auth(redirect_uri="https://app.example/callback")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Authorization())
        spec = ServerSpec("mail", Http(server.url), auth=auth, lazy=True)
        mcp = await stack.enter_async_context(McpManager([spec], handlers=Handlers(login=persons)))
        alice, bob = mcp.as_user("alice"), mcp.as_user("bob")
        starting = [asyncio.create_task(one.wait_ready()) for one in (alice, bob)]
        # Neither waits for the other: both are shown, and none is done.
        await persons.wait("alice", "bob")
        ended = {user: await server.where(url) for user, url in persons.shown.items()}
        with pytest.raises(DragomanError, match="another user's"):
            await bob.auth.complete(ended["alice"])
        with pytest.raises(DragomanError, match="another user's"):
            await mcp.auth.complete(ended["alice"])
        assert await alice.auth.complete(ended["alice"]) == "mail"
        assert alice.status()["mail"].state == "ready"
        assert bob.status()["mail"].state != "ready"
        assert (await alice.call("mcp_mail_read")).success
        assert not (await bob.call("mcp_mail_read")).success
        assert await bob.auth.complete(ended["bob"]) == "mail"
        await asyncio.gather(*starting)
        assert (await bob.call("mcp_mail_read")).success
        tokens = [path for user in ("alice", "bob") for path in user_data_folder(user).glob("logins/*.json")]
        assert len(tokens) == 2
        assert (
            len({json.loads(path.read_text())["logins"][server.base]["access_token"] for path in tokens}) == 2
        )
        # The next user logs in with the client that the program has registered already.
        registered = server.seen["/register"]
        carol = mcp.as_user("carol")
        assert await carol.auth.complete(await server.where(await carol.auth.begin("mail"))) == "mail"
        assert (await carol.call("mcp_mail_read")).success
        assert server.seen["/register"] == registered
        # A logout is of one user.
        assert await alice.auth.logout("mail")
        assert (await bob.call("mcp_mail_read")).success


async def test_login_settings_of_a_user_are_for_all_servers_or_for_some_and_for_no_other_user() -> None:
    own = Auth(client_id="program")
    specs = [ServerSpec(name, Http("http://127.0.0.1:9/mcp"), lazy=True, auth=own) for name in ("a", "b")]

    def used(user: McpManager) -> dict[str, str | None]:
        auths = {name: one.spec.auth for name, one in user._parts.supervisors.items()}
        return {name: auth.client_id if auth else None for name, auth in auths.items()}

    async with McpManager(specs, cache=False) as mcp:
        alice, bob = mcp.as_user("alice", auth=Auth(client_id="alice")), mcp.as_user("bob")
        assert (used(alice), used(bob)) == ({"a": "alice", "b": "alice"}, {"a": "program", "b": "program"})
        mcp.as_user("alice", auth={"b": Auth(client_id="other")})
        assert used(alice) == {"a": "program", "b": "other"}
        assert used(bob) == {"a": "program", "b": "program"}


async def test_a_login_lasts_longer_than_the_manager_of_its_user() -> None:
    persons = Persons()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Authorization())
        spec = ServerSpec("mail", Http(server.url), lazy=True)
        mcp = await stack.enter_async_context(McpManager([spec], handlers=Handlers(login=persons)))
        alice = mcp.as_user("alice")
        await alice.auth.login("mail", open_url=server.open)
        assert (await alice.call("mcp_mail_read")).success
        await alice.close()
        with pytest.raises(DragomanError, match="call `as_user` again"):
            await alice.call("mcp_mail_read")
        again = mcp.as_user("alice")
        assert again is not alice
        assert (await again.call("mcp_mail_read")).success
        assert persons.shown == {}


# ── The pool


@pytest.mark.requirement("users-room")
async def test_a_user_makes_room_only_when_idle_and_others_are_told_what_they_wait_for() -> None:
    async with program(limits=UserLimits(open=1)) as (mcp, server):
        alice, bob = (mcp.as_user(name, auth=name) for name in ("alice", "bob"))
        await alice.wait_ready()
        running = asyncio.create_task(alice.call("mcp_legacy_wait", WHO))
        await server.began.wait()
        refused = await bob.call("mcp_legacy_who", WHO, timeout=0.3)
        assert "1 users are connected, which is the limit" in str(bob.status()[LEGACY].last_error)
        assert not refused.success
        waiting = asyncio.create_task(bob.call("mcp_legacy_who", WHO))
        assert mcp.users()["bob"].is_waiting
        server.go.set()
        assert said(await running)["token"] == "alice"
        assert said(await waiting)["token"] == "bob"
        assert (server.most, list(server.sessions.values())) == (1, ["bob"])
        # Who was disconnected connects again.
        assert said(await alice.call("mcp_legacy_who", WHO))["token"] == "alice"
        assert server.most == 1


@pytest.mark.requirement("users-room")
def test_the_user_who_was_idle_for_longest_makes_room_and_no_other() -> None:
    servers = [ScriptedServer("a", tools=[hello]), ScriptedServer("b", tools=[hello])]

    async def main() -> None:
        limits = UserLimits(open=2, idle=3600)
        async with McpManager([one.spec() for one in servers], cache=False, users=limits) as mcp:
            alice, bob, carol = (mcp.as_user(name) for name in ("alice", "bob", "carol"))
            for user in (alice, bob, alice):
                assert await user.wait_ready()
                assert (await user.call("mcp_a_hello")).success
                await asyncio.sleep(1)
            assert await carol.wait_ready()
            assert {name: one.is_open for name, one in mcp.users().items()} == {
                "alice": True,
                "bob": False,
                "carol": True,
            }

    InstantClock().run(main())


@pytest.mark.requirement("users-room")
def test_call_that_takes_longer_than_the_idle_time_of_its_user_is_not_cut_off() -> None:
    server = ScriptedServer("a", tools=[work])

    async def main() -> None:
        async with McpManager([server.spec()], cache=False, users=UserLimits(idle=5)) as mcp:
            alice = mcp.as_user("alice")
            for _ in range(2):
                assert (await alice.call("mcp_a_work")).text == "done"
                # Idle for as long as the call took, the user is disconnected.
                await asyncio.sleep(20)
                assert alice.status()["a"].state == "idle"

    InstantClock().run(main())


async def work() -> str:
    await asyncio.sleep(20)
    return "done"


@pytest.mark.requirement("users-room")
def test_users_who_wait_are_let_in_in_their_order() -> None:
    server = ScriptedServer("a", tools=[hello])

    async def main() -> None:
        async with McpManager([server.spec()], cache=False, users=UserLimits(open=1)) as mcp:
            users = [mcp.as_user(name) for name in ("alice", "bob", "carol", "dave")]
            let_in: list[str] = []

            async def use(user: Any) -> None:
                assert (await user.call("mcp_a_hello")).success
                let_in.append(user.user)

            with mcp._parts.users.connect("alice"):
                await use(users[0])
                waiting: list[asyncio.Task[None]] = []
                for user in users[1:]:
                    waiting.append(asyncio.create_task(use(user)))
                    while not mcp.users()[user.user].is_waiting:  # noqa: ASYNC110 -- a wait has no event
                        await asyncio.sleep(0)
            await asyncio.gather(*waiting)
            assert let_in == ["alice", "bob", "carol", "dave"]

    InstantClock().run(main())


def hello() -> str:
    return "hello"


async def test_the_error_of_a_call_that_found_no_room_names_the_limit() -> None:
    async with program(limits=UserLimits(open=1)) as (mcp, server):
        alice, bob = (mcp.as_user(name, auth=name) for name in ("alice", "bob"))
        await bob.wait_ready()
        running = asyncio.create_task(alice.call("mcp_legacy_wait", WHO))
        await server.began.wait()
        refused = await bob.call("mcp_legacy_who", WHO, timeout=0.3)
        assert "1 users are connected, which is the limit" in str(refused.error)
        server.go.set()
        assert (await running).success


async def test_users_who_wait_until_all_servers_are_ready_find_them_ready() -> None:
    async with program(stdio("one", share=True), limits=UserLimits(open=1)) as (mcp, server):
        users = [mcp.as_user(f"user-{number}", auth=f"user-{number}") for number in range(8)]
        assert all(await asyncio.gather(*(one.wait_ready() for one in users)))
        assert server.most == 1


async def test_an_idle_user_is_disconnected_and_comes_back() -> None:
    async with program(stdio("own"), limits=UserLimits(idle=0.1)) as (mcp, server):
        alice = mcp.as_user("alice", auth="alice")
        before = said(await alice.call("mcp_own_who", WHO))["pid"]
        said(await alice.call("mcp_legacy_who", WHO))
        with anyio.fail_after(20):
            await server.ended.wait()
        assert not server.sessions
        assert alice.status()["own"].pid is None
        # What it knows stays.
        assert len(alice.tools()) == 10
        assert said(await alice.call("mcp_own_who", WHO))["pid"] != before


async def test_a_user_inside_async_with_stays_connected() -> None:
    async with program(limits=UserLimits(open=1, idle=0.05)) as (mcp, server):
        bob = mcp.as_user("bob", auth="bob")
        async with mcp.as_user("alice", auth="alice") as alice:
            assert await alice.wait_ready()
            assert not (await bob.call("mcp_legacy_who", WHO, timeout=0.3)).success
            assert list(server.sessions.values()) == ["alice"]
        assert said(await bob.call("mcp_legacy_who", WHO))["token"] == "bob"


async def test_users_that_nothing_refers_to_are_forgotten_once_they_are_disconnected() -> None:
    async with program(limits=UserLimits(open=3)) as (mcp, server):
        for number in range(12):
            user = f"user-{number}"
            assert said(await mcp.as_user(user, auth=user).call("mcp_legacy_who", WHO))["token"] == user

        with anyio.fail_after(20):
            while len(mcp.users()) > 4:  # What they have listed is written a moment after their end.
                await anyio.lowlevel.checkpoint()
                gc.collect()
        assert server.most <= 3


# ── With the manager


async def test_users_follow_the_servers_of_the_manager() -> None:
    async with program(stdio("own")) as (mcp, _):
        alice = mcp.as_user("alice")
        said(await alice.call("mcp_own_who", WHO))
        await mcp.add(stdio("later"))
        said(await alice.call("mcp_later_who", WHO))
        await mcp.remove("own")
        assert "own" not in alice.status()
        assert not [one for one in alice.tools() if one.server == "own"]
        await mcp.disable("later")
        assert not (await alice.call("mcp_later_who", WHO)).success
        await mcp.enable("later")
        said(await alice.call("mcp_later_who", WHO))
        with pytest.raises(DragomanError, match="all users have the manager's servers"):
            await alice.add(stdio("mine"))


async def test_users_have_the_local_tools_of_the_manager() -> None:
    @tool
    def double(number: int) -> int:
        """Double it."""
        return 2 * number

    @tool
    def half(number: int) -> int:
        """Halve it."""
        return number // 2

    async with program() as (mcp, _):
        mcp.registry.register_all([double, half])
        alice = mcp.as_user("alice")
        assert [(await alice.call(name, {"number": 4})).text for name in ("double", "half")] == ["8", "2"]


async def test_wrong_use_is_a_clear_error() -> None:
    async with program() as (mcp, _):
        for wrong in ("", "x" * 2000, 7):
            with pytest.raises(DragomanError, match="a text of 1 to"):
                mcp.as_user(wrong)  # type: ignore[arg-type]
        alice = mcp.as_user("alice")
        with pytest.raises(DragomanError, match="is a user"):
            alice.as_user("bob")
        with pytest.raises(ValueError, match="at least 1"):
            UserLimits(open=0)
    with pytest.raises(DragomanError, match="closed"):
        await alice.call("mcp_legacy_who", WHO)
    with pytest.raises(DragomanError, match="closed"):
        mcp.as_user("alice")


def test_the_blocking_manager_has_users_too() -> None:
    with BlockingManager([stdio("own"), stdio("one", share=True)], cache=False) as mcp:
        alice, bob = (
            mcp.as_user("alice", env={"USER_TOKEN": "a"}),
            mcp.as_user("bob", env={"USER_TOKEN": "b"}),
        )
        assert [said(one.call("mcp_own_who", WHO))["token"] for one in (alice, bob)] == ["a", "b"]
        with alice as held:
            assert held.wait_ready()
            run = next(one for one in held.tools() if one.original_name == "who" and one.server == "own")
            assert json.loads(run.func(text="x"))["token"] == "a"  # type: ignore[misc]
        assert set(mcp.users()) == {"alice", "bob"}
        bob.close()
        assert set(mcp.users()) == {"alice"}


@pytest.mark.requirement("otter-concurrency", "users-process")
async def test_bound_of_a_shared_process_is_for_all_users_together() -> None:
    async with program(stdio("one", share=True, max_concurrency=2)) as (mcp, _):
        users = [mcp.as_user(name) for name in ("alice", "bob", "carol")]
        for user in users:
            await user.wait_ready(["one"])
        shared = mcp._parts.pool.connections
        assert shared is not None
        (hub,) = shared._hubs.values()
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, hub.connection.calls)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        results = await asyncio.gather(*(one.call("mcp_one_who", WHO) for one in users for _ in range(10)))
        watching.cancel()
        assert len({said(result)["pid"] for result in results}) == 1
        assert most == 2
