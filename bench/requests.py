"""Requests in a user's words, each with the tools that can answer it, for measuring tool search.

`data/requests.tsv` was written by hand for the 943 tools of `tests/data/real-tools.json`: few words in common
with the tools' own text, English and Chinese, and some that no tool of the catalog can answer. Half of them
is for choosing parameters (`tune`), the other half for reporting (`test`). `data/later.tsv` (`later`) was
written after that, `data/unseen.tsv` and `data/tasks.tsv` (`unseen`) before the ranking changed;
`data/blind.tsv` (`blind`), `data/fresh.tsv` (`fresh`) and the long tasks of `tasks.tsv` (`errands`) came
last. No parameter was chosen by these; see docs/search.md for the limits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from dragoman.model import ToolDef
from dragoman.tools.definition import define

DATA = Path(__file__).parent / "data"
CATALOG = Path(__file__).parents[1] / "tests" / "data" / "real-tools.json"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and the exposed names of the tools that can answer it; none if it is impossible."""

    text: str
    language: Literal["en", "zh"]
    tools: frozenset[str]
    part: str


def read_requests() -> list[Request]:
    """Read all requests."""
    names = ("requests.tsv", "later.tsv", "unseen.tsv", "blind.tsv", "fresh.tsv")
    return [one for name in names for one in _read(name)]


@dataclass(frozen=True, slots=True)
class Task:
    """A task for several tools: what can do each of its steps, and what a plan would search for."""

    text: str
    steps: tuple[frozenset[str], ...]
    plan: tuple[str, ...]


def read_tasks(part: str) -> list[Task]:
    """Read the tasks of a part: `tune`, `unseen` or `errands`."""
    lines = (DATA / "tasks.tsv").read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines if line[:1] != "#")
    return [
        Task(text, tuple(frozenset(step.split()) for step in steps.split(";")), tuple(plan.split(";")))
        for found, steps, text, plan in rows
        if found == part
    ]


def _read(name: str) -> list[Request]:
    lines = (DATA / name).read_text("utf-8").splitlines()
    found: list[Request] = []
    for language, tools, text in (line.split("\t") for line in lines if line[:1] != "#"):
        half = blake2b(text.encode(), digest_size=1).digest()[0] % 2
        found.append(
            Request(
                text=text,
                language="zh" if language == "zh" else "en",
                tools=frozenset(() if tools == "-" else tools.split()),
                part=("tune" if half else "test") if name == "requests.tsv" else name.removesuffix(".tsv"),
            )
        )
    return found


def read_catalog() -> list[ToolDef]:
    """Read the real tools; their exposed names are `server/tool`."""
    listing: dict[str, list[dict[str, Any]]] = json.loads(CATALOG.read_text("utf-8"))
    made = (
        define(raw, server=server, template="{server}/{tool}")
        for server, raws in listing.items()
        for raw in raws
    )
    return [tool for tool in made if isinstance(tool, ToolDef)]
