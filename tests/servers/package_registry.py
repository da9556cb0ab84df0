"""A package registry on a free port of this machine, for npm and for Python: one small MCP server in each language.

Packages are made when they are asked for. Addresses in answers have the host name that the client used, so that a
client behind a proxy stays behind it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "law-desk"

JAVASCRIPT = """#!/usr/bin/env node
const lines = require("readline").createInterface({ input: process.stdin });
const tools = [{ name: "environment", inputSchema: { type: "object" } }];
lines.on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const results = {
    initialize: { protocolVersion: params && params.protocolVersion, capabilities: { tools: {} },
                  serverInfo: { name: "law-desk", version: "1.0.0" } },
    "tools/list": { tools },
    "tools/call": { content: [{ type: "text", text: JSON.stringify(process.env) }] },
  };
  const known = results[method];
  const rest = known ? { result: known } : { error: { code: -32601, message: "unknown method" } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...rest }) + "\\n");
  process.stderr.write(`proxy ${process.env.HTTP_PROXY}\\n`);
});
"""

PYTHON = """
import json
import os
import sys


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        version = message.get("params", {}).get("protocolVersion")
        results = {
            "initialize": {"protocolVersion": version, "capabilities": {"tools": {}},
                           "serverInfo": {"name": "law-desk", "version": "1.0.0"}},
            "tools/list": {"tools": [{"name": "environment", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]},
        }
        known = results.get(message["method"])
        rest = {"result": known} if known else {"error": {"code": -32601, "message": "unknown method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **rest}), flush=True)
        print("proxy", os.environ.get("HTTP_PROXY"), file=sys.stderr, flush=True)
"""


def npm_tarball() -> bytes:
    about = {"name": NAME, "version": "1.0.0", "bin": {NAME: "server.js"}}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in {"package.json": json.dumps(about), "server.js": JAVASCRIPT}.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(text.encode()), 0o755
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def wheel() -> bytes:
    files = {
        "law_desk.py": PYTHON,
        "law_desk-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: law-desk\nVersion: 1.0.0\n",
        "law_desk-1.0.0.dist-info/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        "law_desk-1.0.0.dist-info/entry_points.txt": "[console_scripts]\nlaw-desk = law_desk:main\n",
    }
    record = "".join(f"{name},,\n" for name in files) + "law_desk-1.0.0.dist-info/RECORD,,\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in {**files, "law_desk-1.0.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return buffer.getvalue()


class PackageRegistry:
    """`async with PackageRegistry() as registry` runs it."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        """The paths and headers of all requests."""
        self.may_download = asyncio.Event()
        """Until it is set, the files of packages wait; a test that does not ask for that has it set."""
        self.may_download.set()
        self._tarball, self._wheel = npm_tarball(), wheel()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, dict(request.headers)))
        match request.path:
            case "/law-desk":
                return web.json_response(self._about(f"http://{request.host}"))
            case "/law-desk/-/law-desk-1.0.0.tgz":
                await self.may_download.wait()
                return web.Response(body=self._tarball, content_type="application/octet-stream")
            case "/simple/law-desk/":
                link = '<a href="/files/law_desk-1.0.0-py3-none-any.whl">law_desk-1.0.0-py3-none-any.whl</a>'
                return web.Response(
                    text=f"<!DOCTYPE html><html><body>{link}</body></html>", content_type="text/html"
                )
            case "/files/law_desk-1.0.0-py3-none-any.whl":
                return web.Response(body=self._wheel, content_type="application/octet-stream")
            case _:
                return web.Response(status=404)

    def _about(self, base: str) -> dict[str, Any]:
        digest = base64.b64encode(hashlib.sha512(self._tarball).digest()).decode()
        dist = {"tarball": f"{base}/law-desk/-/law-desk-1.0.0.tgz", "integrity": f"sha512-{digest}"}
        version = {"name": NAME, "version": "1.0.0", "bin": {NAME: "server.js"}, "dist": dist}
        return {"name": NAME, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
