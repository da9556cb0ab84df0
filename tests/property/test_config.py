"""Configuration, for any input: expansion is total, merging loses nothing, wrong files have a place."""

from __future__ import annotations

import json
import logging
import random
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.mutating import FILES, FIXTURES, mutated, toml_key, toml_value
from tests.property.reading import check_file

from dragoman.config.dialect import Entry
from dragoman.config.dialects import NAMES, dialect
from dragoman.config.documents import json_lines, parse, toml_lines
from dragoman.config.entries import build
from dragoman.config.merge import Layer, merge
from dragoman.config.templates import (
    NATIVE,
    NONE,
    ExpansionContext,
    VariableSyntax,
    escape,
    expand,
    to_template,
    variables,
)
from dragoman.config.values import seconds
from dragoman.errors import ConfigSyntaxError, InvalidSpecError
from dragoman.model import Stdio

steady = settings(suppress_health_check=[HealthCheck.too_slow])
"""For nested data: making it may take long on a busy machine, which says nothing about the code."""

PIECES = [
    "$",
    "$$",
    "{",
    "}",
    "${",
    "$${",
    "A",
    "B",
    "_x",
    "env:",
    "input:",
    ":-",
    "-",
    " ",
    "é",
    "\n",
    "~",
    "/",
]
PIECES += ["workspaceFolder", "${A}", "${B:-c}", "${input:x}", "$A"]
TEXTS = st.one_of(st.text(max_size=20), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
ENVIRONMENTS = st.dictionaries(st.sampled_from(["A", "B", "_x", "AB"]), TEXTS)
STYLES = st.builds(
    VariableSyntax,
    braces=st.booleans(),
    defaults=st.booleans(),
    default_if_empty=st.booleans(),
    env_prefix=st.booleans(),
    bare=st.booleans(),
    keep_bare=st.booleans(),
    inputs=st.booleans(),
    places=st.booleans(),
)


def around(env: dict[str, str]) -> ExpansionContext:
    return ExpansionContext(env=env, root="/project", home="/home", inputs={"x": "answer"})


def whole(_name: str, reference: str) -> str:
    return reference


@pytest.fixture(autouse=True)
def quiet_log() -> Any:
    logging.getLogger("dragoman").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("dragoman").setLevel(logging.NOTSET)


# Expansion


@given(TEXTS, ENVIRONMENTS)
def test_expansion_is_total(text: str, env: dict[str, str]) -> None:
    assert isinstance(expand(text, around(env), whole), str)


@given(TEXTS)
def test_a_variable_that_is_told_is_the_only_one_that_is_asked_for(text: str) -> None:
    asked: list[str] = []

    def missing(name: str, reference: str) -> str:
        asked.append(name)
        return reference

    expand(text, around({}), missing)
    assert {name for name in asked if not name.startswith("input:")} <= set(variables(text))


@given(TEXTS, TEXTS)
def test_expansion_is_one_pass(text: str, value: str) -> None:
    """A value never takes part in the expansion: a mark in its place gives the same text around it."""
    mark = "\ue000"
    marked = expand(text, around({"A": mark}), whole)
    plain = expand(text, around({"A": value or mark}), whole)
    assert plain == marked.replace(mark, value or mark)


@given(TEXTS, ENVIRONMENTS)
def test_escaped_text_comes_back(text: str, env: dict[str, str]) -> None:
    assert expand(escape(text), around(env), whole) == text
    assert variables(escape(text)) == []


@given(TEXTS, ENVIRONMENTS)
def test_what_a_dialect_has_no_syntax_for_stays_alone(text: str, env: dict[str, str]) -> None:
    assert expand(to_template(text, NONE), around(env), whole) == text


@given(TEXTS)
def test_native_text_is_a_template_already(text: str) -> None:
    assert to_template(text, NATIVE) == text


@steady
@given(TEXTS, STYLES, ENVIRONMENTS)
def test_a_dialects_text_means_the_same_as_a_template(
    text: str, style: VariableSyntax, env: dict[str, str]
) -> None:
    """Compare with a reader of the dialect that is written without templates."""
    assert expand(to_template(text, style), around(env), empty) == directly(text, style, env)


def empty(_name: str, _reference: str) -> str:
    return ""


def directly(text: str, style: VariableSyntax, env: dict[str, str]) -> str:
    """Expand as the host does: from left to right, no escape, unset is empty."""
    result, at = "", 0
    while at < len(text):
        end = text.find("}", at)
        if text.startswith("${", at) and end > 0:
            result += braced(text[at + 2 : end], style, env)
            at = end + 1
            continue
        name = identifier(text[at + 1 :]) if text[at] == "$" and style.bare else ""
        if name:
            result += env.get(name, f"${name}" if style.keep_bare else "")
            at += len(name) + 1
            continue
        result += text[at]
        at += 1
    return result


def identifier(text: str) -> str:
    name = ""
    for char in text:
        if not (char.isascii() and (char.isalpha() or char == "_" or (name and char.isdigit()))):
            break
        name += char
    return name


def braced(body: str, style: VariableSyntax, env: dict[str, str]) -> str:
    literal = f"${{{body}}}"
    places = {
        "workspaceFolder": "/project",
        "workspaceFolderBasename": "project",
        "userHome": "/home",
        "/": "/",
    }
    if body.startswith("input:") and not body.startswith("input:-"):
        return {"x": "answer"}.get(body[6:], "") if style.inputs else literal
    if body in places:
        return places[body] if style.places else literal
    known = style.env_prefix if body.startswith("env:") else style.braces
    name = identifier(body.removeprefix("env:"))
    rest = body.removeprefix("env:")[len(name) :]
    if not known or not name or (rest and not (rest.startswith(":-") and style.defaults)):
        return literal
    value = env.get(name)
    if rest and (value is None or (style.default_if_empty and not value)):
        return rest[2:]
    return value or ""


# Positions

KEYS = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="\ufeff"), max_size=6
)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab {}[]\"'\\,:#=\n.", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
TABLES = st.dictionaries(KEYS, DATA, min_size=1, max_size=4)


@steady
@given(TABLES, st.sampled_from([0, 1, 4]))
def test_the_line_of_a_key_of_json_holds_the_key(data: dict[str, Any], indent: int) -> None:
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    lines = text.split("\n")
    found = json_lines(text)
    for pointer, line in found.items():
        if isinstance(pointer[-1], str):
            assert json.dumps(pointer[-1], ensure_ascii=False) + ":" in lines[line - 1]
    assert {(key,) for key in data} <= found.keys()


@steady
@given(TABLES)
def test_the_line_of_a_key_of_toml_holds_the_key(data: dict[str, Any]) -> None:
    text = "".join(f"[{toml_key(key)}]\n# = [\n{toml_key(key)}.x = {toml_value(data[key])}\n" for key in data)
    tomllib.loads(text)
    lines = text.split("\n")
    found = toml_lines(text)
    for key in data:
        for pointer in ((key,), (key, key), (key, key, "x")):
            assert toml_key(key) in lines[found[pointer] - 1]


@steady
@given(TABLES)
def test_the_line_of_a_key_of_yaml_holds_the_key(data: dict[str, Any]) -> None:
    text = yaml.safe_dump(data, allow_unicode=True, width=10_000, sort_keys=False)
    document = parse(text, "f", "yaml")
    lines = text.split("\n")
    for key in data:
        line = document.line((key,))
        assert line is not None
        start = "\n".join(lines[line - 1 :])
        assert key in start or "\\" in start or "''" in start


# Durations


@steady
@given(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.none()))
)
def test_a_duration_is_positive_or_refused(value: object) -> None:
    for unit in ("s", "ms", "unknown"):
        result = seconds_or_refusal(value, unit)
        assert result > 0 if isinstance(result, float) else "expected a duration" in result


def seconds_or_refusal(value: object, unit: Any) -> float | str:
    try:
        return seconds(value, unit)
    except ValueError as error:
        return str(error)


@given(st.integers(1, 10**6), st.sampled_from([("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600)]))
def test_a_written_unit_wins_over_the_dialects(amount: int, unit: tuple[str, float]) -> None:
    text = f"{amount}{unit[0]}"
    (value,) = {seconds(text, each) for each in ("s", "ms", "unknown")}
    assert value == pytest.approx(amount * unit[1])


# Merging

ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "command": st.sampled_from(["x", "y", 5]),
        "lazy": st.sampled_from([True, "?"]),
        "env": st.dictionaries(st.sampled_from("AB"), st.sampled_from(["1", []]), max_size=2),
    },
) | st.just(5)
FILES_OF_SERVERS = st.lists(st.dictionaries(st.sampled_from("abc"), ENTRIES, max_size=3), max_size=4)


@steady
@given(FILES_OF_SERVERS, st.sampled_from(["replace", "fields", "first"]))
def test_every_definition_wins_is_hidden_or_is_a_problem(files: list[dict[str, Any]], combine: Any) -> None:
    layers = [layer(str(number), servers) for number, servers in enumerate(files)]
    merged = merge(layers, combine)
    told = [
        (origin.source, origin.pointer) for spec in merged.servers for origin in (spec.origin, *spec.shadowed)
    ]
    told += [(problem.source, ".".join(problem.pointer.split(".")[:2])) for problem in merged.problems]
    defined = [
        (str(number), f"mcpServers.{name}") for number, servers in enumerate(files) for name in servers
    ]
    if combine == "first":
        # The first file hides all others, and what they define with them.
        told, defined = ([one for one in found if one[0] == "0"] for found in (told, defined))
    assert sorted(told) == sorted(defined)
    assert merged.own == merged.servers
    for spec in merged.servers:
        order = [int(origin.source) for origin in (spec.origin, *spec.shadowed)]
        assert order == sorted(order), "the strongest first"


@steady
@given(FILES_OF_SERVERS, st.randoms(use_true_random=False))
def test_the_order_of_entries_inside_a_file_does_not_matter(
    files: list[dict[str, Any]], rng: random.Random
) -> None:
    def outcome(shuffled: bool) -> Any:
        layers: list[Layer] = []
        for number, servers in enumerate(files):
            names = list(servers)
            if shuffled:
                rng.shuffle(names)
            layers.append(layer(str(number), {name: servers[name] for name in names}))
        merged = merge(layers, "replace")
        return (
            {
                spec.name: (spec.transport, [origin.source for origin in spec.shadowed])
                for spec in merged.servers
            },
            sorted((problem.source, problem.pointer) for problem in merged.problems),
        )

    assert outcome(shuffled=False) == outcome(shuffled=True)


@steady
@given(FILES_OF_SERVERS, st.integers(0, 4))
def test_replacing_is_associative_in_provenance(files: list[dict[str, Any]], cut: int) -> None:
    """The winner of all files is that of the stronger part, or else that of the weaker one."""
    layers = [layer(str(number), servers) for number, servers in enumerate(files)]
    above, below = (
        {spec.name: [spec.origin, *spec.shadowed] for spec in merge(part, "replace").servers}
        for part in (layers[:cut], layers[cut:])
    )
    together = {spec.name: [spec.origin, *spec.shadowed] for spec in merge(layers, "replace").servers}
    assert together == {name: above.get(name, []) + below.get(name, []) for name in above | below}


def layer(source: str, servers: dict[str, Any]) -> Layer:
    document = parse(json.dumps({"mcpServers": servers}), source, "json")
    found = dialect("dragoman")
    entries = list(found.find(document, "/project"))
    return Layer(document=document, dialect=found, scope="user", entries=entries)


# Files

SECRET = "s3cr3t"
PRIVATE = st.recursive(
    st.just(SECRET)
    | st.sampled_from([f"https://u:{SECRET}@x", f"ftp://{SECRET}", f"a\n{SECRET}", 5, None, ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("AB="), inner, max_size=2),
    max_leaves=4,
)


@steady
@given(
    st.sampled_from(NAMES),
    st.dictionaries(
        st.sampled_from(
            ["command", "args", "env", "url", "headers", "http_headers", "httpUrl", "auth", "oauth"]
        ),
        PRIVATE,
        max_size=5,
    ),
    st.sampled_from([None, "stdio", "http", "sse", 5]),
)
def test_no_error_note_or_repr_shows_a_secret(name: str, fields: dict[str, Any], kind: Any) -> None:
    """The command itself is shown: it is the name of a program."""
    typed = fields if kind is None else fields | {"type": kind}
    document = parse(json.dumps({"s": typed}), "f", "json")
    try:
        spec = build(Entry("s", dict(typed), document, ("s",)), dialect(name), "user")
    except InvalidSpecError as error:
        said = f"{error} {error!r} {error.problems}"
    else:
        said = repr(spec) + " ".join(f"{note.key} {note.message}" for note in spec.notes)
        if isinstance(spec.transport, Stdio):
            said = said.replace(repr(spec.transport.command), "")
    assert SECRET not in said


@given(st.sampled_from(["json", "toml", "yaml", "env"]), st.text(max_size=60))
def test_any_text_is_a_document_or_a_syntax_error(format_: Any, text: str) -> None:
    try:
        line = parse(text, "f", format_).line(("a", 0))
    except ConfigSyntaxError as error:
        line = error.line
    assert line is None or 1 <= line <= text.count("\n") + 1


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(FILES), st.integers(0, 2**32), st.sampled_from(["replace", "fields", "first"]))
def test_any_mutation_of_a_fixture_gives_settings_and_problems_with_a_place(
    original: Path, seed: int, combine: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, original.stem + original.suffix)
        path.write_bytes(mutated(original, random.Random(seed)))
        check_file(path, original.relative_to(FIXTURES).parts[0], original, combine)
