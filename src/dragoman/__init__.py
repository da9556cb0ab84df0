"""dragoman stands between an AI agent and the MCP servers it uses.

These are the public names. Each is imported on first use, so that `import dragoman` is fast. The module
behind a name may change; the name does not.
"""

from importlib import import_module as _import_module

TYPE_CHECKING = False  # not imported: light commands of the terminal start without `typing`
if TYPE_CHECKING:
    from typing import Any as _Any

    from dragoman.agent.engine import AgentEngine, Budget
    from dragoman.config.profiles import Profile
    from dragoman.diagnosis.doctor import Diagnosis, diagnose
    from dragoman.errors import (
        AuthRequiredError,
        CallDeniedError,
        CallTimeoutError,
        ConfigError,
        ConnectError,
        DragomanError,
        HttpStatusError,
        InvalidArgumentsError,
        MissingVariableError,
        ProtocolError,
        ServerError,
        ToolExecutionError,
        ToolFailedError,
        ToolUnavailableError,
        UnknownServerError,
        UnknownToolError,
    )
    from dragoman.manager.manager import McpManager
    from dragoman.model import (
        Handlers,
        Http,
        Prompt,
        Provenance,
        Resource,
        ServerSpec,
        ServerState,
        ServerStatus,
        Settings,
        Sse,
        Stdio,
        Texts,
        Tls,
        ToolDef,
        ToolResult,
    )
    from dragoman.tools.host import HostRegistry
    from dragoman.tools.local import tool
    from dragoman.tools.registry import ToolRegistry

_MODULES = {
    "dragoman.agent.engine": ("AgentEngine", "Budget"),
    "dragoman.config.profiles": ("Profile",),
    "dragoman.diagnosis.doctor": ("Diagnosis", "diagnose"),
    "dragoman.errors": (
        "AuthRequiredError",
        "CallDeniedError",
        "CallTimeoutError",
        "ConfigError",
        "ConnectError",
        "DragomanError",
        "HttpStatusError",
        "InvalidArgumentsError",
        "MissingVariableError",
        "ProtocolError",
        "ServerError",
        "ToolExecutionError",
        "ToolFailedError",
        "ToolUnavailableError",
        "UnknownServerError",
        "UnknownToolError",
    ),
    "dragoman.manager.manager": ("McpManager",),
    "dragoman.model": (
        "Handlers",
        "Http",
        "Prompt",
        "Provenance",
        "Resource",
        "ServerSpec",
        "ServerState",
        "ServerStatus",
        "Settings",
        "Sse",
        "Stdio",
        "Texts",
        "Tls",
        "ToolDef",
        "ToolResult",
    ),
    "dragoman.tools.host": ("HostRegistry",),
    "dragoman.tools.local": ("tool",),
    "dragoman.tools.registry": ("ToolRegistry",),
}

__all__ = [
    "AgentEngine",
    "AuthRequiredError",
    "Budget",
    "CallDeniedError",
    "CallTimeoutError",
    "ConfigError",
    "ConnectError",
    "Diagnosis",
    "DragomanError",
    "Handlers",
    "HostRegistry",
    "Http",
    "HttpStatusError",
    "InvalidArgumentsError",
    "McpManager",
    "MissingVariableError",
    "Profile",
    "Prompt",
    "ProtocolError",
    "Provenance",
    "Resource",
    "ServerError",
    "ServerSpec",
    "ServerState",
    "ServerStatus",
    "Settings",
    "Sse",
    "Stdio",
    "Texts",
    "Tls",
    "ToolDef",
    "ToolExecutionError",
    "ToolFailedError",
    "ToolRegistry",
    "ToolResult",
    "ToolUnavailableError",
    "UnknownServerError",
    "UnknownToolError",
    "diagnose",
    "tool",
]


def __getattr__(name: str) -> "_Any":
    if name == "__version__":
        return _import_module("dragoman.version").VERSION
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(_import_module(module), name)
            globals()[name] = value
            return value
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
