"""Names: no two tools have one, and a call by a name reaches the tool whose definition was exported under it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.model import ToolDef, ToolResult
from dragoman.tools.export.apis import APIS
from dragoman.tools.names import Pair, around_tool, unambiguous
from dragoman.tools.registry import ToolRegistry

pytestmark = pytest.mark.requirement(
    "excel-3.3",
    "excel-5.2",
    "kode-registry.naming",
    "rrclaw-name.prefix",
)

PLAIN = st.sampled_from(["a", "a_b", "b", "b_c", "c", "A", "a.b", "a:b", "a__b", "\u00e9", "e\u0301", "1"])
OCCUPIED = st.builds(
    lambda server, tool: unambiguous(Pair(server, tool), f"mcp_{server}_{tool}"), PLAIN, PLAIN
)
TOOL = st.one_of(PLAIN, OCCUPIED, st.text("ab_", min_size=1, max_size=90))
SERVERS = st.dictionaries(PLAIN, st.lists(TOOL, unique=True, max_size=5), min_size=1, max_size=4)
TEMPLATE = st.sampled_from(["mcp_{server}_{tool}", "{tool}", "{server}:{tool}", "{server}{tool}"])


def tools_of(server: str, names: list[str], template: str) -> list[ToolDef]:
    return [
        ToolDef(
            name=name.join(around_tool(template, server)),
            description=f"{server}/{name}",
            input_schema={"type": "object", "properties": {}},
            server=server,
            original_name=name,
        )
        for name in names
    ]


async def remote(name: str, arguments: Any, *, timeout: float | None = None) -> ToolResult:
    raise NotImplementedError


@given(servers=SERVERS, template=TEMPLATE, seed=st.integers())
@example(servers={"git": ["hub_push"], "git_hub": ["push"]}, template="mcp_{server}_{tool}", seed=0)
def test_no_two_tools_share_a_name_and_names_do_not_depend_on_who_listed_first(
    servers: dict[str, list[str]], template: str, seed: int
) -> None:
    order = list(servers)
    registries: list[ToolRegistry] = []
    for _ in range(2):
        registry = ToolRegistry()
        for server in order:
            registry.replace_server(server, tools_of(server, servers[server], template), remote=remote)
        registries.append(registry)
        random.Random(seed).shuffle(order)
    first, second = ({tool.name: (tool.server, tool.original_name) for tool in one} for one in registries)
    wanted = [(server, name) for server, names in servers.items() for name in names]
    assert sorted(first.values()) == sorted(wanted)
    assert first == second


@given(servers=SERVERS, template=TEMPLATE, api=st.sampled_from(APIS), gone=st.integers(0, 3))
def test_name_that_was_exported_never_comes_to_mean_another_servers_tool(
    servers: dict[str, list[str]], template: str, api: Any, gone: int
) -> None:
    registry = ToolRegistry()
    meant: dict[str, str] = {}

    def look() -> None:
        export = registry.export(api)
        for alias in [*meant, *export.names]:
            name, _ = export.restore(alias)
            tool = registry.get(name)
            if tool is not None:
                assert meant.setdefault(alias, tool.server) == tool.server
        forms = dict(zip(export.aliases, export.tools, strict=True))
        for name, form in forms.items():
            tool = registry.get(name)
            assert tool is not None
            inner = form.get("function", form)
            assert inner["description"] == f"{tool.server}/{tool.original_name}"

    for server, names in servers.items():
        registry.replace_server(server, tools_of(server, names, template), remote=remote)
        look()
    for server in list(servers)[:gone]:
        registry.replace_server(server, [])
        look()
