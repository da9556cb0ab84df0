from __future__ import annotations

import re

import pytest

from dragoman.model import Settings
from dragoman.tools.export.apis import APIS, model_api
from dragoman.tools.names import (
    NameTable,
    Outcome,
    Pair,
    alike,
    around_tool,
    is_reserved,
    settle,
    unambiguous,
)

pytestmark = pytest.mark.requirement(
    "excel-3.3",
    "kode-registry.naming",
    "kode-registry.register",
    "rrclaw-name.prefix",
)


def expose(template: str, pair: Pair) -> str:
    return pair.tool.join(around_tool(template, pair.server))


def test_default_template_prefixes_server_and_tool() -> None:
    assert expose(Settings().naming, Pair("fs", "read")) == "mcp_fs_read"
    assert expose(Settings().naming, Pair("My-fs", "Read-all")) == "mcp_My-fs_Read-all"


def test_own_template_is_filled_in() -> None:
    assert expose("{server}:{tool}", Pair("fs", "read")) == "fs:read"


def test_values_that_look_like_fields_are_put_in_as_they_are() -> None:
    assert expose("{server}-{tool}", Pair("{tool}", "{server}")) == "{tool}-{server}"


GIT, HUB = Pair("git", "hub_push"), Pair("git_hub", "push")


def test_name_that_one_tool_wants_is_its_own() -> None:
    assert settle({GIT: "mcp_git_hub_push"}) == {GIT: Outcome("mcp_git_hub_push")}


def test_name_that_two_servers_want_goes_to_neither_whatever_the_order() -> None:
    one = settle({GIT: "mcp_git_hub_push", HUB: "mcp_git_hub_push"})
    other = settle({HUB: "mcp_git_hub_push", GIT: "mcp_git_hub_push"})
    assert one == other
    names = {outcome.name for outcome in one.values()}
    assert len(names) == 2
    assert "mcp_git_hub_push" not in names
    for name in names:
        assert name is not None
        assert re.fullmatch(r"mcp_git_hub_push_[0-9a-f]{16}", name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Read", "read"),
        ("a.b", "a_b"),
        ("a:b", "a__b"),
        ("caf\u00e9", "cafe\u0301"),
        ("\uff52ead", "read"),
        ("1st", "_1st"),
        ("a b", "a/b"),
    ],
)
def test_names_that_could_be_confused_go_to_neither(one: str, other: str) -> None:
    found = settle({Pair("x", "1"): one, Pair("y", "2"): other})
    assert {one, other}.isdisjoint({outcome.name for outcome in found.values()})


def test_names_of_one_server_may_be_alike() -> None:
    found = settle({Pair("x", "Read"): "Read", Pair("x", "read"): "read"})
    assert {outcome.name for outcome in found.values()} == {"Read", "read"}


def test_words_of_other_scripts_are_not_alike() -> None:
    assert alike("\u67e5\u8be2") != alike("\u641c\u7d22")


def test_unambiguous_name_cannot_be_occupied() -> None:
    taken = unambiguous(GIT, "mcp_git_hub_push")
    evil = Pair("evil", taken)
    found = settle({evil: taken})
    assert found[evil].name not in (None, taken)
    assert settle({GIT: taken}) == {GIT: Outcome(taken)}
    assert is_reserved(evil, taken.upper())


@pytest.mark.parametrize("wanted", ["", "1", "\u67e5", "a" * 300, "a b", "\ud800", "-"])
def test_unambiguous_name_is_legal_for_every_api(wanted: str) -> None:
    for rule in (model_api(api).names for api in APIS):
        assert rule.allows(unambiguous(Pair("s", wanted), wanted))


def test_built_in_tool_keeps_its_name_and_the_other_is_left_out() -> None:
    assert settle({GIT: "x"}, {"x"}) == {GIT: Outcome(None, "x")}
    alike_only = settle({GIT: "X"}, {"x"})[GIT].name
    assert alike_only not in (None, "x", "X")


def test_name_that_a_tool_had_goes_to_no_other_server() -> None:
    table = NameTable()
    table.add(GIT, "x")
    assert table.settle(alike("x")) == {GIT: Outcome("x")}
    table.add(HUB, "x")
    assert "x" not in {outcome.name for outcome in table.settle(alike("x")).values()}
    table.discard(GIT, "x")
    assert table.settle(alike("x"))[HUB].name != "x"
    table.add(GIT, "x")
    table.discard(HUB, "x")
    assert table.settle(alike("x")) == {GIT: Outcome("x")}
    table.discard(GIT, "x")
    table.forget("git")
    table.add(HUB, "x")
    assert table.settle(alike("x")) == {HUB: Outcome("x")}


def test_order_of_the_configuration_decides_where_it_counts() -> None:
    wanted = {GIT: "x", HUB: "x", Pair("late", "t"): "x"}
    found = settle(wanted, order=["git_hub", "git"], owner="git")
    assert found == {HUB: Outcome("x"), GIT: Outcome(None, HUB), Pair("late", "t"): Outcome(None, HUB)}
