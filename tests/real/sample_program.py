"""A small application for a sample configuration: `sample_program.py PROFILE '[["tool", {…}], …]'`.

It connects everything, makes the calls, shuts down, and prints what happened as JSON. A program of its own,
because certificates and proxies are read from the environment when a program starts.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from dragoman import McpManager
from dragoman.config.load import load


class Lines(logging.Handler):
    """Keeps the lines of the log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def environ(pid: int | None) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text("utf-8").split("\0") if pid else []


async def main(profile: str, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    log = Lines()
    logging.getLogger("dragoman").addHandler(log)
    logging.getLogger("dragoman").setLevel(logging.INFO)
    settings = load(profile)
    mcp = await McpManager.connect_all(settings, trust_project=True)
    try:
        status = mcp.status()
        results = [await mcp.call(name, arguments) for name, arguments in calls]
        tools = [tool.name for tool in mcp.tools()]
        variables = {name: environ(one.pid) for name, one in status.items()}
    finally:
        await mcp.shutdown()
    return {
        "problems": [str(one) for one in (*settings.problems, *settings.warnings)],
        "auto_reload": settings.auto_reload,
        "health_check_interval": settings.health_check_interval,
        "call_timeouts": {spec.name: spec.call_timeout for spec in settings.servers},
        "status": {name: [one.state, one.transport] for name, one in status.items()},
        "errors": {name: one.last_error for name, one in status.items()},
        "tools": tools,
        "texts": [result.text for result in results],
        "environ": variables,
        "log": log.lines,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))))
