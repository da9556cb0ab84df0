"""What other systems lack: the modules of POSIX, and a filled /proc."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.behaviour.conftest import listening

PLAIN = str(Path(__file__).resolve().parents[1] / "servers" / "plain.py")
NO_POSIX = """
import sys
for name in ("fcntl", "termios", "pwd", "grp", "resource", "tty", "pty"):
    sys.modules[name] = None
"""
CALLS = """
import asyncio, sys
from dragoman import Http, McpManager, ServerSpec, Stdio

async def main():
    script, *urls = sys.argv[1:]
    specs = [ServerSpec("near", Stdio(sys.executable, [script])), *(ServerSpec("far", Http(url)) for url in urls)]
    async with McpManager(specs, cache=False) as mcp:
        await mcp.wait_ready(timeout=40)
        for spec in specs:
            print((await mcp.call(f"mcp_{spec.name}_echo", {"text": spec.name})).text)

asyncio.run(main())
"""
COMMAND = "from dragoman.cli.entry import main; main()"


def run(*command: str, stdin: str | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50, input=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_servers_are_connected_without_the_modules_of_posix() -> None:
    async with listening("http") as url:
        said = await asyncio.to_thread(run, sys.executable, "-c", NO_POSIX + CALLS, PLAIN, url)
    assert said.split() == ["near", "far"]


def test_commands_need_no_module_of_posix() -> None:
    Path("mcp.toml").write_text(
        f"[mcp.servers.s]\ncommand = '{sys.executable}'\nargs = ['{PLAIN}']\n", "utf-8"
    )
    config = ("--config", "mcp.toml", "--no-daemon")
    said = run(sys.executable, "-c", NO_POSIX + COMMAND, *config, "call", "s.echo", "text=done")
    assert "done" in said
    hello = (
        '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25",'
        ' "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}}\n'
    )
    said = run(sys.executable, "-c", NO_POSIX + COMMAND, *config, "serve", stdin=hello)
    assert '"serverInfo"' in said


def test_servers_are_connected_with_an_empty_proc() -> None:
    unshare = shutil.which("unshare")
    alone = [str(unshare), "--mount", "--map-root-user"]
    if unshare is None or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine gives no namespace of mounts")
    shell = 'mount -t tmpfs none /proc && exec "$0" -c "$@"'
    assert (run(*alone, "sh", "-c", shell, sys.executable, CALLS, PLAIN)).split() == ["near"]
