from __future__ import annotations

import math
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import InvalidArgumentsError, InvalidResultError, ToolFailedError
from dragoman.model import Part, SourceRef, ToolDef
from dragoman.tools.result.budget import INLINE_KEY, TextBudget
from dragoman.tools.result.build import (
    LARGE_CHARS,
    UNSTRUCTURED,
    ResultContext,
    build_result,
    check,
    is_large,
)
from dragoman.tools.result.render import FILE, ServerAnswer, to_answer
from dragoman.tools.schema.validate import Validators, compile_schema

pytestmark = pytest.mark.requirement(
    "legal-call.result",
    "legal-error.schema",
    "excel-5.3",
    "rrclaw-result.text",
    "rrclaw-result.error",
    "kode-call.error",
    "otter-call.failed",
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}},
    "required": ["n"],
}
TOOL = ToolDef(name="mcp_s_t", description="", input_schema=SCHEMA, server="s", original_name="t")
TYPED = ToolDef(
    name="mcp_s_t", description="", input_schema={}, server="s", original_name="t", output_schema=SCHEMA
)


class Memory:
    """Keeps everything, and remembers it; or nothing."""

    def __init__(self, *, is_full: bool = False) -> None:
        self.kept: list[str | bytes] = []
        self.is_full = is_full

    def keep(self, data: bytes, *, mime_type: str = "") -> Path | None:
        self.kept.append(data)
        return None if self.is_full else Path(f"/r/{len(self.kept)}")

    def keep_text(self, text: str) -> Path | None:
        self.kept.append(text)
        return None if self.is_full else Path(f"/r/{len(self.kept)}.txt")


def by(tool: ToolDef = TOOL, **options: Any) -> ResultContext:
    return ResultContext(tool=tool, validators=Validators(), **options)


def answer(*texts: str, **options: Any) -> ServerAnswer:
    return ServerAnswer(parts=[Part(kind="text", text=text) for text in texts], **options)


def test_arguments_that_fit_are_sent_as_they_are() -> None:
    assert check(compile_schema(SCHEMA), TOOL, {"n": 1}) == ({"n": 1}, ())
    assert check(compile_schema({}), TOOL, None) == ({}, ())


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"x": math.nan}, "x"),
        ({"a": 1, "x": [[0.5], (1, math.inf)]}, "x[1][1]"),
        ({"x": [0.5] * 2000 + [-math.inf]}, "x[2000]"),
        ({"x": {"y z": {3: math.nan}}}, 'x["y z"][3]'),
        ({"x": {1.5: [math.inf]}}, 'x["1.5"][0]'),
    ],
)
def test_a_number_that_json_lacks_is_a_problem_with_its_place(given: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidArgumentsError) as caught:
        check(compile_schema({"type": "object"}), TOOL, given, coerces=True)
    assert caught.value.problems[0].startswith(f"`{place}`: ")
    assert "is not a number in JSON" in str(caught.value)


@pytest.mark.parametrize("given", [{"x": 10**5000}, {"x": [{"y": -(10**309)}]}])
def test_an_integer_that_parsers_read_as_infinite_is_a_problem(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentsError, match="the integer is too large"):
        check(compile_schema({"type": "object"}), TOOL, given)
    assert check(compile_schema({"type": "object"}), TOOL, {"x": 10**300, "y": True})[0]["x"] == 10**300


def test_arguments_that_contain_themselves_are_looked_at_once() -> None:
    own: list[Any] = [1.5]
    own += [own, own, {"x": own}]
    assert check(compile_schema({"type": "object"}), TOOL, {"x": own})[0] == {"x": own}


def test_null_for_what_may_be_left_out_is_left_out_for_everybody() -> None:
    fields, changes = check(compile_schema(SCHEMA), TOOL, {"n": 1, "m": None})
    assert fields == {"n": 1}
    assert [change.path for change in changes] == ["m"]


def test_slips_are_corrected_only_if_that_is_wanted() -> None:
    validator = compile_schema(SCHEMA)
    with pytest.raises(InvalidArgumentsError) as caught:
        check(validator, TOOL, {"n": "3"})
    assert caught.value.problems == ('`n`: expected an integer, got the string "3"; did you mean 3?',)
    fields, changes = check(validator, TOOL, {"n": "3"}, coerces=True)
    assert fields == {"n": 3}
    assert [change.path for change in changes] == ["n"]
    assert check(validator, TOOL, '{"n": 3}', coerces=True)[0] == {"n": 3}


def test_what_cannot_be_mended_is_reported_as_it_was_given() -> None:
    with pytest.raises(InvalidArgumentsError) as caught:
        check(compile_schema(SCHEMA), TOOL, {"n": "3", "m": "x"}, coerces=True)
    assert len(caught.value.problems) == 2
    assert "\n- `n`: " in str(caught.value)
    for odd in ([1], "text", 3):
        with pytest.raises(InvalidArgumentsError, match="must be an object"):
            check(compile_schema(SCHEMA), TOOL, odd, coerces=True)


def test_answer_becomes_a_result() -> None:
    settled = build_result(answer("a", "b"), by(call_id="1", server_version="2", at=3.0, duration=4.0))
    assert (settled.success, settled.text, settled.error, settled.exception) == (True, "a\nb", None, None)
    assert (settled.call_id, settled.duration) == ("1", 4.0)
    assert settled.provenance is not None
    assert (settled.provenance.server, settled.provenance.tool) == ("s", "t")
    assert (settled.provenance.server_version, settled.provenance.at) == ("2", 3.0)


def test_error_of_the_tool_is_a_result_with_its_text() -> None:
    settled = build_result(answer("it broke", is_error=True, structured={"n": "x"}), by(TYPED))
    assert (settled.success, settled.text, settled.error) == (False, "it broke", "it broke")
    assert isinstance(settled.exception, ToolFailedError)
    assert [part.text for part in settled.parts if part.kind == "text"] == ["it broke"]
    long = build_result(answer("it broke", "in line 2\nof b", is_error=True), by(TYPED))
    assert long.text == long.error == str(long.exception) == "it broke\nin line 2\nof b"
    silent = build_result(answer(is_error=True), by(TYPED))
    assert silent.text == silent.error == "the tool failed without a message"


def test_result_that_breaks_its_schema_is_attached_to_the_error() -> None:
    settled = build_result(
        to_answer({"content": [{"type": "text", "text": "see"}], "structuredContent": {"n": "three"}}),
        by(TYPED),
    )
    error = settled.exception
    assert isinstance(error, InvalidResultError)
    assert not settled.success
    assert settled.text == 'see\n{"n": "three"}'
    assert settled.error == str(error)
    assert error.problems == ('`n`: expected an integer, got the string "three"',)
    assert (error.result.success, error.result.text) == (True, settled.text)
    assert error.result.structured == {"n": "three"}
    assert error.result.provenance == settled.provenance
    assert build_result(answer(structured={"n": 3}), by(TYPED)).success


def test_missing_structured_content_is_noted() -> None:
    assert UNSTRUCTURED in build_result(answer("x"), by(TYPED)).meta
    assert UNSTRUCTURED not in build_result(answer("x"), by(TOOL)).meta
    assert UNSTRUCTURED not in build_result(answer("x", is_error=True), by(TYPED)).meta


def test_sources_are_found_by_the_pointers_of_the_configuration() -> None:
    said = answer('{"rows": [{"law": "Act"}]}')
    for shown, end in ((True, "\n\nSources:\n- Act (date unknown)"), (False, '"Act"}]}')):
        settled = build_result(said, by(attribution={"source": "/rows/*/law"}, sources_in_text=shown))
        assert settled.provenance is not None
        assert list(settled.provenance.sources) == [SourceRef(title="Act")]
        assert settled.text.endswith(end)


def test_long_text_is_cut_and_kept_as_a_whole() -> None:
    memory = Memory()
    settled = build_result(answer("x" * 5000), by(budget=TextBudget(limit=500), keeper=memory))
    assert len(settled.text) <= 500
    assert "full text: the file `/r/1.txt`" in settled.text
    assert memory.kept == ["x" * 5000]
    assert settled.parts[0].text == "x" * 5000
    for keeper in (None, Memory(is_full=True)):
        assert (
            "is not stored"
            in build_result(answer("x" * 5000), by(budget=TextBudget(limit=500), keeper=keeper)).text
        )
    assert build_result(answer("x" * 500), by(budget=TextBudget(limit=500), keeper=memory)).text == "x" * 500
    assert len(memory.kept) == 1


def test_meta_of_the_result_may_ask_for_more_room() -> None:
    asked = answer("x" * 5000, meta={INLINE_KEY: 6000})
    assert build_result(asked, by(budget=TextBudget(limit=500))).text == "x" * 5000


def test_pieces_are_described_and_their_bytes_saved() -> None:
    raw = {
        "content": [
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "a:b"},
        ]
    }
    plain = build_result(to_answer(raw), by())
    assert [part.text for part in plain.parts] == ["[audio: audio/wav, 2 bytes]", "[resource link: a:b]"]
    memory = Memory()
    saved = build_result(to_answer(raw), by(keeper=memory))
    assert saved.parts[0].meta[FILE] == "/r/1"
    assert saved.text.startswith("[audio: audio/wav, 2 bytes, saved as `/r/1`]\n")
    assert memory.kept == [b"hi"]
    full = build_result(to_answer(raw), by(keeper=Memory(is_full=True)))
    assert FILE not in full.parts[0].meta


def test_large_answers_are_worth_a_thread() -> None:
    image = ServerAnswer(parts=[Part(kind="image", data=b"x")])
    assert not is_large(answer("x"), by(keeper=Memory()))
    assert not is_large(image, by())
    assert is_large(image, by(keeper=Memory()))
    assert is_large(answer("x" * LARGE_CHARS, "y"), by())


@pytest.mark.requirement("rrclaw-result.error", "kode-call.error")
def test_error_with_structured_content_is_an_error_all_the_same() -> None:
    raw = {"content": [{"type": "text", "text": "no"}], "structuredContent": {"n": 1}, "isError": True}
    result = build_result(to_answer(raw), by())
    assert (result.success, result.error, result.structured) == (False, 'no\n{"n": 1}', {"n": 1})
    assert isinstance(result.exception, ToolFailedError)


@pytest.mark.requirement("kode-call.error")
def test_error_has_every_line_that_the_server_gave() -> None:
    blocks = [{"type": "text", "text": text} for text in ("first", "second\nthird")]
    assert build_result(to_answer({"content": blocks, "isError": True}), by()).error == "first\nsecond\nthird"


@pytest.mark.requirement("otter-p1.images")
@pytest.mark.parametrize("keeper", [None, Memory()])
def test_image_is_described_and_stays_an_image_however_large(keeper: Memory | None) -> None:
    data = b"\x89PNG\r\n\x1a\n" + bytes(50_000)
    raw = {"content": [{"type": "image", "data": b64encode(data).decode(), "mimeType": "image/png"}]}
    result = build_result(to_answer(raw), by(keeper=keeper))
    (part,) = result.parts
    assert (part.kind, part.data, part.mime_type) == ("image", data, "image/png")
    assert result.text.startswith("[image: image/png, ")
