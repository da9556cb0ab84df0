"""Blocks against the types of the APIs' own packages, as far as those are installed, and against their limits."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from anthropic.types import ToolResultBlockParam
from openai.types.chat import ChatCompletionToolMessageParam, ChatCompletionUserMessageParam
from openai.types.responses.response_input_param import FunctionCallOutput
from pydantic import TypeAdapter, ValidationError

from dragoman.model import Part
from dragoman.tools.export.apis.anthropic import anthropic_content
from dragoman.tools.export.apis.gemini import gemini_response
from dragoman.tools.export.apis.openai import chat_content
from dragoman.tools.export.apis.responses import responses_output
from dragoman.tools.result import media

# Kept, since the iterables that they give check as they go.
ANTHROPIC = TypeAdapter[Any](ToolResultBlockParam)
RESPONSES = TypeAdapter[Any](FunctionCallOutput)
TOOL = TypeAdapter[Any](ChatCompletionToolMessageParam)
USER = TypeAdapter[Any](ChatCompletionUserMessageParam)
PDF = b"%PDF-1.7 rest"


def png(width: int = 64, height: int = 48, size: int = 0) -> bytes:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", width, height)
    return head.ljust(size, b"\0")


GIF = b"GIF89a" + struct.pack("<HH", 10, 20)
IMAGE = Part(kind="image", data=png(), mime_type="image/png")
FILE = Part(kind="resource", data=PDF, mime_type="application/pdf", uri="file:///a/report.pdf?x=1")
MIXED = [
    Part(kind="text", text="seen"),
    IMAGE,
    Part(kind="audio", data=b"abc", mime_type="audio/wav"),
    FILE,
    Part(kind="resource", text="words", uri="a:b"),
    Part(kind="link", text="Report", uri="a:c"),
    Part(kind="image", data=b"<svg/>", mime_type="image/svg+xml"),
    Part(kind="resource", data=GIF, mime_type="image/gif", uri="a:d"),
    Part(kind="structured", value={"n": 1}),
]


def check_anthropic(content: Any) -> None:
    """Hold content against the types of the package itself."""
    block = {"type": "tool_result", "tool_use_id": "1", "content": content}
    back = ANTHROPIC.validate_python(block)
    if not isinstance(content, str):
        assert len(list(back["content"])) == len(content)


def check_responses(output: Any) -> None:
    item = {"type": "function_call_output", "call_id": "1", "output": output}
    RESPONSES.validate_python(item)


def check_chat(text: str, following: Any) -> None:
    message = {"role": "tool", "tool_call_id": "1", "content": text}
    TOOL.validate_python(message)
    if following is not None:
        user = USER.validate_python({"role": "user", "content": following})
        assert len(list(user["content"])) == len(following)


def test_types_of_the_packages_refuse_what_is_wrong() -> None:
    with pytest.raises(ValidationError):
        check_anthropic(
            [{"type": "image", "source": {"type": "base64", "media_type": "image/svg+xml", "data": ""}}]
        )
    with pytest.raises(ValidationError):
        check_responses([{"type": "image"}])
    with pytest.raises(ValidationError):
        check_chat("x", [{"type": "input_image"}])


def test_text_alone_stays_a_string() -> None:
    parts = [Part(kind="text", text="hi"), Part(kind="structured", value={"n": 1})]
    assert anthropic_content("hi", parts) == "hi"
    assert responses_output("hi", parts) == "hi"
    assert chat_content("hi", parts) == ("hi", None)
    assert gemini_response("hi", parts) == {"response": {"output": "hi"}}
    assert gemini_response("hi", parts, is_error=True) == {"response": {"error": "hi"}}


def test_anthropic_gets_text_image_and_document() -> None:
    content = anthropic_content("see", [IMAGE, FILE])
    check_anthropic(content)
    assert content == [
        {"type": "text", "text": "see"},
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": "image/png",
                "data": base64.b64encode(png()).decode(),
            },
        },
        {
            "type": "document",
            "source": {
                "type": "base64",
                "media_type": "application/pdf",
                "data": base64.b64encode(PDF).decode(),
            },
            "title": "report.pdf",
        },
    ]


def test_responses_get_text_image_and_file() -> None:
    output = responses_output("see", [IMAGE, FILE])
    check_responses(output)
    assert isinstance(output, list)
    assert [block["type"] for block in output] == ["input_text", "input_image", "input_file"]
    assert output[1]["image_url"].startswith("data:image/png;base64,iVBOR")
    assert output[2]["filename"] == "report.pdf"
    assert output[2]["file_data"].startswith("data:application/pdf;base64,JVBER")


def test_chat_shows_images_in_a_message_that_follows() -> None:
    text, following = chat_content("see", [IMAGE, FILE])
    check_chat(text, following)
    assert text == "see"
    assert following is not None
    assert [block["type"] for block in following] == ["text", "image_url", "text", "file"]
    assert following[0]["text"] == "[image: image/png, 64x48, 24 bytes]"


def test_gemini_gets_parts_beside_its_response() -> None:
    response = gemini_response("see", [IMAGE, FILE])
    data = [base64.b64encode(one).decode() for one in (png(), PDF)]
    assert response == {
        "response": {"output": "see"},
        "parts": [
            {"inlineData": {"mimeType": "image/png", "data": data[0]}},
            {"inlineData": {"mimeType": "application/pdf", "data": data[1]}},
        ],
    }


def test_nothing_is_dropped_silently() -> None:
    content = anthropic_content("seen", MIXED)
    output = responses_output("seen", MIXED)
    text, following = chat_content("seen", MIXED)
    check_anthropic(content)
    check_responses(output)
    check_chat(text, following)
    gemini = gemini_response("seen", MIXED)
    for said in (content[0]["text"], output[0]["text"], text, gemini["response"]["output"]):  # type: ignore[index]
        assert said.startswith("seen\n")
        assert "[audio: audio/wav, 3 bytes]" in said
        assert "[resource: a:b, 5 characters]" in said
        assert "words" not in said, "that is for the rendered text to hold"
        assert "[resource link: Report, a:c]" in said
        assert "[image: image/svg+xml, 6 bytes; not shown: image/svg+xml is not supported" in said
    assert [block["type"] for block in content] == ["text", "image", "document", "image"]  # type: ignore[index]
    assert "Gemini does not support image/gif" in gemini["response"]["output"]
    assert len(gemini["parts"]) == 2


def test_what_the_text_mentions_already_is_not_repeated() -> None:
    text = "a\n[audio: audio/wav, 3 bytes]\n[image: image/png, 64x48, 24 bytes]"
    parts = [MIXED[2], IMAGE]
    assert chat_content(text, parts)[0] == text
    assert anthropic_content(text, parts)[0] == {"type": "text", "text": text}


def test_result_that_is_only_an_image_has_no_empty_text() -> None:
    content = anthropic_content("", [IMAGE])
    check_anthropic(content)
    assert [block["type"] for block in content] == ["image"]  # type: ignore[index]
    assert anthropic_content("", []) == ""


def test_bytes_decide_the_type() -> None:
    content = anthropic_content("x", [Part(kind="image", data=png(), mime_type="image/jpeg")])
    assert content[1]["source"]["media_type"] == "image/png"  # type: ignore[index]


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (Part(kind="image", data=png(9000, 10), mime_type="image/png"), "at most 8000 pixels"),
        (Part(kind="image", data=png(size=4_000_000)), "at most 3932160 bytes"),
        (Part(kind="image", data=png(0, 10)), "it is not a valid image"),
        (Part(kind="image", data=png()[:20], mime_type="image/png"), "it is not a valid image"),
        (Part(kind="image", data=b"", mime_type="image/png"), "it is not a valid image"),
        (Part(kind="image"), "an unknown type is not supported"),
        (Part(kind="resource", data=b"zip", mime_type="application/pdf"), "it is not a valid PDF"),
    ],
)
def test_what_the_api_would_refuse_is_left_out_with_the_reason(part: Part, reason: str) -> None:
    content = anthropic_content("x", [part])
    assert isinstance(content, str)
    assert "not shown: " in content
    assert reason in content


def test_number_and_size_of_images_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    content = anthropic_content("x", [IMAGE] * 25)
    assert [block["type"] for block in content] == ["text"] + ["image"] * 20  # type: ignore[index]
    assert content[0]["text"].count("not shown: there are more than 20") == 5  # type: ignore[index]
    monkeypatch.setattr(media, "MAX_TOTAL_BYTES", 50)
    content = anthropic_content("x", [IMAGE] * 3)
    assert [block["type"] for block in content] == ["text", "image", "image"]  # type: ignore[index]
    assert "not shown: the result has too many bytes" in content[0]["text"]  # type: ignore[index]


def test_lone_surrogates_do_not_reach_a_request() -> None:
    part = Part(kind="image", data=png(), meta={"alt": "\ud800"})
    link = Part(kind="link", text="\ud800", uri="a:b")
    for made in (
        anthropic_content("a\ud800", [part, link]),
        responses_output("a\ud800", [part, link]),
        chat_content("a\ud800", [part, link]),
        gemini_response("a\ud800", [part, link]),
        anthropic_content(
            "x", [Part(kind="resource", data=PDF, mime_type="application/pdf", uri="a/\ud800")]
        ),
    ):
        json.dumps(made, ensure_ascii=False).encode()


def test_file_without_an_address_has_a_name_all_the_same() -> None:
    output = responses_output("x", [Part(kind="resource", data=PDF, mime_type="application/pdf; v=1")])
    assert output[1]["filename"] == "document.pdf"  # type: ignore[index]
