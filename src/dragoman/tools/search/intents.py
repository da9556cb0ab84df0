"""Intents: what tools do, and what users say when they want it, compared by meaning.

`intents.txt` has the pairs, `intents.int8` their vectors (written by `scripts/encode_intents.py`). A request
is compared with what users say. What the closest ones mean in the words of tools then moves the request
toward the tools. No word has to match.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

TEXTS = Path(__file__).parent / "intents.txt"
VECTORS = Path(__file__).parent / "intents.int8"

# Chosen on bench/data/requests.tsv and later.tsv; see docs/search.md.
_SHARE = 0.6
"""How much the intents count beside the request itself."""
_MOST = 3
_FAR, _CLOSE = 0.3, 0.6
"""Sentences up to the first similarity say nothing about a request; from the second on they count in full."""


def read() -> list[tuple[str, list[str]]]:
    """Read what tools do, each with what users say."""
    lines = TEXTS.read_text("utf-8").splitlines()
    pairs = (line.partition("|") for line in lines if line[:1] != "#")
    return [(means.strip(), [one.strip() for one in said.split(";")]) for means, _, said in pairs]


def moved(request: Any) -> Any:
    """Return a request's vector, moved toward the tools that such requests are about; its length is one."""
    said, owners, means = _vectors()
    # Not `@`: its threads wait for each other longer than this product takes.
    similar = importlib.import_module("numpy").einsum("ij,j->i", said, request)
    close: dict[int, float] = {}
    places: list[int] = (-similar).argsort().tolist()
    for place in places:
        if similar[place] <= _FAR or len(close) == _MOST:
            break
        close.setdefault(owners[place], float(similar[place]) - _FAR)
    if not close:
        return request
    share = _SHARE * min(1.0, max(close.values()) / (_CLOSE - _FAR)) / sum(close.values())
    total = request + sum(share * worth * means[owner] for owner, worth in close.items())
    return total / (total * total).sum() ** 0.5


@cache
def _vectors() -> tuple[Any, list[int], Any]:
    """Return the vectors of what users say, the intent of each by number, and the vectors of the intents."""
    numpy: Any = importlib.import_module("numpy")
    pairs = read()
    count = sum(1 + len(said) for _, said in pairs)
    rows = numpy.frombuffer(VECTORS.read_bytes(), numpy.int8).reshape(count, -1).astype(numpy.float32)
    rows /= (rows * rows).sum(1, keepdims=True) ** 0.5
    # The intents come first, then all sentences in their order.
    owners = [number for number, (_, said) in enumerate(pairs) for _ in said]
    return rows[len(pairs) :], owners, rows[: len(pairs)]
