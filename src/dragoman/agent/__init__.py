"""An agent that uses the tools: the loop, the words of its conversation, and the models behind it.

These are its public names. Each is imported when it is first used: an application that needs no agent does
not pay for one.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from dragoman.agent.budget import Budget
    from dragoman.agent.engine import AgentEngine
    from dragoman.agent.messages import Message, ModelRequest, Price, Provider, TextDelta, ToolCall, Usage
    from dragoman.agent.offering import ToolLimit
    from dragoman.agent.providers.opening import open_provider
    from dragoman.agent.providers.scripted import Say, ScriptedProvider
    from dragoman.agent.steps import (
        AgentEvent,
        Answer,
        Noticed,
        StepFinished,
        StepStarted,
        ToolFinished,
        ToolProgressed,
        ToolStarted,
    )

_MODULES = {
    "dragoman.agent.budget": ("Budget",),
    "dragoman.agent.engine": ("AgentEngine",),
    "dragoman.agent.messages": (
        "Message",
        "ModelRequest",
        "Price",
        "Provider",
        "TextDelta",
        "ToolCall",
        "Usage",
    ),
    "dragoman.agent.offering": ("ToolLimit",),
    "dragoman.agent.providers.opening": ("open_provider",),
    "dragoman.agent.providers.scripted": ("Say", "ScriptedProvider"),
    "dragoman.agent.steps": (
        "AgentEvent",
        "Answer",
        "Noticed",
        "StepFinished",
        "StepStarted",
        "ToolFinished",
        "ToolProgressed",
        "ToolStarted",
    ),
}

__all__ = [
    "AgentEngine",
    "AgentEvent",
    "Answer",
    "Budget",
    "Message",
    "ModelRequest",
    "Noticed",
    "Price",
    "Provider",
    "Say",
    "ScriptedProvider",
    "StepFinished",
    "StepStarted",
    "TextDelta",
    "ToolCall",
    "ToolFinished",
    "ToolLimit",
    "ToolProgressed",
    "ToolStarted",
    "Usage",
    "open_provider",
]


def __getattr__(name: str) -> _Any:
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(_import_module(module), name)
            globals()[name] = value
            return value
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
