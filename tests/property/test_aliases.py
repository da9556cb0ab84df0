"""Aliases: legal, one for each name, and the same whatever the order, for any names whatever."""

from __future__ import annotations

import random
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.model_api_rules import NAMES

from dragoman.model import ToolDef
from dragoman.tools.export.apis import APIS
from dragoman.tools.export.apis.anthropic import PARAMETERS as ANTHROPIC_PARAMETERS
from dragoman.tools.export.apis.gemini import NAMES as GEMINI
from dragoman.tools.export.apis.gemini import PARAMETERS as GEMINI_PARAMETERS
from dragoman.tools.export.apis.openai import NAMES as OPENAI
from dragoman.tools.names import NameRule, around_tool, assign
from dragoman.tools.registry import ToolRegistry

RULES = {
    "openai": (OPENAI, r"[a-zA-Z0-9_-]{1,64}"),
    "gemini": (GEMINI, r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}"),
    "anthropic parameters": (ANTHROPIC_PARAMETERS, r"[a-zA-Z0-9_.-]{1,64}"),
    "gemini parameters": (GEMINI_PARAMETERS, r"[a-zA-Z_][a-zA-Z0-9_]{0,63}"),
}
NEAR = st.sampled_from(
    ["a.b", "a:b", "a__b", "a_b", "a b", "a/b", "A.B", "é", "e\u0301", "1", "_", "", "🙂", "\ud800"]
)
LONG = st.text("ab.", min_size=60, max_size=300)
NAME = st.one_of(NEAR, LONG, st.text(max_size=12), st.text("ab_.:-", max_size=4))


def hashed(name: str, rule: NameRule) -> str:
    """The alias that a name has once it needs a digest."""
    return assign([name, name + ".", name.replace(".", ":")], rule)[name]


@pytest.mark.parametrize("name", RULES)
@given(names=st.lists(NAME, unique=True), seed=st.integers())
@example(names=["a" * 300, "a" * 301, "a" * 64, "a" * 65], seed=0)
@example(names=["é", "e\u0301", unicodedata.normalize("NFC", "e\u0301x")], seed=0)
@example(names=["Read.x", "read.x", "READ_X", "read_x"], seed=0)
@example(names=["a.b", "a:b", hashed("a.b", OPENAI), hashed("a:b", OPENAI)], seed=0)
def test_aliases_are_legal_injective_and_do_not_depend_on_the_order(
    name: str, names: list[str], seed: int
) -> None:
    rule, pattern = RULES[name]
    aliases = assign(names, rule)
    assert aliases.keys() == set(names)
    assert len(set(aliases.values())) == len(names)
    assert all(re.fullmatch(pattern, alias) for alias in aliases.values())
    assert all(aliases[given] == given for given in names if re.fullmatch(pattern, given))
    shuffled = list(names)
    random.Random(seed).shuffle(shuffled)
    assert assign(shuffled, rule) == aliases


@given(names=st.lists(NAME, unique=True, min_size=1), other=NAME)
def test_alias_changes_with_another_tool_only_if_that_wants_it(names: list[str], other: str) -> None:
    before, after = assign(names, OPENAI), assign([*names, other], OPENAI)
    moved = [name for name in names if before[name] != after[name]]
    alone = assign([other], OPENAI)[other]
    # A cleaned form that two want belongs to neither of them.
    assert all(before[name] == alone for name in moved)
    assert len(moved) <= 1


@pytest.mark.parametrize("api", APIS)
@given(
    pairs=st.lists(st.tuples(NAME, NAME), unique=True),
    template=st.sampled_from(["{server}:{tool}", "{server}{tool}"]),
)
def test_names_of_an_export_lead_both_ways_for_any_servers_and_tools(
    api: str, pairs: list[tuple[str, str]], template: str
) -> None:
    registry = ToolRegistry()
    tools = [
        ToolDef(
            name=pair[1].join(around_tool(template, pair[0])),
            description="",
            input_schema={"type": "object", "properties": {}},
            server=pair[0],
            original_name=pair[1],
        )
        for pair in pairs
    ]
    added = registry.register_all(tools)
    export = registry.export(api)  # type: ignore[arg-type]
    assert {registry.resolve(api, alias) for alias in export.names} == {tool.name for tool in added}  # type: ignore[arg-type]
    assert all(re.fullmatch(NAMES[api], alias) for alias in export.names)
    assert all(export.restore(export.aliases[tool.name])[0] == tool.name for tool in added)
