"""Eighteen servers that are broken in the ways that people meet, and what each face must say about them."""

from __future__ import annotations

import shutil
import socket
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web
from tests.servers.authorization import Authorization
from tests.servers.certificates import server_context

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SCRIPT = str(Path(__file__).resolve().parents[1] / "servers" / "broken.py")
UVX = shutil.which("uvx") or str(Path(sys.executable).with_name("uvx"))
SLOW = 2.5
"""Seconds for the servers that never answer."""


async def _page(_: web.Request) -> web.Response:
    return web.Response(text="<html><body>Welcome</body></html>", content_type="text/html")


async def _rejects(_: web.Request) -> web.Response:
    challenge = 'Bearer error="invalid_token", error_description="The token has expired"'
    return web.json_response({"error": "invalid_token"}, status=401, headers={"WWW-Authenticate": challenge})


async def _no_package(request: web.Request) -> web.Response:
    """Answer as npm's registry and PyPI's index do for a package that they do not have."""
    return web.json_response({"error": f"{request.path} Not found"}, status=404)


@asynccontextmanager
async def broken_servers(folder: Path) -> AsyncGenerator[dict[str, dict[str, Any]]]:
    """Run what the broken servers need, and give their entries."""
    async with AsyncExitStack() as stack:
        app = web.Application()
        app.router.add_route("*", "/page", _page)
        app.router.add_route("*", "/locked", _rejects)
        app.router.add_route("GET", "/registry/{name:.*}", _no_package)
        plain = await _listen(stack, app, None)
        context, _ = server_context(folder, "localhost")
        secure = await _listen(stack, web.Application(), context)
        oauth = await stack.enter_async_context(Authorization())
        with socket.create_server(("127.0.0.1", 0)) as free:
            closed = free.getsockname()[1]
        script = folder / "not-executable.sh"
        script.write_text("#!/bin/sh\nexec cat\n", "utf-8")
        script.chmod(0o600)
        registry = f"http://127.0.0.1:{plain}/registry/"
        cache = str(folder / "cache")
        quick = {"timeouts": {"connect": SLOW}}
        yield {
            "wrong-command": {"command": "pythonn3", "args": ["server.py"]},
            "missing-variable": {
                "command": sys.executable,
                "args": [SCRIPT, "fine"],
                "env": {"A": "${UNSET_TOKEN}"},
            },
            "crash": {"command": sys.executable, "args": [SCRIPT, "crash"]},
            "hang": {"command": sys.executable, "args": [SCRIPT, "hang"], **quick},
            "oauth": {"type": "http", "url": oauth.url},
            "wrong-token": {
                "type": "http",
                "url": f"http://127.0.0.1:{plain}/locked",
                "headers": {"Authorization": "Bearer expired-0123456789"},
            },
            "wrong-url": {"type": "http", "url": f"http://127.0.0.1:{plain}/nothing/here"},
            "dns": {"type": "http", "url": "http://no-such-host.invalid/mcp"},
            "tls": {"type": "http", "url": f"https://localhost:{secure}/mcp"},
            "html": {"type": "http", "url": f"http://127.0.0.1:{plain}/page"},
            "junk": {"command": sys.executable, "args": [SCRIPT, "junk"], **quick},
            "npm": {
                "command": "npx",
                "args": ["-y", "@dragoman-test/no-such-server"],
                "env": {
                    "npm_config_registry": registry,
                    "npm_config_cache": cache,
                    "npm_config_fetch_retries": "0",
                },
            },
            "pypi": {
                "command": UVX,
                "args": ["dragoman-no-such-server"],
                "env": {"UV_DEFAULT_INDEX": registry, "UV_CACHE_DIR": cache, "UV_PYTHON": sys.executable},
            },
            "permission": {"command": str(script)},
            "protocol": {"command": sys.executable, "args": [SCRIPT, "protocol"]},
            "slow": {"command": sys.executable, "args": [SCRIPT, "slow"], **quick},
            "refused": {"type": "http", "url": f"http://127.0.0.1:{closed}/mcp"},
            "huge": {
                "command": sys.executable,
                "args": [SCRIPT, "huge"],
                "limits": {"message_bytes": 100_000},
            },
            "misspelt": {"comand": sys.executable, "args": [SCRIPT, "fine"]},
        }


async def _listen(stack: AsyncExitStack, app: web.Application, tls: Any) -> int:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    return int(site.name.rpartition(":")[2]) if runner.addresses == [] else int(runner.addresses[0][1])


CAUSES = {
    "wrong-command": ("the program `pythonn3` was not found", "dragoman doctor wrong-command"),
    "missing-variable": ("the variable `UNSET_TOKEN` is not set", "dragoman doctor missing-variable"),
    "crash": (
        r"exited with code 1: RuntimeError: cannot open index\.db: the file is corrupt",
        "dragoman doctor crash",
    ),
    "hang": (r"no answer within [\d.]+ s after the start", "dragoman doctor hang"),
    "oauth": ("needs login", "dragoman login oauth"),
    "wrong-token": (r"the token was rejected \(HTTP 401\)", "dragoman doctor wrong-token"),
    "wrong-url": (r"no MCP server at this URL \(HTTP 404\)", "dragoman doctor wrong-url"),
    "dns": ("DNS: no such host `no-such-host.invalid`", "dragoman doctor dns"),
    "tls": (r"TLS: the certificate is not trusted \(.*\)", "dragoman doctor tls"),
    "html": ("a web page answers at this URL, not an MCP server", "dragoman doctor html"),
    "junk": ("the server prints text that is not MCP on stdout", "dragoman doctor junk"),
    "npm": ("npm has no package `@dragoman-test/no-such-server`", "dragoman doctor npm"),
    "pypi": ("PyPI has no package `dragoman-no-such-server`", "dragoman doctor pypi"),
    "permission": ("no permission to run `.*not-executable.sh`", "dragoman doctor permission"),
    "protocol": (
        "the server speaks MCP version 1999-01-01, which is not supported",
        "dragoman doctor protocol",
    ),
    "slow": (r"no answer within [\d.]+ s after the start", "dragoman doctor slow"),
    "refused": (r"nothing listens at `127\.0\.0\.1:\d+` \(connection refused\)", "dragoman doctor refused"),
    "huge": ("the tool list is larger than `max_message_bytes`", "dragoman doctor huge"),
    "misspelt": (
        r"dragoman/mcp\.json:\d+: unknown key `comand`; did you mean `command`\?",
        "dragoman config check",
    ),
}
"""For each broken server, a pattern of its cause, and the next step."""
