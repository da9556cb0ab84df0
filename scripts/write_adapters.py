"""Write the matrix of docs/adapters.md from the rows that `make prove ONLY=adapters` leaves in `.cache/`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "adapters.md"
ROWS = ROOT / ".cache" / "adapters-matrix"
BEGIN, END = "<!-- matrix -->", "<!-- end of the matrix -->"
NAMES = {
    "langchain": "LangChain",
    "pydantic-ai": "PydanticAI",
    "openai-agents": "OpenAI Agents",
    "strands": "Strands",
    "google-adk": "Google ADK",
    "agent-framework": "Agent Framework",
    "smolagents": "smolagents",
    "llama-index": "LlamaIndex",
    "agno": "Agno",
}


def write() -> None:
    """Put the matrix of the last run into the page."""
    rows = {name: json.loads((ROWS / f"{name}.json").read_text("utf-8")) for name in NAMES}
    text = PAGE.read_text("utf-8")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(text[:begin] + "\n" + matrix(rows) + text[end:], "utf-8")


def matrix(rows: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the table, then how each framework has what it has, and why not what it has not."""
    cells = list(next(iter(rows.values())))
    lines = [
        f"| | {' | '.join(NAMES.values())} |",
        f"| --- |{' --- |' * len(NAMES)}",
        *(f"| {cell} | {' | '.join(_mark(rows[name][cell]) for name in NAMES)} |" for cell in cells),
        "",
    ]
    for name, shown in NAMES.items():
        notes = [
            f"{'' if one['holds'] else 'no '}*{cell}*: {one.get('how') or one.get('why')}"
            for cell, one in rows[name].items()
            if one.get("how") or one.get("why")
        ]
        lines.append(f"- {shown}: {'. '.join(_sentence(note) for note in notes)}.")
    return "\n".join(lines) + "\n"


def _mark(cell: dict[str, Any]) -> str:
    return "yes" if cell["holds"] else "**no**"


def _sentence(note: str) -> str:
    return re.sub(r"\s+", " ", note)


if __name__ == "__main__":
    write()
