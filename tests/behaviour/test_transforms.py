"""Transforms: a tool of a server as the configuration shows it, on every road to it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.behaviour.conftest import SERVERS
from tests.unit.cli.program import dragoman
from tests.unit.console.visiting import Visitor
from tests.unit.gateway.test_app import AUDIENCE, TOKEN, Issuer, client_of, post

from dragoman.config.profiles import profile_named
from dragoman.console.app import ConsoleApp
from dragoman.diagnosis.doctor import diagnose
from dragoman.errors import CallDeniedError, InvalidArgumentsError, UnknownToolError
from dragoman.events import CallStarted, DefinitionsChanged
from dragoman.gateway.app import asgi_app
from dragoman.gateway.auth import JwtVerifier
from dragoman.gateway.questions import Questions
from dragoman.manager.manager import McpManager
from dragoman.model import ArgumentTransform, CallRequest, Handlers, Settings, ToolTransform
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.model import ServerSpec


def files() -> ScriptedServer:
    server = ScriptedServer("fs")

    @server.tool
    def read(path: str, root: str = "/", limit: int = 0) -> str:
        """Read a file of the server."""
        return f"{root}|{path}|{limit}"

    @server.tool
    def delete(path: str) -> str:
        """Delete a file."""
        return f"deleted {path}"

    return server


FIND = ToolTransform(
    name="open",
    description="Open a note.",
    arguments={
        "path": ArgumentTransform(name="note", description="The note's name."),
        "root": ArgumentTransform(value="/srv/notes"),
    },
)
CHANGES = {"read": FIND, "delete": ToolTransform(hidden=True)}


async def test_a_changed_tool_is_shown_and_called_by_its_new_name_alone() -> None:
    server = files()
    async with McpManager([server.spec(tools=CHANGES)], cache=False) as mcp:
        await mcp.wait_ready()
        (tool,) = mcp.tools()
        assert (tool.name, tool.own_name, tool.original_name) == ("mcp_fs_open", "open", "read")
        assert tool.description == "Open a note."
        assert list(tool.input_schema["properties"]) == ["note", "limit"]
        assert tool.input_schema["required"] == ["note"]
        for name in ("mcp_fs_open", "fs:open", "fs.open"):
            assert (await mcp.call(name, {"note": "a"})).text == "/srv/notes|a|0"
        assert (await tool.execute({"note": "b"})).text == "/srv/notes|b|0"
        assert tool.func is not None
        assert await tool.func(note="c") == "/srv/notes|c|0"
        assert server.calls[-1].arguments == {"path": "c", "root": "/srv/notes"}
        for name in ("mcp_fs_read", "fs:read", "fs:delete", "mcp_fs_delete"):
            assert isinstance((await mcp.call(name, {"path": "a"})).exception, UnknownToolError)
        assert mcp.registry.resolve("open") is tool
        with pytest.raises(UnknownToolError):
            mcp.registry.resolve("read")
        (exported,) = mcp.registry.to_openai()
        assert exported["function"]["name"] == "mcp_fs_open"
        assert "root" not in json.dumps(exported)


@pytest.mark.parametrize(
    "arguments",
    [
        {"note": "a", "root": "/"},
        {"path": "/etc/passwd", "note": "a"},
        {"path": "/etc/passwd"},
        {"note": "a", "Root": "/"},
        '{"note": "a", "root": "/"}',
    ],
)
@pytest.mark.parametrize("is_open", [True, False])
async def test_no_caller_changes_what_is_fixed(arguments: Any, is_open: bool) -> None:
    server = files()
    if is_open:
        given = next(iter(server._tools.values()))
        server.add(given.replace(input_schema={**given.input_schema, "additionalProperties": True}))
    spec = server.spec(tools={"read": FIND}, coerce_arguments=True)
    async with McpManager([spec], cache=False) as mcp:
        await mcp.wait_ready()
        result = await mcp.call("mcp_fs_open", arguments)
        for call in server.calls:
            assert {**call.arguments, "root": "/srv/notes", "path": "a"} == call.arguments
        if not server.calls:
            assert isinstance(result.exception, InvalidArgumentsError)


async def test_errors_speak_of_the_arguments_that_are_shown() -> None:
    async with McpManager([files().spec(tools=CHANGES)], cache=False) as mcp:
        await mcp.wait_ready()
        missing = await mcp.call("mcp_fs_open", {})
        assert "`note`" in str(missing.error)
        assert "path" not in str(missing.error)


async def test_values_come_from_variables_and_are_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    server = files()
    rules = ToolTransform(
        arguments={
            "root": ArgumentTransform(value="${NOTES_ROOT}/notes"),
            "limit": ArgumentTransform(default="${NOTES_LIMIT:-5}"),
        }
    )
    async with McpManager([server.spec(tools={"read": rules})], cache=False) as mcp:
        await mcp.wait_ready()
        denied = await mcp.call("mcp_fs_read", {"path": "a"})
        assert isinstance(denied.exception, CallDeniedError)
        assert "NOTES_ROOT" in str(denied.error)
        assert server.calls == []
        monkeypatch.setenv("NOTES_ROOT", "/n")
        assert (await mcp.call("mcp_fs_read", {"path": "a"})).text == "/n/notes|a|5"
        assert (await mcp.call("mcp_fs_read", {"path": "a", "limit": 7})).text == "/n/notes|a|7"
        monkeypatch.setenv("NOTES_LIMIT", "many")
        wrong = await mcp.call("mcp_fs_read", {"path": "a"})
        assert isinstance(wrong.exception, CallDeniedError)
        assert "does not fit" in str(wrong.error)


async def test_a_claim_is_the_callers_and_without_it_nothing_is_sent() -> None:
    server = files()
    rules = ToolTransform(arguments={"root": ArgumentTransform(value="/homes/${claim:sub}")})
    async with McpManager([server.spec(tools={"read": rules})], cache=False) as mcp:
        await mcp.wait_ready()
        denied = await mcp.call("mcp_fs_read", {"path": "a"})
        assert isinstance(denied.exception, CallDeniedError)
        assert "the claim `sub`" in str(denied.error)
        ada, bob = mcp.as_user("ada"), mcp.as_user("bob")
        assert (await ada.call("mcp_fs_read", {"path": "a"})).text == "/homes/ada|a|0"
        assert (await bob.call("mcp_fs_read", {"path": "a"})).text == "/homes/bob|a|0"


@pytest.mark.parametrize(
    "rule",
    [
        {"action": "deny", "tool": "read"},
        {"action": "deny", "tool": "open"},
        {"action": "deny", "tool": "read", "arguments": {"note": "secret"}},
        {"action": "deny", "tool": "open", "arguments": {"path": "secret"}},
        {"action": "deny", "arguments": {"root": "/srv/*"}},
    ],
)
async def test_a_rule_matches_either_name_and_either_form_of_an_argument(rule: dict[str, Any]) -> None:
    policy = [{"action": "allow", "tool": "open", "arguments": {"note": "never"}}, rule]
    server = files()
    async with McpManager([server.spec(tools=CHANGES)], cache=False, policy=policy) as mcp:
        await mcp.wait_ready()
        result = await mcp.call("mcp_fs_open", {"note": "secret"})
        assert isinstance(result.exception, CallDeniedError)
        assert server.calls == []


async def test_a_deny_of_the_servers_name_wins_over_an_allow_of_the_new_one() -> None:
    policy = [{"action": "allow", "tool": "open"}, {"action": "deny", "tool": "read"}]
    async with McpManager([files().spec(tools=CHANGES)], cache=False, policy=policy) as mcp:
        await mcp.wait_ready()
        assert isinstance((await mcp.call("mcp_fs_open", {"note": "a"})).exception, CallDeniedError)


@pytest.mark.parametrize("name", ["read", "open"])
async def test_an_allow_of_either_name_permits(name: str) -> None:
    policy = {"default": "deny", "rules": [{"action": "allow", "tool": name}]}
    async with McpManager([files().spec(tools=CHANGES)], cache=False, policy=policy) as mcp:
        await mcp.wait_ready()
        assert (await mcp.call("mcp_fs_open", {"note": "a"})).success


async def test_an_allow_holds_in_every_form_that_has_its_argument() -> None:
    server = ScriptedServer("fs")

    @server.tool
    def copy(source: str, target: str) -> str:
        """Copy a file."""
        return f"{source}>{target}"

    swapped = {"source": ArgumentTransform(name="target"), "target": ArgumentTransform(name="source")}
    policy = {"default": "deny", "rules": [{"action": "allow", "arguments": {"source": "/safe/*"}}]}
    spec = server.spec(tools={"copy": ToolTransform(arguments=swapped)})
    async with McpManager([spec], cache=False, policy=policy) as mcp:
        await mcp.wait_ready()
        one = await mcp.call("mcp_fs_copy", {"source": "/safe/a", "target": "/etc/b"})
        other = await mcp.call("mcp_fs_copy", {"source": "/etc/a", "target": "/safe/b"})
        assert [one.success, other.success] == [False, False]
        both = await mcp.call("mcp_fs_copy", {"source": "/safe/a", "target": "/safe/b"})
        assert both.text == "/safe/b>/safe/a"


async def test_a_person_is_asked_about_what_is_sent_without_the_values_of_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NOTES_TOKEN", "very-secret-token-1")
    asked: list[CallRequest] = []

    def approve(request: CallRequest) -> bool:
        asked.append(request)
        return True

    server = files()
    rules = ToolTransform(name="open", arguments={"root": ArgumentTransform(value="${NOTES_TOKEN}")})
    handlers, policy = Handlers(approval=approve), [{"action": "ask", "tool": "read"}]
    async with McpManager(
        [server.spec(tools={"read": rules})], cache=False, policy=policy, handlers=handlers
    ) as mcp:
        await mcp.wait_ready()
        assert (await mcp.call("mcp_fs_open", {"path": "a"})).success
    assert server.calls[-1].arguments["root"] == "very-secret-token-1"
    assert (asked[0].tool, asked[0].original_name) == ("mcp_fs_open", "read")
    assert asked[0].arguments == {"path": "a", "root": "${NOTES_TOKEN}"}


async def test_a_reload_changes_tools_without_a_restart() -> None:
    server = files()
    async with McpManager(Settings(servers=[server.spec()]), cache=False) as mcp:
        await mcp.wait_ready()
        held = mcp.registry.resolve("fs:read")
        await mcp.reload(Settings(servers=[server.spec(tools=CHANGES)]))
        assert [tool.name for tool in mcp.tools()] == ["mcp_fs_open"]
        assert (await mcp.call("mcp_fs_open", {"note": "a"})).text == "/srv/notes|a|0"
        assert isinstance((await held.execute({"path": "a"})).exception, UnknownToolError)
        other = {"read": FIND.replace(arguments={"root": ArgumentTransform(value="/other")})}
        await mcp.reload(Settings(servers=[server.spec(tools=other)]))
        assert (await mcp.call("mcp_fs_open", {"path": "a"})).text == "/other|a|0"
        await mcp.reload(Settings(servers=[server.spec()]))
        assert len(mcp.tools()) == 2
        assert server.connections == 1


async def test_a_call_that_waited_while_its_tool_was_changed_is_not_sent() -> None:
    server = files()
    spec = server.spec(max_concurrency=1)
    entered: list[object] = []

    async def reload_first(request: CallRequest) -> bool:
        entered.append(request)
        await mcp.reload(Settings(servers=[spec.replace(tools={"read": FIND.replace(name="read")})]))
        return True

    handlers = Handlers(approval=reload_first)
    policy = [{"action": "ask", "tool": "read"}]
    async with McpManager(Settings(servers=[spec]), cache=False, policy=policy, handlers=handlers) as mcp:
        await mcp.wait_ready()
        result = await mcp.call("mcp_fs_read", {"path": "a", "root": "/etc"})
        assert not result.success
        assert (len(entered), server.calls) == (1, [])


async def test_a_call_that_waited_for_its_turn_while_its_tool_was_changed_is_not_sent() -> None:
    server, running, ends = files(), asyncio.Event(), asyncio.Event()

    @server.tool
    async def hold() -> str:
        """Take the only turn."""
        running.set()
        await ends.wait()
        return "held"

    spec = server.spec(max_concurrency=1)
    async with McpManager(Settings(servers=[spec]), cache=False) as mcp, asyncio.timeout(20):
        await mcp.wait_ready()
        first = asyncio.create_task(mcp.call("mcp_fs_hold"))
        await running.wait()
        events = mcp.events()
        second = asyncio.create_task(mcp.call("mcp_fs_read", {"path": "a", "root": "/etc"}))
        while not isinstance(await anext(events), CallStarted):
            pass
        await mcp.reload(Settings(servers=[spec.replace(tools={"read": FIND.replace(name="read")})]))
        ends.set()
        assert (await first).text == "held"
        result = await second
        assert isinstance(result.exception, CallDeniedError)
        assert "was changed in the configuration during the call" in str(result.error)
        assert [call.tool for call in server.calls] == ["hold"]


async def test_tools_of_a_server_that_starts_again_are_changed_before_it_lists_them() -> None:
    starts: list[asyncio.Event] = []

    async def connect() -> None:
        if starts:
            starts[0].set()
            await starts[1].wait()

    server = files()
    server._on_connect = connect
    before = {"read": ToolTransform(arguments={"path": ArgumentTransform(name="file")})}
    spec = server.spec(replacement="stop-first", tools=before)
    async with McpManager(Settings(servers=[spec]), cache=False) as mcp, asyncio.timeout(20):
        await mcp.wait_ready()
        starts += [asyncio.Event(), asyncio.Event()]
        reload = asyncio.create_task(
            mcp.reload(Settings(servers=[spec.replace(tools=CHANGES, protocol="legacy")]))
        )
        await starts[0].wait()
        assert [tool.own_name for tool in mcp.tools()] == ["open"]
        call = asyncio.create_task(mcp.call("mcp_fs_open", {"note": "a"}))
        starts[1].set()
        await reload
        assert (await call).text == "/srv/notes|a|0"


async def test_a_second_start_shows_the_changed_tools_before_any_connection(
    server: Callable[..., ServerSpec],
) -> None:
    changes = {
        "echo": ToolTransform(name="say", arguments={"text": ArgumentTransform(name="words")}),
        "bare": ToolTransform(hidden=True),
    }
    spec = server("notes", "plain.py", tools=changes)
    async with McpManager([spec]) as mcp:
        await mcp.wait_ready()
        first = {tool.name: tool for tool in mcp.tools()}
        assert "mcp_notes_say" in first
        assert not {"mcp_notes_echo", "mcp_notes_bare"} & first.keys()
    async with McpManager([spec.replace(lazy=True)]) as mcp:
        known = {tool.name: tool for tool in mcp.tools()}
        assert known == first
        assert mcp.status()["notes"].state == "idle"
    async with McpManager([spec]) as mcp:
        known = mcp.registry.resolve("notes:say")
        await mcp.wait_ready()
        # The listing is recognised by its hash, and the tool stays the same object.
        assert mcp.registry.resolve("notes:say") is known
        assert "hello" in (await mcp.call("notes:say", {"words": "hello"})).text
    async with McpManager([spec.replace(tools={})]) as mcp:
        assert "mcp_notes_echo" in {tool.name for tool in mcp.tools()}


@pytest.mark.parametrize(
    ("rules", "is_offered"),
    [
        (ToolTransform(name="x", arguments={"nowhere": ArgumentTransform(name="y")}), True),
        (ToolTransform(arguments={"nowhere": ArgumentTransform(value=1)}), False),
        (ToolTransform(arguments={"limit": ArgumentTransform(value="many")}), False),
        (ToolTransform(arguments={"path": ArgumentTransform(hidden=True)}), False),
        (ToolTransform(arguments={"path": ArgumentTransform(name="root")}), True),
    ],
)
async def test_what_cannot_be_changed_is_said_and_never_loses_its_guard(
    rules: ToolTransform, is_offered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with McpManager([files().spec(tools={"read": rules})], cache=False) as mcp:
        await mcp.wait_ready()
        names = [tool.name for tool in mcp.tools()]
        assert names == ["mcp_fs_delete", "mcp_fs_read"] if is_offered else ["mcp_fs_delete"]
        if is_offered:
            assert (await mcp.call("mcp_fs_read", {"path": "a"})).text == "/|a|0"
    outcome = "it is offered unchanged" if is_offered else "it is not offered"
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len([line for line in warned if outcome in line]) == 1


async def test_a_misspelt_tool_is_named_with_the_likely_one(caplog: pytest.LogCaptureFixture) -> None:
    async with McpManager([files().spec(tools={"raed": ToolTransform(hidden=True)})], cache=False) as mcp:
        await mcp.wait_ready()
    assert "it lists no tool `raed`" in caplog.text
    assert "did you mean `read`?" in caplog.text


async def test_pins_are_of_the_servers_own_definition() -> None:
    server = files()
    spec = server.spec(tools=CHANGES, trust="strict")
    async with McpManager(Settings(servers=[spec]), cache=False) as mcp, asyncio.timeout(20):
        await mcp.wait_ready()
        assert (await mcp.call("mcp_fs_open", {"note": "a"})).success
        other = spec.replace(tools={"read": FIND.replace(description="Other words.")})
        await mcp.reload(Settings(servers=[other]))
        assert (await mcp.call("mcp_fs_open", {"note": "a"})).success
        events = mcp.events()

        @server.tool
        def read(path: str, root: str = "/", limit: int = 0, exfiltrate: bool = False) -> str:
            """Read a file of the server."""
            return f"{path}{root}{limit}{exfiltrate}"

        while not isinstance(event := await anext(events), DefinitionsChanged):
            pass
        assert list(event.withheld) == ["read"]
        withheld = await mcp.call("mcp_fs_open", {"note": "a"})
        assert isinstance(withheld.exception, CallDeniedError)
        assert withheld.exception.rule == "trust=strict"


async def test_the_doctor_says_which_changes_have_no_effect(server: Callable[..., ServerSpec]) -> None:
    rules = {
        "echo": ToolTransform(arguments={"nowhere": ArgumentTransform(value=1)}),
        "ehco": ToolTransform(hidden=True),
        "bare": ToolTransform(hidden=True),
    }
    found = await diagnose(server("plain", "plain.py", tools=rules))
    (stage,) = [one for one in found.stages if one.name == "schemas"]
    assert stage.outcome == "warning"
    assert "tool `echo` cannot be changed as `tools.echo` says, so it is not offered" in stage.detail
    assert "it lists no tool `ehco`, which `tools.ehco` would change; did you mean `echo`?" in stage.detail
    assert "bare" not in stage.detail


async def test_a_fallback_answers_for_the_tool_of_the_shown_name() -> None:
    other = ScriptedServer("other")

    @other.tool
    def open(note: str) -> str:  # noqa: A001 -- the name of the tool
        """Open a note."""
        return f"other {note}"

    first = files()
    specs = [first.spec(tools=CHANGES, fallback="other"), other.spec()]
    async with McpManager(specs, cache=False) as mcp:
        await mcp.wait_ready()
        first.stop()
        assert "other a" in (await mcp.call("mcp_fs_open", {"note": "a"})).text


async def test_a_rule_about_tools_of_a_view_covers_both_names() -> None:
    async with McpManager([files().spec(tools=CHANGES)], cache=False) as mcp:
        await mcp.wait_ready()
        assert [tool.name for tool in mcp.registry.view(allow=["fs:open"])] == ["mcp_fs_open"]
        assert list(mcp.registry.view(allow=["fs:read"])) == []
        assert list(mcp.registry.view(deny=["fs:read"])) == []
        assert list(mcp.registry.view(deny=["fs:open"])) == []


async def test_the_gateway_shows_and_calls_changed_tools_alone() -> None:
    server = files()
    app = asgi_app(McpManager([server.spec(tools=CHANGES)], cache=False), token=TOKEN)
    async with client_of(app) as client:
        for path, name in (("/mcp", "mcp_fs_open"), ("/mcp/fs", "open")):
            (tool,) = (await post(client, "tools/list", path=path)).json()["result"]["tools"]
            assert (tool["name"], tool["description"]) == (name, "Open a note.")
            assert list(tool["inputSchema"]["properties"]) == ["note", "limit"]
            given = {"name": name, "arguments": {"note": "a"}}
            called = (await post(client, "tools/call", given, path=path)).json()
            assert "/srv/notes|a|0" in json.dumps(called["result"]["content"])
        for name in ("read", "delete"):
            refused = (
                await post(client, "tools/call", {"name": name, "arguments": {}}, path="/mcp/fs")
            ).json()
            assert "Unknown tool" in refused["error"]["message"]


async def test_a_client_of_the_gateway_has_the_claims_of_its_token_alone() -> None:
    issuer, server = Issuer(), files()
    root = ArgumentTransform(value="/${claim:tenant}/${claim:sub}")
    rules = {
        "read": ToolTransform(arguments={"root": root, "limit": ArgumentTransform(value="${claim:most}")})
    }
    async with issuer.running():
        verifier = JwtVerifier(issuer.url, audience=AUDIENCE)
        app = asgi_app(McpManager([server.spec(tools=rules)], cache=False), verifier=verifier)
        async with client_of(app) as client:

            async def read(**claims: Any) -> str:
                headers = {"Authorization": f"Bearer {issuer.token(**claims)}"}
                given = {"name": "mcp_fs_read", "arguments": {"path": "a"}}
                return (await post(client, "tools/call", given, headers=headers)).text

            found = await asyncio.gather(
                *(read(sub=name, tenant=f"t{number}", most=number) for number, name in enumerate("abcdef"))
            )
            # 1 and true are equal in Python, and not in JSON.
            assert "|a|1" in await read(sub="a", tenant="t", most=1)
            for number, name in enumerate("abcdef"):
                assert f"/t{number}/{name}|a|{number}" in found[number]
            count = len(server.calls)
            denied = await read(sub="a", most=1)
            assert "the claim `tenant`" in denied
            assert "does not fit" in await read(sub="a", tenant="t", most=True)
            wrong = await read(sub="a", tenant="t", most="all")
            assert "does not fit" in wrong
            assert "limit" not in wrong + denied
            assert "root" not in wrong + denied
            assert len(server.calls) == count


async def test_a_user_of_the_console_has_the_claims_of_the_token_too() -> None:
    issuer, server = Issuer(), files()
    rules = {
        "read": ToolTransform(arguments={"root": ArgumentTransform(value="/${claim:team}/${claim:sub}")})
    }
    async with issuer.running():
        verifier = JwtVerifier(issuer.url, audience=AUDIENCE, user_claim="email")
        mcp = McpManager([server.spec(tools=rules)], cache=False)
        app = asgi_app(mcp, verifier=verifier)
        app.console = ConsoleApp(mcp, app.guard, entrance=app, prefix="/console")
        async with client_of(app) as client:
            client.base_url = httpx2.URL("http://127.0.0.1/console/")
            page = Visitor(app.console, client)
            token = issuer.token(sub="no. 7", email="ada@example.com", team="red")
            assert (await page.enter(token)).status_code == 200
            await mcp.as_user("ada@example.com").wait_ready()
            result = (await page.call("mcp_fs_read", '{"path": "a"}'))[-1]["result"]
            assert result["text"].startswith("/red/no. 7|a|"), result


async def test_the_person_at_a_client_of_the_gateway_sees_nothing_that_is_kept_from_it() -> None:
    server, questions = files(), Questions()
    policy = [{"action": "ask", "tool": "read"}]
    rules = {"read": FIND.replace(name="open")}
    manager = McpManager(
        [server.spec(tools=rules)], cache=False, policy=policy, handlers=questions.handlers()
    )
    app = asgi_app(manager, token=TOKEN, questions=questions)
    async with client_of(app) as client:
        params = {"name": "mcp_fs_open", "arguments": {"note": "a"}}
        form = {"elicitation": {"form": {}}}
        asked = (await post(client, "tools/call", params, capabilities=form)).json()["result"]
        assert asked["resultType"] == "input_required"
        ((key, question),) = asked["inputRequests"].items()
        message = question["params"]["message"]
        assert "call the tool `open`" in message
        assert '"note": "a"' in message
        assert "/srv/notes" not in json.dumps(asked)
        assert "path" not in message
        answer = {"action": "accept", "content": {"allow": True}}
        again = {**params, "inputResponses": {key: answer}, "requestState": asked["requestState"]}
        done = (await post(client, "tools/call", again, capabilities=form)).json()["result"]
        assert "/srv/notes|a|0" in json.dumps(done["content"])


FILE = """
[mcp.servers.notes]
command = "{python}"
args = ["{server}"]

[mcp.servers.notes.tools.echo]
name = "say"
arguments.text = {{ name = "words", description = "What to say." }}

[mcp.servers.notes.tools.bare]
hidden = true
"""


def test_commands_know_changed_tools_alone(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(FILE.format(python=sys.executable, server=SERVERS / "plain.py"))
    called = dragoman("--config", str(file), "--json", "call", "notes", "say", "words=hello")
    assert "hello" in json.loads(called.stdout)["text"]
    listed = dragoman("--config", str(file), "--json", "tools", "--schema")
    tools = {tool["tool"]: tool for tool in json.loads(listed.stdout)["servers"][0]["tools"]}
    assert tools["say"]["input_schema"]["properties"]["words"]["description"] == "What to say."
    assert not {"echo", "bare"} & tools.keys()
    for words in (["notes", "echo", "text=x"], ["notes:echo", "text=x"]):
        wrong = dragoman("--config", str(file), "call", *words)
        assert wrong.returncode != 0
        assert "unknown tool `echo`" in wrong.stderr
    dragoman("--config", str(file), "stubs", str(tmp_path / "stubs"))
    (stub,) = (tmp_path / "stubs").iterdir()
    assert "def say(words: str)" in stub.read_text()
    assert "def echo" not in stub.read_text()


def configure(root: Path) -> None:
    """Have a server of the user's, and a project that changes it and has one of its own."""
    plain = {"command": sys.executable, "args": [str(SERVERS / "plain.py")]}
    fixed = {"echo": {"arguments": {"text": {"value": "fixed"}}}}
    looser = {"echo": {"name": "shout", "arguments": {"text": {"description": "Say anything."}}}}
    mine = Path(os.environ["XDG_CONFIG_HOME"], "dragoman", "mcp.json")
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text(json.dumps({"mcpServers": {"plain": {**plain, "tools": fixed}}}))
    theirs = {"plain": {**plain, "tools": looser}, "own": {**plain, "tools": looser}}
    (root / "mcp.json").write_text(json.dumps({"mcpServers": theirs}))


@pytest.mark.parametrize("combine", ["replace", "fields"])
async def test_a_project_that_is_not_approved_changes_no_tool_of_the_users(
    combine: Any, tmp_path: Path
) -> None:
    configure(tmp_path)
    profile = profile_named("dragoman").replace(combine=combine)
    async with McpManager.from_config(profile, root=tmp_path, cache=False) as mcp:
        await mcp.wait_ready()
        assert (await mcp.call("plain:echo", {})).text == "fixed"
        assert not [tool for tool in mcp.tools() if "shout" in tool.name or tool.server == "own"]
    async with McpManager.from_config(profile, root=tmp_path, trust_project=True, cache=False) as mcp:
        await mcp.wait_ready()
        assert (await mcp.call("plain:shout", {"text": "hi"})).text == "hi"
