"""One policy on every road to a server or a function, and what was judged is what is sent."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest
from tests.unit.cli.program import configure, entry

from dragoman import McpManager, ToolDef, ToolRegistry
from dragoman.adapters.bridge import Bridge
from dragoman.agent.engine import AgentEngine
from dragoman.agent.providers.scripted import Say, ScriptedProvider
from dragoman.blocking import manager
from dragoman.cli.main import run
from dragoman.errors import CallDeniedError
from dragoman.manager.caller import caller_of
from dragoman.manager.resources import prompt_tools, resource_tools
from dragoman.model import CallRequest, Handlers, ServerSpec
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.requirement("rrclaw-policy")

OFFER: dict[str, Any] = {"tools": ["push"], "resources": ["law://1"], "prompts": ["draft"]}
ran: list[Any] = []


def local(name: str = "here") -> ToolDef:
    def note(**arguments: Any) -> str:
        ran.append(arguments)
        return "ran"

    schema = {"type": "object", "additionalProperties": True}
    return ToolDef(name=name, description="", input_schema=schema, func=note, source="builtin")


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def denied(job: Any) -> bool:
    try:
        result = await job
    except CallDeniedError:
        return True
    return isinstance(getattr(result, "exception", None), CallDeniedError)


ROADS: dict[str, Callable[[McpManager], Any]] = {
    "call": lambda mcp: mcp.call("mcp_law_push"),
    "caller": lambda mcp: caller_of(mcp)("mcp_law_push"),
    "registry.call": lambda mcp: mcp.registry.call("mcp_law_push"),
    "view.call": lambda mcp: mcp.registry.view().call("mcp_law_push"),
    "adapter": lambda mcp: Bridge(mcp, "openai").call("mcp_law_push", {}),
    "execute": lambda mcp: mcp.registry.resolve("mcp_law_push").execute(),
    "func": lambda mcp: cast("Any", mcp.registry.resolve("mcp_law_push").func)(),
    "built-in, call": lambda mcp: mcp.call("here"),
    "built-in, registry.call": lambda mcp: mcp.registry.call("here"),
    "built-in, view.call": lambda mcp: mcp.registry.view(allow=["here"]).call("here"),
    "built-in, adapter": lambda mcp: Bridge(mcp, "openai").call("here", {}),
    "read": lambda mcp: mcp.read("law://1"),
    "read, named": lambda mcp: mcp.read("law://1", "law"),
    "subscribe": lambda mcp: mcp.subscribe("law://1", "law"),
    "prompt": lambda mcp: mcp.prompt("draft", server="law"),
    "complete a prompt": lambda mcp: mcp.session.complete({"name": "draft"}, "to", "A", server="law"),
    "complete a template": lambda mcp: mcp.session.complete({"uri": "law://{id}"}, "id", "1", server="law"),
    "read_resource": lambda mcp: mcp.call("read_resource", {"uri": "law://1"}),
    "read_resource, registry.call": lambda mcp: mcp.registry.call("read_resource", {"uri": "law://1"}),
    "get_prompt": lambda mcp: mcp.call("get_prompt", {"name": "draft", "server": "law"}),
}


@pytest.mark.requirement("rrclaw-policy")
@pytest.mark.parametrize("policy", [{"default": "deny"}, [{"action": "deny"}], {"default": "ask"}])
async def test_every_road_is_judged(offering: Callable[..., ServerSpec], policy: Any) -> None:
    with anyio.fail_after(20):
        async with McpManager([offering("law", **OFFER)], cache=False, policy=policy) as mcp:
            await mcp.wait_ready()
            mcp.registry.register_all([local(), *resource_tools(mcp), *prompt_tools(mcp)])
            passed = [name for name, road in ROADS.items() if not await denied(road(mcp))]
            assert passed == []
            assert ran == []


async def test_every_road_is_open_without_a_rule_against_it(offering: Callable[..., ServerSpec]) -> None:
    policy = [{"action": "deny", "tool": "other"}, {"action": "deny", "resource": "other://*"}]
    with anyio.fail_after(20):
        async with McpManager([offering("law", **OFFER)], cache=False, policy=policy) as mcp:
            await mcp.wait_ready()
            mcp.registry.register_all([local(), *resource_tools(mcp), *prompt_tools(mcp)])
            assert [name for name, road in ROADS.items() if await denied(road(mcp))] == []
            assert len(ran) == 4


async def test_rules_for_resources_and_prompts_hold_behind_the_tools_that_read_them(
    offering: Callable[..., ServerSpec],
) -> None:
    policy = [{"action": "deny", "resource": "law://*"}, {"action": "deny", "server": "law", "prompt": "dr*"}]
    closed = {"read", "read, named", "subscribe", "prompt", "complete a prompt", "complete a template"}
    closed |= {"read_resource", "read_resource, registry.call", "get_prompt"}
    with anyio.fail_after(20):
        async with McpManager([offering("law", **OFFER)], cache=False, policy=policy) as mcp:
            await mcp.wait_ready()
            mcp.registry.register_all([local(), *resource_tools(mcp), *prompt_tools(mcp)])
            assert {name for name, road in ROADS.items() if await denied(road(mcp))} == closed


async def test_completion_is_judged_by_what_it_would_complete_to(offering: Callable[..., ServerSpec]) -> None:
    policy = [{"action": "deny", "resource": "file:///etc/*"}]
    with anyio.fail_after(20):
        async with McpManager([offering("fs", **OFFER)], cache=False, policy=policy) as mcp:
            await mcp.wait_ready()
            template = {"uri": "file:///{+path}"}
            assert await mcp.session.complete(template, "path", "srv/a", server="fs")
            with pytest.raises(CallDeniedError):
                await mcp.session.complete(template, "path", "srv/../etc/pass", server="fs")


async def test_completion_is_asked_about_if_what_it_would_complete_to_is(
    offering: Callable[..., ServerSpec],
) -> None:
    asked: list[CallRequest] = []

    def approve(request: CallRequest) -> bool:
        asked.append(request)
        return False

    policy = [{"action": "ask", "resource": "file:///etc/*"}]
    handlers = Handlers(approval=approve)
    with anyio.fail_after(20):
        async with McpManager(
            [offering("fs", **OFFER)], cache=False, policy=policy, handlers=handlers
        ) as mcp:
            await mcp.wait_ready()
            with pytest.raises(CallDeniedError):
                await mcp.session.complete({"uri": "file:///{+path}"}, "path", "etc/pass", server="fs")
    assert [one.original_name for one in asked] == ["file:///etc/pass"]


class _Place(Enum):
    ETC = "/etc/passwd"


@dataclass
class _File:
    path: str = "/etc/passwd"


@pytest.mark.parametrize(
    "value",
    [Path("/etc/passwd"), _Place.ETC, _File(), {"/etc/passwd"}, deque(["/etc/passwd"]), b"/etc/passwd"],
    ids=lambda value: type(value).__name__,
)
async def test_value_that_is_not_json_is_judged_as_it_is_sent(value: Any) -> None:
    scripted = ScriptedServer("one")

    @scripted.tool
    def read(file: Any) -> str:
        """Read a file."""
        return str(file)

    rules = [{"action": "deny", "arguments": {"file": {"path": "/etc/*"}}}]
    with anyio.fail_after(20):
        async with McpManager([scripted.spec()], cache=False, policy=rules) as mcp:
            await mcp.wait_ready()
            assert await denied(mcp.call("mcp_one_read", {"file": value}))
            assert await denied(mcp.call("mcp_one_read", {"file": [{"in": value}]}))
            assert (await mcp.call("mcp_one_read", {"file": Path("/srv/a")})).text == "/srv/a"
    assert [call.arguments for call in scripted.calls] == [{"file": "/srv/a"}]


async def test_agents_own_tools_and_local_ones_are_judged(offering: Callable[..., ServerSpec]) -> None:
    registry = ToolRegistry()
    registry.register_all([local(), *(local(f"t{number}") for number in range(200))])
    calls = [("here", {"a": 1}), ("search_tools", {"query": "here"})]
    model = ScriptedProvider([Say(calls=calls), "done"])
    mcp = McpManager([offering("law", **OFFER)], registry=registry, cache=False, policy={"default": "deny"})
    with anyio.fail_after(20):
        async with AgentEngine(model, mcp) as agent:
            await agent.run("go")
            answers = [message for message in agent.messages if message.role == "tool"]
    assert [answer.is_error for answer in answers] == [True, True]
    assert all("Blocked by the policy's default" in answer.text for answer in answers)
    assert ran == []


def test_blocking_manager_is_judged(offering: Callable[..., ServerSpec]) -> None:
    registry = ToolRegistry()
    registry.register(local())
    specs = [offering("law", **OFFER)]
    with manager.McpManager(specs, registry=registry, cache=False, policy={"default": "deny"}) as mcp:
        mcp.wait_ready()
        for job in (
            lambda: mcp.registry.call("here"),
            lambda: mcp.registry.view().call("here"),
            lambda: mcp.read("law://1"),
            lambda: mcp.prompt("draft", server="law"),
            lambda: mcp.session.complete({"name": "draft"}, "to", "", server="law"),
            lambda: mcp.subscribe("law://1"),
        ):
            with pytest.raises(CallDeniedError):
                job()
        assert isinstance(mcp.call("here").exception, CallDeniedError)
    assert ran == []


@pytest.mark.parametrize("words", [["read", "law://1"], ["prompt", "draft"], ["call", "law", "push"]])
def test_program_is_judged(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    path = configure(law=entry("offering.py", json.dumps(OFFER)))
    document = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(document | {"mcp": {"policy": {"default": "deny"}}}), "utf-8")
    assert run(words) == 8
    assert "Blocked by the policy's default" in capsys.readouterr().err


# What was judged is what is sent


async def test_handler_and_caller_cannot_change_what_was_judged(offering: Callable[..., ServerSpec]) -> None:
    given: dict[str, Any] = {"paths": ["/srv/a"], "deep": {"x": [1]}}

    async def approve(request: CallRequest) -> bool:
        request.arguments["paths"].append("/etc/passwd")
        request.arguments["deep"]["x"] = "changed"
        # The caller's own object, as a task beside the call would hold it.
        given["paths"][0] = "/etc/shadow"
        given["more"] = True
        return True

    rules = [{"action": "deny", "arguments": {"paths": {"path": "/etc/**"}}}, {"action": "ask"}]
    handlers = Handlers(approval=approve)
    with anyio.fail_after(20):
        async with McpManager(
            [offering("law", **OFFER)], cache=False, policy=rules, handlers=handlers
        ) as mcp:
            await mcp.wait_ready()
            mcp.registry.register(local())
            said = 'law/push {"deep": {"x": [1]}, "paths": ["/srv/a"]}'
            assert (await mcp.call("mcp_law_push", given)).text == said
            given = {"paths": ["/srv/a"], "deep": {"x": [1]}}
            assert await mcp.registry.call("mcp_law_push", given) == said
            for road in (mcp.call, mcp.registry.call):
                given = {"paths": ["/srv/a"], "deep": {"x": [1]}}
                await road("here", given)
                assert ran.pop() == {"paths": ["/srv/a"], "deep": {"x": [1]}}


async def test_task_beside_a_waiting_prompt_cannot_change_its_arguments(
    offering: Callable[..., ServerSpec],
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def approve(_: CallRequest) -> bool:
        asked.set()
        await answer.wait()
        return True

    given = {"to": "Ada"}
    with anyio.fail_after(20):
        async with McpManager(
            [offering("law", **OFFER)],
            cache=False,
            policy=[{"action": "ask"}],
            handlers=Handlers(approval=approve),
        ) as mcp:
            await mcp.wait_ready()
            job = asyncio.create_task(mcp.prompt("draft", given, server="law"))
            await asked.wait()
            given["to"] = "Eve"
            answer.set()
            assert 'draft {"to": "Ada"}' in str(await job)


async def test_arguments_are_judged_as_they_are_after_they_were_corrected() -> None:
    scripted = ScriptedServer("one")

    @scripted.tool
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    rules = {"default": "deny", "rules": [{"action": "allow", "arguments": {"number": 7}}]}
    with anyio.fail_after(20):
        async with McpManager([scripted.spec(coerce_arguments=True)], cache=False, policy=rules) as mcp:
            await mcp.wait_ready()
            assert (await mcp.call("mcp_one_double", {"number": "7"})).text == "14"
            denied = await mcp.call("mcp_one_double", {"number": "8"})
            assert isinstance(denied.exception, CallDeniedError)
    assert [call.arguments for call in scripted.calls] == [{"number": 7}]
