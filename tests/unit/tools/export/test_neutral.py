from __future__ import annotations

from typing import Any

import pytest

from dragoman.model import ToolDef
from dragoman.tools.export.apis import APIS
from dragoman.tools.export.export import Exporter
from dragoman.tools.export.neutral import LONGEST, neutral_tool

pytestmark = pytest.mark.requirement("legal-discovery.ai_sdk")

NASTY = "Reads\x1b[31m a\u200b file\u202e."


def tool(description: str = "Reads a file.", **schema: Any) -> ToolDef:
    return ToolDef(name="t", description=description, input_schema={"type": "object", **schema}, server="s")


@pytest.mark.parametrize("api", APIS)
def test_a_model_reads_no_hidden_text_and_the_original_stays(api: Any) -> None:
    inner = {"type": "string", "description": NASTY, "enum": ["a\u200b"], "title": "ok"}
    given = tool(NASTY, properties={"path": inner}, title=NASTY)
    export = Exporter(api).export([given])
    text = repr(export.tools)
    assert "Reads a file." in text
    for letter in ("\x1b", "\\x1b", "\u202e", "\\u202e"):
        assert letter not in text
    # A value has to be what the server takes.
    assert "a\\u200b" in text
    assert given.description == NASTY
    assert inner["description"] == NASTY
    assert [change.where for change in export.changes["t"]][:1] == ["/description"]


@pytest.mark.parametrize(
    ("api", "strict"), [("openai", True), ("responses", True), ("gemini-openapi", False)]
)
def test_a_value_that_is_told_in_words_is_neutralised_too(api: Any, strict: bool) -> None:
    given = tool(properties={"path": {"type": "string", "format": NASTY}}, required=["path"])
    export = Exporter(api, strict=strict).export([given])
    assert "'Format: Reads a file..'" in repr(export.tools)


@pytest.mark.parametrize("api", APIS)
def test_escape_codes_in_a_text_of_ascii_alone_are_removed(api: Any) -> None:
    given = tool(properties={"path": {"type": "string", "description": "Reads\x1b[31m a\tfile."}})
    assert "'description': 'Reads a\\tfile.'" in repr(Exporter(api).export([given]).tools)


def test_plain_definitions_are_left_alone() -> None:
    given = tool(properties={"text": {"type": "string", "description": "Text, 文字, 👩‍🔬."}})
    assert neutral_tool(given) == (given, [])
    export = Exporter("anthropic").export([given])
    assert export.tools[0]["input_schema"] is given.input_schema
    assert not export.changes


def test_a_description_is_cut_at_its_servers_limit_with_the_setting_named() -> None:
    long = tool("x" * (LONGEST + 1))
    shown, (change,) = neutral_tool(long)
    assert len(shown.description) == LONGEST
    assert "`limits.description_chars`" in change.why
    export = Exporter("responses", longest={"s": 5}).export([long])
    assert export.tools[0]["description"] == "xxxx…"
