"""The console over HTTP: who is let in, what is refused, what it shows and does."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.unit.console.visiting import ORIGIN, Visitor, notes, serving, visiting
from tests.waiting import until

from dragoman.console.app import COOKIE, HEADERS, KEY_HEADER, ConsoleApp
from dragoman.console.sessions import Session
from dragoman.events import ApprovalRequested, DefinitionsChanged
from dragoman.gateway.app import Guard, asgi_app
from dragoman.manager.manager import McpManager, parts_of
from dragoman.model import ServerSpec, Settings, Statement, Stdio

if TYPE_CHECKING:
    from pathlib import Path

NAME = f"{COOKIE}-8123"
OPERATOR = Session(key=b"", user="")
EVERYTHING = [
    *(("GET", f"api/{path}") for path in ("session", "fleet", "tools", "calls", "inbox", "trust", "tasks")),
    *(("GET", f"api/{path}") for path in ("users", "events", "servers/notes", "servers/notes/logs")),
    *(("GET", f"api/{path}") for path in ("tools/mcp_notes_add", "calls/x")),
]
WRITES = [
    *(f"api/servers/notes/{action}" for action in ("restart", "enable", "disable", "doctor")),
    *("api/trust/notes/changes", "api/trust/notes/entry", "api/inbox/x", "api/tasks/x/cancel", "api/calls"),
]


async def test_a_link_becomes_a_session_once() -> None:
    async with visiting() as page:
        link = page.app.link(ORIGIN)
        token = link.partition("#token=")[2]
        assert link.startswith(f"{ORIGIN}/#token=")
        response = await page.enter(token)
        cookie = response.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert response.json()["key"] not in cookie
        assert (await page.get("api/session"))["is_operator"] is True
        again = await page.enter(token)
        assert (again.status_code, "used already" in again.text) == (401, True)


async def test_nothing_is_shown_or_done_without_both_halves_of_a_session() -> None:
    server = notes()
    async with visiting(server) as page:
        for (method, path), headers in itertools.product(
            [*EVERYTHING, *(("POST", path) for path in WRITES)],
            (
                {KEY_HEADER: None},
                {KEY_HEADER: "guess"},
                {"Cookie": f"{NAME}=guess"},
                {KEY_HEADER: page.client.cookies[NAME]},
            ),
        ):
            content = {} if method == "GET" else {"json": {}}
            response = await page.ask(method, path, headers=headers, **content)
            assert (response.status_code, response.json()) == (401, {"error": "no session"}), (path, headers)
    assert not server.calls


HOSTILE_HEADERS = [
    {"Host": "attacker.example"},
    {"Host": "attacker.example:8123"},
    {"Host": "127.0.0.1.attacker.example"},
    {"Host": "127.0.0.1:8123@attacker.example"},
    {"Host": "127.0.0.1#attacker.example"},
    {"Host": ""},
    {"Host": "[::ffff:127.0.0.1].example"},
    {"Host": "0.0.0.0:8123"},
    {"Origin": "https://attacker.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:9999"},
    {"Origin": "http://localhost:8123"},
    {"Origin": "http://127.0.0.1:8123.attacker.example"},
    {"Origin": "file://"},
    {"Origin": "chrome-extension://abcdef"},
    {"Origin": "http://127.0.0.1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "nonsense"},
]


async def test_other_origins_and_names_are_refused_even_with_a_session() -> None:
    async with visiting() as page:
        before = page.app._mcp.metrics()["notes"].restarts
        for headers in HOSTILE_HEADERS:
            for method, path in (("GET", "api/fleet"), ("POST", "api/servers/notes/restart")):
                content = {} if method == "GET" else {"json": {}}
                response = await page.ask(method, path, headers=headers, **content)
                assert response.status_code in (400, 403, 421), headers
                assert "notes" not in response.text
        assert page.app._mcp.metrics()["notes"].restarts == before
        for origin in (None, ORIGIN):
            assert (await page.ask("GET", "api/fleet", headers={"Origin": origin})).status_code == 200


HOSTILE_PATHS = [
    "../pyproject.toml",
    "..%2f..%2fapp.py",
    "%2e%2e/app.py",
    "static/../app.py",
    "app.py",
    "__init__.py",
    "index.html",
    "style.css%00.js",
    "app.js/",
    "/etc/passwd",
    "//etc/passwd",
    "APP.JS",
    "api",
    "api/",
    "api/nothing",
    "api/servers",
    "api//fleet",
    "api/fleet/",
    "api/%66leet/x",
    "api/servers/notes/..%2f..%2ffleet",
    "api/servers/notes/add",
    "api/servers/notes/logs/x",
    "api/trust/notes",
]


async def test_only_the_known_paths_exist() -> None:
    async with visiting() as page:
        for path, method in itertools.product(HOSTILE_PATHS, ("GET", "POST")):
            response = await page.ask(method, path, **({} if method == "GET" else {"json": {}}))
            assert response.status_code in (404, 405), path


async def test_what_changes_something_is_a_post_with_json() -> None:
    async with visiting() as page:
        path = "api/servers/notes/restart"
        before = page.app._mcp.metrics()["notes"].restarts
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "",
        ):
            headers = {"Content-Type": kind or None}
            response = await page.ask("POST", path, content=b"{}", headers=headers)
            assert response.status_code == 415
        for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert (await page.ask(method, path)).status_code in (404, 405)
        for content in (b"{", b"[]", b'"x"', b"\xff", b"[" * 100_000):
            headers = {"Content-Type": "application/json"}
            assert (await page.ask("POST", path, content=content, headers=headers)).status_code == 400
        big = b'{"x": "' + b"y" * 2**20 + b'"}'
        headers = {"Content-Type": "application/json"}
        assert (await page.ask("POST", path, content=big, headers=headers)).status_code == 413
        assert page.app._mcp.metrics()["notes"].restarts == before
        assert (await page.post(path)).json() == {"state": "ready", "tools": 2}
        assert page.app._mcp.metrics()["notes"].restarts == before + 1


async def test_a_query_with_too_many_fields_is_refused() -> None:
    async with visiting() as page:
        query = "&".join(f"a{number}=1" for number in range(21))
        assert (await page.ask("GET", f"api/calls?{query}")).status_code == 400


async def test_a_read_only_console_changes_nothing_and_calls_nothing() -> None:
    server = notes()
    async with visiting(server, read_only=True) as page:
        body = {"tool": "mcp_notes_add", "arguments": {"text": "x"}, "fingerprint": "x", "allow": True}
        for path in WRITES:
            response = await page.post(path, body)
            assert (response.status_code, response.json()) == (403, {"error": "the console is read-only"})
        assert (await page.get("api/session"))["read_only"] is True
        assert page.app._mcp.status()["notes"].state.value == "ready"
    assert not server.calls


async def test_every_answer_has_the_headers_and_pages_load_from_here_alone() -> None:
    async with visiting() as page:
        for path in ("", "app.js", "style.css", "icon.svg", "api/fleet", "api/nothing", "nothing"):
            response = await page.ask("GET", path)
            for name, value in HEADERS.items():
                if name != "Cache-Control":
                    assert response.headers[name] == value
        index = await page.ask("GET", "", headers={KEY_HEADER: None, "Cookie": ""})
        assert index.headers["content-type"].startswith("text/html")
        same = await page.ask("GET", "", headers={"If-None-Match": index.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")
        assert "default-src 'none'" in HEADERS["Content-Security-Policy"]
        assert "unsafe" not in HEADERS["Content-Security-Policy"]
        assert (await page.ask("GET", "api/fleet")).headers["cache-control"] == "no-store"


async def test_after_the_log_out_nothing_works() -> None:
    async with visiting() as page:
        cookie = page.client.cookies[NAME]
        assert (await page.ask("DELETE", "api/session")).json() == {"ended": True}
        response = await page.ask("GET", "api/fleet", headers={"Cookie": f"{NAME}={cookie}"})
        assert response.status_code == 401


async def test_the_log_out_ends_streams_at_once_even_if_nothing_happens() -> None:
    async with visiting() as page:
        session = page.app.sessions.find(page.client.cookies[NAME], page.key)
        streams = [page.app._events(session, "x") for _ in range(3)]
        for stream in streams:
            assert b"resync" in await anext(stream)
        ends = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await asyncio.sleep(0)
        await page.ask("DELETE", "api/session")
        async with asyncio.timeout(5):
            for end in ends:
                with pytest.raises(StopAsyncIteration):
                    await end


async def test_guessing_ends_after_some_tries() -> None:
    async with visiting() as page:
        codes = [(await page.enter(f"guess-{number}")).status_code for number in range(25)]
        assert codes == [401] * 20 + [429] * 5
        assert (await page.enter()).status_code == 200
        for token in ("", None, 5, "x" * 100_000):
            response = await page.client.post("api/session", json={"token": token})
            assert response.status_code in (401, 429)


async def test_the_fleet_says_why_a_server_is_down_and_what_to_type() -> None:
    broken = ServerSpec(name="gone", transport=Stdio(command="/nonexistent/program"))
    async with McpManager([notes().spec(), broken], cache=False) as mcp, visitor_of(mcp) as page:
        await mcp.wait_ready()
        await mcp.call("mcp_notes_add", {"text": "x"})
        await mcp.call("mcp_notes_fail")
        fleet = await page.get("api/fleet")
        rows = {row["name"]: row for row in fleet["servers"]}
        assert rows["gone"]["cause"] == "the program `/nonexistent/program` was not found"
        assert rows["gone"]["next_step"] == "dragoman doctor gone"
        assert rows["gone"]["retry_in"] is not None or rows["gone"]["state"] == "failed"
        assert (rows["notes"]["state"], rows["notes"]["tools"]) == ("ready", 2)
        assert (rows["notes"]["calls"], rows["notes"]["failed"]) == (2, 1)
        assert rows["notes"]["in_state"] >= 0
        assert rows["notes"]["tokens"] > 10
        assert len(rows["notes"]["recent"]) == 2
        assert fleet["count"] == {"servers": 2, "ready": 1, "running": 0, "calls": 2, "failed": 1}
        detail = await page.get("api/servers/notes")
        assert {one["tool"]: one["failed"] for one in detail["tools"]} == {
            "mcp_notes_add": 0,
            "mcp_notes_fail": 1,
        }
        assert (await page.ask("GET", "api/servers/nobody")).status_code == 404


def visitor_of(mcp: McpManager) -> Any:
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def visit() -> Any:
        app = ConsoleApp(mcp, Guard(None, hosts=(), origins=()))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=f"{ORIGIN}/") as client:
            page = Visitor(app, client)
            await page.enter()
            yield page
        await app.close()

    return visit()


async def test_a_server_is_switched_off_and_on_and_examined() -> None:
    async with visiting() as page:
        assert (await page.post("api/servers/notes/disable")).status_code == 200
        (row,) = (await page.get("api/fleet"))["servers"]
        assert (row["state"], row["is_on"]) == ("off", False)
        assert (await page.get("api/tools"))["tools"] == []
        assert (await page.post("api/servers/notes/enable")).json()["state"] == "ready"
        assert (await page.post("api/servers/nobody/restart")).status_code == 404
        found = (await page.post("api/servers/notes/doctor")).json()
        assert found["stages"][0]["outcome"] in ("ok", "failed")


async def test_a_tool_is_called_with_the_numbers_that_were_typed() -> None:
    server = notes()
    async with visiting(server) as page:
        number = 12345678901234567890123
        lines = await page.call("mcp_notes_add", f'{{"text": "größer 你好", "number": {number}}}')
        assert lines[-1]["result"]["text"] == f"added größer 你好 {number}"
        assert lines[-1]["result"]["success"] is True
        failed = (await page.call("mcp_notes_fail", "{}"))[-1]["result"]
        assert (failed["success"], failed["error_code"]) == (False, "tool.failed")
        assert "no paper left" in failed["error"]
        wrong = (await page.call("mcp_notes_add", '{"text": 5}'))[-1]["result"]
        assert wrong["error_code"] == "tool.invalid_arguments"
    assert server.calls[0].arguments["number"] == number


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"tool": "mcp_notes_add", "arguments": {"number": 1e999}}', 409),
        ('{"tool": "mcp_notes_add", "arguments": {"number": NaN}}', 409),
        ('{"tool": "mcp_notes_add", "arguments": []}', 409),
        ('{"tool": "mcp_notes_add"}', 409),
        ('{"tool": "mcp_notes_add", "arguments": {}, "timeout": -1}', 409),
        ('{"tool": "mcp_notes_add", "arguments": {}, "timeout": true}', 409),
        ('{"tool": "nothing", "arguments": {}}', 404),
        ("{", 409),
    ],
)
async def test_what_cannot_be_sent_is_said_before_it_is(text: str, status: int) -> None:
    server = notes()
    async with visiting(server) as page:
        headers = {"Content-Type": "application/json"}
        response = await page.ask("POST", "api/calls", content=text.encode(), headers=headers)
        assert response.status_code == status
        assert response.json()["error"]
    assert not server.calls


async def test_rules_hold_for_the_page() -> None:
    server = notes()
    rules = {"rules": [{"action": "deny", "server": "notes", "tool": "add", "reason": "no notes"}]}
    async with visiting(server, policy=rules) as page:
        result = (await page.call("mcp_notes_add", '{"text": "x"}'))[-1]["result"]
        assert result["error_code"] == "tool.denied"
        assert "no notes" in result["error"]
    assert not server.calls


async def test_calls_are_listed_page_by_page_and_shown_as_logged(tmp_path: Path) -> None:
    async with visiting(call_log=tmp_path / "calls.sqlite3") as page:
        for number in range(5):
            await page.call("mcp_notes_add", f'{{"text": "note {number}", "number": {10**25 + number}}}')
        await page.call("mcp_notes_fail", "{}")
        page.app._mcp.call_log.flush()  # type: ignore[union-attr]
        first = await page.get("api/calls?limit=4")
        assert (len(first["calls"]), first["more"], first["logged"]) == (4, True, True)
        last = first["calls"][-1]
        rest = await page.get(f"api/calls?limit=4&before={last['at']},{last['number']}")
        assert [len(rest["calls"]), rest["more"]] == [2, False]
        ids = [one["call_id"] for one in [*first["calls"], *rest["calls"]]]
        assert len(set(ids)) == 6
        assert [one["error_code"] for one in (await page.get("api/calls?errors=1"))["calls"]] == [
            "tool.failed"
        ]
        assert len((await page.get("api/calls?text=note%203"))["calls"]) == 1
        assert (await page.get("api/calls?server=nobody"))["calls"] == []
        one = await page.get(f"api/calls/{ids[-1]}")
        assert str(10**25) in one["arguments_json"]
        assert one["result"].startswith("added note 0")
        assert (one["obstacle"], one["rule"]["action"]) == ("", "allow")
        assert (await page.ask("GET", "api/calls/unknown")).status_code == 409


async def test_without_a_log_the_calls_of_this_program_are_shown() -> None:
    async with visiting(call_log=False) as page:
        feed = page.app._visit(page.app._mcp, OPERATOR).desk.feed
        news = feed.read()
        await anext(news)
        await page.call("mcp_notes_add", '{"text": "milk"}')
        await anext(news)
        (found,) = (await page.get("api/calls"))["calls"]
        assert (found["tool"], found["error_code"]) == ("mcp_notes_add", "")
        assert (await page.get(f"api/calls/{found['call_id']}"))["record"] is False
        await news.aclose()


async def test_a_call_that_a_rule_asks_about_is_answered_in_the_page() -> None:
    server = notes()
    rules = {"rules": [{"action": "ask", "server": "notes", "tool": "add", "reason": "each note"}]}
    async with visiting(server, policy=rules, approvals="inbox") as page:
        for allow, code in ((True, ""), (False, "tool.denied")):
            events = page.app._mcp.events()
            calling = asyncio.create_task(page.call("mcp_notes_add", '{"text": "milk", "number": 7}'))
            await until(events, ApprovalRequested)
            (entry,) = (await page.get("api/inbox"))["pending"]
            assert (entry["tool"], entry["reason"]) == ("mcp_notes_add", "each note")
            assert json.loads(entry["arguments_json"]) == {"text": "milk", "number": 7}
            assert (await page.post(f"api/inbox/{entry['id']}", {"allow": "yes"})).status_code == 404
            assert (
                await page.post(f"api/inbox/{entry['id']}", {"allow": True, "always": "x"})
            ).status_code == 400
            answer = await page.post(f"api/inbox/{entry['id']}", {"allow": allow, "always": None})
            assert answer.json()["answered_by"] == "the console"
            second = await page.post(f"api/inbox/{entry['id']}", {"allow": True})
            assert (second.status_code, "the console" in second.text) == (409, True)
            assert (await calling)[-1]["result"]["error_code"] == code
    assert len(server.calls) == 1


async def test_changed_definitions_are_approved_as_they_were_shown() -> None:
    server = notes()
    async with visiting(server, default_trust="ask") as page:
        assert await page.get("api/trust") == {"changes": [], "entries": []}
        events = page.app._mcp.events()

        @server.tool
        def burn(everything: bool) -> str:
            """Burn every note. <b>Now</b>"""
            return str(everything)

        await until(events, DefinitionsChanged)
        (change,) = (await page.get("api/trust"))["changes"]
        assert (change["server"], change["is_withheld"]) == ("notes", True)
        assert any("burn" in line for line in change["texts"])
        assert (await page.get("api/fleet"))["servers"][0]["changes"] == 1
        path = "api/trust/notes/changes"
        for wrong in ({"fingerprint": "x"}, {"fingerprint": ""}):
            assert (await page.post(path, wrong)).status_code == 409
        for nothing in ({}, {"fingerprint": None}, {"fingerprint": 5}):
            assert (await page.post(path, nothing)).status_code == 404
        assert page.app._mcp.registry.find("mcp_notes_burn") is None
        assert (await page.post(path, {"fingerprint": change["fingerprint"]})).status_code == 200
        assert page.app._mcp.registry.find("mcp_notes_burn") is not None
        assert (await page.get("api/trust"))["changes"] == []


async def test_a_server_of_a_project_is_approved_as_it_was_shown_and_starts(tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text("import sys\nsys.exit('not yet')\n", "utf-8")
    entry = {"command": "python3", "args": [str(script)]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": entry}}), "utf-8")
    async with McpManager.from_config(root=tmp_path) as mcp, visitor_of(mcp) as page:
        await mcp.wait_ready()
        (row,) = (await page.get("api/fleet"))["servers"]
        assert (row["word"], row["next_step"]) == ("not approved", "dragoman trust approve theirs")
        (shown,) = (await page.get("api/trust"))["entries"]
        assert (shown["server"], shown["state"]) == ("theirs", "new")
        assert str(script) in shown["text"]
        path = "api/trust/theirs/entry"
        assert (await page.post(path, {"fingerprint": "0" * 64})).status_code == 409
        assert (
            await page.post("api/trust/other/entry", {"fingerprint": shown["fingerprint"]})
        ).status_code == 409
        # What it runs is another program now: the approval is of the one that was shown.
        script.write_text("import sys\nsys.exit('something else')\n", "utf-8")
        assert (await page.post(path, {"fingerprint": shown["fingerprint"]})).json()["state"] != "ready"
        (row,) = (await page.get("api/fleet"))["servers"]
        assert row["word"] == "not approved"
        (changed,) = (await page.get("api/trust"))["entries"]
        assert changed["state"] == "changed"
        assert changed["fingerprint"] != shown["fingerprint"]
        assert (await page.post(path, {"fingerprint": shown["fingerprint"]})).status_code == 409
        assert (await page.post(path, {"fingerprint": changed["fingerprint"]})).status_code == 200
        (row,) = (await page.get("api/fleet"))["servers"]
        assert "something else" in row["cause"]
        (now,) = (await page.get("api/trust"))["entries"]
        assert now["state"] == "approved"


async def test_a_user_of_the_gateway_sees_own_calls_and_nothing_of_the_machine(tmp_path: Path) -> None:
    from dragoman.gateway.auth import UserTokens

    mcp = McpManager([notes().spec()], cache=False, call_log=tmp_path / "calls.sqlite3")
    app = asgi_app(mcp, verifier=UserTokens({"token-ada": "ada", "token-bob": "bob"}))
    app.console = ConsoleApp(mcp, app.guard, entrance=app, prefix="/console")
    await app.start()
    try:
        pages: dict[str, Visitor] = {}
        for user in ("ada", "bob"):
            transport = httpx2.ASGITransport(app=app)
            client = httpx2.AsyncClient(transport=transport, base_url=f"{ORIGIN}/console/")
            pages[user] = page = Visitor(app.console, client)
            assert (await page.enter(f"token-{user}")).status_code == 200
            assert (await page.get("api/session"))["user"] == user
            assert (await page.get("api/session"))["is_operator"] is False
            await mcp.as_user(user).wait_ready()
            await page.call("mcp_notes_add", f'{{"text": "of {user}"}}')
            parts_of(mcp).call_log.flush()  # type: ignore[union-attr]
        ada, bob = pages["ada"], pages["bob"]
        (own,) = (await ada.get("api/calls"))["calls"]
        assert "of ada" in own["arguments"]
        assert (await bob.ask("GET", f"api/calls/{own['call_id']}")).status_code == 409
        for path in ("trust", "users", "servers/notes/logs"):
            assert (await ada.ask("GET", f"api/{path}")).status_code == 404
        for path in ("enable", "disable", "doctor"):
            assert (await ada.post(f"api/servers/notes/{path}")).status_code == 404
        assert (await ada.post("api/trust/notes/changes", {"fingerprint": "x"})).status_code == 404
        (row,) = (await ada.get("api/fleet"))["servers"]
        assert "origin" not in row
        assert row["pid"] is None
        assert "processes" not in await ada.get("api/servers/notes")
        assert (await bob.enter("token-eve")).status_code == 401
        # The person at the terminal comes by the link, and sees whom the gateway serves.
        token = app.console.link(ORIGIN).partition("#token=")[2]
        assert (await bob.enter(token)).status_code == 200
        assert {one["user"] for one in (await bob.get("api/users"))["users"]} == {"ada", "bob"}
        assert len((await bob.get("api/calls"))["calls"]) == 2
        for page in pages.values():
            await page.client.aclose()
    finally:
        await app.close()


async def test_a_user_who_is_not_let_in_any_more_is_logged_out() -> None:
    from dragoman.gateway.auth import UserTokens

    known: dict[str, dict[str, Any]] = {"ada": {}}
    mcp = McpManager([notes().spec()], cache=False)
    app = asgi_app(mcp, verifier=UserTokens({"token-ada": "ada"}), users=known.get)
    app.console = console = ConsoleApp(mcp, app.guard, entrance=app, prefix="/console")
    await app.start()
    try:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=f"{ORIGIN}/console/") as client:
            page = Visitor(console, client)
            await page.enter("token-ada")
            assert (await page.get("api/session"))["user"] == "ada"
            del known["ada"]
            for path in ("api/events", "api/fleet"):
                assert (await page.ask("GET", path)).status_code == 401
            known["ada"] = {}
            assert (await page.ask("GET", "api/fleet")).status_code == 401
    finally:
        await app.close()


async def test_a_stream_ends_before_the_next_message_once_its_token_is_withdrawn() -> None:
    from dragoman.gateway.auth import UserTokens

    known: dict[str, dict[str, Any]] = {"ada": {}}
    mcp = McpManager([notes().spec()], cache=False)
    app = asgi_app(mcp, verifier=UserTokens({"token-ada": "ada"}), users=known.get)
    app.console = console = ConsoleApp(mcp, app.guard, entrance=app, prefix="/console")
    await app.start()
    try:
        cookie, key = console.sessions.open("ada", "token-ada")
        session = console.sessions.find(cookie, key)
        stream = console._events(session, "x")
        assert b"resync" in await anext(stream)
        ada = mcp.as_user("ada")
        await ada.wait_ready()
        await ada.call("mcp_notes_add", {"text": "mine"})
        assert b"event: news" in await anext(stream)
        app.guard.verifier = UserTokens({})
        await ada.call("mcp_notes_add", {"text": "of whoever is ada now"})
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert not console.sessions.is_open(session)
    finally:
        await app.close()


async def test_the_token_of_a_user_denies_own_calls_and_approves_none(tmp_path: Path) -> None:
    from dragoman.gateway.auth import UserTokens

    server = notes()
    config = tmp_path / "dragoman.toml"
    rules = Statement(
        data={"rules": [{"action": "ask", "tool": "add", "reason": "each note"}]},
        source=str(config),
        scope="user",
        rule_lines=[7],
    )
    mcp = McpManager(Settings(servers=[server.spec()], policy=[rules]), cache=False, approvals="inbox")
    app = asgi_app(mcp, verifier=UserTokens({"token-ada": "ada"}))
    app.console = ConsoleApp(mcp, app.guard, entrance=app, prefix="/console")
    await app.start()
    try:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=f"{ORIGIN}/console/") as client:
            page = Visitor(app.console, client)
            await page.enter("token-ada")
            ada = mcp.as_user("ada")
            await ada.wait_ready()
            events = ada.events()
            calling = asyncio.create_task(page.call("mcp_notes_add", '{"text": "milk"}'))
            asked = (await until(events, ApprovalRequested)).approval
            assert asked.source == f"{config}:7"
            for always in (None, "tool"):
                given = {"allow": True, "always": always}
                refused = await page.post(f"api/inbox/{asked.id}", given)
                assert (refused.status_code, "only the operator" in refused.text) == (409, True)
            bearer = {"Authorization": "Bearer token-ada"}
            for shown in (
                await page.ask("GET", "api/inbox"),
                await client.get(f"{ORIGIN}/approvals", headers=bearer),
                await client.get(f"{ORIGIN}/approvals/{asked.id}", headers=bearer),
            ):
                assert "each note" in shown.text
                assert str(tmp_path) not in shown.text
                assert asked.caller.program not in shown.text
                assert str(asked.caller.process) not in shown.text
            answer = await page.post(f"api/inbox/{asked.id}", {"allow": False})
            assert answer.json()["state"] == "denied"
            assert (await calling)[-1]["result"]["error_code"] == "tool.denied"
        assert not server.calls
    finally:
        await app.close()


@pytest.mark.parametrize("token", ["\ud800", "a\0b", "a\nb"])
async def test_what_is_no_token_is_refused(token: str) -> None:
    from dragoman.gateway.auth import UserTokens

    mcp = McpManager([notes().spec()], cache=False)
    app = asgi_app(mcp, verifier=UserTokens({"token-ada": "ada"}))
    app.console = console = ConsoleApp(mcp, app.guard, entrance=app, prefix="/console")
    await app.start()
    try:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=f"{ORIGIN}/console/") as client:
            content = json.dumps({"token": token}).encode()
            headers = {"Content-Type": "application/json"}
            page = Visitor(console, client)
            assert (
                await page.ask("POST", "api/session", content=content, headers=headers)
            ).status_code == 401
    finally:
        await app.close()


async def test_a_gateway_without_tokens_lets_in_the_operator_alone() -> None:
    mcp = McpManager([notes().spec()], cache=False)
    app = asgi_app(mcp, token=None)
    app.console = console = ConsoleApp(mcp, app.guard, entrance=app, prefix="/console")
    await app.start()
    try:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=f"{ORIGIN}/console/") as client:
            page = Visitor(console, client)
            assert (await page.enter("anything")).status_code == 401
            assert (await client.get(f"{ORIGIN}/console")).headers["location"] == "/console/"
            assert (await page.enter(console.sessions.new_link())).status_code == 200
            assert (await page.get("api/fleet"))["count"]["servers"] == 1
    finally:
        await app.close()


async def test_progress_arrives_and_ending_the_request_cancels_the_call() -> None:
    server = notes()
    cancelled = asyncio.Event()

    @server.tool
    async def wait(steps: int) -> str:
        """Wait for ever."""
        try:
            for step in range(steps):
                server.current.progress(step + 1, steps, f"step {step + 1}")
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    async with McpManager([server.spec()], cache=False) as mcp:
        await mcp.wait_ready()
        app = ConsoleApp(mcp, Guard(None, hosts=(), origins=()))
        async with serving(app) as origin, httpx2.AsyncClient(base_url=f"{origin}/") as client:
            page = Visitor(app, client)
            await page.enter()
            body = {"tool": "mcp_notes_wait", "arguments": {"steps": 3}}
            headers = {KEY_HEADER: page.key}
            found: list[dict[str, Any]] = []
            async with client.stream("POST", "api/calls", json=body, headers=headers) as response:
                async for line in response.aiter_lines():
                    found.append(json.loads(line)["progress"])
                    if len(found) == 3:
                        break
            assert found[-1] == {"done": 3, "total": 3, "message": "step 3"}
            async with asyncio.timeout(10):
                await cancelled.wait()
            assert mcp.metrics()["notes"].in_flight == 0


async def test_the_end_of_the_program_ends_the_streams_of_its_pages() -> None:
    async with McpManager([notes().spec()], cache=False) as mcp:
        await mcp.wait_ready()
        app = ConsoleApp(mcp, Guard(None, hosts=(), origins=()))
        async with httpx2.AsyncClient() as client:
            async with serving(app) as origin:
                page = Visitor(app, client)
                page.client.base_url = httpx2.URL(f"{origin}/")
                await page.enter()
                headers = {KEY_HEADER: page.key, "Last-Event-ID": "x"}
                context = client.stream("GET", "api/events", headers=headers)
                response = await context.__aenter__()
                lines = response.aiter_lines()
                assert (await anext(lines)).startswith("id: ")
            assert (await anext(lines)) == "event: resync"
            assert [line async for line in lines][-1] == ""
            await context.__aexit__(None, None, None)
