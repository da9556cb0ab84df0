"""An agent that asks: no call of its model is made without a rule or a person that allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dragoman import AgentEngine, Handlers, McpManager, ToolRegistry, tool
from dragoman.agent.offer import ToolLimit
from dragoman.agent.providers import Say, ScriptedProvider
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from dragoman.model import CallRequest


class Asked:
    """A person who always gives the same answer."""

    def __init__(self, *, answer: bool) -> None:
        self.answer = answer
        self.requests: list[CallRequest] = []

    def __call__(self, request: CallRequest) -> bool:
        self.requests.append(request)
        return self.answer


def notes() -> ScriptedServer:
    server = ScriptedServer("notes")

    @server.tool
    def delete_page(page: str) -> str:
        """Delete a page."""
        return f"deleted {page}"

    @server.tool
    @tool(annotations={"readOnlyHint": True})
    def read_page(page: str) -> str:
        """Read a page."""
        return f"text of {page}"

    return server


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("mcp_notes_delete_page", {"page": "a"}),
    ("mcp_notes_read_page", {"page": "b"}),
]


async def answers(source: Any, calls: list[tuple[str, dict[str, Any]]] = CALLS, **how: Any) -> list[str]:
    """Let a model make calls, and return the answers that it gets."""
    async with AgentEngine(ScriptedProvider([Say(calls=calls), "Done."]), source, **how) as agent:
        answer = await agent.run("Go.")
    return [message.text for message in answer.messages if message.role == "tool"]


async def test_without_ask_nothing_is_asked() -> None:
    person = Asked(answer=False)
    mcp = McpManager([notes().spec()], handlers=Handlers(approval=person))
    assert await answers(mcp) == ["deleted a", "text of b"]
    assert person.requests == []


async def test_a_call_that_no_rule_decides_waits_for_a_yes_and_a_no_is_said_to_the_model() -> None:
    for says in (True, False):
        person, server = Asked(answer=says), notes()
        mcp = McpManager([server.spec()], handlers=Handlers(approval=person))
        texts = await answers(mcp, ask=True)
        assert [(one.server, one.original_name, one.arguments) for one in person.requests] == [
            # Its server calls the second one read-only, and is not trusted to say so.
            ("notes", "delete_page", {"page": "a"}),
            ("notes", "read_page", {"page": "b"}),
        ]
        assert {one.reason for one in person.requests} == {"no rule allows it"}
        assert len(server.calls) == (2 if says else 0)
        assert says or all("the user declined" in text for text in texts)


async def test_calls_of_the_application_itself_are_not_asked_about() -> None:
    person = Asked(answer=False)
    async with McpManager([notes().spec()], handlers=Handlers(approval=person)) as mcp:
        await mcp.wait_ready()
        assert "declined" in (await answers(mcp, CALLS[:1], ask=True))[0]
        assert (await mcp.call(*CALLS[0])).text == "deleted a"
    assert len(person.requests) == 1


@pytest.mark.parametrize(
    ("policy", "asked"),
    [
        ([{"action": "allow", "tool": "delete_page"}], ["read_page"]),
        ([{"action": "allow", "server": "notes"}], []),
        ([{"action": "allow", "arguments": {"page": "b"}}], ["delete_page"]),
        # The annotation of a server that is not trusted allows nothing.
        ([{"action": "allow", "annotation": "read_only"}], ["delete_page", "read_page"]),
        ({"default": "allow"}, ["delete_page", "read_page"]),
        ([{"action": "deny", "tool": "delete_page"}], ["read_page"]),
    ],
)
async def test_a_rule_decides_before_the_question(policy: Any, asked: list[str]) -> None:
    person = Asked(answer=True)
    mcp = McpManager([notes().spec()], handlers=Handlers(approval=person), policy=policy)
    await answers(mcp, ask=True)
    assert [one.original_name for one in person.requests] == asked


async def test_a_read_only_tool_of_a_trusted_server_is_not_asked_about() -> None:
    person = Asked(answer=False)
    mcp = McpManager([notes().spec(trust_annotations=True)], handlers=Handlers(approval=person))
    deleted, read = await answers(mcp, ask=True)
    assert "declined" in deleted
    assert read == "text of b"
    assert [one.original_name for one in person.requests] == ["delete_page"]


async def test_without_a_person_the_call_is_denied_and_the_rule_that_allows_it_is_named() -> None:
    server = notes()
    text = (await answers(McpManager([server.spec()]), CALLS[:1], ask=True))[0]
    assert "no one can be asked here: no rule allows it" in text
    assert '{"action": "allow", "server": "notes", "tool": "delete_page"}' in text
    assert server.calls == []


async def test_a_function_is_asked_instead_of_the_handler_of_the_manager() -> None:
    theirs, mine = Asked(answer=True), Asked(answer=False)
    mcp = McpManager([notes().spec()], handlers=Handlers(approval=theirs))
    assert "declined" in (await answers(mcp, CALLS[:1], ask=mine))[0]
    assert (len(theirs.requests), len(mine.requests)) == (0, 1)


async def test_local_tools_ask_as_those_of_servers_do() -> None:
    @tool
    def wipe() -> str:
        """Wipe it."""
        return "wiped"

    @tool(annotations={"readOnlyHint": True})
    def look() -> str:
        """Look at it."""
        return "seen"

    registry = ToolRegistry()
    registry.register_all([wipe, look])
    person = Asked(answer=False)
    wiped, seen = await answers(registry, [("wipe", {}), ("look", {})], ask=person)
    assert "declined" in wiped
    assert seen == "seen"


async def test_a_search_asks_nothing_and_the_tool_that_it_finds_does() -> None:
    person = Asked(answer=False)
    mcp = McpManager([notes().spec()], handlers=Handlers(approval=person))
    calls = [
        ("search_tools", {"queries": ["delete a page"]}),
        ("call_tool", {"name": "mcp_notes_delete_page", "arguments": {"page": "a"}}),
    ]
    found, called = await answers(mcp, calls, ask=True, limit=ToolLimit(count=1))
    assert "delete_page" in found
    assert "declined" in called
    assert [one.original_name for one in person.requests] == ["delete_page"]


@pytest.mark.usefixtures("interpreter")
async def test_a_call_inside_a_program_asks() -> None:
    person, server = Asked(answer=False), notes()
    allowed = [{"action": "allow", "tool": "run_code"}]
    mcp = McpManager([server.spec()], handlers=Handlers(approval=person), policy=allowed)
    code = "notes.delete_page(page='a')"
    text = (await answers(mcp, [("run_code", {"code": code})], ask=True, code=True))[0]
    assert "declined" in text
    assert [one.original_name for one in person.requests] == ["delete_page"]
    assert server.calls == []


async def test_the_rule_of_the_program_allows_the_call_of_a_user() -> None:
    person = Asked(answer=False)
    policy = [{"action": "allow", "tool": "read_page"}]
    async with McpManager([notes().spec()], policy=policy) as mcp:
        await mcp.wait_ready()
        ada = mcp.as_user("ada", handlers=Handlers(approval=person))
        deleted, read = await answers(ada, ask=True)
    assert "declined" in deleted
    assert read == "text of b"
    assert [(one.original_name, one.user) for one in person.requests] == [("delete_page", "ada")]
