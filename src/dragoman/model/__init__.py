"""The nouns: servers and their states, tools, results of calls, settings, and the application's handlers.

All are frozen structs (`dragoman.struct`) without I/O. Import each from here.
"""

from dragoman.model.approval import Always as Always
from dragoman.model.approval import AlwaysRule, ApprovalCaller, PendingApproval
from dragoman.model.approval import ApprovalKind as ApprovalKind
from dragoman.model.approval import ApprovalState as ApprovalState
from dragoman.model.handlers import (
    ApprovalHandler,
    Audience,
    CallRequest,
    Handler,
    Handlers,
    HeaderProvider,
    ProgressHandler,
)
from dragoman.model.handlers import (
    LoginUI as LoginUI,
)
from dragoman.model.handlers import (
    RootsProvider as RootsProvider,
)
from dragoman.model.result import (
    App,
    Continuation,
    Part,
    Provenance,
    SourceRef,
    Task,
    ToolResult,
)
from dragoman.model.server import (
    ATTRIBUTION_KEYS,
    CODE,
    DEFAULT_CALL_TIMEOUT,
    DEFAULT_CONNECT_TIMEOUT,
    Auth,
    Http,
    Note,
    Origin,
    ServerSpec,
    Sse,
    Stdio,
    Timeouts,
    Tls,
    Transport,
)
from dragoman.model.settings import (
    Input,
    Layers,
    Settings,
    Source,
    Statement,
    Texts,
)
from dragoman.model.status import (
    MAX_USER_CHARS as MAX_USER_CHARS,
)
from dragoman.model.status import (
    ReadyReport,
    ServerState,
    ServerStatus,
    UserLimits,
    UserStatus,
)
from dragoman.model.tool import (
    AppliedTransform as AppliedTransform,
)
from dragoman.model.tool import (
    JsonObject,
    Prompt,
    Resource,
    Skill,
    SkillFile,
    ToolDef,
)
from dragoman.model.tool import (
    RemoteTool as RemoteTool,
)
from dragoman.model.tool import (
    json_object as json_object,
)
from dragoman.model.transforms import ArgumentTransform, ToolTransform

__all__ = [
    "ATTRIBUTION_KEYS",
    "CODE",
    "DEFAULT_CALL_TIMEOUT",
    "DEFAULT_CONNECT_TIMEOUT",
    "AlwaysRule",
    "App",
    "ApprovalCaller",
    "ApprovalHandler",
    "ArgumentTransform",
    "Audience",
    "Auth",
    "CallRequest",
    "Continuation",
    "Handler",
    "Handlers",
    "HeaderProvider",
    "Http",
    "Input",
    "JsonObject",
    "Layers",
    "Note",
    "Origin",
    "Part",
    "PendingApproval",
    "ProgressHandler",
    "Prompt",
    "Provenance",
    "ReadyReport",
    "Resource",
    "ServerSpec",
    "ServerState",
    "ServerStatus",
    "Settings",
    "Skill",
    "SkillFile",
    "Source",
    "SourceRef",
    "Sse",
    "Statement",
    "Stdio",
    "Task",
    "Texts",
    "Timeouts",
    "Tls",
    "ToolDef",
    "ToolResult",
    "ToolTransform",
    "Transport",
    "UserLimits",
    "UserStatus",
]
