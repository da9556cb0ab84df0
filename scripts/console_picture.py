"""Draw the picture of docs/console.md: the console in Chromium, with demo servers after real calls."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from scripts.picture import ROOT
from tests.browser import CHROMIUM, browser
from tests.unit.console.visiting import serving

from dragoman.cli.commands.demo import CALLS
from dragoman.console.app import ConsoleApp
from dragoman.demo.launch import demo_servers
from dragoman.gateway.app import Guard
from dragoman.manager.manager import McpManager
from dragoman.model import ServerSpec, Stdio

PICTURE = ROOT / "docs" / "images" / "console.png"
SIZE = (1160, 580)
RULES = {"rules": [{"action": "ask", "server": "studio", "tool": "swatch", "reason": "it uses the printer"}]}


def manager(specs: list[ServerSpec], log: Path) -> McpManager:
    """Return the manager of the picture."""
    return McpManager(specs, cache=False, call_log=log, policy=RULES, approvals="inbox")


async def main() -> None:
    """Connect, call, and write the picture."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        gone = ServerSpec(name="statutes", transport=Stdio(command="statutes-server"))
        async with demo_servers() as specs, manager([*specs, gone], folder / "calls.sqlite3") as mcp:
            await mcp.wait_ready()
            for _ in range(6):
                for _, tool, arguments in CALLS:
                    if tool != "mcp_studio_swatch":
                        await mcp.call(tool, arguments)
            await mcp.call("mcp_studio_divide", {"a": 1, "b": 0})
            asking = asyncio.create_task(mcp.call("mcp_studio_swatch", {"colour": "#0f5f6b"}))
            app = ConsoleApp(mcp, Guard(None, hosts=(), origins=()))
            async with serving(app) as origin, browser(folder / "profile") as page:
                await page.size(*SIZE)
                await page.go(app.link(origin))
                await page.until("document.querySelectorAll('.card').length === 3")
                await page.until("document.querySelector('nav .badge')")
                await page.picture(PICTURE)
            asking.cancel()
            await asyncio.wait({asking})
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    if not CHROMIUM:
        sys.exit("Chromium is not installed: the picture of the console stays as it is")
    asyncio.run(main())
