"""Model servers of one's own machine: Ollama, llama.cpp, vLLM and LM Studio, each with its own way to cut.

In a test: `async with LocalModels("ollama", window=4096, script=script) as server`, then `server.url`. The
script gets the request that the model reads, after the server has cut it, and returns what the model says:
`{"text": …}` or `{"calls": [{"name": …, "arguments": {…}}]}`. `server.cuts` has what was lost of each request.

Tokens are words, digits and marks, one for each Chinese character: near what real tokenizers count.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable

    Script = Callable[[dict[str, Any]], dict[str, Any]]

_TOKEN = re.compile(r"[A-Za-z]{1,6}|\d|[^\sA-Za-z0-9]")


def count(value: object) -> int:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(_TOKEN.findall(text))


def size_of(message: dict[str, Any]) -> int:
    """Return the tokens of a message as a chat template writes it: its text as it is, its calls as JSON."""
    content = message.get("content")
    return 4 + count(content or "") + count(message.get("tool_calls", ""))


class LocalModels:
    """One server with one model."""

    def __init__(
        self,
        kind: str,
        *,
        window: int,
        script: Script,
        model: str = "tiny",
        most: int = 131_072,
        tools: bool = True,
        lies: bool = False,
    ) -> None:
        """Configure the server.

        Args:
            kind: `ollama`, `llamacpp`, `vllm`, `lmstudio`, or `silent`: one that does not say what it reads.
            window: What it reads unless the request asks for more.
            script: What the model says.
            model: The model's name.
            most: What the model could read.
            tools: Whether the model can call tools.
            lies: Whether it reads only `window`, whatever it was asked for and says.
        """
        self.kind = kind
        self.window = window
        self.most = most
        self.cuts: list[list[str]] = []
        self.requests: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self.refused = 0
        self._script = script
        self._model = model
        self._tools = tools
        self._lies = lies
        self._runner: web.AppRunner | None = None
        self.root = ""

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_get("/v1/models", self._list)
        app.router.add_post("/v1/chat/completions", self._chat)
        if self.kind == "ollama":
            app.router.add_get("/api/version", self._version)
            app.router.add_post("/api/show", self._show)
            app.router.add_get("/api/ps", self._running)
            app.router.add_post("/api/chat", self._native)
        if self.kind == "llamacpp":
            app.router.add_get("/props", self._props)
        if self.kind == "lmstudio":
            app.router.add_get("/api/v1/models", self._studio)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.root = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _list(self, _: web.Request) -> web.Response:
        entry = {"id": self._model, "object": "model"}
        if self.kind == "vllm":
            entry["max_model_len"] = self.window
        return web.json_response({"object": "list", "data": [entry]})

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "0.40.12"})

    async def _show(self, request: web.Request) -> web.Response:
        if (await request.json())["model"] != self._model:
            return web.json_response({"error": "model not found"}, status=404)
        able = ["completion", *(["tools"] if self._tools else [])]
        info = {"general.architecture": "llama", "llama.context_length": self.most}
        return web.json_response({"model_info": info, "capabilities": able, "parameters": ""})

    async def _running(self, _: web.Request) -> web.Response:
        return web.json_response({"models": [{"name": self._model, "context_length": self.window}]})

    async def _props(self, _: web.Request) -> web.Response:
        return web.json_response({"default_generation_settings": {"n_ctx": self.window}})

    async def _studio(self, _: web.Request) -> web.Response:
        entry = {
            "key": self._model,
            "max_context_length": self.most,
            "loaded_instances": [{"config": {"context_length": self.window}}],
            "capabilities": {"trained_for_tool_use": self._tools},
        }
        return web.json_response({"models": [entry]})

    async def _native(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        asked = body.get("options", {}).get("num_ctx", self.window)
        read, tokens = self._cut(body, self.window if self._lies else min(asked, self.most))
        said = self._script(read)
        message: dict[str, Any] = {"role": "assistant", "content": said.get("text", "")}
        if calls := said.get("calls"):
            message["tool_calls"] = [{"function": call} for call in calls]
        lines = [
            {"model": self._model, "message": message, "done": False},
            {
                "model": self._model,
                "message": {"role": "assistant", "content": ""},
                "done": True,
                "done_reason": "stop",
                "prompt_eval_count": tokens,
                "eval_count": count(message),
            },
        ]
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        raw = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        # In two pieces that are no lines.
        await response.write(raw[: len(raw) // 3])
        await response.write(raw[len(raw) // 3 :])
        return response

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        size = sum(map(size_of, body["messages"])) + count(body.get("tools", []))
        if self.kind in {"vllm", "llamacpp", "silent"} and size > self.window:
            self.refused += 1
            words = f"This model's maximum context length is {self.window} tokens, but {size} were sent"
            return web.json_response({"error": {"code": 400, "message": words}}, status=400)
        read, tokens = self._cut(body, self.window)
        said = self._script(read)
        delta: dict[str, Any] = {"role": "assistant", "content": said.get("text") or None}
        if calls := said.get("calls"):
            delta["tool_calls"] = [
                {
                    "index": at,
                    "id": f"c{len(self.requests)}x{at}",
                    "type": "function",
                    "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
                }
                for at, call in enumerate(calls)
            ]
        finish = "tool_calls" if calls else "stop"
        usage = {"prompt_tokens": tokens, "completion_tokens": 9}
        chunks = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]},
            {"choices": [], "usage": usage},
        ]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(f"data: {json.dumps({'model': self._model, **chunk})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    def _cut(self, body: dict[str, Any], window: int) -> tuple[dict[str, Any], int]:
        """Return what the model reads of a request: tools and the oldest messages are lost first."""
        self.requests.append(body)
        messages, tools = list(body["messages"]), body.get("tools", [])
        lost: list[str] = []
        size = sum(map(size_of, messages)) + count(tools)
        self.sizes.append(size)
        if size > window:
            size -= count(tools)
            lost.append("tools")
            tools = []
        while size > window and len(messages) > 1:
            gone = messages.pop(0)
            size -= size_of(gone)
            lost.append(f"{gone['role']}: {str(gone.get('content'))[:40]}")
        self.cuts.append(lost)
        return {**body, "messages": messages, "tools": tools}, size
