"""The result of a run: rows of figures, stored as JSON, and the goals."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.peers.field import FLOOR, OURS

LEVEL = 0.03
"""Figures that differ by less than this fraction are level: the noise of a run is as large."""


@dataclass(frozen=True)
class Figure:
    """What one peer did in one row: a number (less is better), or words, or why there is neither."""

    value: float | None = None
    text: str = ""
    good: bool | None = None
    """For behaviour: whether it is what a user wants."""


@dataclass(frozen=True)
class Row:
    """One thing that was measured of all peers."""

    name: str
    section: str
    title: str
    unit: str
    """`s`, `ms`, `µs`, `MiB`, or nothing for behaviour; values are in seconds and bytes."""
    figures: dict[str, Figure]

    def ratio(self, peer: str, to: str) -> float | None:
        """Return how many times the other's figure a peer's is."""
        mine, other = self.figures.get(peer, Figure()).value, self.figures.get(to, Figure()).value
        return None if mine is None or not other else mine / other

    def ahead(self) -> dict[str, float | None]:
        """Return the peers that are ahead of us, with their ratio to us; the floor does not count."""
        ours = self.figures.get(OURS, Figure())
        found: dict[str, float | None] = {}
        for peer, figure in self.figures.items():
            if peer in (OURS, FLOOR):
                continue
            ratio = self.ratio(peer, OURS)
            if ratio is not None and ratio < 1 - LEVEL:
                found[peer] = ratio
            elif figure.value is None and figure.good and ours.good is False:
                found[peer] = None
        return found

    def level(self) -> dict[str, float]:
        """Return the peers whose figures are level with ours."""
        ratios = {peer: self.ratio(peer, OURS) for peer in self.figures if peer not in (OURS, FLOOR)}
        return {peer: ratio for peer, ratio in ratios.items() if ratio and abs(ratio - 1) <= LEVEL}


@dataclass(frozen=True)
class Goal:
    """An upper bound on a ratio of two figures."""

    title: str
    bound: float
    ratio: float | None

    @property
    def met(self) -> bool:
        """Whether there is a figure, and it is within the bound."""
        return self.ratio is not None and self.ratio <= self.bound


@dataclass(frozen=True)
class Result:
    """One whole run."""

    facts: dict[str, str]
    versions: dict[str, dict[str, str]]
    rows: list[Row] = field(default_factory=list[Row])

    def row(self, name: str) -> Row | None:
        """Return a row by its name."""
        return next((row for row in self.rows if row.name == name), None)

    def goals(self) -> list[Goal]:
        """Return the goals of dragoman."""

        def ratio(name: str, to: str) -> float | None:
            row = self.row(name)
            return row.ratio(OURS, to) if row else None

        return [
            Goal("CPU of a call over stdio, alone, against the floor", 3.5, ratio("stdio-1-cpu", FLOOR)),
            Goal(
                "memory of 20 servers over stdio, against the SDK's `Client`",
                1.1,
                ratio("memory-stdio", "sdk-client"),
            ),
            Goal(
                "memory of 20 servers over HTTP, against the SDK's `Client`",
                1.25,
                ratio("memory-http", "sdk-client"),
            ),
            Goal("`import dragoman` against `import mcp`", 0.15, ratio("import-name", "sdk-client")),
        ]

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)


def from_json(text: str) -> Result:
    """Read what `to_json` wrote."""
    raw: Any = json.loads(text)
    rows: list[Row] = [
        Row(**row | {"figures": {peer: Figure(**figure) for peer, figure in row["figures"].items()}})
        for row in raw["rows"]
    ]
    return Result(raw["facts"], raw["versions"], rows)


def shown(figure: Figure, unit: str) -> str:
    """Return a figure with its unit."""
    value = figure.value
    if value is None:
        return figure.text or "—"
    match unit:
        case "µs":
            return f"{value * 1e6:.0f} µs"
        case "ms":
            return f"{value * 1e3:.0f} ms" if value >= 0.01 else f"{value * 1e3:.1f} ms"
        case "MiB":
            return f"{value / 2**20:.1f} MiB"
        case _:
            return f"{value:.2f} s"
