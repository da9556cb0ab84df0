"""A small result as a run records it: made-up figures that meet some goals and miss others."""

from __future__ import annotations

from bench.peers.result import Figure, Result, Row


def recorded() -> Result:
    peers = ("dragoman", "sdk-client", "fastmcp", "floor")

    def row(name: str, section: str, unit: str, *values: float | None) -> Row:
        figures = {
            peer: Figure(value) for peer, value in zip(peers, values, strict=True) if value is not None
        }
        return Row(name, section, f"the row {name}", unit, figures)

    rows = [
        row("import", "import", "ms", 0.15, 0.8, 1.1, 0.05),
        row("import-name", "import", "ms", 0.05, 0.5, None, None),
        row("start-20-all", "start", "ms", 0.5, 0.49, 2.0, 0.3),
        row("stdio-1-cpu", "calls-stdio", "µs", 180e-6, 600e-6, 700e-6, 60e-6),
        row("memory-stdio", "memory", "MiB", 90 * 2**20, 70 * 2**20, 100 * 2**20, 22 * 2**20),
        row("memory-http", "memory", "MiB", 90 * 2**20, 88 * 2**20, 120 * 2**20, 22 * 2**20),
        Row(
            "mixed-5",
            "start",
            "the row mixed-5",
            "ms",
            {
                "dragoman": Figure(0.2),
                "sdk-client": Figure(0.3),
                "fastmcp": Figure(text="— (fails as a whole: 0 of 3)", good=False),
                "floor": Figure(0.1),
            },
        ),
        Row(
            "left-crash",
            "conduct",
            "processes left",
            "",
            {
                "dragoman": Figure(text="5 helpers", good=False),
                "sdk-client": Figure(text="5 helpers", good=False),
                "fastmcp": Figure(text="none", good=True),
                "floor": Figure(text="none", good=True),
            },
        ),
    ]
    versions = {"dragoman": {"dragoman": "1.2", "mcp": "2.3.0"}, "sdk-client": {"mcp": "2.3.0"}}
    versions |= {"fastmcp": {"fastmcp": "4.5"}, "floor": {}}
    return Result({"date": "2026-01-02", "cores": "2"}, versions, rows)
