"""Commands of the real servers that `make test` installs under `.cache/` (scripts/install_servers.py)."""

from __future__ import annotations

from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache"
NPM = CACHE / "npm-servers"

_PROGRAMS = {
    "filesystem": [NPM / "node_modules/.bin/mcp-server-filesystem"],
    "everything": [NPM / "node_modules/.bin/mcp-server-everything"],
    "time": [CACHE / "servers/mcp-server-time/bin/mcp-server-time"],
    "git": [CACHE / "servers/mcp-server-git/bin/mcp-server-git"],
    "excel": [CACHE / "servers/excel-mcp-server/bin/excel-mcp-server", "stdio"],
    "china-law": [CACHE / "servers/china-law-mcp/bin/china-law-mcp"],
}
NAMES = tuple(_PROGRAMS)


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
