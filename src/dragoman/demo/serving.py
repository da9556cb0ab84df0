"""Serve a demo server over stdio, or over Streamable HTTP on a loopback address.

Handles signals, the listening socket and the line on stdout with the address. SIGINT and SIGTERM keep their
default action (over HTTP after a graceful stop), so that the parent sees the signal as the exit status, and
no traceback is printed.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer

# The servers have no authentication, and the SDK checks Host and Origin only for these.
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_GRACE = 1
_PATH = "/mcp"
_LAST_PORT = 65535


def add_http_options(parser: argparse.ArgumentParser) -> None:
    """Add `--host`, `--port` and `--until-eof` to `parser`."""
    parser.add_argument(
        "--host", choices=_LOOPBACK, default=_LOOPBACK[0], help="where to listen (default: %(default)s)"
    )
    parser.add_argument("--port", type=_port, default=0, help="port; 0, the default, takes any free one")
    parser.add_argument(
        "--until-eof", action="store_true", help="stop when stdin ends, so as not to outlive a parent"
    )


def serve_stdio(server: MCPServer[Any]) -> None:
    """Serve on stdin and stdout until stdin ends."""
    # The SDK reads stdin in a thread that cannot be interrupted; Python's own handler would wait for it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        anyio.run(server.run_stdio_async)
    except* BrokenPipeError:
        # The client disconnected before it read an answer.
        pass


def serve_http(server: MCPServer[Any], *, host: str, port: int, until_eof: bool = False) -> None:
    """Serve on `host` and `port`, and print `{"url": ...}` on stdout once requests are answered.

    Raises:
        OSError: If the address cannot be bound.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listener.getsockname()[1]}{_PATH}"
        config = uvicorn.Config(
            server.streamable_http_app(streamable_http_path=_PATH, host=host),
            log_level="warning",
            # The access log would go to stdout.
            access_log=False,
            timeout_graceful_shutdown=_GRACE,
        )
        http = _AnnouncedServer(config, url)
        if until_eof:
            _when_stdin_ends(http.stop)
        asyncio.run(http.serve(sockets=[listener]))


class _AnnouncedServer(uvicorn.Server):
    """A uvicorn server that prints its address when it is up."""

    def __init__(self, config: uvicorn.Config, url: str) -> None:
        super().__init__(config)
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(json.dumps({"url": self._url}), flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        _fall_silent()
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        _fall_silent()
        self.should_exit = True


def _fall_silent() -> None:
    # Stopping cuts open streams and calls, which uvicorn and the SDK log as errors.
    logging.disable(logging.ERROR)


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _LAST_PORT:
        msg = f"`{port}` is not a port; use 0 to {_LAST_PORT}"
        raise argparse.ArgumentTypeError(msg)
    return port


def _when_stdin_ends(action: Callable[[], None]) -> None:
    def wait() -> None:
        # Unbuffered: a thread that holds the lock of `sys.stdin` aborts the interpreter's exit.
        with suppress(OSError):
            while os.read(0, 65536):
                pass
        action()

    threading.Thread(target=wait, daemon=True, name="stdin-end").start()
