"""Schemas that are meant to hang a client: each is refused or done in time, and the loop goes on meanwhile.

Measured is the processor time of the loop's own thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from typing import Any

import anyio
import pytest
from tests.behaviour.turning import Turncoat
from tests.unit.tools.schema.test_validate import HOSTILE, chain, deep, nested

from dragoman import McpManager
from dragoman.model import ServerSpec, Stdio
from dragoman.tools.definition import admit
from dragoman.tools.export.apis import APIS
from dragoman.tools.registry import ToolRegistry
from dragoman.tools.schema.validate import Validators

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("heap_of_the_program_alone"),
]

MOST = 0.100
"""Seconds for one schema: admitted, written for one model API, compiled, and used."""
LONGEST_TURN = 0.050
"""Seconds that the loop may be held up."""

PATTERNS = [
    "^(a+)+$",
    "^(a|a)*$",
    "^(a|aa)+$",
    "^(.*a){25}$",
    "(x+x+)+y",
    "^([a-zA-Z0-9])(([-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+$",
    "[ab]*a[ab]{500}c",
    "(?:(?:(?:(?:a{100}){100}){100}){100})",
    "(?=(a+))a*b\\1",
    "\\p{L}{1000}" * 30,
    "(" * 400 + "a" + ")" * 400,
]


def properties(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


def tree(levels: int, width: int) -> dict[str, Any]:
    if not levels:
        return {"type": "string"}
    return {word: [tree(levels - 1, width)] * width for word in ("allOf", "anyOf")}


SCHEMAS: dict[str, Any] = {
    **{f"{name}, inside": properties(a=schema) for name, schema in HOSTILE.items()},
    **{f"{name}, whole": {"type": "object", **schema} for name, schema in HOSTILE.items()},
    **{f"pattern {number}": properties(a={"pattern": text}) for number, text in enumerate(PATTERNS)},
    **{
        f"names {number}": {"type": "object", "patternProperties": {text: {"pattern": text}}}
        for number, text in enumerate(PATTERNS)
    },
    "all patterns": properties(**{f"a{n}": {"pattern": text} for n, text in enumerate(PATTERNS * 20)}),
    # One level more is a message of 6 MB, whose parsing alone takes the loop 50 ms: `limits.message_bytes`.
    "exponential allOf": properties(a=tree(5, 4)),
    "exponential oneOf": properties(a=chain(30, branches=3, word="oneOf")),
    "deep within the limit": properties(a=nested(90)),
    "a loop through properties": properties(a={"$ref": "#"}, b={"anyOf": [{"$ref": "#"}] * 5}),
    "a loop through allOf": {"type": "object", "allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "a loop through items": properties(a={"type": "array", "items": {"$ref": "#/properties/a"}}),
    "references to nowhere": properties(**{f"a{n}": {"$ref": f"#/$defs/b{n}"} for n in range(3_000)}),
    "references to the network": properties(a={"$ref": "http://127.0.0.1:9/schema.json"}),
    "a recursive anchor": {"$recursiveAnchor": True, "type": "object", "items": {"$recursiveRef": "#"}},
    "a dynamic anchor": {"$dynamicAnchor": "x", "type": "object", "items": {"$dynamicRef": "#x"}},
    "huge enum": properties(a={"enum": [f"value {number}" for number in range(30_000)]}),
    "huge required": {"type": "object", "required": [f"k{number}" for number in range(30_000)]},
    "huge numbers": properties(a={"type": "integer", "multipleOf": 1e-300, "maximum": 10**300}),
    "unique items": properties(a={"type": "array", "uniqueItems": True}),
    "not not not": properties(a={"not": {"not": {"not": chain(20, branches=2)}}}),
    "long description": properties(a={"description": "\x1b[31m\u202e" * 60_000}),
}
VALUES: list[Any] = [
    {},
    {"a": "a" * 30_000 + "!"},
    {"a": [[["x"] * 200] * 20]},
    {"a": deep(60, "x")},
    {"a": list(range(5_000))},
    {"a" * 5_000 + "!": 1},
    {f"a{number}": "aaaa!" for number in range(500)},
]


def go_through(schema: Any, api: Any) -> None:
    """Do everything that is done with a tool from its listing to its calls."""
    raw = {"name": "t", "description": "", "inputSchema": schema}
    tools, rejected = admit([raw], ServerSpec("s", Stdio("x")), template="mcp_{server}_{tool}")
    assert len(tools) + len(rejected) == 1
    for tool in tools:
        registry = ToolRegistry()
        registry.register(tool)
        registry.export(api)
        validators = Validators()
        for value in VALUES:
            validators.of(tool.input_schema).problems(value)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_hostile_schema_is_refused_or_done_in_time(name: str) -> None:
    spent: dict[str, float] = {}
    for api in APIS:
        go_through({"type": "object"}, api)  # What is imported and compiled once is not the schema's doing.
        for _ in range(3):
            gc.collect()
            began = time.thread_time()
            go_through(SCHEMAS[name], api)
            spent[api] = min(time.thread_time() - began, spent.get(api, math.inf))
    print({api: round(seconds * 1000, 1) for api, seconds in spent.items()})
    assert max(spent.values()) <= MOST


class Beat:
    """Takes the longest time between two turns of the loop."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self._handle: asyncio.Handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now = time.thread_time()
        self.longest, self._last = max(self.longest, now - self._last), now
        self._handle = self._loop.call_later(0.0005, self._turn)

    def stop(self) -> float:
        self._handle.cancel()
        return self.longest


@pytest.mark.parametrize("place", ["inputSchema", "outputSchema"])
@pytest.mark.parametrize("name", SCHEMAS)
async def test_a_hostile_schema_does_not_hold_the_loop_up(tmp_path: Any, name: str, place: str) -> None:
    warm, coat = Turncoat(tmp_path, "warm"), Turncoat(tmp_path)
    schema = SCHEMAS[name]
    if name.startswith(("deep,", "endless")):
        pytest.skip("too deep or too long to be sent at all: the listing is refused as a whole")
    coat.offer["tools"] = [{"name": "read", "inputSchema": {"type": "object"}, place: schema}]
    coat.write()
    with anyio.fail_after(120):
        async with McpManager([warm.spec], cache=False) as mcp:
            await mcp.wait_ready()
            await mcp.call("mcp_warm_read", {"path": "x"})
        beat = Beat()
        async with McpManager([coat.spec], cache=False) as mcp:
            await mcp.wait_ready()
            for value in VALUES:
                await mcp.call("mcp_coat_read", value)
        longest = beat.stop()
    print(f"{name}, {place}: {longest * 1000:.1f} ms")
    assert longest <= LONGEST_TURN
