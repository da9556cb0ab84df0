from __future__ import annotations

from typing import Any

import pytest

from dragoman.model import Part
from dragoman.tools.result.render import ANNOTATIONS, DETAILS, to_answer, to_part

pytestmark = pytest.mark.requirement("legal-call.result", "excel-5.3", "otter-p1.images")


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
        ({"type": "image", "data": "é"}, Part(kind="text", text="[image: unreadable, not valid base64]")),
        (
            {"type": "resource_link", "uri": "a:b", "name": "n", "title": "T", "mimeType": "text/csv"},
            Part(
                kind="link",
                text="T",
                uri="a:b",
                mime_type="text/csv",
                meta={DETAILS: {"name": "n", "title": "T"}},
            ),
        ),
        (
            {
                "type": "resource_link",
                "uri": "a:b",
                "name": "n",
                "description": "d",
                "size": 3,
                "annotations": {"lastModified": "2026"},
                "_meta": {"k": 1},
            },
            Part(
                kind="link",
                text="n",
                uri="a:b",
                meta={
                    "k": 1,
                    ANNOTATIONS: {"lastModified": "2026"},
                    DETAILS: {"name": "n", "description": "d", "size": 3},
                },
            ),
        ),
        (
            {"type": "image", "data": "aGk=", "alt": "a cat", "annotations": 3, "_meta": [1]},
            Part(kind="image", data=b"hi", meta={DETAILS: {"alt": "a cat"}}),
        ),
        ({"type": "image", "data": "aG\nk="}, Part(kind="image", data=b"hi")),
        ({"type": "image", "data": "aGk"}, Part(kind="image", data=b"hi")),
        ({"type": "image", "data": "__8="}, Part(kind="image", data=b"\xff\xff")),
        ({"type": "image", "data": "data:image/png;base64,aGk="}, Part(kind="image", data=b"hi")),
        (
            {"type": "resource", "resource": {"uri": "a:b", "blob": "aGk=!"}},
            Part(kind="text", text="[resource: a:b: unreadable, not valid base64]", uri="a:b"),
        ),
        (
            {
                "type": "resource",
                "resource": {"uri": "a:b", "text": "x", "title": "T", "_meta": {"k": 1, "j": 1}},
                "annotations": {"lastModified": "2026"},
                "_meta": {"k": 2},
            },
            Part(
                kind="resource",
                text="x",
                uri="a:b",
                meta={
                    "k": 2,
                    "j": 1,
                    DETAILS: {"title": "T"},
                    ANNOTATIONS: {"lastModified": "2026"},
                },
            ),
        ),
        ({"type": "resource", "resource": "odd"}, Part(kind="resource")),
        (
            {"type": "resource", "resource": {"uri": "a:b", "text": "hello", "mimeType": "text/plain"}},
            Part(kind="resource", text="hello", uri="a:b", mime_type="text/plain"),
        ),
        (
            {"type": "resource", "resource": {"uri": "a:b", "blob": "aGk="}},
            Part(kind="resource", data=b"hi", uri="a:b"),
        ),
        ({"type": "hologram"}, Part(kind="text", text="[content of unknown type: hologram]")),
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


@pytest.mark.parametrize(
    ("said", "meant"), [(True, True), (1, True), ("true", True), (False, False), (0, False), ("false", False)]
)
def test_failure_is_a_failure_in_every_spelling(said: object, meant: bool) -> None:
    assert to_answer({"content": [], "isError": said}).is_error is meant
