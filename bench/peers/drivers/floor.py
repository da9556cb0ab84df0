"""The floor: minimal JSON-RPC over pipes and HTTP with asyncio, without any checks.

It writes a line and waits for a line with the same id. A complete client cannot cost less.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from driver import each, main

if TYPE_CHECKING:
    from driver import Ready, Server

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "floor", "version": "1"},
}


class Pipes:
    def __init__(self, command: list[str]) -> None:
        self._loop = asyncio.get_running_loop()
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        # A session of its own, as all peers give it: on a busy machine its share of the CPU depends on that.
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=nothing, bufsize=0, start_new_session=True
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last = 0
        self._rest = b""
        self._loop.add_reader(self._out, self._read)

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        self._last += 1
        future = self._waiting[self._last] = self._loop.create_future()
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        os.write(self._in, json.dumps(message).encode() + b"\n")
        return await future

    async def notify(self, method: str) -> None:
        os.write(self._in, json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")

    def _read(self) -> None:
        data = os.read(self._out, 65536)
        if not data:
            self._loop.remove_reader(self._out)
            for future in self._waiting.values():
                future.set_exception(ConnectionError("the server ended"))
            self._waiting.clear()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._waiting.pop(message["id"]).set_result(message["result"])

    async def close(self) -> None:
        self._loop.remove_reader(self._out)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        await asyncio.to_thread(self.process.wait)
        self.process.stdout.close()


class Lines:
    """HTTP/1.1 with kept connections, one request at a time on each."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), parts.port
        self._head = (
            f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\nContent-Length: "
        )
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._last = 0

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        return json.loads(await self._post(message))["result"]

    async def notify(self, method: str) -> None:
        await self._post({"jsonrpc": "2.0", "method": method})

    async def _post(self, message: dict[str, Any]) -> bytes:
        reader, writer = (
            self._free.pop() if self._free else await asyncio.open_connection(self._host, self._port)
        )
        body = json.dumps(message)
        writer.write(f"{self._head}{len(body)}\r\n\r\n{body}".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        data = await reader.readexactly(size)
        self._free.append((reader, writer))
        return data

    async def close(self) -> None:
        for _, writer in self._free:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in self._free))


class Floor:
    def __init__(self) -> None:
        self._wires: dict[str, Pipes | Lines] = {}
        self._tools: list[Any] = []

    async def start(self, servers: list[Server], ready: Ready) -> dict[str, str]:
        return await each(servers, self._connect, ready)

    async def _connect(self, server: Server) -> int:
        wire = Lines(server["url"]) if "url" in server else Pipes(server["command"])
        self._wires[server["name"]] = wire
        await wire.request("initialize", HELLO)
        await wire.notify("notifications/initialized")
        tools = (await wire.request("tools/list", {}))["tools"]
        self._tools += tools
        return len(tools)

    async def call(self, server: str, text: str, timeout: float | None = None) -> str:
        request = self._wires[server].request("tools/call", {"name": "echo", "arguments": {"text": text}})
        result = await (request if timeout is None else asyncio.wait_for(request, timeout))
        return result["content"][0]["text"]

    async def stop(self) -> None:
        await asyncio.gather(*(wire.close() for wire in self._wires.values()))
        self._wires.clear()


if __name__ == "__main__":
    main(Floor)
