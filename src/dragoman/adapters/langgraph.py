"""Questions of servers as LangGraph's `interrupt()`; used by `dragoman.adapters.langchain` inside a graph."""

# The framework is an extra: where dragoman's own types are checked, it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from langchain_core.runnables.config import ensure_config

from dragoman.adapters.bridge import images, question
from dragoman.model import Part, ToolResult

if TYPE_CHECKING:
    from dragoman.adapters.bridge import Bridge


def inside_graph() -> bool:
    """Return whether this runs in a node of a graph: LangGraph has its own key in the configuration there."""
    return "__pregel_call" in _keys()


def _keys() -> dict[str, Any]:
    return ensure_config().get("configurable", {})


class _Turns:
    """The calls of one run of a node, which take turns.

    LangGraph matches answers with interrupts by their order in the node: calls side by side could get each
    other's answers. What comes after an interrupt is not called before the node runs again.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.interrupt: BaseException | None = None


_turns: WeakValueDictionary[tuple[Any, int], _Turns] = WeakValueDictionary()


async def call_or_interrupt(bridge: Bridge, name: str, arguments: dict[str, Any]) -> ToolResult:
    """Call a tool; ask its questions by `interrupt()`.

    LangGraph runs a node again from its start when it resumes. Each call is a task, whose result is in the
    checkpoint: it is made once, and another process goes on from there.
    """
    from langgraph.errors import GraphInterrupt

    keys = _keys()
    turns = _turns.setdefault((keys.get("checkpoint_ns"), id(keys.get("__pregel_scratchpad"))), _Turns())
    async with turns.lock:
        if turns.interrupt is not None:
            raise turns.interrupt
        try:
            return await _call(bridge, name, arguments)
        except GraphInterrupt as exc:
            turns.interrupt = exc
            raise


async def _call(bridge: Bridge, name: str, arguments: dict[str, Any]) -> ToolResult:
    from langgraph.func import task
    from langgraph.types import interrupt

    made: list[ToolResult] = []

    @task(name=f"{name} (call)")
    async def call(asked: dict[str, Any] | None, answers: Any) -> dict[str, Any]:
        result = await (bridge.resume(asked, answers) if asked else bridge.call(name, arguments))
        made.append(result)
        return {
            "question": question(result),
            "success": result.success,
            "text": result.text,
            "structured": result.structured,
            "images": images(result),
        }

    kept = await call(None, None)
    while kept["question"]:
        kept = await call(kept["question"], interrupt(kept["question"]))
    if made:
        return made[-1]
    # The node runs again although this call has ended: another call of the node asked.
    parts = [Part(kind="image", data=data, mime_type=kind) for data, kind in kept["images"]]
    return ToolResult(success=kept["success"], text=kept["text"], structured=kept["structured"], parts=parts)
