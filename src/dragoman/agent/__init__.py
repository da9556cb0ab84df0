"""An agent that uses the tools: the loop, its messages and events, and the model providers.

These are the public names. Each is imported on first use, so an application without an agent does not load
this code.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from dragoman.agent.budget import Budget
    from dragoman.agent.code.sandbox import CodeLimits
    from dragoman.agent.engine import AgentEngine
    from dragoman.agent.handlers import SamplingLimits, make_handlers
    from dragoman.agent.messages import (
        AgentEvent,
        Answer,
        Message,
        ModelRequest,
        Noticed,
        Price,
        Provider,
        StepFinished,
        StepStarted,
        TextDelta,
        ToolCall,
        ToolFinished,
        ToolProgressed,
        ToolStarted,
        Usage,
    )
    from dragoman.agent.offer import ToolLimit
    from dragoman.agent.providers.open import open_provider
    from dragoman.agent.providers.scripted import Say, ScriptedProvider

_MODULES = {
    "dragoman.agent.budget": ("Budget",),
    "dragoman.agent.code.sandbox": ("CodeLimits",),
    "dragoman.agent.engine": ("AgentEngine",),
    "dragoman.agent.handlers": ("SamplingLimits", "make_handlers"),
    "dragoman.agent.offer": ("ToolLimit",),
    "dragoman.agent.providers.open": ("open_provider",),
    "dragoman.agent.providers.scripted": ("Say", "ScriptedProvider"),
    "dragoman.agent.messages": (
        "AgentEvent",
        "Answer",
        "Message",
        "ModelRequest",
        "Noticed",
        "Price",
        "Provider",
        "StepFinished",
        "StepStarted",
        "TextDelta",
        "ToolCall",
        "ToolFinished",
        "ToolProgressed",
        "ToolStarted",
        "Usage",
    ),
}

__all__ = [
    "AgentEngine",
    "AgentEvent",
    "Answer",
    "Budget",
    "CodeLimits",
    "Message",
    "ModelRequest",
    "Noticed",
    "Price",
    "Provider",
    "SamplingLimits",
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
    "make_handlers",
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
