"""How much a model reads at once: asked from the server that runs it, or known of a hosted model.

A local server cuts a request that is too long from the front, silently: the system prompt and the tools go
first. So the window is asked for and never guessed; a server that does not say leaves it unknown (`None`).
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

from dragoman.agent.providers.parsing import as_object, number_in, object_in, objects_in, text_in
from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import aiohttp

TIMEOUT = 2.0
"""Seconds for all questions together; a server on the same machine answers in milliseconds."""
LARGEST_ANSWER = 8 << 20
LEAST_WINDOW = 256
LARGEST_WINDOW = 1 << 31
UNLOADED = 4_096
"""What Ollama and LM Studio load a model with where memory is small, if nothing else is set."""
HOSTED = {
    "gpt-4o": 128_000,
    "gpt-4.1": 1_000_000,
    "gpt-5": 400_000,
    "gpt-5-chat": 128_000,
    "o3": 200_000,
    "o4": 200_000,
    "claude": 200_000,
    "deepseek": 128_000,
    "qwen": 128_000,
    "kimi": 128_000,
    "glm": 128_000,
}
"""The least window of each family of hosted models, by the beginning of the name."""


class ModelWindow(Struct, kw_only=True):
    """How much a model reads at once, and what it can do."""

    tokens: int
    """For a request together with its answer."""
    source: str
    """Where the number comes from, for people."""
    tools: bool = True
    """Whether the model can call tools."""
    cuts: bool = True
    """Whether its server may cut a request that is too long, instead of refusing it."""


def hosted_window(model: str) -> ModelWindow | None:
    """Return the window of a hosted model; `None` for an unknown one."""
    name = model.rpartition("/")[2].lower()
    family = max((one for one in HOSTED if name.startswith(one)), key=len, default="")
    return (
        ModelWindow(tokens=HOSTED[family], source=f"known of `{family}` models", cuts=False)
        if family
        else None
    )


async def ask_window(base_url: str, model: str, key: str = "") -> ModelWindow | None:
    """Ask the server of a model: llama.cpp, vLLM, LM Studio, or Ollama behind its `/v1` endpoint.

    Args:
        base_url: The address of the API, with `/v1`.
        model: The model's name.
        key: What the requests to the API carry, too.
    """
    import aiohttp

    root = base_url.rstrip("/").removesuffix("/v1")
    asks: Sequence[Callable[..., Awaitable[ModelWindow | None]]] = (_vllm, _llama, _lm_studio, _ollama)
    options: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=TIMEOUT), "trust_env": False}
    if key:
        options["headers"] = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(**options) as session:
        tasks = [asyncio.ensure_future(ask(session, root, model)) for ask in asks]
        done, late = await asyncio.wait(tasks, timeout=TIMEOUT)
        for task in late:
            task.cancel()
        await asyncio.wait(tasks)
    return next((found for task in tasks if task in done and (found := task.result()) is not None), None)


def size_in(fields: Mapping[str, Any], key: str) -> int:
    """Return a window that a server names; 0 for a number that can be none."""
    size = number_in(fields, key)
    return size if LEAST_WINDOW <= size <= LARGEST_WINDOW else 0


async def fetch(
    session: aiohttp.ClientSession, url: str, body: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """Return the JSON object at an address, or an empty one if there is none."""
    import aiohttp

    asking = session.get if body is None else session.post
    extra: dict[str, Any] = {} if body is None else {"json": body}
    try:
        async with asking(url, allow_redirects=False, **extra) as response:
            if response.status != 200:
                return {}
            raw = b""
            async for piece in response.content.iter_any():
                raw += piece
                if len(raw) > LARGEST_ANSWER:
                    return {}
            return as_object(json.loads(raw))
    except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError):
        return {}


async def _vllm(session: aiohttp.ClientSession, root: str, model: str) -> ModelWindow | None:
    listing = await fetch(session, f"{root}/v1/models")
    for entry in objects_in(listing, "data"):
        if text_in(entry, "id") == model and (tokens := size_in(entry, "max_model_len")):
            return ModelWindow(tokens=tokens, source="`max_model_len` of the server")
    return None


async def _llama(session: aiohttp.ClientSession, root: str, model: str) -> ModelWindow | None:
    from urllib.parse import quote

    # A router with several models needs the name, and must not load a model for this question.
    for query in (f"?model={quote(model, safe='')}&autoload=false", ""):
        props = await fetch(session, f"{root}/props{query}")
        if tokens := size_in(object_in(props, "default_generation_settings"), "n_ctx"):
            return ModelWindow(tokens=tokens, source="`n_ctx` of the server")
    return None


async def _lm_studio(session: aiohttp.ClientSession, root: str, model: str) -> ModelWindow | None:
    listing = await fetch(session, f"{root}/api/v1/models")
    for entry in objects_in(listing, "models"):
        if model not in {text_in(entry, "key"), text_in(entry, "id")}:
            continue
        loaded = [
            size_in(object_in(one, "config"), "context_length")
            for one in objects_in(entry, "loaded_instances")
        ]
        tools = object_in(entry, "capabilities").get("trained_for_tool_use")
        if tokens := min(filter(None, loaded), default=min(size_in(entry, "max_context_length"), UNLOADED)):
            return ModelWindow(tokens=tokens, source="LM Studio", tools=tools is not False)
    return None


async def _ollama(session: aiohttp.ClientSession, root: str, model: str) -> ModelWindow | None:
    """Return what is loaded, or what the model's file sets: Ollama's `/v1` endpoint takes no `num_ctx`."""
    running, about = await asyncio.gather(
        fetch(session, f"{root}/api/ps"), fetch(session, f"{root}/api/show", {"model": model})
    )
    if not about:
        return None
    loaded = [
        size_in(entry, "context_length")
        for entry in objects_in(running, "models")
        if model in {text_in(entry, "name"), text_in(entry, "model")}
    ]
    tokens = next(filter(None, loaded), 0) or set_window(about) or UNLOADED
    return ModelWindow(tokens=tokens, source="Ollama's `/v1` endpoint", tools=calls_tools(about))


def set_window(about: Mapping[str, Any]) -> int:
    """Return the `num_ctx` that the file of an Ollama model sets; 0 if it sets none."""
    found = re.search(r"^num_ctx\s+(\d{1,12})\s*$", text_in(about, "parameters"), re.MULTILINE)
    return size_in({"num_ctx": int(found[1])}, "num_ctx") if found else 0


def calls_tools(about: Mapping[str, Any]) -> bool:
    """Return whether an Ollama model can call tools; older servers do not say."""
    able = about.get("capabilities")
    return not isinstance(able, list) or "tools" in able
