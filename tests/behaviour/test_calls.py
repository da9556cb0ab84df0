"""Calling tools through the manager and through the registry, against a real child process."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.test_gateway_parity import call, gateway

from dragoman import (
    CallTimeoutError,
    InvalidArgumentsError,
    McpManager,
    ProtocolError,
    ServerSpec,
    Settings,
    ToolDef,
    ToolExecutionError,
    ToolFailedError,
    ToolRegistry,
    ToolUnavailableError,
    UnknownToolError,
    tool,
)
from dragoman.agent.engine import AgentEngine
from dragoman.agent.providers import Say, ScriptedProvider
from dragoman.call import CallContext, run
from dragoman.errors import ConnectionLostError, InvalidResultError
from dragoman.events import CallFinished, CallStarted
from dragoman.testing import InstantClock, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    Make = Callable[..., ServerSpec]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "excel-5.1",
        "excel-5.2",
        "excel-5.3",
        "excel-5.4",
        "excel-5.5",
        "kode-call.send",
        "kode-call.error",
        "kode-call.async",
        "otter-p0.methods",
        "otter-p0.timeout",
        "otter-call.failed",
        "legal-call.invoke",
        "legal-call.timeout",
        "legal-error.schema",
        "rrclaw-result.error",
        "rrclaw-result.failure",
    ),
]


@pytest.fixture
async def mcp(server: Make) -> AsyncIterator[McpManager]:
    """A manager with one plain server, `fs_1`, ready."""
    async with McpManager([server("fs_1", "plain.py")]) as manager:
        with anyio.fail_after(20):
            assert await manager.wait_ready()
        yield manager


@pytest.mark.requirement("excel-3.2")
@pytest.mark.requirement("legal-discovery.schema")
@pytest.mark.requirement("kode-discovery.metadata")
@pytest.mark.requirement("excel-3.3")
@pytest.mark.requirement("rrclaw-name.prefix")
async def test_listed_tool_becomes_a_definition_with_nothing_lost(mcp: McpManager) -> None:
    echo = mcp.registry.get("mcp_fs_1_echo")
    assert echo == ToolDef(
        name="mcp_fs_1_echo",
        description="Does echo.",
        input_schema={
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        },
        server="fs_1",
        original_name="echo",
        title="Echo",
        annotations={"readOnlyHint": True},
    )
    add = mcp.registry.get("mcp_fs_1_add")
    assert add is not None
    assert add.output_schema == {
        "type": "object",
        "properties": {"sum": {"type": "number"}},
        "required": ["sum"],
    }


@pytest.mark.requirement("rrclaw-description.default")
async def test_tool_without_a_description_gets_one(mcp: McpManager) -> None:
    bare = mcp.registry.get("mcp_fs_1_bare")
    assert bare is not None
    assert bare.description == "MCP tool"


@pytest.mark.requirement("excel-3.4")
@pytest.mark.requirement("otter-schema")
async def test_tool_whose_schema_is_no_json_schema_is_skipped_with_a_warning(
    server: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("plain", "plain.py")]) as mcp:
            await mcp.wait_ready()
            assert "mcp_plain_bad-schema" not in mcp.registry
            assert "mcp_plain_echo" in mcp.registry
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("bad-schema" in line and "not valid JSON Schema" in line for line in warnings)


@pytest.mark.requirement("excel-5.1")
@pytest.mark.requirement("excel-5.2")
@pytest.mark.requirement("excel-5.3")
@pytest.mark.requirement("otter-p0.stdio")
@pytest.mark.requirement("legal-client.stdio")
@pytest.mark.requirement("legal-config.many")
async def test_registry_calls_the_right_server_by_its_own_name_and_gives_a_string(server: Make) -> None:
    # Both names could be cut in two ways; only a table knows which is meant.
    specs = [server("a", "plain.py"), server("a_b", "plain.py")]
    with anyio.fail_after(20):
        async with McpManager(specs) as mcp:
            await mcp.wait_ready()
            for name in ("a", "a_b"):
                pid = mcp.status()[name].pid
                assert f'"pid": {pid}' in await mcp.registry.call(f"mcp_{name}_environment")
            assert await mcp.registry.call("mcp_a_b_echo", {"text": "x"}) == "x"


@pytest.mark.requirement("kode-registry.naming")
@pytest.mark.requirement("kode-registry.register")
async def test_naming_scheme_of_the_settings_and_of_one_server(server: Make) -> None:
    specs = [server("kode", "paging.py", "1"), server("own", "paging.py", "1", naming="{tool}@{server}")]
    with anyio.fail_after(20):
        async with McpManager(Settings(servers=specs, naming="{server}:{tool}")) as mcp:
            await mcp.wait_ready()
            assert [tool.name for tool in mcp.tools()] == ["kode:t0", "t0@own"]
            assert (await mcp.call("kode:t0")).success


@pytest.mark.requirement("rrclaw-manager.tools")
@pytest.mark.requirement("rrclaw-config.allowed")
async def test_only_allowed_tools_are_exposed_and_deny_wins(server: Make) -> None:
    specs = [
        server("one", "plain.py", allowed_tools=["e*", "add"], denied_tools=["exit", "env*"]),
        server("none", "plain.py", allowed_tools=[]),
    ]
    with anyio.fail_after(20):
        async with McpManager(specs) as mcp:
            await mcp.wait_ready()
            add, echo = mcp.tools()
            assert (add.name, echo.name) == ("mcp_one_add", "mcp_one_echo")
            assert (await add.execute({"a": 2, "b": 3})).structured == {"sum": 5}
            assert (await echo.execute({"text": "x"})).text == "x"
            hidden = await mcp.call("mcp_one_exit")
            assert isinstance(hidden.exception, UnknownToolError)


@pytest.mark.requirement("excel-4.2")
@pytest.mark.requirement("otter-p0.toolset")
async def test_built_in_and_remote_tools_share_one_schema_and_one_call(server: Make) -> None:
    registry = ToolRegistry()
    registry.register(
        ToolDef(
            name="greet",
            description="Greet.",
            input_schema={"type": "object", "properties": {}},
            func=lambda name: f"hello {name}",
            source="builtin",
        )
    )
    with anyio.fail_after(20):
        async with McpManager([server("pages", "paging.py", "2")], registry=registry) as mcp:
            await mcp.wait_ready()
            assert [tool["function"]["name"] for tool in registry.to_openai_schema()] == [
                "greet",
                "mcp_pages_t0",
                "mcp_pages_t1",
            ]
            assert [tool.name for tool in mcp.tools()] == ["mcp_pages_t0", "mcp_pages_t1"]
            assert (await mcp.call("greet", {"name": "Ada"})).text == "hello Ada"
            assert await registry.call("mcp_pages_t0") == "ok"
        assert [tool.name for tool in registry] == ["greet"]


@pytest.mark.requirement("excel-4.3")
async def test_name_that_is_taken_keeps_its_tool_and_the_warning_names_both(
    server: Make, caplog: pytest.LogCaptureFixture
) -> None:
    registry = ToolRegistry()
    mine = ToolDef(
        name="mcp_pages_t0", description="", input_schema={}, func=lambda: "mine", source="builtin"
    )
    registry.register(mine)
    with anyio.fail_after(20):
        async with McpManager([server("pages", "paging.py", "2")], registry=registry) as mcp:
            await mcp.wait_ready()
            assert await registry.call("mcp_pages_t0") == "mine"
            assert mcp.status()["pages"].tools == 1
    assert "tool `t0` of server `pages` is skipped" in caplog.text
    assert "taken by built-in tool `mcp_pages_t0`" in caplog.text


@pytest.mark.requirement("rrclaw-result.text")
@pytest.mark.requirement("otter-p1.images")
async def test_texts_are_joined_and_an_image_leaves_a_description(mcp: McpManager) -> None:
    assert (await mcp.call("mcp_fs_1_pair")).text == "first\nsecond"
    image = await mcp.call("mcp_fs_1_image")
    assert image.text.startswith("[image: image/png, 64x32, ")
    assert image.parts[0].data.startswith(b"\x89PNG")
    assert image.parts[0].text == image.text


async def test_structured_content_is_kept_and_not_shown_twice(mcp: McpManager) -> None:
    result = await mcp.call("mcp_fs_1_add", {"a": 2, "b": 3})
    assert result.structured == {"sum": 5}
    assert result.text == '{"sum": 5}'


@pytest.mark.requirement("legal-law.attribution")
async def test_result_says_where_it_comes_from(mcp: McpManager) -> None:
    result = await mcp.call("mcp_fs_1_law")
    origin = result.provenance
    assert origin is not None
    assert (origin.server, origin.tool, origin.server_version) == ("fs_1", "law", "7.1")
    assert [(source.title, source.locator, source.updated) for source in origin.sources] == [
        ("Sample Act", "Art. 4", "2026-01-30")
    ]
    assert "Sources:" not in result.text


@pytest.mark.requirement("rrclaw-result.error")
async def test_error_of_the_tool_is_a_result(mcp: McpManager) -> None:
    result = await mcp.call("mcp_fs_1_fail")
    assert (result.success, result.output, result.error) == (False, "", "the disk is full")
    assert isinstance(result.exception, ToolFailedError)
    assert result.exception.call_id == result.call_id
    with pytest.raises(ToolFailedError, match="the disk is full"):
        result.raise_for_error()


@pytest.mark.requirement("excel-5.5")
async def test_registry_raises_the_tools_error(mcp: McpManager) -> None:
    with pytest.raises(ToolExecutionError, match="the disk is full") as caught:
        await mcp.registry.call("mcp_fs_1_fail")
    assert (caught.value.tool, caught.value.server) == ("mcp_fs_1_fail", "fs_1")


async def test_refusal_of_the_server_keeps_its_code_and_data(mcp: McpManager) -> None:
    error = (await mcp.call("mcp_fs_1_refuse")).exception
    assert isinstance(error, ProtocolError)
    assert (error.rpc_code, error.data, error.server) == (-32602, {"why": "because"}, "fs_1")
    assert "no such thing" in str(error)


@pytest.mark.requirement("kode-call.error")
async def test_details_of_a_refusal_are_in_the_text_bounded_and_masked() -> None:
    details: dict[str, Any] = {
        "field": "path",
        "given": "y" * 3000,
        "api_key": "sk-live-0123456789abcdef0123",
        "password": "hunter two",
        "rows": ["x" * 300] * 90,
    }
    refusing = ScriptedServer("files")

    def refuse() -> str:
        msg = "invalid path"
        raise ProtocolError(msg, rpc_code=-32602, data=details)

    refusing.add(ToolDef(name="read", description="", input_schema={"type": "object"}, func=refuse))
    model = ScriptedProvider([Say(calls=[("mcp_files_read", {})]), "done"])
    async with McpManager([refusing.spec()], cache=False) as mcp:
        assert await mcp.wait_ready()
        for _ in range(2):
            result = await mcp.call("mcp_files_read")
            text = result.error or ""
            assert "invalid path (-32602); details: " in text
            assert '"field": "path"' in text
            assert "yyy… (3000 characters)" in text
            assert "sk-live-0123456789abcdef0123" not in text
            assert "hunter two" not in text
            assert len(text) < 700
            assert isinstance(result.exception, ProtocolError)
        async with gateway(mcp) as client:
            refusal = await call(client, "mcp_files_read")
            assert refusal["message"].startswith("invalid path; details: ")
            assert '"field": "path"' in refusal["message"]
            assert "sk-live-0123456789abcdef0123" not in refusal["message"]
            assert "hunter two" not in refusal["message"]
            assert len(refusal["message"]) < 700
        async with AgentEngine(model, mcp) as agent:
            await agent.run("Read it.")
    (answer,) = (message for message in model.requests[-1].messages if message.role == "tool")
    assert '"field": "path"' in answer.text


async def test_result_that_breaks_its_output_schema_is_an_error(mcp: McpManager) -> None:
    result = await mcp.call("mcp_fs_1_wrong-output")
    assert isinstance(result.exception, InvalidResultError)
    assert "the required key `sum` is missing" in (result.error or "")
    # Nothing of the answer is lost.
    assert (result.success, result.structured) == (False, {"other": 1})
    assert result.text == '{}\n{"other": 1}'
    assert [part.kind for part in result.parts] == ["text", "structured"]
    assert result.provenance is not None


@pytest.mark.requirement("excel-5.4")
@pytest.mark.requirement("legal-call.timeout")
async def test_call_past_its_deadline_ends_and_the_server_is_told(mcp: McpManager) -> None:
    with anyio.fail_after(10):
        result = await mcp.call("mcp_fs_1_slow", timeout=0.1)
        assert isinstance(result.exception, CallTimeoutError)
        assert isinstance(result.exception, TimeoutError)
        assert result.exception.seconds == 0.1
        assert "did not answer within 0.1 s" in (result.error or "")
        # This tool answers only after a cancellation has reached the server.
        assert (await mcp.call("mcp_fs_1_cancelled")).text == "1"


@pytest.mark.requirement("excel-5.4")
@pytest.mark.requirement("legal-call.timeout")
@pytest.mark.parametrize(("timeouts", "seconds"), [({}, 30), ({"call": 75}, 75)])
def test_deadline_is_thirty_seconds_unless_the_spec_says_otherwise(
    timeouts: dict[str, float], seconds: float
) -> None:
    slow = ScriptedServer("slow")

    @slow.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    async def main() -> None:
        async with McpManager([slow.spec(timeouts=timeouts)], cache=False) as mcp:
            await mcp.wait_ready()
            began = clock.elapsed
            error = (await mcp.call("mcp_slow_wait")).exception
            assert isinstance(error, CallTimeoutError)
            assert error.seconds == seconds
            assert seconds <= clock.elapsed - began < seconds + 5
        assert slow.calls[0].cancelled

    clock = InstantClock()
    clock.run(main())


async def test_cancelled_caller_is_cancelled_and_the_server_is_told(mcp: McpManager) -> None:
    with anyio.fail_after(10):
        events = mcp.events()
        call = asyncio.ensure_future(mcp.call("mcp_fs_1_slow"))
        assert isinstance(await anext(events), CallStarted)
        assert (await mcp.call("mcp_fs_1_pair")).success
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await mcp.call("mcp_fs_1_cancelled")).text == "1"


@pytest.mark.requirement("kode-call.async")
async def test_slow_call_blocks_no_other(mcp: McpManager) -> None:
    with anyio.fail_after(10):
        slow, *more = [asyncio.ensure_future(mcp.call("mcp_fs_1_slow")) for _ in range(20)]
        texts = [str(number) for number in range(50)]
        results = await asyncio.gather(*(mcp.call("mcp_fs_1_echo", {"text": text}) for text in texts))
        assert [result.text for result in results] == texts
        assert not any(call.done() for call in (slow, *more))
        await mcp.shutdown()
        for call in (slow, *more):
            assert isinstance((await call).exception, ToolUnavailableError)


@pytest.mark.requirement("rrclaw-result.failure")
async def test_lost_connection_is_a_result_that_says_the_call_may_have_run(mcp: McpManager) -> None:
    with anyio.fail_after(10):
        result = await mcp.call("mcp_fs_1_exit")
    assert not result.success
    assert isinstance(result.exception, ToolUnavailableError)
    assert result.exception.may_have_run
    assert isinstance(result.exception.__cause__, ConnectionLostError)


async def test_bytes_that_are_no_text_do_not_deafen_the_session(mcp: McpManager) -> None:
    with anyio.fail_after(10):
        assert (await mcp.call("mcp_fs_1_bad-bytes")).text == "still here"
        assert (await mcp.call("mcp_fs_1_echo", {"text": "and here"})).text == "and here"


async def test_an_answer_with_an_infinite_number_fails_its_call_and_no_other(mcp: McpManager) -> None:
    with anyio.fail_after(10):
        # The server's JSON library writes the sum as `Infinity`.
        result = await mcp.call("mcp_fs_1_add", {"a": 1e308, "b": 1e308})
        assert "NaN and infinities are not numbers in JSON" in result.text
        assert (await mcp.call("mcp_fs_1_add", {"a": 1e308, "b": 1})).structured == {"sum": 1e308}


async def test_a_number_that_is_not_finite_is_an_invalid_argument_of_every_tool(
    mcp: McpManager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    infinite = json.loads('{"x": 1e999}')
    for arguments in (
        infinite,
        {"x": math.nan},
        {"x": {"y": [1, {"z": -math.inf}]}},
        # Servers in Python end at this one, and Python itself does not write it into a log.
        {"x": {10**5000: -(10**5000)}},
    ):
        result = await mcp.call("mcp_fs_1_bare", arguments)
        assert isinstance(result.exception, InvalidArgumentsError)
        assert "(nothing was sent)" in result.text
    assert (await mcp.call("mcp_fs_1_bare", {"x": "NaN"})).success


async def test_unknown_tool_is_a_result_with_suggestions(mcp: McpManager) -> None:
    error = (await mcp.call("mcp_fs_1_ecco")).exception
    assert isinstance(error, UnknownToolError)
    assert "mcp_fs_1_echo" in error.suggestions
    with pytest.raises(UnknownToolError):
        await mcp.registry.call("nothing like it")


async def test_arguments_that_are_no_object_are_refused_before_sending(mcp: McpManager) -> None:
    result = await mcp.call("mcp_fs_1_echo", ["text"])  # type: ignore[arg-type]
    assert isinstance(result.exception, InvalidArgumentsError)


@pytest.mark.requirement("legal-error.schema")
async def test_arguments_that_do_not_fit_are_refused_before_sending_and_the_message_says_why(
    mcp: McpManager,
) -> None:
    result = await mcp.call("mcp_fs_1_echo", {"txet": "x", "n": 1})
    error = result.exception
    assert isinstance(error, InvalidArgumentsError)
    assert sorted(error.problems) == [
        "the required key `text` (a string) is missing; is `txet` a typo?",
        "unknown key `n`; known keys: `text`",
        "unknown key `txet`; did you mean `text`?",
    ]
    assert all(problem in str(error) for problem in error.problems)
    assert "nothing was sent" in result.text
    # The server was not even asked: there, this would be a failure of another kind.
    assert isinstance((await mcp.call("mcp_fs_1_echo")).exception, InvalidArgumentsError)
    assert (await mcp.call("mcp_fs_1_echo", {"text": "x"})).text == "x"


async def test_arguments_are_checked_while_the_server_cannot_be_reached() -> None:
    registry = ToolRegistry()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    registry.register(
        ToolDef(name="x", description="", input_schema=schema, server="gone", original_name="x")
    )
    context = CallContext(registry=registry, supervisors={}, publish=lambda event: None)
    assert isinstance((await run(context, "x", {"n": "1"})).exception, InvalidArgumentsError)
    assert isinstance((await run(context, "x", {"n": 1})).exception, ToolUnavailableError)


@pytest.mark.requirement("excel-5.4", "legal-call.timeout")
async def test_the_shorter_time_limit_ends_first_even_below_a_second(mcp: McpManager) -> None:
    longer = asyncio.create_task(mcp.call("mcp_fs_1_slow", timeout=0.9))
    shorter = asyncio.create_task(mcp.call("mcp_fs_1_slow", timeout=0.2))
    done, _ = await asyncio.wait({longer, shorter}, return_when=asyncio.FIRST_COMPLETED)
    assert done == {shorter}
    assert "did not answer within 0.2 s" in (await shorter).text
    assert isinstance((await longer).exception, CallTimeoutError)


@pytest.mark.requirement("excel-7.3")
@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("fail", "the disk is full"),
        ("refuse", "no such thing"),
        ("slow", "did not answer within 0.3 s"),
        ("echo", "the required key `text` (a string) is missing"),
        ("exit", "lost: the process ended with code 9"),
    ],
)
async def test_failed_call_is_logged_as_an_error_with_server_tool_and_reason(
    server: Make, caplog: pytest.LogCaptureFixture, tool: str, reason: str
) -> None:
    with anyio.fail_after(20):
        async with McpManager([server("fs_1", "plain.py")]) as mcp:
            assert await mcp.wait_ready()
            caplog.clear()
            result = await mcp.call(f"mcp_fs_1_{tool}", timeout=0.3 if tool == "slow" else None)
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    (line,) = [one for one in logged if result.call_id in one]
    assert line.startswith("fs_1: call ")
    assert f"`mcp_fs_1_{tool}` failed: " in line
    assert reason in line


@pytest.mark.requirement("excel-7.2")
async def test_call_is_logged_with_its_arguments_shortened_and_masked(
    mcp: McpManager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "dragoman")
    arguments = {"path": "说明.md", "api_key": "s3cr3t", "passwords": ["hunter2"], "body": "x" * 5000}
    await mcp.call("mcp_fs_1_pair", arguments)
    (record,) = [record for record in caplog.records if record.name == "dragoman"]
    line = record.getMessage()
    assert record.levelname == "DEBUG"
    assert "mcp_fs_1_pair" in line
    assert "说明.md" in line
    assert "s3cr3t" not in line
    assert "hunter2" not in line
    assert len(line) < 400


@pytest.mark.requirement("excel-7.2")
async def test_call_by_an_alias_is_logged_by_the_name_of_its_tool(caplog: pytest.LogCaptureFixture) -> None:
    law = ScriptedServer("law")

    @law.tool
    def find(text: str) -> str:
        return text

    settings = Settings(servers=[law.spec()], naming="{server}:{tool}")
    async with McpManager(settings, cache=False) as mcp:
        await mcp.wait_ready()
        caplog.set_level("DEBUG", "dragoman")
        assert (await mcp.call("law__find", {"text": "a"})).text == "a"
    assert 'law: calling `law:find` with {"text": "a"}' in caplog.messages


async def test_calls_are_announced_and_reported(mcp: McpManager) -> None:
    events = mcp.events()
    result = await mcp.call("mcp_fs_1_fail")
    started, finished = await anext(events), await anext(events)
    assert started == CallStarted(server="fs_1", tool="mcp_fs_1_fail", call_id=result.call_id)
    assert finished == CallFinished(
        server="fs_1",
        tool="mcp_fs_1_fail",
        call_id=result.call_id,
        success=False,
        duration=result.duration,
        error_code="tool.failed",
    )


@pytest.mark.requirement("otter-p0.methods", "kode-call.send", "kode-discovery.list")
async def test_names_and_arguments_reach_the_server_as_they_were_given() -> None:
    law = ScriptedServer("law")

    @law.tool
    def find(text: str | None, more: str = "x", some: str = "y") -> str:
        return "lower"

    @law.tool
    def Find() -> str:  # noqa: N802 -- a server's own spelling
        return "upper"

    given = {"text": None, "more": "", "some": " a "}
    async with McpManager([law.spec()], cache=False) as mcp:
        await mcp.wait_ready()
        assert {tool.original_name for tool in mcp.tools()} == {"find", "Find"}
        assert (await mcp.call("mcp_law_find", given)).text == "lower"
        assert (await mcp.call("mcp_law_Find")).text == "upper"
    assert [(one.tool, one.arguments) for one in law.calls] == [("find", given), ("Find", {})]


@pytest.mark.requirement("excel-5.2", "rrclaw-name.prefix")
def test_call_that_is_repeated_still_has_the_servers_own_name() -> None:
    law = ScriptedServer("law")

    async def find() -> str:
        if len(law.calls) == 1:
            law.crash()
            await asyncio.Event().wait()
        return "found"

    hints = {"readOnlyHint": True}
    law.add(ToolDef(name="find", description="", input_schema={}, func=find, annotations=hints))

    async def main() -> None:
        async with McpManager([law.spec(trust_annotations=True)], cache=False) as mcp:
            await mcp.wait_ready()
            assert (await mcp.call("mcp_law_find")).text == "found"

    InstantClock().run(main())
    assert [one.tool for one in law.calls] == ["find", "find"]


@pytest.mark.requirement("excel-5.4")
async def test_limit_of_one_call_may_be_longer_than_that_of_its_server() -> None:
    may_answer = asyncio.Event()
    slow = ScriptedServer("slow")

    @slow.tool
    async def wait() -> str:
        await may_answer.wait()
        return "there"

    async with McpManager([slow.spec(timeouts={"call": 0.05})], cache=False) as mcp:
        await mcp.wait_ready()
        waiting = asyncio.create_task(mcp.call("mcp_slow_wait", timeout=20))
        assert isinstance((await mcp.call("mcp_slow_wait")).exception, CallTimeoutError)
        may_answer.set()
        assert (await waiting).text == "there"


@pytest.mark.requirement("legal-call.timeout", "excel-5.4")
def test_one_limit_covers_a_call_and_its_repetition() -> None:
    law = ScriptedServer("law")
    clock = InstantClock()

    async def search() -> str:
        if len(law.calls) > 1:
            await asyncio.Event().wait()
        await asyncio.sleep(7)
        law.crash()
        return "lost"

    law.add(
        ToolDef(
            name="search",
            description="",
            input_schema={"type": "object"},
            func=search,
            annotations={"readOnlyHint": True},
        )
    )

    async def main() -> float:
        async with McpManager([law.spec(trust_annotations=True)], cache=False) as mcp:
            await mcp.wait_ready()
            before = clock.elapsed
            result = await mcp.call("mcp_law_search", timeout=10)
            assert isinstance(result.exception, CallTimeoutError)
            assert len(law.calls) == 2
            return clock.elapsed - before

    assert clock.run(main()) == pytest.approx(10, abs=0.5)


@pytest.mark.requirement("kode-call.async")
async def test_slow_function_of_the_application_blocks_no_other_call() -> None:
    may_answer = threading.Event()
    desk, registry = ScriptedServer("desk"), ToolRegistry()

    @tool
    def wait() -> str:
        return f"answered: {may_answer.wait(10)}"

    @desk.tool
    def now() -> str:
        may_answer.set()
        return "now"

    registry.register(wait)
    async with McpManager([desk.spec()], registry=registry, cache=False) as mcp:
        await mcp.wait_ready()
        for _ in range(2):
            may_answer.clear()
            slow, quick = await asyncio.gather(mcp.call("wait"), mcp.call("mcp_desk_now"))
            assert (slow.text, quick.text) == ("answered: True", "now")
