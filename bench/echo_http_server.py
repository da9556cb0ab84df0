"""A minimal Streamable HTTP MCP server, so that benchmarks measure the client. It prints its port."""

from __future__ import annotations

import asyncio
import json

from echo_server import KNOWN, answer


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            body = await reader.readexactly(size)
            writer.write(respond(head, body))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def respond(head: bytes, body: bytes) -> bytes:
    if not head.startswith(b"post"):
        return b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n"
    message = json.loads(body)
    if "id" not in message:
        return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] in KNOWN:
        reply["result"] = answer(message["method"], message.get("params") or {})
    else:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    data = json.dumps(reply).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(data),
        data,
    )


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
