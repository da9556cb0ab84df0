"""The gateway as a program."""

from __future__ import annotations

import asyncio

from tests.unit.gateway.test_app import TOKEN, notes

from dragoman.gateway.app import asgi_app
from dragoman.gateway.serve import bind, serve_http
from dragoman.manager.manager import McpManager


async def test_the_gateway_runs_where_signals_cannot_be_handled() -> None:
    def run() -> None:
        async def serve() -> None:
            app = asgi_app(McpManager([notes().spec()], cache=False), token=TOKEN)
            ready = asyncio.Event()
            listener = bind("127.0.0.1", 0)
            serving = asyncio.create_task(serve_http(app, listener, on_ready=ready.set))
            waiting = asyncio.create_task(ready.wait())
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            assert ready.is_set()
            serving.cancel()
            await asyncio.wait({serving})
            await app.close()
            listener.close()

        asyncio.run(serve())

    # Outside the main thread, as on Windows.
    await asyncio.to_thread(run)
