"""Generate docs/states.md from the table in `server/lifecycle.py`: a diagram and the table.

`--check` writes nothing, and fails if the page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dragoman.model import ServerState
from dragoman.server import lifecycle
from dragoman.server.lifecycle import TABLE, Order, Signal, step

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "states.md"
EVERYWHERE = (Signal.STOP, Signal.RESTART)
"""Signals that have the same target in every state; the diagram omits them."""
HEAD = """\
---
summary: The states of a server, the transitions between them, and what the supervisor does.
read_when: A server is in an unexpected state, or you change `server/lifecycle.py`.
---
# The states of a server

<!-- Written by scripts/draw_states.py from src/dragoman/server/lifecycle.py; do not edit. -->
"""


def main() -> None:
    """Write the page, or check it."""
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text("utf-8") != text:
            sys.exit("docs/states.md is out of date: run scripts/draw_states.py")
        return
    PAGE.write_text(text, "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


def page() -> str:
    """Return the page for the current table."""
    about = (lifecycle.__doc__ or "").split("\n\n")
    policy, states = about[1], about[2]
    parts = [
        HEAD,
        policy.strip() + "\n",
        states.strip() + "\n",
        "## Diagram\n",
        picture(),
        f"Not shown: in every state {_names(EVERYWHERE)}; see the table.\n",
        "## Transitions\n",
        table(),
        "## Signals\n",
        _meanings(Signal),
        "## Orders\n",
        _meanings(Order),
    ]
    return "\n".join(parts)


def picture() -> str:
    """Return the table as a Mermaid diagram; signals between the same two states share an arrow."""
    arrows: dict[tuple[ServerState, ServerState], list[Signal]] = {}
    for state, row in TABLE.items():
        for signal, one in row.items():
            if signal not in EVERYWHERE:
                arrows.setdefault((state, one.state), []).append(signal)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {ServerState.IDLE}"]
    lines += [f"    {a} --> {b}: {', '.join(signals)}" for (a, b), signals in arrows.items()]
    return "\n".join([*lines, "```", ""])


def table() -> str:
    """Write one line for each entry."""
    lines = ["| state | signal | next state | orders |", "| --- | --- | --- | --- |"]
    for state in ServerState:
        for signal in Signal:
            if signal in TABLE[state]:
                then, orders = step(state, signal)
                lines.append(f"| {state} | {signal} | {then} | {', '.join(orders)} |")
    return "\n".join([*lines, ""])


def _names(signals: tuple[Signal, ...]) -> str:
    ends = {signal: {row[signal].state for row in TABLE.values() if signal in row} for signal in signals}
    return " and ".join(f"`{signal}` leads to `{' or '.join(sorted(ends[signal]))}`" for signal in signals)


def _meanings(kind: type[Signal | Order]) -> str:
    """Read the docstring of each member from the source."""
    source = Path(lifecycle.__file__).read_text("utf-8").split(f"class {kind.__name__}(StrEnum):", 1)[1]
    lines = ["| name | meaning |", "| --- | --- |"]
    for member in kind:
        meaning = source.split(f'{member.name} = "{member.value}"\n    """', 1)[1].split('"""', 1)[0]
        lines.append(f"| {member} | {meaning} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
