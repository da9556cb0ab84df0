"""Write docs/states.md from the table of `server/lifecycle.py`: a picture and the table itself.

`--check` writes nothing, and fails if the page is not what the table says.
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
"""Signals that lead to the same place from everywhere; the picture leaves them out."""
HEAD = """\
---
summary: The states of a server, what leads from one to the next, and what is done on the way.
read_when: A server is in a state that you did not expect, or you change `server/lifecycle.py`.
---
# The states of a server

<!-- Written by scripts/draw_states.py from src/dragoman/server/lifecycle.py; do not edit. -->
"""


def main() -> None:
    """Write the page, or check it."""
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text("utf-8") != text:
            sys.exit("docs/states.md is not what the table says: run scripts/draw_states.py")
        return
    PAGE.write_text(text, "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


def page() -> str:
    """Return the page as the table has it."""
    about = (lifecycle.__doc__ or "").split("\n\n")
    policy, states = about[1], about[2]
    parts = [
        HEAD,
        policy.strip() + "\n",
        states.strip() + "\n",
        "## The picture\n",
        picture(),
        f"Left out: from everywhere {_names(EVERYWHERE)}; see the table.\n",
        "## The table\n",
        table(),
        "## The signals\n",
        _meanings(Signal),
        "## The orders\n",
        _meanings(Order),
    ]
    return "\n".join(parts)


def picture() -> str:
    """Draw the table as a mermaid diagram; signals between the same two states share an arrow."""
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
    """Take the words under each member from the source, where they are written once."""
    source = Path(lifecycle.__file__).read_text("utf-8").split(f"class {kind.__name__}(StrEnum):", 1)[1]
    lines = ["| name | meaning |", "| --- | --- |"]
    for member in kind:
        meaning = source.split(f'{member.name} = "{member.value}"\n    """', 1)[1].split('"""', 1)[0]
        lines.append(f"| {member} | {meaning} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
