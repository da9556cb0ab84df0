"""What the application answers when a server asks, when a policy does, and when a person has to log in."""

from __future__ import annotations

from collections.abc import (  # noqa: TC003 -- the hints of a noun can be resolved
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from typing import Annotated, Any, Literal, TypeAlias

from dragoman.struct import HIDDEN, Struct

ProgressHandler: TypeAlias = "Callable[[float, float | None, str | None], Any]"
"""Given progress, total and message as a server reports them; may be async."""
Handler: TypeAlias = "Callable[[str, dict[str, Any]], Any]"
"""Given a server's name and its request; returns the answer, or an awaitable of it."""
RootsProvider: TypeAlias = "Callable[[str], Sequence[str] | None]"
"""Given a server's name; returns URIs, or nothing if the server is not to know that there are any."""
ApprovalHandler: TypeAlias = "Callable[[CallRequest], bool | Awaitable[bool | None] | None]"
"""Given a call that a policy wants confirmed; returns whether it may be made, or an awaitable of that.

`None` says that no person can be asked: the call waits in the inbox, if there is one; else it is denied."""
Audience: TypeAlias = Literal["model", "app"]
"""Who calls a tool: a model, or the app of the tool's own server."""
HeaderProvider: TypeAlias = "Callable[[str], Mapping[str, str] | Awaitable[Mapping[str, str]]]"
"""Given a server's name; returns headers, or an awaitable of them."""


class CallRequest(Struct, kw_only=True):
    """A call, or a look at a resource or a prompt, that a person has to confirm before it is made."""

    server: str
    """Empty for a built-in tool."""
    tool: str
    """The exposed name; the address of a resource, or the name of a prompt."""
    original_name: str
    """What the server calls it, which is what rules are about."""
    arguments: Annotated[Mapping[str, Any], HIDDEN]
    """As they will be sent; a copy: what is changed in it is not sent."""
    shown_name: str = ""
    """What the configuration calls the tool, if it gives it another name."""
    shown_arguments: Annotated[Mapping[str, Any] | None, HIDDEN] = None
    """As the caller gave them, if the configuration changes them. Only these are for the caller's eyes."""
    kind: Literal["tool", "resource", "prompt", "skill"] = "tool"
    rule: str = ""
    """The rule that wants it confirmed; empty where the policy's default does."""
    reason: str = ""
    """What the rule says about itself."""
    user: str = ""
    """Whose call it is, in a program with many users."""


class Handlers(Struct, kw_only=True):
    """What the application answers when a server asks, or a policy."""

    sampling: Handler | None = None
    """Gets the parameters of `sampling/createMessage`; returns its result: role, content, model."""
    elicitation: Handler | None = None
    """Gets the parameters of `elicitation/create`; returns `{"action": "accept", "content": {…}}`."""
    elicitation_complete: Handler | None = None
    """Gets the parameters of `notifications/elicitation/complete`: a person is done at an address."""
    roots: Sequence[str] | RootsProvider | None = None
    """The URIs of the directories that servers may look at, or what gives them."""
    list_roots: Handler | None = None
    """Answers `roots/list` itself, in place of `roots`: returns `{"roots": [{"uri": …}]}`."""
    logging: Handler | None = None
    """Gets each log message: level, logger, data."""
    headers: HeaderProvider | None = None
    """Gives more headers for each HTTP request."""
    approval: ApprovalHandler | None = None
    """Asks a person whether a call may be made; without it what would be asked is denied. No deadline runs
    meanwhile, and a plain function is run in a thread."""
    durable_questions: bool = False
    """Whether to tell servers that questions can be answered although `elicitation` is not set: calls with
    `on_input="return"` hand them to the caller."""
    login: Handler | None = None
    """Gets `{"url": …}`, which a person has to open to log in; may return the address it ended at. For a
    user of `as_user`, `user` says who has to."""


class LoginUI(Struct, kw_only=True):
    """How the caller of `login()` reaches the person who logs in."""

    open_url: Callable[[str], Any] | None = None
    """Gets the address to open; may be async. If it returns an address, that counts as pasted."""
    paste: Callable[[], Awaitable[str]] | None = None
    """Asks for the address that the browser ended at. An error that it raises ends the login."""
    on_refused: Callable[[str], Any] | None = None
    """Gets the reason why a pasted address cannot be used, before `paste` is called again."""
    token: Callable[[], Awaitable[str]] | None = None
    """Asks for a token, if the server offers no OAuth login; without it, such a login fails."""
    only_token: bool = False
    """Whether to ask for a token at once, whatever the server offers."""
