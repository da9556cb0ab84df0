"""When the server asks: the application's handlers, as the SDK's client wants them.

A handler (`model.Handlers`) gets the server's name and the request as plain data, and returns plain data.
What has no handler is not offered to servers at all, so none can wait for it. A handler that fails refuses
the request; it never harms the connection. What a server logs goes to its handler, and at DEBUG into our log.
"""

from __future__ import annotations

import inspect
import logging
import time
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from pydantic import TypeAdapter

from dragoman.server.deadlines import deadline
from dragoman.trust.addresses import read_link

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pydantic import BaseModel

    from dragoman.model import Handler, Handlers

logger = logging.getLogger("dragoman")

LOGGED_CHARS = 2_000
"""How much of a server's log message goes into ours."""

_SAMPLED: TypeAdapter[Any] = TypeAdapter(types.CreateMessageResult | types.CreateMessageResultWithTools)


def sdk_answers(handlers: Handlers, server: str) -> dict[str, Any]:
    """Return the arguments of the SDK's client that make it answer a server."""
    answers: dict[str, Any] = {}
    if (sampling := handlers.sampling) is not None:

        async def sample(_context: object, params: BaseModel) -> Any:
            return await _answer(sampling, server, params, _SAMPLED.validate_python)

        answers["sampling_callback"] = sample
        answers["sampling_capabilities"] = types.SamplingCapability(tools=types.SamplingToolsCapability())
    if (elicitation := handlers.elicitation) is not None:

        async def elicit(_context: object, params: BaseModel) -> Any:
            if (url := getattr(params, "url", None)) is not None:
                try:
                    params = params.model_copy(update={"url": read_link(str(url)).url})
                except ValueError as exc:
                    logger.warning("%s: declined to open an address that is not safe: %s", server, exc)
                    return types.ElicitResult(action="decline")
            return await _answer(elicitation, server, params, types.ElicitResult.model_validate)

        answers["elicitation_callback"] = elicit
    if _roots_of(handlers, server) is not None:

        async def list_roots(_context: object) -> types.ListRootsResult:
            roots = _roots_of(handlers, server) or ()
            listed = [{"uri": uri, "name": uri.rstrip("/").rpartition("/")[2]} for uri in roots]
            return types.ListRootsResult.model_validate({"roots": listed})

        answers["list_roots_callback"] = list_roots
    log = handlers.logging

    async def take_log(params: types.LoggingMessageNotificationParams) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            data = f"{params.data!s:.{LOGGED_CHARS}}"
            logger.debug("%s: it says (%s, %s): %s", server, params.level, params.logger or "-", data)
        if log is not None:
            await _call(log, server, params)

    answers["logging_callback"] = take_log
    return answers


def _roots_of(handlers: Handlers, server: str) -> Sequence[str] | None:
    roots = handlers.roots
    return roots(server) if callable(roots) else roots


async def _answer(handler: Handler, server: str, params: BaseModel, read: Callable[[Any], Any]) -> Any:
    began = time.monotonic()
    try:
        return read(await _call(handler, server, params))
    except Exception:
        logger.exception("%s: the handler of a request failed", server)
        return types.ErrorData(code=types.INTERNAL_ERROR, message="the client could not answer")
    finally:
        # A modern server asks in the middle of its call, whose own time does not run meanwhile.
        if (end := deadline.get()) is not None:
            end.put_off(time.monotonic() - began)


async def _call(handler: Handler, server: str, params: BaseModel) -> Mapping[str, Any]:
    outcome = handler(server, params.model_dump(mode="json", by_alias=True, exclude_none=True))
    if inspect.isawaitable(outcome):
        outcome = await outcome
    return cast("Mapping[str, Any]", outcome)
