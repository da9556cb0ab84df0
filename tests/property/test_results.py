"""What must hold of every result and every slip: no exception, within the budget, valid blocks, valid arguments."""

from __future__ import annotations

import importlib
import json
import struct
from functools import cache
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from dragoman.model import Part, SourceRef
from dragoman.tools.export.apis.anthropic import anthropic_content
from dragoman.tools.export.apis.gemini import gemini_response
from dragoman.tools.export.apis.openai import chat_content
from dragoman.tools.export.apis.responses import responses_output
from dragoman.tools.result.budget import TextBudget, estimate_tokens, fit
from dragoman.tools.result.provenance import find_sources
from dragoman.tools.result.render import (
    ANNOTATIONS,
    DETAILS,
    FILE,
    describe,
    render,
    to_answer,
)
from dragoman.tools.schema.coerce import coerce
from dragoman.tools.schema.validate import compile_schema

MANY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXT = st.text(st.characters(), max_size=60) | st.text("ab\n\r 法é\u0301\u200d🇩\ud83d\ude00👍", max_size=300)
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["source", "url", "alt", "name", "size", "date"]) | TEXT, inner, max_size=3
        )
    ),
    max_leaves=6,
)
META = st.dictionaries(
    st.sampled_from([ANNOTATIONS, DETAILS, FILE, "alt", "title", "dragoman.dev/sources"]), JSON, max_size=3
)
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 64, 48)
DATA = st.binary(max_size=40) | st.sampled_from(
    [
        PNG,
        PNG[:20],
        b"GIF89a" + bytes(20),
        b"GIF89a\1\0\1\0",
        b"%PDF-1.7",
        b"\xff\xd8\xff\xc0" + bytes(range(20)),
    ]
)
MIMES = (
    st.sampled_from(["", "image/png", "image/svg+xml", "application/pdf", "audio/wav", "text/plain; x"])
    | TEXT
)
PARTS = st.lists(
    st.builds(
        Part,
        kind=st.sampled_from(["text", "image", "audio", "link", "resource", "structured"]),
        text=TEXT,
        data=DATA,
        mime_type=MIMES,
        uri=TEXT,
        value=JSON,
        meta=META,
    ),
    max_size=6,
)
SOURCES = st.lists(st.builds(SourceRef, title=TEXT, locator=TEXT, url=TEXT, updated=TEXT), max_size=4)
BUDGETS = st.builds(TextBudget, limit=st.integers(0, 700), unit=st.sampled_from(["characters", "tokens"]))


@cache
def adapter(module: str, name: str) -> TypeAdapter[Any]:
    """Return what reads a published type; its package is imported late, since every test process imports this file."""
    return TypeAdapter[Any](getattr(importlib.import_module(module), name))


def size(text: str, budget: TextBudget) -> int:
    return len(text) if budget.unit == "characters" else estimate_tokens(text)


@MANY
@given(parts=PARTS, sources=SOURCES, budget=BUDGETS, whole=TEXT)
def test_any_result_has_a_text_within_its_budget(
    parts: list[Part], sources: list[SourceRef], budget: TextBudget, whole: str
) -> None:
    full = render(parts, sources)
    shown = render(parts, sources, budget=budget, spill=lambda _: whole)
    assert size(shown, budget) <= budget.limit
    assert (shown == full) == (size(full, budget) <= budget.limit) or shown == ""
    for part in parts:
        assert isinstance(describe(part), str)


@MANY
@given(text=TEXT.map(lambda text: text * 20), budget=BUDGETS, end=TEXT)
def test_head_and_tail_are_the_texts_own(text: str, budget: TextBudget, end: str) -> None:
    cut = fit(text, budget, end=end)
    assert size(cut, budget) <= budget.limit
    head, mark, tail = cut.partition("\n[… ")
    if mark:
        assert (text + end).startswith(head)
        assert (text + end).endswith(tail.partition(" …]\n")[2])


@MANY
@given(text=TEXT, parts=PARTS)
def test_blocks_are_what_the_packages_take(text: str, parts: list[Part]) -> None:
    content = anthropic_content(text, parts)
    answer = adapter("anthropic.types", "ToolResultBlockParam").validate_python(
        {"type": "tool_result", "tool_use_id": "1", "content": content}
    )
    assert isinstance(content, str) or len(list(answer["content"])) == len(content)
    output = responses_output(text, parts)
    adapter("openai.types.responses.response_input_param", "FunctionCallOutput").validate_python(
        {"type": "function_call_output", "call_id": "1", "output": output}
    )
    said, following = chat_content(text, parts)
    if following is not None:
        message = adapter("openai.types.chat", "ChatCompletionUserMessageParam").validate_python(
            {"role": "user", "content": following}
        )
        assert len(list(message["content"])) == len(following)
    response = gemini_response(text, parts)
    json.dumps([content, output, said, following, response], ensure_ascii=False).encode()


@MANY
@given(blocks=st.lists(st.dictionaries(st.sampled_from(["type", "text", "data", "uri", "resource", "_meta", "annotations"]), JSON | st.sampled_from(["text", "image", "resource", "resource_link", "aGk="]), max_size=5), max_size=3), meta=JSON, structured=JSON)  # fmt: skip
def test_any_blocks_become_an_answer_with_sources_and_a_text(
    blocks: list[dict[str, Any]], meta: Any, structured: Any
) -> None:
    answer = to_answer({"content": blocks, "_meta": meta, "structuredContent": structured})
    assert len(answer.parts) == len(blocks) + (structured is not None)
    sources = find_sources(
        answer.structured, answer.meta, parts=answer.parts, attribution={"source": "/*/source"}
    )
    assert isinstance(render(answer.parts, sources), str)


SCALAR_SCHEMAS: Any = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "number", "boolean", "null"])
        | st.lists(st.sampled_from(["string", "integer", "boolean", "array", "null"]), min_size=1, max_size=2, unique=True),
        "enum": st.lists(st.sampled_from(["Read", "write", 1, 2, None, True, "1"]), min_size=1, max_size=3),
        "minimum": st.integers(0, 3),
        "pattern": st.just("^[a-z]+$"),
    },
)  # fmt: skip
SCHEMAS: Any = st.recursive(
    SCALAR_SCHEMAS,
    lambda inner: (
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=2)})
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from(["aB", "c"]), inner, max_size=2),
            },
            optional={"required": st.just(["aB"]), "additionalProperties": st.just(False)},
        )
    ),
    max_leaves=6,
)
SLIPS: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 4)
    | st.sampled_from(["3", "3.5", "true", "null", "READ", " write", '{"aB": "1"}', "[1]", "x, y", " abc"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["aB", "a_b", "c", "C"]), inner, max_size=2),
    max_leaves=5,
)  # fmt: skip


@MANY
@given(schema=SCHEMAS, value=SLIPS, only_nulls=st.booleans())
def test_mended_arguments_fit_and_fitting_ones_are_not_changed(
    schema: Any, value: Any, *, only_nulls: bool
) -> None:
    validator = compile_schema({"type": "object", "properties": {"p": schema}, "additionalProperties": False})
    given_ = {"p": value}
    before = repr(given_)
    found = coerce(validator, given_, only_nulls=only_nulls)
    assert repr(given_) == before
    if not validator.problems(given_):
        assert found is not None
        assert repr(found.arguments) == before
        assert not found.changes
    elif found is not None:
        assert found.changes
        assert validator.problems(found.arguments) == []
        again = coerce(validator, found.arguments)
        assert again is not None
        assert again.arguments == found.arguments
