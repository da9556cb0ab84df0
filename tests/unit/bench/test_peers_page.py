"""The page and its picture, from a recorded result."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from bench.peers.field import PEERS
from bench.peers.page import HEAD, TITLES, page
from bench.peers.plot import PANELS, plot
from bench.peers.result import Result
from tests.unit.bench.recorded import recorded

DOCS = Path(__file__).resolve().parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def test_a_figure_stands_above_its_ratios_to_dragoman_and_to_the_floor() -> None:
    text = page(recorded())
    assert "| dragoman | **180 µs**<br>1.00 × · 3.00 × |" in text
    assert "| SDK `Client` | 600 µs<br>3.33 × · 10.00 × |" in text
    assert "| the floor | 60 µs<br>0.33 × · 1.00 × |" in text


def test_what_a_peer_cannot_do_is_said_with_the_reason() -> None:
    assert "| — (fails as a whole: 0 of 3) |" in page(recorded())


def test_goals_say_whether_they_are_met() -> None:
    text = page(recorded())
    assert "| CPU of a call over stdio, alone, against the floor | 3.5 × | 3.00 × | met |" in text
    assert "against the SDK's `Client` | 1.1 × | 1.29 × | **missed** |" in text
    assert "| ahead of every peer, or level | every row | 6 of 8 rows | **missed** |" in text


def test_rows_where_another_is_ahead_are_listed_with_what_is_known() -> None:
    section = page(recorded()).partition("## Where dragoman is not ahead\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line]
    assert len(lines) == 4
    assert lines[0].startswith(
        "- *Start to all tools*, the row start-20-all: SDK `Client` is level (0.98 ×). The servers' own"
    )
    assert lines[1].startswith("- *Memory*, the row memory-stdio: SDK `Client` needs 0.78 × of it. ")
    assert lines[3].startswith("- *Failures*, processes left: `fastmcp` does better. ")


def test_nothing_to_confess_is_said_too() -> None:
    assert "Nowhere in this run." in page(Result({}, {}))


def test_bad_behaviour_is_bold() -> None:
    assert "| processes left | **5 helpers** | **5 helpers** | none | none |" in page(recorded())


def test_versions_and_the_machine_are_told() -> None:
    text = page(recorded())
    assert "| dragoman | dragoman 1.2, mcp 2.3.0 | `McpManager` |" in text
    assert "date: 2026-01-02; cores: 2." in text


def test_the_picture_has_a_bar_for_each_figure_of_each_panel() -> None:
    drawing = ET.fromstring(plot(recorded()))
    bars = [bar for bar in drawing.iter(f"{SVG}rect") if bar.get("height") == "12"]
    rows = [row for name in PANELS if (row := recorded().row(name)) is not None]
    assert len(rows) == 5
    assert len(bars) == 4 * len(rows)
    assert max(float(bar.get("width", "0")) for bar in bars) == 220.0
    texts = [text.text for text in drawing.iter(f"{SVG}text")]
    assert {"180 µs", "90.0 MiB", "SDK Client", "memory, 20 servers over stdio"} <= set(texts)


def test_the_page_in_the_docs_is_of_a_whole_run() -> None:
    text = (DOCS / "performance.md").read_text("utf-8")
    assert text.startswith(HEAD)
    assert [title for title in TITLES.values() if f"\n## {title}\n" not in text] == []
    assert [peer.title for peer in PEERS if f"\n| {peer.title} |" not in text] == []
    drawing = ET.parse(DOCS / "images" / "performance.svg").getroot()
    assert {text.text for text in drawing.iter(f"{SVG}text")} >= set(PANELS.values())
