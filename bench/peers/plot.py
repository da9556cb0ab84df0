"""The picture of a result: small panels of bars, one for each row that matters, as SVG by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from bench.peers.field import BY_NAME, FLOOR, OURS
from bench.peers.result import Figure, shown

if TYPE_CHECKING:
    from bench.peers.result import Result, Row

PANELS = {
    "import": "import, CPU",
    "start-20-all": "20 servers to all tools, time",
    "stdio-1-cpu": "a call over stdio, CPU",
    "stdio-32-cpu": "the same, 32 at once",
    "http-1-cpu": "a call over HTTP, CPU",
    "http-32-cpu": "the same, 32 at once",
    "memory-stdio": "memory, 20 servers over stdio",
    "memory-http": "memory, 20 servers over HTTP",
}
ACROSS = 2
WIDE, LABEL, BAR, LINE, HEADING = 460, 150, 220, 19, 34
FONT = 'font-family="system-ui, sans-serif" font-size="12"'
SAID = 'role="img" aria-label="dragoman beside its peers"'
COLOURS = {OURS: "#0b6e4f", FLOOR: "#b8b8b8"}
OTHERS = "#7d94b5"


def plot(result: Result) -> str:
    """Return the picture."""
    rows = [(title, row) for name, title in PANELS.items() if (row := result.row(name)) is not None]
    tall = HEADING + LINE * len(result.versions) + 16
    deep = -(-len(rows) // ACROSS)
    width, height = WIDE * ACROSS, tall * max(deep, 1) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {FONT} {SAID}>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (title, row) in enumerate(rows):
        left, top = (number % ACROSS) * WIDE, (number // ACROSS) * tall
        lines += _panel(title, row, list(result.versions), left=left, top=top)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(title: str, row: Row, peers: list[str], *, left: int, top: int) -> list[str]:
    most = max((figure.value for figure in row.figures.values() if figure.value), default=1.0)
    lines = [_text(title, left + 12, top + 24, 'font-size="14" font-weight="600" fill="#222222"')]
    start = left + LABEL + 6
    for number, peer in enumerate(peers):
        figure = row.figures.get(peer, Figure())
        middle = top + HEADING + LINE * number + LINE / 2
        length = BAR * (figure.value or 0.0) / most
        weight = 'font-weight="700"' if peer == OURS else 'font-weight="400"'
        name = BY_NAME[peer].title.replace("`", "") if peer in BY_NAME else peer
        value = "—" if figure.value is None else shown(figure, row.unit)
        box = f'x="{start}" y="{middle - 6:.1f}" width="{length:.1f}" height="12" rx="2"'
        lines += [
            _text(name, left + LABEL, middle + 4, f'text-anchor="end" fill="#222222" {weight}'),
            f'<rect {box} fill="{COLOURS.get(peer, OTHERS)}"/>',
            _text(value, start + 6 + length, middle + 4, f'fill="#444444" {weight}'),
        ]
    return lines


def _text(text: str, x: float, y: float, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
