from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.tools.naming import DEFAULT_TEMPLATE, NameTable, Pair, expose


def test_default_template_prefixes_server_and_tool() -> None:
    assert expose(DEFAULT_TEMPLATE, Pair("fs", "read")) == "mcp_fs_read"


def test_own_template_is_filled_in() -> None:
    assert expose("{server}:{tool}", Pair("fs", "read")) == "fs:read"


def test_values_that_look_like_fields_are_put_in_as_they_are() -> None:
    assert expose("{server}-{tool}", Pair("{tool}", "{server}")) == "{tool}-{server}"


def test_name_and_pair_are_found_each_way_and_a_taken_one_is_refused() -> None:
    table = NameTable()
    assert table.add("mcp_a_b_c", Pair("a", "b_c"))
    assert not table.add("mcp_a_b_c", Pair("a_b", "c"))
    assert not table.add("other", Pair("a", "b_c"))
    assert table.pair_of("mcp_a_b_c") == Pair("a", "b_c")
    assert table.name_of(Pair("a", "b_c")) == "mcp_a_b_c"
    assert table.name_of(Pair("a_b", "c")) is None


def test_discarded_name_is_free_again() -> None:
    table = NameTable()
    table.add("n", Pair("a", "b"))
    table.discard("n")
    table.discard("n")
    assert table.pair_of("n") is None
    assert table.add("n", Pair("a", "b"))


@given(st.lists(st.tuples(st.text(), st.text()).map(lambda pair: Pair(*pair))))
def test_every_name_in_the_table_leads_back_to_its_pair(pairs: list[Pair]) -> None:
    table = NameTable()
    added = [pair for pair in pairs if table.add(expose(DEFAULT_TEMPLATE, pair), pair)]
    for pair in added:
        name = table.name_of(pair)
        assert name is not None
        assert table.pair_of(name) == pair
