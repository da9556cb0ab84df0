"""What waits for a person in the inbox: calls that a rule asks about, with what the person has to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 -- the hints of a noun can be resolved
from typing import Annotated, Any, Literal, TypeAlias

from dragoman.struct import HIDDEN, Struct, field

ApprovalKind: TypeAlias = Literal["call", "resource", "prompt", "question", "login"]
ApprovalState: TypeAlias = Literal["pending", "approved", "denied", "expired", "abandoned", "sent"]
"""`approved`: the caller has not taken the answer yet; `sent`: it has, and the call goes on.

`expired`: nobody answered in time; `abandoned`: the caller gave up or died. Neither is ever sent."""
Always: TypeAlias = Literal["tool", "arguments", "server"]
"""What a remembered answer covers: the tool, the tool with exactly these arguments, or the whole server."""


class ApprovalCaller(Struct, kw_only=True):
    """Who made a call that waits."""

    user: str = ""
    """The user of `as_user`; empty for the program itself."""
    principal: str = ""
    """Whom the token of a client of the gateway stands for."""
    client: str = ""
    """What the client calls itself; anyone may say anything."""
    program: str = ""
    process: int = 0


class AlwaysRule(Struct, kw_only=True):
    """A rule that a person can have written together with a yes."""

    covers: Always
    rule: Annotated[Mapping[str, Any], HIDDEN]
    text: Annotated[str, HIDDEN]
    """Exactly what is written."""
    file: str
    """Where it is written: after all other rules, unless `before` names one."""
    before: str = ""
    """The rule that asks, as `FILE:LINE`, if the new one has to come before it."""
    asking: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict[str, Any])
    """That rule, as it stands in the file."""


class PendingApproval(Struct, kw_only=True):
    """One entry of the inbox."""

    id: str
    kind: ApprovalKind = "call"
    server: str
    """Empty for a built-in tool."""
    tool: str
    """The exposed name; the address of a resource, or the name of a prompt."""
    original_name: str
    """What the server calls it, which is what rules are about."""
    arguments: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict[str, Any])
    """All of them, with secrets masked; gone once the entry is decided."""
    rule: str = ""
    """The rule that asks; empty where the policy's default does."""
    source: str = ""
    """Where that rule stands, as `FILE:LINE`."""
    reason: str = ""
    caller: ApprovalCaller = field(default_factory=ApprovalCaller)
    asked_at: float
    """Seconds since the epoch, as the other times."""
    expires_at: float
    state: ApprovalState = "pending"
    answered_at: float | None = None
    answered_by: str = ""
    """Who decided: the terminal, a client, `dragoman approvals`, the name that a program gave."""
    always: Sequence[AlwaysRule] = ()
    """The rules that can be written with a yes; empty where a rule of the user's would change nothing."""
    remembered: Always | None = None
    """The rule among them that was chosen."""
