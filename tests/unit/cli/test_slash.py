"""The slash commands, carried out on a real manager with the demo's servers as children."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from dragoman import McpManager, ServerSpec, ServerState, Stdio, ToolDef
from dragoman.cli import slash

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def demo_spec(name: str) -> ServerSpec:
    arguments = {"studio": ["--stdio"], "legal": []}[name]
    return ServerSpec(name, Stdio(sys.executable, ["-m", f"dragoman.demo.{name}", *arguments]))


@pytest.fixture
async def mcp() -> AsyncIterator[McpManager]:
    async with McpManager([demo_spec("studio"), demo_spec("legal")]) as manager:
        assert await manager.wait_ready()
        yield manager


async def answer(mcp: McpManager, line: str) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None, highlight=False)
    console.print(await slash.run(mcp, line))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def complaint(mcp: McpManager, line: str) -> str:
    with pytest.raises(slash.UsageError) as caught:
        await slash.run(mcp, line)
    return str(caught.value)


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
    assert "source: Sample Residential Tenancy Act (SAMPLE, not real law), Art. 4, updated" in found

    helped = (await answer(mcp, "/help")).splitlines()
    assert len(helped) == len(slash.COMMANDS)
    for line, command in zip(helped, slash.COMMANDS.values(), strict=True):
        assert line.startswith(f"{command.name} {command.arguments}".strip())
        assert command.help in line
    with pytest.raises(slash.Leave):
        await slash.run(mcp, "/quit")

    assert await complaint(mcp, "/hlp") == "there is no command /hlp: did you mean /help?"
    assert await complaint(mcp, "/zzzzzz now") == "there is no command /zzzzzz: /help lists the commands"
    assert (
        await complaint(mcp, "/mcp tols")
        == "/mcp does not know `tols`: /mcp, /mcp tools, /mcp reload, /mcp restart"
    )
    assert (
        await complaint(mcp, "/mcp tools nobody") == "no server is called `nobody`; there are: studio, legal"
    )
    assert await complaint(mcp, "/mcp restart") == "/mcp restart takes the name of a server: studio, legal"
    assert await complaint(mcp, "/call") == "/call TOOL {json} | /call TOOL key=value …"
    assert "did you mean greet" in await complaint(mcp, "/call gret")
    assert await complaint(mcp, "/call zzzzzzzz") == "there is no tool `zzzzzzzz`: /mcp tools lists them"
    assert await complaint(mcp, "/call greet Ann") == "`Ann` is no key=value; mcp_studio_greet takes: name"
    assert (await complaint(mcp, "/call greet {name}")).startswith("the arguments are not valid JSON")
    assert (await complaint(mcp, "/call greet name='Ann")).startswith(
        "the arguments cannot be split into words"
    )


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
    with pytest.raises(slash.UsageError, match="t takes: nothing"):
        slash.parse_arguments(tool, "x")
