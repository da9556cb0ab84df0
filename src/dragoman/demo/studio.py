"""The studio: a demo MCP server whose tools show each kind of result, from plain text to progress.

Run `python -m dragoman.demo.studio` for Streamable HTTP on loopback, with `--stdio` for stdio. Its tools
only compute: they never touch files or the network.
"""

import argparse
import base64
import inspect
import math
import re
import struct
import sys
import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult, ImageContent, TextContent, ToolAnnotations
from pydantic import AwareDatetime, BaseModel, Field

from dragoman.demo.serving import add_http_options, serve_http, serve_stdio

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def solid_png(colour: tuple[int, int, int], *, width: int, height: int) -> bytes:
    """Draw a PNG of `width` by `height` pixels, all of the RGB `colour`."""
    # 8 bits per channel, colour type 2 (RGB), and the default compression, filter and interlace methods.
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    row = b"\x00" + bytes(colour) * width
    pixels = zlib.compress(row * height, 9)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


COLOURS = {
    "red": (220, 50, 47),
    "orange": (203, 75, 22),
    "yellow": (181, 137, 0),
    "green": (133, 153, 0),
    "blue": (38, 139, 210),
    "violet": (108, 113, 196),
    "black": (0, 0, 0),
    "white": (255, 255, 255),
}
INSTRUCTIONS = "A demonstration server. Each tool shows one kind of result; none of them changes anything."
_READ_ONLY = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

Side = Annotated[int, Field(ge=1, le=512, description="Pixels")]
Number = Annotated[float, Field(allow_inf_nan=False)]


class Measure(BaseModel):
    """How large a text is."""

    characters: int
    words: int
    lines: int
    utf8_bytes: Annotated[int, Field(description="Size in UTF-8")]


class Quotient(BaseModel):
    """The result of a division."""

    quotient: float


class Moment(BaseModel):
    """A point in time, read in one time zone."""

    time: Annotated[AwareDatetime, Field(description="ISO 8601, with the offset from UTC")]
    timezone: str
    weekday: str
    unix: Annotated[float, Field(description="Seconds since 1970-01-01 UTC")]


async def greet(name: Annotated[str, Field(description="Whom to greet")]) -> CallToolResult:
    """Greet someone. Shows a result of plain text."""
    return _text(f"Hello, {name}! 你好，{name}！")


async def measure(text: str) -> Annotated[CallToolResult, Measure]:
    """Count the characters, words and lines of a text. Shows structured data with an output schema."""
    size = Measure(
        characters=len(text),
        words=len(text.split()),
        lines=len(text.splitlines()),
        utf8_bytes=len(text.encode("utf-8", "surrogatepass")),
    )
    return _structured(f"{size.characters} characters, {size.words} words, {size.lines} lines.", size)


async def swatch(
    colour: Annotated[str, Field(description="A name such as `blue`, or `#rrggbb`")],
    width: Side = 64,
    height: Side = 64,
) -> CallToolResult:
    """Draw a plain rectangle. Shows an image, as PNG, next to a text."""
    rgb = _parse_colour(colour)
    if rgb is None:
        return _failure(f"Unknown colour `{colour}`. Use `#rrggbb` or one of: {', '.join(COLOURS)}.")
    image = base64.b64encode(solid_png(rgb, width=width, height=height)).decode("ascii")
    caption = f"A swatch of {colour} (#{bytes(rgb).hex()}), {width} by {height} pixels."
    return CallToolResult(
        content=[
            ImageContent(type="image", data=image, mime_type="image/png"),
            TextContent(type="text", text=caption),
        ]
    )


async def divide(a: Number, b: Number) -> Annotated[CallToolResult, Quotient]:
    """Divide `a` by `b`. Shows a failed call when `b` is zero."""
    if b == 0:
        return _failure(f"Cannot divide {a:g} by zero. Give a `b` other than 0.")
    quotient = a / b
    if not math.isfinite(quotient):
        return _failure(f"{a:g} / {b:g} is too large for a number. Give a larger `b`.")
    return _structured(f"{a:g} / {b:g} = {quotient:g}", Quotient(quotient=quotient))


async def countdown(
    context: Context[Any, Any],
    steps: Annotated[int, Field(ge=1, le=100)] = 3,
    pause: Annotated[
        float, Field(ge=0, le=5, allow_inf_nan=False, description="Seconds between steps")
    ] = 0.05,
) -> CallToolResult:
    """Count down to zero. Shows progress notifications."""
    for step in range(1, steps + 1):
        await anyio.sleep(pause)
        await context.report_progress(step, steps, f"{steps - step} to go")
    return _text(f"Counted down from {steps}. Lift-off!")


async def now(
    timezone: Annotated[str, Field(description="An IANA name such as `Asia/Shanghai`")] = "UTC",
) -> Annotated[CallToolResult, Moment]:
    """Tell the time in a time zone. Shows structured data that differs from call to call."""
    try:
        zone = ZoneInfo(timezone)
    # Depending on the name: not found (a KeyError), not a legal key, or a folder of the database.
    except (KeyError, ValueError, OSError):
        return _failure(f"Unknown time zone `{timezone}`. Use an IANA name such as `UTC` or `Asia/Shanghai`.")
    time = datetime.now(zone)
    moment = Moment(time=time, timezone=timezone, weekday=time.strftime("%A"), unix=time.timestamp())
    return _structured(f"It is {time:%A, %Y-%m-%d %H:%M:%S} in {timezone}.", moment)


async def palette() -> str:
    """List the colours that `swatch` knows by name."""
    return "\n".join(f"{name} #{bytes(rgb).hex()}" for name, rgb in COLOURS.items())


async def describe_colour(colour: str) -> str:
    """Ask for a description of a colour, with a swatch to look at."""
    return f"Call the `swatch` tool with colour `{colour}`, then describe the colour in one sentence."


def build_server() -> MCPServer[Any]:
    """Make the server with all its tools, its resource and its prompt."""
    server: MCPServer[Any] = MCPServer(
        "dragoman-studio",
        title="Studio (demo)",
        instructions=INSTRUCTIONS,
        version="1.0",
        log_level="WARNING",
    )
    for function in (greet, measure, swatch, divide, countdown, now):
        server.add_tool(function, description=inspect.getdoc(function), annotations=_READ_ONLY)
    server.resource(
        "studio://palette",
        name="palette",
        title="Palette",
        description=inspect.getdoc(palette),
        mime_type="text/plain",
    )(palette)
    server.prompt(description=inspect.getdoc(describe_colour))(describe_colour)
    return server


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server from the command line."""
    parser = argparse.ArgumentParser(prog="python -m dragoman.demo.studio", description="A demo MCP server.")
    parser.add_argument("--stdio", action="store_true", help="serve over stdio instead of HTTP")
    add_http_options(parser)
    options = parser.parse_args(arguments)
    if options.stdio:
        serve_stdio(build_server())
        return 0
    try:
        serve_http(build_server(), host=options.host, port=options.port, until_eof=options.until_eof)
    except OSError as exc:
        parser.error(f"cannot listen on {options.host} port {options.port}: {exc.strerror}")
    return 0


def _parse_colour(colour: str) -> tuple[int, int, int] | None:
    if re.fullmatch(r"#[0-9a-fA-F]{6}", colour):
        red, green, blue = bytes.fromhex(colour[1:])
        return red, green, blue
    return COLOURS.get(colour.lower())


def _text(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)])


def _structured(text: str, data: BaseModel) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=data.model_dump(mode="json")
    )


def _failure(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


if __name__ == "__main__":
    sys.exit(main())
