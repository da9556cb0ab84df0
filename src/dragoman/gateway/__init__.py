"""The gateway: every server of a manager behind one MCP endpoint, over HTTP, stdio or any pair of streams.

    from dragoman import McpManager
    from dragoman.gateway import Questions, asgi_app

    questions = Questions()
    mcp = McpManager.from_config(handlers=questions.handlers())
    app = asgi_app(mcp, questions=questions, token="…")

The names below are imported at their first use: the SDK's server side costs a second.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # not imported: `dragoman.gateway.client` starts without `typing`
if TYPE_CHECKING:
    from typing import Any

    from dragoman.gateway.app import asgi_app
    from dragoman.gateway.gateway import Gateway
    from dragoman.gateway.questions import Questions

__all__ = ["Gateway", "Questions", "asgi_app"]

_HOMES = {"Gateway": "gateway", "Questions": "questions", "asgi_app": "app"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"dragoman.gateway.{_HOMES[name]}"), name)
