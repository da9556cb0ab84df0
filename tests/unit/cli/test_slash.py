"""The slash commands, carried out on a real manager with the demo's servers as children."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from tests.unit.cli.asking import Person
from tests.warm import interpreter

from dragoman import McpManager, ServerSpec, ServerState, Stdio, ToolDef
from dragoman.cli import slash
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.requirement("otter-p1.status", "otter-p2.reload")


def demo_spec(name: str) -> ServerSpec:
    arguments = {"studio": ["--stdio"], "legal": []}[name]
    return ServerSpec(name, Stdio(interpreter(), ["-m", f"dragoman.demo.{name}", *arguments]))


@pytest.fixture
async def mcp() -> AsyncIterator[McpManager]:
    async with McpManager([demo_spec("studio"), demo_spec("legal")]) as manager:
        assert await manager.wait_ready()
        yield manager


async def answer(mcp: McpManager | slash.Context, line: str) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None, highlight=False)
    console.print(await slash.run(mcp, line))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def complaint(mcp: McpManager | slash.Context, line: str) -> str:
    with pytest.raises(slash.UsageError) as caught:
        await slash.run(mcp, line)
    return str(caught.value)


async def test_tools_of_one_server_are_not_those_of_another_that_begins_alike() -> None:
    servers = [ScriptedServer(name) for name in ("a", "ab")]
    for one in servers:
        one.tool(echo)
    async with McpManager([one.spec() for one in servers]) as mcp:
        await mcp.wait_ready()
        assert "mcp_ab_" not in await answer(mcp, "/mcp tools a")
        assert "mcp_a_echo" not in await answer(mcp, "/mcp tools ab")


def echo(text: str) -> str:
    """Say it again."""
    return text


async def test_every_command_does_what_its_help_says(mcp: McpManager) -> None:
    """One manager for the whole tour, since starting two servers is what costs."""
    status = (await answer(mcp, "/mcp")).splitlines()
    assert [line.split()[:4] for line in status[1:]] == [
        ["studio", "●", "ready", "stdio"],
        ["legal", "●", "ready", "stdio"],
    ]
    listed = await answer(mcp, "/mcp tools")
    assert "mcp_studio_greet(" in listed
    assert "mcp_legal_search_cases(" in listed
    heads = [line.strip() for line in listed.splitlines() if line.startswith(("legal: ", "studio: "))]
    assert [head.split(":")[0] for head in heads] == ["legal", "studio"]
    assert listed.index("legal: 5 tools") < listed.index("mcp_legal_search_cases(") < listed.index("studio: ")
    assert "mcp_studio_" not in await answer(mcp, "  /mcp tools legal  ")

    for line in (
        "/call mcp_studio_greet name=Ann",
        "/call greet name=Ann",
        '/call mcp_studio_greet {"name": "Ann"}',
        "/call greet name='Ann'",
    ):
        assert (await answer(mcp, line)).startswith("Hello, Ann!"), line
    assert "1 / 8 = 0.125" in await answer(mcp, "/call divide a=1 b=8")
    assert "✗ Cannot divide 1 by zero." in await answer(mcp, "/call divide a=1 b=0")
    assert "[image: image/png, 64x64," in await answer(mcp, "/call swatch colour=blue")
    found = await answer(mcp, "/call search_statutes query='deposit' limit=1")
    # The text names its source already.
    assert found.count("Sample Residential Tenancy Act (SAMPLE, not real law), Art. 4") == 1

    helped = (await answer(mcp, "/help")).splitlines()
    assert len(helped) == len(slash.COMMANDS)
    for line, command in zip(helped, slash.COMMANDS.values(), strict=True):
        assert line.startswith(f"{command.name} {command.arguments}".strip())
        assert command.help in line
    for command in slash.COMMANDS.values():
        assert command.help in await answer(mcp, f"/help {command.name.removeprefix('/')}")
    assert "/mcp restart SERVER" in await answer(mcp, "/help mcp")
    with pytest.raises(slash.Leave):
        await slash.run(mcp, "/quit")

    resources = [line.rstrip() for line in (await answer(mcp, "/resources")).splitlines()]
    assert [line for line in resources if not line.startswith(" ")] == ["legal", "studio"]
    assert "  studio://palette" in resources
    assert "      Read one article of a sample law, template" in resources
    assert await answer(mcp, "/resources legal") != await answer(mcp, "/resources studio")
    assert "red #dc322f" in await answer(mcp, "/read studio://palette")
    assert "red #dc322f" in await answer(mcp, "/read studio://palette studio")
    assert "describe_colour(colour)" in await answer(mcp, "/prompts")
    assert "user: Call the `swatch` tool with colour `red`" in await answer(
        mcp, "/prompt describe_colour colour=red"
    )
    listed = await answer(mcp, "/tools colour")
    assert "mcp_studio_swatch(" in listed
    assert "mcp_studio_greet(" not in listed
    assert "of 11 tools" in listed
    of_server = await answer(mcp, "/tools legal")
    assert "mcp_legal_" in of_server
    assert "mcp_studio_" not in of_server
    assert "No tool matches `zebra`" in await answer(mcp, "/tools zebra")

    assert await complaint(mcp, "/hlp") == "Unknown command /hlp. Did you mean /help?"
    assert await complaint(mcp, "/zzzzzz now") == "Unknown command /zzzzzz. /help lists all commands."
    assert await complaint(mcp, "/mcp tols") == "Unknown command `/mcp tols`. Did you mean tools?"
    assert await complaint(mcp, "/mcp tools nobody") == "Unknown server `nobody`. Servers: studio, legal"
    assert await complaint(mcp, "/mcp restart legl") == "Unknown server `legl`. Did you mean legal?"
    assert await complaint(mcp, "/mcp restart") == "Usage: /mcp restart SERVER. Servers: studio, legal"
    assert (
        await complaint(mcp, "/mcp logs legal many")
        == "Usage: /mcp logs SERVER [LINES]; `many` is not a number of lines."
    )
    assert (await complaint(mcp, "/mcp login legal")).startswith("Login needs a terminal")
    assert (
        await complaint(mcp, "/call")
        == "Usage: /call TOOL key=value … or /call TOOL {json}. /tools lists all tools."
    )
    assert "Did you mean greet" in await complaint(mcp, "/call gret")
    assert await complaint(mcp, "/call zzzzzzzz") == "Unknown tool `zzzzzzzz`. /tools lists all tools."
    assert await complaint(mcp, "/call greet Ann") == "Expected key=value, not `Ann`. Parameters: name"
    assert await complaint(mcp, "/call greet") == (
        "Missing arguments for `greet` of server `studio`: `name: str` – Whom to greet – usage: greet(name: str)"
    )
    assert await complaint(mcp, "/call greet nam=Ann") == (
        "Unknown argument `nam`; did you mean `name`? (nothing was sent) – usage: greet(name: str)"
    )
    assert (await complaint(mcp, "/call greet {name}")).startswith("The arguments are not valid JSON")
    assert (await complaint(mcp, "/call greet name='Ann")).startswith("Cannot parse the arguments")
    assert "Did you mean studio://palette?" in await complaint(mcp, "/read studio://pallete")
    assert await complaint(mcp, "/prompt describe_color") == (
        "Unknown prompt `describe_color`. Did you mean describe_colour?"
    )
    assert "Missing arguments for prompt `describe_colour`: colour" in await complaint(
        mcp, "/prompt describe_colour"
    )
    assert "Parameters: colour" in await complaint(mcp, "/prompt describe_colour size=1")
    for line in ("/model", "/cost", "/save"):
        assert "Start one with `dragoman chat`." in await complaint(mcp, line)
    assert await complaint(mcp, "/mcp reload") == ("These servers do not come from a configuration file.")
    assert await complaint(mcp, "/") == "Unknown command /. /help lists all commands."


@pytest.mark.requirement("otter-later.visual")
async def test_the_calls_of_a_session_can_be_looked_at_again(mcp: McpManager) -> None:
    context = slash.Context(mcp=mcp, asker=Person("Ann"))
    assert "No calls yet." in await answer(context, "/last")
    await answer(context, "/call greet")
    await answer(context, "/call measure text=one")
    assert 'mcp_studio_measure(text="one")' in await answer(context, "/last")
    assert "Hello, Ann!" in await answer(context, "/last 2")
    assert await complaint(context, "/last 3") == "Only 2 calls so far."
    assert (await complaint(context, "/last x")).startswith("Usage: /last [NUMBER]")
    figures = (await answer(context, "/mcp")).splitlines()
    assert figures[0].split() == [
        "server",
        "state",
        "transport",
        "protocol",
        "tools",
        "calls",
        "errors",
        "p50",
        "p95",
    ]
    assert figures[1].split()[:7] == ["studio", "●", "ready", "stdio", "2026-07-28", "6", "2"]


async def test_a_server_is_switched_off_and_on_and_its_log_is_shown(mcp: McpManager) -> None:
    await answer(mcp, "/mcp disable studio")
    assert mcp.status()["studio"].state is not ServerState.READY
    assert "mcp_studio_" not in await answer(mcp, "/mcp tools")
    assert "● ready" in await answer(mcp, "/mcp enable studio")
    assert "mcp_studio_" in await answer(mcp, "/mcp tools")
    assert "No stderr output from `studio`" in await answer(mcp, "/mcp logs studio")


async def test_a_prompt_is_asked_for_and_sent_if_the_person_wants_that(mcp: McpManager) -> None:
    sent: list[str] = []
    shown: list[Any] = []

    async def talk(text: str) -> None:
        sent.append(text)

    person = Person("red", "y", "red", "n")
    context = slash.Context(mcp=mcp, asker=person, talk=talk, say=shown.append)
    await slash.run(context, "/prompt describe_colour")
    assert sent == ["Call the `swatch` tool with colour `red`, then describe the colour in one sentence."]
    assert "Not sent." in await answer(context, "/prompt describe_colour")
    assert (len(sent), len(shown)) == (1, 2)
    assert person.asked == ["colour", "Send it to the model?"] * 2


async def test_restart_brings_a_new_process_and_shows_its_state(mcp: McpManager) -> None:
    before = mcp.status()["studio"].pid
    shown = await answer(mcp, "/mcp restart studio")
    after = mcp.status()["studio"]
    assert "● ready" in shown
    assert "legal" not in shown
    assert (after.state, after.pid == before) == (ServerState.READY, False)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": "integer"}, "12", 12),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "boolean"}, "true", True),
        ({"type": "array"}, "[1,2]", [1, 2]),
        ({"type": "object"}, "'{\"a\": null}'", {"a": None}),
        ({"type": "integer"}, "twelve", "twelve"),
        ({"type": ["string", "null"]}, "12", "12"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "integer"]}, "12", 12),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "12", "12"),
        ({"oneOf": [{"type": "number"}, {"type": "string"}]}, "12", 12),
        ({}, "12", 12),
        (True, "text", "text"),
        (None, "12", 12),
    ],
)
def test_a_value_is_read_as_the_schema_wants_it(schema: Any, text: str, value: Any) -> None:
    properties = {} if schema is None else {"x": schema}
    tool = ToolDef(name="t", description="", input_schema={"type": "object", "properties": properties})
    read = slash.parse_arguments(tool, f" x={text} ")["x"]
    assert read == value
    assert type(read) is type(value)


def test_no_words_are_no_arguments() -> None:
    tool = ToolDef(name="t", description="", input_schema={})
    assert slash.parse_arguments(tool, "  ") == {}
    with pytest.raises(slash.UsageError, match="Expected key=value"):
        slash.parse_arguments(tool, "x")
