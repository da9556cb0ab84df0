"""Try the levels of the sandbox on the servers of a configuration file, and print a table.

Each server is started without a sandbox and then under each level; its tools are listed, and one tool that
changes nothing is called. A server works as before if it lists the same tools and answers that call in the
same way. One that does not start without a sandbox is left out.

Usage: python scripts/try_sandbox.py FILE [--levels credentials,strict] [--jobs 2] [--json RESULTS]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman import McpManager, ServerSpec, Stdio
from dragoman.config.dialects.dragoman import DRAGOMAN
from dragoman.config.entries import read_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dragoman import ToolDef

_HARMLESS = re.compile(r"(?:^|[_-])(?:list|get|read|search|echo|current|version|status|info|help)", re.I)
_LATEST = 240.0


def main() -> None:
    """Try, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--levels", default="credentials,strict")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    servers = json.loads(given.file.read_text("utf-8"))["mcpServers"]
    specs, problems = read_entries(servers, DRAGOMAN)
    levels = given.levels.split(",")

    def keep(found: object) -> None:
        if given.json:
            given.json.write_text(json.dumps(found, indent=1), "utf-8")

    found = asyncio.run(tried(specs, levels, jobs=given.jobs, keep=keep))
    print(table(found, levels))
    sys.exit(len(problems) > 0)


async def tried(
    specs: Sequence[ServerSpec],
    levels: Sequence[str],
    *,
    jobs: int = 2,
    keep: Callable[[object], object] | None = None,
) -> dict[str, dict[str, str]]:
    """Return for each server what happened under each level: `same`, or the difference."""
    found: dict[str, dict[str, str]] = {}
    turn = asyncio.Semaphore(jobs)

    async def one(spec: ServerSpec) -> None:
        async with turn:
            found[spec.name] = await compared(spec, levels)
        print(spec.name, found[spec.name], file=sys.stderr, flush=True)
        if keep is not None:
            keep(found)

    await asyncio.gather(*map(one, specs))
    return found


async def compared(spec: ServerSpec, levels: Sequence[str]) -> dict[str, str]:
    """Start one server under each level, and compare with a start without a sandbox."""
    before = await seen(spec, "off")
    if before["error"]:
        return {"off": before["error"]}
    told: dict[str, str] = {"off": f"{len(before['tools'])} tools, {before['call']}"}
    for level in levels:
        now = await seen(spec, level)
        differs = [key for key in ("tools", "call", "error") if now[key] != before[key]]
        told[level] = "; ".join(f"{key}: {str(now[key])[:300]}" for key in differs) or "same"
    return told


async def seen(spec: ServerSpec, level: str) -> dict[str, Any]:
    """Return what one start shows: its tools, how a call ended, and why it did not start."""
    stdio = spec.transport
    if not isinstance(stdio, Stdio):
        return {"tools": [], "call": "", "error": "it is no child process"}
    boxed = spec.replace(transport=stdio.replace(sandbox=level), timeouts={"connect": _LATEST, "call": 60.0})
    async with McpManager([boxed]) as mcp:
        ready = await mcp.wait_ready(timeout=_LATEST)
        if not ready:
            return {"tools": [], "call": "", "error": str(ready)}
        tools = list(mcp.tools())
        call = ""
        if (tool := harmless(tools)) is not None:
            result = await mcp.call(tool.name, {})
            text = re.sub(r"[\d.:-]+", "#", result.text)[:80]
            call = f"{tool.original_name}: {'answered' if result.success else f'failed: {text}'}"
        return {"tools": sorted(tool.name for tool in tools), "call": call, "error": ""}


def harmless(tools: Sequence[ToolDef]) -> ToolDef | None:
    """Return a tool that needs no argument and changes nothing, by its name; the first by that name."""
    free = [
        tool
        for tool in sorted(tools, key=lambda tool: tool.name)
        if not tool.input_schema.get("required") and _HARMLESS.search(tool.original_name)
    ]
    return free[0] if free else None


def table(found: dict[str, dict[str, str]], levels: Sequence[str]) -> str:
    """Return the results as Markdown."""
    rows = {name: told for name, told in found.items() if len(told) > 1}
    lines = [f"{len(rows)} of {len(found)} servers start without a sandbox.", ""]
    lines += [f"| server | {' | '.join(levels)} |", f"| --- |{' --- |' * len(levels)}"]
    lines += [f"| {name} | {' | '.join(told[level] for level in levels)} |" for name, told in rows.items()]
    for level in levels:
        same = sum(told[level] == "same" for told in rows.values())
        lines.append(f"\n`{level}`: {same} of {len(rows)} as before")
    return "\n".join(lines)


if __name__ == "__main__":
    os.environ.setdefault("NO_COLOR", "1")
    main()
