"""A model's API over real HTTP, which answers from a script: Chat Completions, Responses and Messages, streamed.

In a test: `async with ModelApi([...]) as api`, then `api.base_url("anthropic")`. As a process of its own:
`python tests/servers/model_api.py SCRIPT.json [PORT]`, which prints its address.

A script is a list of turns, one for each request (the last one again if `repeat`); each is an object:

    text, thought, sealed, refusal       what the model says; `sealed` is the signature or the encrypted thought
    calls                                [{"name": …, "arguments": {…} or "raw text", "id": …}]
    finish                               stop, tool_calls, length, refused, paused, or the API's own word
    unknown                              blocks or items of other kinds, sent as they are
    quirks                               no ids, no index, index 0, whole calls, objects, stop with calls,
                                         empty choices, no usage, reasoning, thinking, empty output
    status, error, headers               a refusal over HTTP, as {"status": 429, "headers": {"Retry-After": "0"}}
    broken                               cut (in the middle of a line), no finish, no done, bad json, bad utf-8,
                                         error (an error inside the stream), empty, not a stream, drop
    hold                                 true: stop in the middle until the client is gone

Bodies that the real API would refuse get its 400. `api.requests` has what came.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

if __package__ in {None, ""}:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.servers import model_api_rules as rules
from tests.servers import model_api_wire as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Script = Sequence[dict[str, Any]] | Callable[[dict[str, Any]], dict[str, Any]]

PATHS = {
    "/v1/chat/completions": ("openai", rules.check_chat),
    "/v1/responses": ("responses", rules.check_responses),
    "/v1/messages": ("anthropic", rules.check_anthropic),
    "/v1beta/models/{model:[^:/]+}:streamGenerateContent": ("gemini", rules.check_gemini),
    "/ollama/api/chat": ("ollama", rules.check_ollama),
    "/azure/openai/v1/chat/completions": ("openai", rules.check_openai),
    "/azure/openai/deployments/{deployment}/chat/completions": ("openai", rules.check_openai),
    **{f"/{name}/chat/completions": ("openai", check) for name, check in rules.COMPATIBLE.items()},
}
"""Each with the form of its answers, and what it refuses."""
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


@dataclass
class Asked:
    """One request as it came."""

    api: str
    body: dict[str, Any]
    path: str = field(repr=False)
    raw: bytes = field(repr=False)
    headers: dict[str, str] = field(repr=False)


class ModelApi:
    """The server; a script may be a function of the body too."""

    def __init__(
        self, script: Script = (), *, repeat: bool = False, models: Sequence[str] = ("tiny",)
    ) -> None:
        self.script = script
        self.requests: list[Asked] = []
        self.complaints: list[str] = []
        """What was illegal in the bodies; a test that expects none need not look: it gets a 400."""
        self.holding = asyncio.Event()
        """Set when an answer stops in the middle."""
        self.left = asyncio.Event()
        """Set when the client of such an answer is gone."""
        self.url = ""
        self._repeat = repeat
        self._models = models
        self._runner: web.AppRunner | None = None

    def base_url(self, api: str) -> str:
        if api in {"anthropic", "gemini"}:
            return self.url
        if api == "ollama":
            return f"{self.url}/ollama/v1"
        return f"{self.url}/{api}" if api == "azure" or api in rules.COMPATIBLE else f"{self.url}/v1"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=1 << 28)
        for path, (api, check) in PATHS.items():
            app.router.add_post(path, partial(self._answer, api, check))
        for place in ("/v1", "/ollama/v1", *(f"/{name}" for name in rules.COMPATIBLE)):
            app.router.add_get(f"{place}/models", self._list)
        app.router.add_get("/ollama/api/version", self._version)
        app.router.add_get("/v1beta/models/{model:[^:/]+}", self._describe)
        # Held answers end when their client goes; the server's end must not wait for more.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def _list(self, request: web.Request) -> web.Response:
        data = [{"id": name, "object": "model"} for name in self._models]
        return web.json_response({"object": "list", "data": data})

    async def _describe(self, request: web.Request) -> web.Response:
        about = {"name": f"models/{request.match_info['model']}", "inputTokenLimit": 1_048_576}
        return web.json_response({**about, "outputTokenLimit": 65_536})

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "0.40.12"})

    async def _answer(
        self, api: str, check: Callable[[dict[str, Any]], str], request: web.Request
    ) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        self.requests.append(
            Asked(
                api,
                body,
                request.path_qs,
                raw,
                {name.lower(): value for name, value in request.headers.items()},
            )
        )
        if complaint := check(body):
            self.complaints.append(complaint)
            return refusal(api, 400, {"error": complaint})
        turn = self._turn(body)
        if status := turn.get("status"):
            return refusal(api, status, turn)
        if turn.get("broken") == "not a stream":
            return web.json_response({"choices": [], "content": [], "output": []})
        if turn.get("broken") == "drop":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        model: str = body.get("model") or request.match_info["model"]
        return await self._stream(request, api, turn, model)

    def _turn(self, body: dict[str, Any]) -> dict[str, Any]:
        if callable(self.script):
            return self.script(body)
        at = len(self.requests) - 1
        if at >= len(self.script) and self._repeat:
            return self.script[-1]
        return (
            self.script[at]
            if at < len(self.script)
            else {"status": 400, "error": "the script has no more turns"}
        )

    async def _stream(
        self, request: web.Request, api: str, turn: dict[str, Any], model: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        lines = spoil(
            wire.events(api, turn, model), turn.get("broken", ""), api, turn.get("error", "Overloaded")
        )
        half = len(lines) // 2
        for line in lines[:half]:
            await response.write(line)
        if turn.get("hold"):
            self.holding.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()
        await response.write(b"".join(lines[half:]))
        if turn.get("broken") == "cut":
            # Without the end of the chunked encoding, so that the client sees a lost connection.
            assert request.transport is not None
            request.transport.close()
        return response


def spoil(events: list[wire.Event], broken: str, api: str, words: str) -> list[bytes]:
    """Encode the events, and break them as the script wants."""
    lines = [event.encode() for event in events]
    ends = {"openai": 3, "responses": 1, "anthropic": 2, "gemini": 1, "ollama": 1}[api]
    end = b"\n" if api == "ollama" else b"\n\n"
    head = b"" if api == "ollama" else b"event: content_block_delta\ndata: "
    match broken:
        case "cut":
            kept = lines[: -ends - 1]
            return [*kept, lines[-ends - 1][: len(lines[-ends - 1]) // 2]]
        case "no finish":
            return lines[:-ends]
        case "no done":
            return lines[:-1] if api in {"openai", "anthropic"} else lines
        case "bad json":
            return [*lines[:-ends], head + b'{"oops' + end, *lines[-ends:]]
        case "bad utf-8":
            return [*lines[:-ends], head + b'{"a": "\xff"}' + end, *lines[-ends:]]
        case "error":
            error = {"type": "overloaded_error", "code": "overloaded_error", "message": words}
            fields = error | {"type": "error"} if api == "responses" else {"type": "error", "error": error}
            return [*lines[:-ends], wire.Event(json.dumps(fields), "error", is_line=api == "ollama").encode()]
        case "error at once":
            error = {"type": "overloaded_error", "code": "overloaded_error", "message": words}
            fields = error | {"type": "error"} if api == "responses" else {"type": "error", "error": error}
            return [wire.Event(json.dumps(fields), "error", is_line=api == "ollama").encode()]
        case "empty":
            return []
        case _:
            return lines


def refusal(api: str, status: int, turn: dict[str, Any]) -> web.Response:
    kind, words, headers = turn.get("kind"), turn.get("error", "not now"), turn.get("headers")
    error: dict[str, Any] = {"type": kind or KINDS.get(status, "api_error"), "message": words}
    if details := turn.get("details"):
        error["details"] = details
    body = {"type": "error", "error": error} if api == "anthropic" else {"error": {**error, "code": kind}}
    return web.json_response(body, status=status, headers=headers)


async def serve(script: list[dict[str, Any]], port: int) -> None:
    api = ModelApi(script, repeat=True)
    await api.start(port)
    print(api.url, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        turns = json.loads(Path(sys.argv[1]).read_text("utf-8"))
        asyncio.run(serve(turns, int(sys.argv[2]) if len(sys.argv) > 2 else 0))
