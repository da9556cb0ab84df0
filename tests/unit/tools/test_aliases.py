from __future__ import annotations

import pytest

from dragoman.tools import names as naming
from dragoman.tools.export.apis.gemini import NAMES as GEMINI
from dragoman.tools.export.apis.openai import NAMES as OPENAI
from dragoman.tools.names import assign

pytestmark = pytest.mark.requirement("kode-registry.naming")


@pytest.fixture(autouse=True)
def no_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget how a manager of an earlier test has names spelled."""
    monkeypatch.setattr(naming._Spelling, "of", None)


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("mcp_fs_read", "mcp_fs_read"),
        ("fs:read", "fs__read"),
        ("fs.read file/all", "fs_read_file_all"),
        ("法条", "tool_4f71718414c0a49f"),
        ("law_查询", "law____1eede7645186e866"),
        ("🙂", "tool_d06f1525f7913978"),
        ("", "tool_e3b0c44298fc1c14"),
        ("a" * 65, "a" * 47 + "_635361c48bb9eab1"),
    ],
)
def test_alias_for_openai(name: str, alias: str) -> None:
    assert assign([name], OPENAI) == {name: alias}


def test_gemini_carries_the_colon_and_128_characters_and_starts_with_no_digit() -> None:
    names = ["fs:read", "a" * 128, "1st"]
    assert assign(names, GEMINI) == {"fs:read": "fs:read", "a" * 128: "a" * 128, "1st": "_1st"}


def test_what_two_names_want_belongs_to_neither_and_a_legal_name_keeps_its_own() -> None:
    aliases = assign(["a.b", "a/b", "a_b", "c.d"], OPENAI)
    assert aliases["a_b"] == "a_b"
    assert aliases["c.d"] == "c_d"
    assert aliases["a.b"] == "a_b_2e7336dc8eba87ef"
    assert aliases["a/b"] == "a_b_c14cddc033f64b9d"
    assert "a_b" not in assign(["a.b", "a/b"], OPENAI).values()


def test_names_that_differ_in_case_or_in_composition_only_stay_apart() -> None:
    aliases = assign(["Read", "read", "é", "e\u0301"], OPENAI)
    assert (aliases["Read"], aliases["read"]) == ("Read", "read")
    assert aliases["é"] != aliases["e\u0301"]


def test_name_that_is_anothers_hashed_alias_keeps_it() -> None:
    hashed = assign(["a.b", "a/b"], OPENAI)["a.b"]
    aliases = assign(["a.b", "a/b", hashed], OPENAI)
    assert aliases[hashed] == hashed
    assert aliases["a.b"] not in {hashed, "a_b"}
    assert len(set(aliases.values())) == 3
