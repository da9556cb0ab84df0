"""One row of the behaviour matrix: a framework's real agent, a scripted model, real servers.

Usage: matrix.py NAME SERVER; prints one JSON object, cell by cell. Run by tests/prove/test_adapters.py.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from script import Script

from dragoman import Handlers, McpManager, ServerSpec, Stdio, ToolRegistry, tool
from dragoman.adapters.bridge import MISSING
from dragoman.model import ServerState, Timeouts

NAME, SERVER = sys.argv[1:3]
DRIVER: Any = import_module(f"drive_{NAME}")
LOG = Path(tempfile.mkdtemp()) / "log"
SPEC = ServerSpec("shop", Stdio(sys.executable, [SERVER, str(LOG)]))
HASTY = ServerSpec("shop", Stdio(sys.executable, [SERVER]), timeouts=Timeouts(call=0.5))
BROKEN = ServerSpec("ledger", Stdio(sys.executable, ["-c", "raise SystemExit('no licence')"]))
LEGAL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
ANSWERS = {"size": {"action": "accept", "content": {"size": "L"}}}


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


class Open:
    """A manager with a local tool, and whatever the cell needs."""

    def __init__(self, *specs: ServerSpec, handlers: Handlers | None = None) -> None:
        self.registry = ToolRegistry()
        self.registry.register(double)
        self._mcp = McpManager(specs or [SPEC], registry=self.registry, cache=False, handlers=handlers)

    async def __aenter__(self) -> McpManager:
        mcp = await self._mcp.__aenter__()
        await mcp.wait_ready()
        return mcp

    async def __aexit__(self, *exc: object) -> None:
        await self._mcp.__aexit__(*exc)


async def tools_of_each_moment() -> None:
    @tool
    def late(word: str) -> str:
        """Come after the run has begun."""
        return f"late, but {word}"

    async with Open() as mcp:

        def comes() -> Any:
            mcp.registry.register(late)
            return "mcp_shop_echo", {"text": "first"}

        def goes() -> Any:
            mcp.registry.unregister("late")
            return "double", {"number": 2}

        script = Script(comes, ("late", {"word": "now"}), goes)
        outcome = await DRIVER.run(mcp, script)
        assert outcome.seen[1].text == "late, but now", outcome
        assert "late" not in script.offered[0]
        assert "late" in script.offered[1]
        assert "late" not in script.offered[3], script.offered[3]
        assert outcome.final == "done"


async def names() -> None:
    async with Open() as mcp:
        script = Script(("mcp_shop_echo", {"text": "hello"}))
        await DRIVER.run(mcp, script)
        odd = [name for name in script.offered[0] if "where" in name]
        assert len(odd) == 1, script.offered[0]
        assert all(LEGAL.fullmatch(name) for name in script.offered[0])
        outcome = await DRIVER.run(mcp, Script((odd[0], {"text": "found"}), ("double", {"number": 21})))
        assert [one.text for one in outcome.seen] == ["found", "42"]


async def structured_result() -> None:
    async with Open() as mcp:
        outcome = await DRIVER.run(mcp, Script(("mcp_shop_law", {})))
        assert outcome.seen[0].structured == {"law": "Sample Act", "article": 4}, outcome


async def image() -> None:
    async with Open() as mcp:
        outcome = await DRIVER.run(mcp, Script(("mcp_shop_image", {})))
        assert outcome.seen[0].images == 1, outcome
        assert outcome.final == "done"


async def tool_error() -> None:
    async with Open() as mcp:
        outcome = await DRIVER.run(
            mcp, Script(("mcp_shop_fail", {}), ("mcp_shop_echo", {"text": 3}), ("double", {"number": 4}))
        )
        full, unfit, after = outcome.seen
        assert "the disk is full" in full.text
        assert full.failed, full
        assert "text" in unfit.text, unfit
        assert (after.text, outcome.final) == ("8", "done")


async def time_out() -> None:
    async with Open(HASTY) as mcp:
        outcome = await DRIVER.run(mcp, Script(("mcp_shop_slow", {}), ("double", {"number": 4})))
        assert "did not answer within 0.5 s" in outcome.seen[0].text, outcome
        assert (outcome.seen[1].text, outcome.final) == ("8", "done")


async def lost_server() -> None:
    async with Open() as mcp:
        outcome = await DRIVER.run(mcp, Script(("mcp_shop_exit", {}), ("double", {"number": 4})))
        assert "mcp_shop_exit" in outcome.seen[0].text, outcome
        assert "exit" in outcome.seen[0].text
        assert (outcome.seen[1].text, outcome.final) == ("8", "done")


async def broken_server() -> None:
    async with Open(SPEC, BROKEN) as mcp:
        script = Script((MISSING, {}))
        outcome = await DRIVER.run(mcp, script)
        assert "`ledger`: not available" in script.offered[0][MISSING], script.offered[0]
        assert "`ledger`: not available" in outcome.seen[0].text
        script = Script(("double", {"number": 4}))
        await DRIVER.run(mcp, script, allow=["shop:*", "double"])
        assert MISSING not in script.offered[0]


async def elicitation() -> None:
    LOG.unlink(missing_ok=True)
    async with Open(handlers=Handlers(durable_questions=True)) as mcp:
        script = Script(("mcp_shop_image", {}), ("mcp_shop_order", {}), ("double", {"number": 4}))
        outcome = await DRIVER.run(mcp, script)
        assert outcome.question is not None, outcome
        assert outcome.question["questions"]["size"]["message"] == "Which size?"
        json.dumps(outcome.question)
        outcome = await DRIVER.resume(mcp, script, outcome, ANSWERS)
        assert [one.text for one in outcome.seen[-2:]] == ["ordered L", "8"], outcome
        assert outcome.final == "done"
        assert LOG.read_text().split("\n")[:-1] == ["asked", "ordered L"]

        script = Script(("mcp_shop_order", {}))
        outcome = await DRIVER.resume(mcp, script, await DRIVER.run(mcp, script), "decline")
        assert outcome.seen[-1].text == "ordered decline", outcome


async def handler() -> None:
    """Without an interrupt, the application's handler answers; every framework has this."""

    async def answer(server: str, params: Any) -> Any:
        return ANSWERS["size"]

    async with Open(handlers=Handlers(elicitation=answer)) as mcp:
        outcome = await DRIVER.run(mcp, Script(("mcp_shop_order", {})))
        assert outcome.seen[0].text == "ordered L", outcome


async def progress() -> None:
    heard: list[Any] = []
    async with Open() as mcp:
        await DRIVER.run(
            mcp, Script(("mcp_shop_steps", {})), on_progress=lambda *report: heard.append(report)
        )
        assert heard == [("mcp_shop_steps", number, 3, f"step {number}") for number in (1, 2, 3)], heard


async def cancel() -> None:
    begun = asyncio.Event()
    async with Open() as mcp:
        run = asyncio.create_task(
            DRIVER.run(mcp, Script(("mcp_shop_slow", {})), on_progress=lambda *_: begun.set())
        )
        await begun.wait()
        await (DRIVER.cancel(run) if hasattr(DRIVER, "cancel") else stopped(run))
        told = await mcp.call("mcp_shop_cancelled", timeout=10)
        assert told.text == "1", told


async def stopped(run: asyncio.Task[Any]) -> None:
    run.cancel()
    try:
        await run
    except asyncio.CancelledError:
        return
    raise AssertionError("the run went on")


async def filters() -> None:
    rules: Any = {"allow": ["shop:*"], "deny": ["*_exit"]}
    async with Open() as mcp:
        script = Script(("mcp_shop_echo", {"text": "hello"}))
        outcome = await DRIVER.run(mcp, script, **rules)
        assert outcome.seen[0].text == "hello", outcome
        assert "mcp_shop_echo" in script.offered[0]
        assert not {"double", "mcp_shop_exit"} & set(script.offered[0])
        # A model may name a tool that it was not offered. Some frameworks end the run then; none calls it.
        with suppress(Exception):
            await DRIVER.run(mcp, Script(("mcp_shop_exit", {})), **rules)
        assert mcp.status()["shop"].state is ServerState.READY
        assert (await mcp.call("mcp_shop_echo", {"text": "still here"})).text == "still here"


CELLS = {
    "tools of each moment": tools_of_each_moment,
    "names legal": names,
    "structured result": structured_result,
    "image": image,
    "tool error": tool_error,
    "time-out": time_out,
    "lost server": lost_server,
    "broken server": broken_server,
    "question as interrupt": elicitation,
    "question by handler": handler,
    "progress": progress,
    "cancel": cancel,
    "filter": filters,
}


async def main() -> None:
    only = sys.argv[3:]
    row: dict[str, Any] = {}
    for cell, check in CELLS.items():
        if only and cell not in only:
            continue
        try:
            await asyncio.wait_for(check(), 60)
            row[cell] = {"holds": True, "how": DRIVER.HOW.get(cell, "")}
        except Exception as exc:  # noqa: BLE001 -- the test shows it
            row[cell] = {"holds": False, "error": "".join(traceback.format_exception(exc))}
        if cell in DRIVER.CANNOT:
            # It must fail: else the page would name a limit that is gone.
            row[cell] = {"holds": False, "why": DRIVER.CANNOT[cell], "works": row[cell]["holds"]}
    print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    asyncio.run(main())
