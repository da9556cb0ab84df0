"""Commands of the real servers that `make test` installs under `.cache/` (scripts/install_servers.py)."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

CACHE = Path(__file__).resolve().parents[2] / ".cache"
NPM = CACHE / "npm-servers"

_PROGRAMS = {
    "filesystem": [NPM / "node_modules/.bin/mcp-server-filesystem"],
    "github": [NPM / "node_modules/.bin/mcp-server-github"],
    "everything": [NPM / "node_modules/.bin/mcp-server-everything"],
    "time": [CACHE / "servers/mcp-server-time/bin/mcp-server-time"],
    "git": [CACHE / "servers/mcp-server-git/bin/mcp-server-git"],
    "excel": [CACHE / "servers/excel-mcp-server/bin/excel-mcp-server", "stdio"],
    "china-law": [CACHE / "servers/china-law-mcp/bin/china-law-mcp"],
}
NAMES = tuple(name for name in _PROGRAMS if name != "github")
"""Servers that answer without a network."""


def command(name: str, *arguments: str | Path) -> list[str]:
    """Return the command of a server; `filesystem` wants the allowed folders as arguments."""
    program = _PROGRAMS[name]
    if not Path(program[0]).exists():
        msg = f"the real server `{name}` is not installed: run `make servers`"
        raise FileNotFoundError(msg)
    return [str(part) for part in (*program, *arguments)]


def npx_command(name: str, *arguments: str | Path) -> list[str]:
    """Return the `npx` command of an npm server, as people write it; start it in the folder `NPM`.

    There `npx` finds the installed package and needs no network.
    """
    return ["npx", "-y", f"@modelcontextprotocol/server-{name}", *map(str, arguments)]


@asynccontextmanager
async def everything_on(transport: str, path: str) -> AsyncGenerator[str]:
    """Run the `everything` server on a free port of its own choice; give its URL."""
    child = await asyncio.create_subprocess_exec(
        *command("everything", transport),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PORT": "0"},
    )
    assert child.stderr is not None
    try:
        while b" on port " not in (line := await child.stderr.readline()):
            assert line, "the server ended before it listened"
        yield f"http://127.0.0.1:{port_of(child.pid)}{path}"
    finally:
        child.kill()
        await child.wait()
        child._transport.close()  # type: ignore[attr-defined]


def port_of(pid: int) -> int:
    """Find the port that a process listens on, since this server only says which one it asked for."""
    sockets = set[str]()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        if found := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
            sockets.add(found[1])
    rows = [
        row.split()
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()
    ]
    (port,) = [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in sockets]
    return port
