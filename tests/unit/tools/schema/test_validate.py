from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from dragoman.tools.schema import cost, validate
from dragoman.tools.schema.validate import Validators, compile_schema

pytestmark = pytest.mark.requirement("legal-error.schema", "excel-3.4", "otter-schema")

OBJECT: dict[str, Any] = {"type": "object"}


def properties(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


def problem(schema: Any, value: object) -> str:
    (text,) = compile_schema(schema).problems(value)
    return text


def test_importing_it_does_not_import_the_validator() -> None:
    code = "import sys, dragoman.tools.schema.validate; sys.exit('jsonschema_rs' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_value_that_fits_has_no_problems() -> None:
    schema = properties(path={"type": "string"}, tags={"items": {"type": "string"}})
    validator = compile_schema(schema)
    assert validator.problems({"path": "a", "tags": ["b"]}) == []
    assert validator.notes == ()


ORDER = {
    **properties(order={"$ref": "#/definitions/order"}),
    "definitions": {
        "order": properties(items={"type": "array", "items": properties(price={"type": "number"})}),
        "9": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}},
    },
}


WORDINGS: list[tuple[str, Any, Any, str]] = [
    ("type", {"type": "integer"}, "x", 'expected an integer, got the string "x"'),
    ("type, read", {"type": "integer"}, "3", 'expected an integer, got the string "3"; did you mean 3?'),
    (
        "type, read as JSON",
        {"type": ["array", "null"]},
        "[1]",
        'expected null or an array, got the string "[1]"; did you mean an array of 1 item, not its text?',
    ),
    ("types", {"type": ["boolean", "null"]}, 3, "expected null or true or false, got 3"),
    (
        "path",
        ORDER,
        {"order": {"items": [{}, {}, {"price": "x"}]}},
        '`order.items[2].price`: expected a number, got the string "x"',
    ),
    (
        "odd path",
        properties(**{"odd one": {"type": "string"}}),
        {"odd one": None},
        '`["odd one"]`: expected a string, got null',
    ),
    (
        "missing",
        {**properties(zip={"type": "string"}), "required": ["zip"]},
        {},
        "the required key `zip` (a string) is missing",
    ),
    ("missing, unknown type", {"required": ["a"]}, {}, "the required key `a` is missing"),
    (
        "missing, but a key is like it",
        {**properties(price={"type": "number"}), "required": ["price"]},
        {"priec": 1},
        "the required key `price` (a number) is missing; is `priec` a typo?",
    ),
    (
        "missing beside another",
        {"dependentRequired": {"a": ["b"]}},
        {"a": 1},
        "the required key `b` is missing",
    ),
    (
        "definition with a name of digits",
        {**properties(a={"$ref": "#/definitions/9"}), "definitions": ORDER["definitions"]},
        {"a": {}},
        "`a`: the required key `x` (a string) is missing",
    ),
    (
        "array asked for",
        {**properties(a={"type": "array", "items": {"type": "string"}}), "required": ["a"]},
        {},
        "the required key `a` (an array of strings) is missing",
    ),
    (
        "unknown key, near",
        {**properties(filePath={}), "additionalProperties": False},
        {"filepath": 1},
        "unknown key `filepath`; did you mean `filePath`?",
    ),
    (
        "unknown key, far",
        {**properties(a={}, b={}), "additionalProperties": False},
        {"zzz": 1},
        "unknown key `zzz`; known keys: `a`, `b`",
    ),
    (
        "unknown key, none known",
        {"additionalProperties": False},
        {"a": 1},
        "no key is allowed here, got an object with `a`",
    ),
    (
        "unevaluated key",
        {"allOf": [properties(name={})], "unevaluatedProperties": False},
        {"nmae": 1},
        "unknown key `nmae`; did you mean `name`?",
    ),
    (
        "enum",
        {"enum": ["read", "write"]},
        "READ",
        'expected one of "read", "write", got the string "READ"; did you mean "read"?',
    ),
    (
        "enum behind a branch",
        {"anyOf": [{"enum": ["day", "week"]}, {"const": 7}, {"type": "null"}]},
        "weak",
        'expected one of "day", "week", 7 or null, got the string "weak"; did you mean "week"?',
    ),
    ("enum, quoted", {"enum": [1, 2]}, "2", 'expected one of 1, 2, got the string "2"; did you mean 2?'),
    (
        "const, near",
        {"const": "Main"},
        "main",
        'expected "Main", got the string "main"; did you mean "Main"?',
    ),
    ("enum, not a text", {"enum": [1, None]}, 2, "expected one of 1, null, got 2"),
    (
        "long enum",
        {"enum": list(range(100))},
        -1,
        "expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … (100 in all), got -1",
    ),
    ("const", {"const": "x"}, "y", 'expected "x", got the string "y"'),
    ("minimum", {"minimum": 1}, 0, "expected a number of at least 1, got 0"),
    ("maximum", {"maximum": 1.5}, 2, "expected a number of at most 1.5, got 2"),
    ("exclusive minimum", {"exclusiveMinimum": 0}, 0, "expected a number above 0, got 0"),
    ("exclusive maximum", {"exclusiveMaximum": 0}, 0, "expected a number below 0, got 0"),
    ("multiple", {"multipleOf": 5}, 7, "expected a multiple of 5, got 7"),
    ("min length", {"minLength": 2}, "a", 'expected at least 2 characters, got the string "a"'),
    ("max length", {"maxLength": 1}, "ab", 'expected at most 1 character, got the string "ab"'),
    ("min items", {"minItems": 1}, [], "expected at least 1 item, got an array of 0 items"),
    ("max items", {"maxItems": 0}, [1], "expected at most 0 items, got an array of 1 item"),
    ("min keys", {"minProperties": 1}, {}, "expected at least 1 key, got an empty object"),
    ("max keys", {"maxProperties": 0}, {"a": 1}, "expected at most 0 keys, got an object with `a`"),
    ("pattern", {"pattern": "^a"}, "b", 'expected a string that matches `^a`, got the string "b"'),
    ("unique", {"uniqueItems": True}, [1, 1], "the items must be unique"),
    (
        "contains",
        {"contains": {"type": "integer"}},
        ["x"],
        "expected at least 1 of its items to be an integer",
    ),
    (
        "contains, too often",
        {"contains": {"const": 1}, "maxContains": 1},
        [1, 1],
        "expected at least 1 and at most 1 of its items to be 1",
    ),
    ("not", {"not": {"type": "null"}}, None, "must not be null, got null"),
    ("nothing", properties(a=False), {"a": 1}, "`a`: no value is allowed here, got 1"),
    ("nothing at all", False, 1, "no value is allowed here, got 1"),
    (
        "further items",
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}], "additionalItems": False},
        [1, 2],
        "too many items, got an array of 2 items",
    ),
    (
        "name of a key",
        {"propertyNames": {"pattern": "^a"}},
        {"b": 1},
        "the key `b` is not allowed: expected a string that matches `^a`",
    ),
    (
        "name of a key, listed",
        {"propertyNames": {"enum": ["a", "b"]}},
        {"c": 1},
        'the key `c` is not allowed: expected one of "a", "b"',
    ),
    ("optional", {"anyOf": [{"type": "string"}, {"type": "null"}]}, 3, "expected a string or null, got 3"),
    (
        "branches, the near one is explained",
        {"anyOf": [{"type": "string"}, {**properties(q={"type": "integer"}), "required": ["q"]}]},
        {"q": "x"},
        (
            "expected a string or an object with `q`, got an object with `q`; "
            'nearest: `q`: expected an integer, got the string "x"'
        ),
    ),
    (
        "branches with a tag",
        {
            "oneOf": [
                {**properties(kind={"const": "a"}, x={"type": "string"}), "required": ["kind", "x"]},
                {**properties(kind={"const": "b"}, y={"type": "string"}), "required": ["kind", "y"]},
            ]
        },
        {"kind": "b", "y": 1},
        (
            "expected an object with `kind`, `x` or an object with `kind`, `y`, got an object with `kind`, `y`; "
            "nearest: `y`: expected a string, got 1"
        ),
    ),
    (
        "branches behind references",
        {
            "anyOf": [{"$ref": "#/$defs/a"}, {"allOf": [{}, {"type": "array"}]}],
            "$defs": {"a": {"type": "string"}},
        },
        3,
        "expected a string or an array, got 3",
    ),
    (
        "branches without a form",
        {"anyOf": [{"minimum": 3}, False]},
        1,
        "expected a value of another form or nothing, got 1; nearest: expected a number of at least 3, got 1",
    ),
    (
        "branch without a type",
        {
            "anyOf": [
                properties(a={"type": "string"}) | {"type": ["object", "null"]},
                {"properties": {"a": {"type": "null"}}},
            ]
        },
        {"a": 1},
        "expected an object or null or an object, got an object with `a`; nearest: `a`: expected a string, got 1",
    ),
    (
        "no key is known",
        {"unevaluatedProperties": False, "propertyNames": True},
        {"a": 1},
        "unknown key `a`; no keys are allowed here",
    ),
    (
        "two branches",
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        3,
        "exactly one form must match, but several do: an integer or a number",
    ),
    ("large integer", {"type": "string"}, 10**9000, "expected a string, got a very large integer"),
    ("not a number", {"type": "number"}, float("nan"), "expected a number, got nan"),
]


@pytest.mark.parametrize(
    ("schema", "value", "text"), [row[1:] for row in WORDINGS], ids=[row[0] for row in WORDINGS]
)
def test_wording(schema: Any, value: object, text: str) -> None:
    assert compile_schema(schema).problems(value) == [text]


def test_all_problems_come_at_once_and_the_last_says_how_many_more_there_are() -> None:
    schema = {"required": [f"k{number}" for number in range(50)]}
    validator = compile_schema(schema)
    assert len(validator.problems({}, limit=50)) == 50
    shown = validator.problems({}, limit=10)
    assert len(shown) == 10
    assert shown[-1] == "… and 41 more problems"


def test_problem_is_short_whatever_came() -> None:
    schema = {**properties(a={"enum": ["x" * 500] * 3}), "additionalProperties": False}
    texts = compile_schema(schema).problems(
        {"a": "y" * 10_000, "k" * 10_000: 1, "z": {str(n): n for n in range(99)}}
    )
    assert len(texts) == 3
    assert all(len(text) <= 300 for text in texts)
    schema = {"properties": {"n" * 99: {"properties": {"m" * 99: {"type": "string"}}}}}
    assert len(problem(schema, {"n" * 99: {"m" * 99: 1}})) <= 200


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (properties(api_key={"type": "integer"}), {"api_key": "hunter2"}),
        (properties(password={"enum": ["hunter1"]}), {"password": "hunter2"}),
        (properties(auth={"properties": {"x": {"type": "integer"}}}), {"auth": {"x": "hunter2"}}),
        (properties(a={"anyOf": [properties(token={"type": "integer"})]}), {"a": {"token": "hunter2"}}),
        ({"type": "integer"}, "https://ana:hunter2@example.org/"),
        ({"additionalProperties": False}, {"https://ana:hunter2@example.org/": 1}),
    ],
)
def test_secrets_are_masked(schema: Any, value: object) -> None:
    (text,) = compile_schema(schema).problems(value)
    assert "hunter2" not in text
    assert "•••" in text


def test_draft_that_is_declared_is_the_one_used() -> None:
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": True}
    assert compile_schema(old).problems(3)
    seven = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"s": {"$id": "#text", "type": "string"}},
        "properties": {"a": {"$ref": "#text", "type": "integer"}, "b": {"dependencies": {"x": ["y"]}}},
        "dependencies": {"a": {"required": ["c"]}},
    }
    assert sorted(compile_schema(seven).problems({"a": 1, "b": {"x": 1}})) == [
        "`a`: expected a string, got 1",
        "`b`: the required key `y` is missing",
        "the required key `c` is missing",
    ]
    root = {
        "$schema": "http://json-schema.org/draft-07/schema",
        "$ref": "#/definitions/a",
        "definitions": {"a": False},
    }
    assert compile_schema(root).problems(1)
    root["definitions"] = {"a": {"type": "string"}}
    assert compile_schema(root).problems(1)


def test_unknown_dialect_counts_as_the_newest() -> None:
    validator = compile_schema({"$schema": "https://example.org/own", "prefixItems": [{"type": "string"}]})
    assert validator.problems([1])
    assert validator.notes == ()


def test_formats_and_content_are_annotations() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "format": "email",
        "contentEncoding": "base64",
        "contentMediaType": "application/json",
    }
    assert compile_schema(schema).problems("no address") == []


REFERENCES: list[tuple[str, dict[str, Any]]] = [
    ("pointer", {"$defs": {"a/b~c d": {"type": "string"}}, "$ref": "#/$defs/a~1b~0c%20d"}),
    ("pointer into a list", {"allOf": [{}, {"type": "string"}], "anyOf": [{"$ref": "#/allOf/1"}]}),
    ("pointer to an odd place", {"components": {"x": {"type": "string"}}, "$ref": "#/components/x"}),
    ("anchor", {"$defs": {"a": {"$anchor": "here", "type": "string"}}, "$ref": "#here"}),
    ("identifier", {"$id": "https://x.org/a", "$defs": {"a": {"$id": "b", "type": "string"}}, "$ref": "b"}),
    (
        "pointer inside another document",
        {
            "$id": "https://x.org/a",
            "$defs": {"a": {"$id": "b", "$defs": {"c": {"type": "string"}}, "$ref": "#/$defs/c"}, "c": {}},
            "$ref": "https://x.org/b",
        },
    ),
    ("urn", {"$id": "urn:x", "$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"}),
    ("dynamic", {"$defs": {"a": {"$dynamicAnchor": "n", "type": "string"}}, "$dynamicRef": "#n"}),
    (
        "both",
        {"$defs": {"a": {"$dynamicAnchor": "n", "type": "string"}}, "$ref": "#/$defs", "$dynamicRef": "#n"},
    ),
    ("to nothing", {"$defs": {"a": False}, "$ref": "#/$defs/a"}),
]


@pytest.mark.parametrize("schema", [row[1] for row in REFERENCES], ids=[row[0] for row in REFERENCES])
def test_reference_is_followed(schema: dict[str, Any]) -> None:
    validator = compile_schema(schema)
    assert validator.notes == ()
    assert validator.problems(1)


def test_recursive_schema_is_checked_at_every_level() -> None:
    schema = properties(value={"type": "integer"}, children={"type": "array", "items": {"$ref": "#"}})
    value = {"value": 1, "children": [{"value": 2, "children": [{"value": "x"}]}]}
    assert (
        problem(schema, value) == '`children[0].children[0].value`: expected an integer, got the string "x"'
    )
    recursive = {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        **properties(n={"$recursiveRef": "#"}, v={"type": "integer"}),
    }
    assert problem(recursive, {"n": {"n": {"v": "x"}}}) == '`n.n.v`: expected an integer, got the string "x"'


@pytest.mark.parametrize(
    ("schema", "note"),
    [
        ({"$ref": "https://example.org/x.json"}, "points outside the schema"),
        ({"$ref": "file:///etc/passwd"}, "points outside the schema"),
        ({"$ref": "http://[x"}, "points outside the schema"),
        ({"$ref": "#/nowhere"}, "points nowhere"),
        ({"$ref": "#/type/0"}, "points nowhere"),
        ({"$ref": "#/enum/7", "enum": [1, "x"]}, "points nowhere"),
        ({"$ref": "#nowhere"}, "points nowhere"),
        ({"pattern": "^(?=x)y"}, "is not supported"),
        ({"pattern": r"(a)\1"}, "is not supported"),
        ({"pattern": "((a{1000}){1000}){1000}"}, "costs too much"),
        ({"pattern": "a" * 5000}, "costs too much"),
        ({"patternProperties": {"(?!x)y": False}, "additionalProperties": False}, "is not supported"),
    ],
)
def test_what_cannot_be_checked_is_left_out_and_noted(schema: dict[str, Any], note: str) -> None:
    full = {"properties": {"a": schema, "b": {"type": "integer"}}}
    validator = compile_schema(full)
    assert len(validator.notes) == 1
    assert note in validator.notes[0]
    assert validator.problems({"a": {"y": 1} if "patternProperties" in schema else 1}) == []
    assert validator.problems({"b": "x"})


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"pattern": "(?=x)y"}},
        {"oneOf": [{"pattern": "(?=x)y"}, {"type": "string"}]},
        {"if": {"pattern": "(?=x)y"}, "then": False},
        {"contains": {"pattern": "(?=x)y"}, "maxContains": 0, "minContains": 0},
        {"$ref": "#/nowhere", "unevaluatedProperties": False},
        {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "http://x.org"}}},
        {
            "$dynamicRef": "#a",
            "$defs": {"1": {"$dynamicAnchor": "a"}, "2": {"$id": "x", "$dynamicAnchor": "a"}},
        },
    ],
)
def test_leaving_out_never_makes_the_rest_stricter(schema: dict[str, Any]) -> None:
    validator = compile_schema(schema)
    assert validator.notes
    for value in ("x", ["x"], {"a": 1}):
        assert validator.problems(value) == []


def test_branches_of_which_a_part_is_left_out_still_have_to_fit_once() -> None:
    schema = {"oneOf": [{"type": "string", "pattern": "(?=x)y"}, {"type": "null"}], "allOf": [{}]}
    assert problem(schema, 3) == "expected a string or null, got 3"


@pytest.mark.parametrize(
    "schema",
    [
        3,
        None,
        "x",
        {"type": "strong"},
        {"properties": 3},
        {"pattern": 3},
        {"required": "x"},
        {"enum": [{1}]},
        {"$ref": 3},
    ],
)
def test_schema_that_does_not_compile_accepts_everything(schema: Any) -> None:
    validator = compile_schema(schema)
    assert validator.problems({"a": 1}) == []
    assert [note for note in validator.notes if "nothing is checked" in note]


def chain(links: int, *, branches: int = 1, word: str = "allOf") -> dict[str, Any]:
    """Each definition refers to the next, several times over."""
    defs: dict[str, Any] = {
        f"a{number}": {word: [{"$ref": f"#/$defs/a{number + 1}"}] * branches} for number in range(links)
    }
    return {"$defs": {**defs, f"a{links}": {"type": "string"}}, "$ref": "#/$defs/a0"}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


HOSTILE: dict[str, Any] = {
    "billion laughs": chain(40, branches=2),
    "billion laughs of anyOf": chain(40, branches=2, word="anyOf"),
    "long chain": chain(4000),
    "endless chain": chain(20_000),
    "loop": {"$ref": "#"},
    "loop of two": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}},
        "$ref": "#/$defs/a",
    },
    "deep": nested(5_000),
    "many": {"allOf": [{"type": "string"}] * 10_000},
    "wide": properties(**{f"k{number}": {"type": "string"} for number in range(30_000)}),
    "overlapping": {"$defs": {f"a{n}": {"$ref": f"#/$defs/a{n}/x/x", "x": {"x": {}}} for n in range(9000)}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bomb_accepts_everything_with_a_note(name: str) -> None:
    validator = compile_schema(HOSTILE[name])
    assert validator.problems(1) == []
    assert len(validator.notes) == 1
    assert validator.notes[0].startswith("nothing is checked against the schema: ")


def deep(levels: int, value: object = None) -> object:
    for _ in range(levels):
        value = {"a": value}
    return value


def test_schema_that_unfolds_with_the_value_is_checked_for_shallow_values_only() -> None:
    member = properties(a={"$ref": "#"})
    validator = compile_schema({"anyOf": [member, member, {"type": "null"}]})
    assert validator.notes == ()
    assert validator.problems(deep(3)) == []
    assert validator.problems(deep(3, "x"))
    assert validator.problems(deep(60, "x")) == []
    assert validator.problems(deep(100_000, "x")) == []


@pytest.mark.parametrize("schema", [properties(a={"$ref": "#"}), {"additionalProperties": {"$ref": "#"}}])
def test_deep_value_does_not_end_the_process(schema: Any) -> None:
    found: list[object] = []
    validator = compile_schema(schema)
    threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(
            target=lambda: found.extend([validator.problems(deep(60, {})), compile_schema(chain(100))])
        )
        thread.start()
        thread.join()
    finally:
        threading.stack_size(0)
    assert found[0] == []
    assert validator.problems(deep(100_000)) == []


def test_catastrophic_pattern_takes_linear_time() -> None:
    assert problem({"pattern": "^(a+)+$"}, "a" * 7_000 + "b").startswith("expected a string that matches")


def test_pattern_is_not_tried_on_very_long_text_but_the_rest_is() -> None:
    schema = properties(a={"type": "string", "pattern": "[ab]*a[ab]{500}c"}, b={"type": "integer"})
    validator = compile_schema(schema)
    assert validator.problems({"a": "ab"})
    assert validator.problems({"a": "ab" * 100_000}) == []
    assert validator.problems({"a": "ab" * 100_000, "b": "x"}) == [
        '`b`: expected an integer, got the string "x"'
    ]
    assert validator.problems({"a": "ab" * 100_000, "b": "y"}) == [
        '`b`: expected an integer, got the string "y"'
    ]
    keys = compile_schema({"patternProperties": {"[ab]*a[ab]{500}c": False}})
    assert keys.problems({"ab" * 100_000: 1}) == []


def test_more_patterns_than_can_be_afforded_are_left_out() -> None:
    schema = properties(**{f"k{number}": {"pattern": f"^{number}$"} for number in range(150)})
    validator = compile_schema(schema)
    assert len(validator.notes) == cost.MAX_NOTES
    assert validator.problems({"k0": "x"})


def test_huge_enum_is_checked_and_the_nearest_found() -> None:
    schema = {"items": {"enum": [f"value-{number}" for number in range(40_000)]}}
    (text,) = compile_schema(schema).problems(["valeu-7"] * 100)
    assert text.endswith('did you mean "value-7"?')
    assert len(text) <= 300


def test_value_too_large_to_explain_has_its_first_problem_named() -> None:
    validator = compile_schema({"items": {"type": "integer"}})
    assert validator.problems(["x"] * 10_000) == ['`[0]`: expected an integer, got the string "x"']


def test_long_text_does_not_hide_what_is_wrong_beside_it() -> None:
    schema = {
        **properties(
            text={"type": "string", "minLength": 6_000}, kind={"enum": ["a"]}, odd={"const": "y" * 5_000}
        ),
        "required": ["path"],
    }
    validator = compile_schema(schema)
    value = {"text": "x" * 1_000_000, "kind": "z" * 1_000_000, "odd": "y" * 5_000}
    assert validator.problems(value) == [
        "the required key `path` is missing",
        f'`kind`: expected "a", got the string "{"z" * 39}…" (1000000 characters)',
    ]
    limited = compile_schema({"items": {"maxLength": 7_000}})
    assert limited.problems(["x" * 8_000]) == [
        f'`[0]`: expected at most 7000 characters, got the string "{"x" * 39}…" (8000 characters)'
    ]


def test_errors_that_would_copy_too_much_are_not_looked_for() -> None:
    branches = [{"type": "object", "required": [f"k{number}"]} for number in range(300)]
    validator = compile_schema(properties(a={"anyOf": branches}))
    assert validator.problems({"a": {"b": ["x"] * 20_000}}) == [validate.UNEXPLAINED]
    assert validator.problems({"a": 3}) != [validate.UNEXPLAINED]


def test_errors_themselves_are_for_who_mends_them() -> None:
    validator = compile_schema(properties(a={"type": "integer"}))
    assert [error.instance_path for error in validator.errors({"a": "3"})] == [["a"]]
    assert validator.work({"a": "3"}) > 0
    loose = compile_schema({"type": 7})
    assert (loose.errors({"a": "3"}), loose.work({"a": "3"}), loose.schema) == ([], 0, True)


def test_schema_too_large_to_explain_says_so() -> None:
    schema = {"enum": [f"value-{number}" for number in range(100_000)]}
    assert compile_schema(schema).problems(3) == [validate.UNEXPLAINED]


def test_value_too_large_to_check_is_accepted() -> None:
    validator = compile_schema({"items": {"type": "integer"}})
    assert validator.problems(["x"] * (validate.MAX_WORK + 1)) == []


def test_work_that_does_not_grow_with_the_value_has_no_bound() -> None:
    validator = compile_schema(properties(a={"type": "integer"}))
    assert validator.problems({"a": 1, "rest": [1] * (validate.MAX_WORK + 1)}) == []
    assert validator.problems({"a": "x", "rest": [1] * (validate.MAX_WORK + 1)}) == [validate.UNEXPLAINED]


@pytest.mark.parametrize("value", [{"a": {1}}, {"a": b"x"}, {1: 2}, {"a": "\ud800"}, object()])
def test_what_is_no_json_is_left_to_the_wire(value: object) -> None:
    assert compile_schema(
        {"properties": {"a": {"type": "string"}}, "propertyNames": {"minLength": 1}}
    ).problems(value) in (
        [],
        ["`a`: expected a string, got a set"],
    )


def test_validator_is_kept_for_its_very_schema() -> None:
    validators = Validators(size=2)
    first, second, third = {"type": "string"}, {"type": "string"}, {"type": "string"}
    kept = validators.of(first)
    assert validators.of(first) is kept
    assert validators.of(second) is not kept
    assert validators.of(first) is kept
    validators.of(third)
    assert validators.of(first) is not kept
