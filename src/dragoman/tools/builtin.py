"""Runs the functions of built-in tools. Whether one may be called at all is decided before."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import TYPE_CHECKING, Any

from dragoman.errors import CallTimeoutError, InvalidArgumentsError, ToolExecutionError, ToolFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import ToolDef


async def run_builtin(tool: ToolDef, arguments: Mapping[str, Any], *, timeout: float | None = None) -> str:
    """Run the function of a built-in tool, and return its result as a string.

    Raises:
        ToolExecutionError: Whatever went wrong; the subclass says what.
    """
    func = tool.func
    if func is None:
        msg = f"the tool `{tool.name}` has no function"
        raise ToolExecutionError(msg, tool=tool.name)
    try:
        bound = inspect.signature(func).bind(**arguments)
    except TypeError as exc:
        msg = f"the arguments do not fit `{tool.name}`: {exc}"
        raise InvalidArgumentsError(msg, tool=tool.name, problems=[str(exc)]) from exc
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            if inspect.iscoroutinefunction(func):
                value = await func(*bound.args, **bound.kwargs)
            else:
                # In a thread, so that a slow function blocks no server.
                value = await asyncio.to_thread(func, *bound.args, **bound.kwargs)
    except ToolExecutionError:
        raise
    except Exception as exc:
        if timeout is not None and limit.expired():
            msg = f"`{tool.name}` did not finish within {timeout:g} s"
            raise CallTimeoutError(msg, seconds=timeout, tool=tool.name) from exc
        msg = f"`{tool.name}` failed: {type(exc).__name__}: {exc}"
        raise ToolFailedError(msg, tool=tool.name) from exc
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
