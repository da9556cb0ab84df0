from __future__ import annotations

from typing import Any

import pytest

from dragoman.tools.schema.problems import MAX_JSON_CHARS, NOTHING, option_meant, read_as


@pytest.mark.parametrize(
    ("value", "kind", "meant"),
    [
        ("3", "integer", 3),
        (" -12\n", "integer", -12),
        ("3.0", "integer", 3),
        ("3.5", "number", 3.5),
        ("3", "number", 3),
        ("1e3", "number", 1000.0),
        ("TRUE", "boolean", True),
        ("false", "boolean", False),
        ("null", "null", None),
        ('{"a": 1}', "object", {"a": 1}),
        (" [1, 2] ", "array", [1, 2]),
        (3, "string", "3"),
    ],
)
def test_reading(value: object, kind: str, meant: Any) -> None:
    found = read_as(value, kind)
    assert found == meant
    assert type(found) is type(meant)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("007", "integer"),
        ("+3", "integer"),
        ("1,000", "integer"),
        ("3.5", "integer"),
        ("1e3", "integer"),
        ("", "integer"),
        ("9" * 41, "integer"),
        (" " * 200 + "3", "integer"),
        ("٣", "integer"),
        ("NaN", "number"),
        ("1e999", "number"),
        ("50%", "number"),
        ("yes", "boolean"),
        ("1", "boolean"),
        (1, "boolean"),
        ("None", "null"),
        ("{'a': 1}", "object"),
        ('{"a": NaN}', "object"),
        ("[1]", "object"),
        ('"text"', "array"),
        ("[" * 100_000, "array"),
        ("[" + " " * MAX_JSON_CHARS + "]", "array"),
        (1.5, "string"),
        (True, "string"),
        (None, "string"),
        (10**50, "string"),
        ([1], "object"),
        ("3", "mystery"),
    ],
)
def test_what_may_mean_several_things_means_nothing(value: object, kind: str) -> None:
    assert read_as(value, kind) is NOTHING


@pytest.mark.parametrize(
    ("value", "options", "meant"),
    [
        ("READ", ["read", "write"], "read"),
        (" read ", ["read", "write"], "read"),
        ("2", [1, 2], 2),
        ("null", ["a", None], None),
        ("true", [True, "x"], True),
        (2, ["1", "2"], "2"),
        ("asc", ["ASC", "asc "], NOTHING),
        (" asc", ["ASC", "asc"], "asc"),
        ("1", [1, "1 "], NOTHING),
        ("x", ["read"], NOTHING),
        (1.5, ["1.5"], NOTHING),
        (None, ["None"], NOTHING),
        ("{}", [{}], NOTHING),
    ],
)
def test_option_that_is_meant(value: object, options: list[Any], meant: Any) -> None:
    assert option_meant(value, options) is meant or option_meant(value, options) == meant


def test_nothing_has_a_name() -> None:
    assert repr(NOTHING) == "NOTHING"
