from __future__ import annotations

from typing import Any

import pytest

from dragoman.model import Part
from dragoman.tools.content import to_answer, to_part


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text", "text": "hi", "_meta": {"a": 1}}, Part(kind="text", text="hi", meta={"a": 1})),
        (
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            Part(kind="image", data=b"hi", mime_type="image/png"),
        ),
        (
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            Part(kind="audio", data=b"hi", mime_type="audio/wav"),
        ),
        ({"type": "image", "data": "é"}, Part(kind="text", text="[image: unreadable, it is not base64]")),
        (
            {"type": "resource_link", "uri": "a:b", "name": "n", "title": "T", "mimeType": "text/csv"},
            Part(kind="link", text="T", uri="a:b", mime_type="text/csv"),
        ),
        (
            {"type": "resource", "resource": {"uri": "a:b", "text": "hello", "mimeType": "text/plain"}},
            Part(kind="resource", text="hello", uri="a:b", mime_type="text/plain"),
        ),
        (
            {"type": "resource", "resource": {"uri": "a:b", "blob": "aGk="}},
            Part(kind="resource", data=b"hi", uri="a:b"),
        ),
        ({"type": "hologram"}, Part(kind="text", text="[content of an unknown kind: hologram]")),
        ({"type": "text"}, Part(kind="text")),
    ],
)
def test_block_becomes_a_part(block: dict[str, Any], part: Part) -> None:
    assert to_part(block) == part


def test_result_becomes_an_answer() -> None:
    answer = to_answer(
        {
            "content": [{"type": "text", "text": "a"}],
            "structuredContent": {"n": 1},
            "isError": True,
            "_meta": {"k": 2},
        }
    )
    assert [part.kind for part in answer.parts] == ["text", "structured"]
    assert (answer.structured, answer.is_error, answer.meta) == ({"n": 1}, True, {"k": 2})


def test_empty_result_is_an_empty_answer() -> None:
    answer = to_answer({})
    assert (list(answer.parts), answer.structured, answer.is_error) == ([], None, False)
