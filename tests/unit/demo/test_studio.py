import base64
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from subprocess import Popen
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import CallToolResult, ImageContent, TextContent, TextResourceContents

from dragoman.demo.studio import solid_png


@pytest.fixture(scope="module")
def url(launch: Callable[..., Popen[str]]) -> str:
    process = launch("dragoman.demo.studio", "--until-eof")
    assert process.stdout is not None
    return json.loads(process.stdout.readline())["url"]


@asynccontextmanager
async def connected(url: str, mode: str = "auto") -> AsyncGenerator[Client]:
    with anyio.fail_after(30):
        async with Client(url, mode=mode) as client:
            yield client


async def call(url: str, tool: str, arguments: dict[str, Any]) -> CallToolResult:
    async with connected(url) as client:
        return await client.call_tool(tool, arguments)


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_child_process_serves_both_eras_over_http(url: str, mode: str, version: str) -> None:
    async with connected(url, mode) as client:
        assert client.protocol_version == version
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["greet", "measure", "swatch", "divide", "countdown", "now"]
        assert text_of(await client.call_tool("greet", {"name": "Ada"})) == "Hello, Ada! 你好，Ada！"


async def test_greeting_is_text_alone(url: str) -> None:
    assert (await call(url, "greet", {"name": "Ada"})).structured_content is None


async def test_measure_counts(url: str) -> None:
    result = await call(url, "measure", {"text": "one two\n三"})
    assert result.structured_content == {"characters": 9, "words": 3, "lines": 2, "utf8_bytes": 11}
    assert text_of(result) == "9 characters, 3 words, 2 lines."


@pytest.mark.parametrize(
    ("colour", "rgb"), [("Blue", (38, 139, 210)), ("#0aFF00", (10, 255, 0))], ids=["name", "hex"]
)
async def test_swatch_is_a_png_with_a_caption(url: str, colour: str, rgb: tuple[int, int, int]) -> None:
    result = await call(url, "swatch", {"colour": colour, "width": 8, "height": 4})
    image, caption = result.content
    assert isinstance(image, ImageContent)
    assert image.mime_type == "image/png"
    assert base64.b64decode(image.data) == solid_png(rgb, width=8, height=4)
    assert isinstance(caption, TextContent)
    assert caption.text.endswith("8 by 4 pixels.")


async def test_division_has_a_quotient(url: str) -> None:
    result = await call(url, "divide", {"a": 7, "b": 2})
    assert result.structured_content == {"quotient": 3.5}
    assert text_of(result) == "7 / 2 = 3.5"


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("divide", {"a": 1, "b": 0}, "Cannot divide 1 by zero. Give a `b` other than 0."),
        ("divide", {"a": 1e308, "b": 1e-308}, "too large for a number"),
        ("divide", {"a": "inf", "b": 1}, "finite number"),
        ("swatch", {"colour": "mauve"}, "Use `#rrggbb` or one of: red"),
        ("swatch", {"colour": "red", "width": 513}, "less than or equal to 512"),
        ("now", {"timezone": "Mars/Base"}, "Unknown time zone `Mars/Base`"),
        ("now", {"timezone": "../etc/passwd"}, "Unknown time zone"),
        ("now", {"timezone": "America"}, "Unknown time zone `America`"),
        ("now", {"timezone": ""}, "Unknown time zone"),
        ("countdown", {"steps": 0}, "greater than or equal to 1"),
    ],
)
async def test_failed_call_says_why(url: str, tool: str, arguments: dict[str, Any], reason: str) -> None:
    result = await call(url, tool, arguments)
    assert result.is_error
    assert reason in text_of(result)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_countdown_reports_every_step(url: str, mode: str) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with connected(url, mode) as client:
        result = await client.call_tool("countdown", {"steps": 2, "pause": 0}, progress_callback=note)
    assert text_of(result) == "Counted down from 2. Lift-off!"
    assert seen == [(1, 2, "1 to go"), (2, 2, "0 to go")]


async def test_time_is_told_in_the_zone_asked_for(url: str) -> None:
    result = await call(url, "now", {"timezone": "Asia/Shanghai"})
    moment = result.structured_content
    time = datetime.fromisoformat(moment["time"])
    assert time.utcoffset() == timedelta(hours=8)
    assert time.timestamp() == pytest.approx(moment["unix"])
    assert moment["weekday"] == f"{time:%A}"
    assert text_of(result).endswith("in Asia/Shanghai.")


async def test_resource_and_prompt_are_served(url: str) -> None:
    async with connected(url) as client:
        (contents,) = (await client.read_resource("studio://palette")).contents
        assert isinstance(contents, TextResourceContents)
        assert "blue #268bd2" in contents.text.splitlines()
        (message,) = (await client.get_prompt("describe_colour", {"colour": "teal"})).messages
        assert isinstance(message.content, TextContent)
        assert "`teal`" in message.content.text
