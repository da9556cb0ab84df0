"""docs/scale.md: its costs are those of the pages that it names, and its results follow from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = " ".join((DOCS / "scale.md").read_text("utf-8").split())
ROWS = dict(
    re.findall(r"^\| ([^|]+?) \| ([\d.,]+)[^|]*\| ", (DOCS / "scale.md").read_text("utf-8"), re.MULTILINE)
)


def cost(name: str) -> float:
    return float(ROWS[name].replace(",", ""))


GATEWAY_CPU = cost("a call through the gateway over HTTP, CPU of the gateway")
GATEWAY_RATE = cost("calls per second of one gateway process")
STDIO = cost("a call from a program over stdio, CPU of the client")
HTTP = cost("a call from a program over HTTP, CPU of the client")
MAP = cost("a row of `mcp.map` over stdio, CPU of the client")
PROGRAM = cost("a program with 20 stdio servers of 50 tools")
TOOL = cost("a tool more")
GATEWAY = cost("a gateway with one server")
MODERN = cost("a client of the gateway, protocol 2026-07-28")
LEGACY = cost("a client of the gateway, protocol 2025-11-25")

CALLS, DAY, PEAK = 1_000_000, 86_400, 10
RESULTS = {
    f"**{GATEWAY + 1000 * MODERN / 1024:.1f} MiB**": "a thousand modern clients",
    f"**{GATEWAY + 1000 * LEGACY / 1024:.1f} MiB**": "a thousand older clients",
    f"{1000 * 3 * 50 / 1024:.0f} GiB": "processes of their own",
    f"**{PROGRAM + 9000 * TOOL / 1024:.1f} MiB**": "ten thousand tools",
    f"**{CALLS / DAY:.1f}** calls": "the mean",
    f"**{CALLS / DAY * PEAK:.0f}** calls": "the peak",
    f"**{CALLS / DAY * PEAK * GATEWAY_CPU / 1000:.1%}**".replace("%", " %"): "the gateway's core",
    f"**{CALLS * GATEWAY_CPU / 1000:.0f} s** a day": "the gateway's day",
    f"**{GATEWAY_RATE / (CALLS / DAY * PEAK):.0f}** times": "room of one gateway",
    f"**{CALLS * STDIO / 1e6:.0f} s** of CPU": "calls of a program",
    f"**{CALLS * MAP / 1e6:.0f} s** of CPU": "rows of a table",
    f"**{CALLS * 0.5 / 8 / 3600:.1f} h**": "rows of a slow tool",
}


@pytest.mark.parametrize("result", RESULTS, ids=RESULTS.get)
def test_a_result_follows_from_the_costs(result: str) -> None:
    assert result in PAGE


def of(page: str, row: str, column: int) -> float:
    """Return a figure of a table."""
    text = (DOCS / page).read_text("utf-8")
    line = next(line for line in text.splitlines() if re.match(rf"\| {row}", line))
    found = re.search(r"[\d.,]+", line.split("|")[column])
    assert found
    return float(found[0].replace(",", ""))


def section(heading: str) -> float:
    """Return dragoman's figure of the third column in a section of the performance page."""
    text = (DOCS / "performance.md").read_text("utf-8").partition(f"## {heading}")[2]
    line = next(line for line in text.splitlines() if line.startswith("| dragoman |"))
    found = re.search(r"[\d.,]+", line.split("|")[4])
    assert found
    return float(found[0].replace(",", ""))


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (GATEWAY_CPU, lambda: of("gateway-performance.md", r"dragoman \| 2026-07-28", 4)),
        (GATEWAY_RATE, lambda: of("gateway-performance.md", r"dragoman \| 2026-07-28", 3)),
        (STDIO, lambda: section("A call over stdio")),
        (HTTP, lambda: section("A call over Streamable HTTP")),
        (PROGRAM, lambda: of("performance.md", r"dragoman \| \*\*[\d.]+ MiB", 2)),
    ],
)
def test_a_cost_is_still_that_of_its_page(here: float, there: object) -> None:
    """Machines and runs differ: a new measurement within a factor of two changes no plan."""
    assert here / 2 <= there() <= here * 2
