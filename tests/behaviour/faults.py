"""Every fault of tests/servers/faulty.py with what has to come of it; the behaviour tests and the proofs share it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman import CallTimeoutError, ProtocolError, ServerSpec, ServerState, Stdio, ToolUnavailableError
from dragoman.events import StateChanged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from dragoman import McpManager, ToolResult
    from dragoman.events import Event

FAULTY = Path(__file__).resolve().parents[1] / "servers" / "faulty.py"


@dataclass(frozen=True)
class Fault:
    """What one call of the tool `fault` leads to."""

    kind: str
    error: type[Exception] | None
    """What the call ends with; without one it ends with the text `ok`."""
    said: str = ""
    """A part of the error's message."""
    survives: bool = True
    """Whether the same process goes on."""
    timeout: float = 20.0

    def __str__(self) -> str:
        return self.kind


UNREADABLE = [
    Fault(kind, ProtocolError, "the answer cannot be read")
    for kind in """bad-utf8 nan infinity minus-infinity overflow deep long-integer lone-surrogate
    control-character cut id-last glued others-id-inside""".split()
]
MISSHAPEN = [
    Fault("null", ProtocolError, "null as its result"),
    Fault("list", ProtocolError, "a list as its result"),
    Fault("string", ProtocolError, "a text as its result"),
    Fault("nothing", ProtocolError, "no result"),
    Fault("no-content", ProtocolError, "an invalid result"),
    Fault("odd-content", ProtocolError, "an invalid result"),
    Fault("error-text", ProtocolError, "went wrong"),
    Fault("error-empty", ProtocolError, "reported an error"),
    Fault("error-code-text", ProtocolError, "E42"),
    Fault("error-and-result", ProtocolError, "both"),
]
DRESSED = [
    Fault(kind, None)
    for kind in "string-id batch twice wrong-id-first duplicate-keys slowly blank-lines progress-flood".split()
]
FLOODS = [
    Fault("64-mib", ProtocolError, "the limit `max_message_bytes` is"),
    *(Fault(kind, None) for kind in "junk-flood log-flood request-flood change-flood stderr-flood".split()),
    Fault("endless-line", ToolUnavailableError, "has no end", survives=False),
]
SILENT = [Fault(kind, CallTimeoutError, timeout=0.3) for kind in ("never", "late", "wrong-id")]
DEADLY = [
    Fault("exits", ToolUnavailableError, "ended with code 7", survives=False),
    Fault("exits-cleanly", ToolUnavailableError, "ended with code 0", survives=False),
    Fault("killed", ToolUnavailableError, "killed by signal 9", survives=False),
    Fault("half-line", ToolUnavailableError, "ended with code 7", survives=False),
    Fault("closes-output", ToolUnavailableError, "closed its output", survives=False),
    Fault("crash-under-child", ToolUnavailableError, "ended with code 7", survives=False),
    Fault("last-words", None, survives=False),
]
STUCK = [
    Fault(kind, CallTimeoutError, survives=False, timeout=0.3)
    for kind in ("stops-reading", "freezes", "closes-input")
]
"""After these a server is of no use, and nothing says so: silence gives it away."""
FAULTS = [*UNREADABLE, *MISSHAPEN, *DRESSED, *FLOODS, *SILENT, *DEADLY]
KINDS_OF_FAULTS = """bad-utf8 null slowly blank-lines 64-mib stderr-flood endless-line late
    exits half-line closes-output crash-under-child last-words""".split()
"""Those that differ in what they do to a pipe."""


@dataclass(frozen=True)
class Mode:
    """What a server that misbehaves from the beginning comes to."""

    name: str
    state: ServerState
    """The state after the first try."""
    said: str = ""
    """A part of the error's message."""
    tools: tuple[str, ...] = ("echo", "fault")
    comes_back: bool = True
    """Whether it is ready in the end, by itself."""
    connect: float = 20.0

    def __str__(self) -> str:
        return self.name


S = ServerState
MODES = [
    *(Mode(name, S.READY) for name in "sound slow-start banner bom crlf stderr-flood".split()),
    *(Mode(name, S.READY) for name in "modern-only modern null-discover".split()),
    *(Mode(name, S.READY) for name in "exits-at-discover closes-at-discover".split()),
    Mode("mute-discover", S.READY, connect=3.0),
    *(Mode(name, S.READY) for name in "wrapper-leaves-child daemon ignores-term ignores-everything".split()),
    *(Mode(name, S.READY) for name in "repeated-cursor odd-cursor deep-schema".split()),
    Mode("malformed-tools", S.READY, tools=("echo", "fault", "no-type", "odd")),
    Mode("no-tools-key", S.READY, tools=()),
    Mode("mute", S.BACKOFF, "no answer within", tools=(), comes_back=False, connect=0.5),
    Mode("mute-initialize", S.BACKOFF, "no answer within", tools=(), comes_back=False, connect=0.5),
    Mode("mute-listing", S.BACKOFF, "no answer within", tools=(), comes_back=False, connect=0.5),
    Mode("mute-once", S.BACKOFF, "no answer within", connect=0.5),
    Mode("crash-at-start", S.BACKOFF, "license file missing", tools=(), comes_back=False),
    Mode("crash-twice", S.BACKOFF, "ended with code 4"),
    Mode("exits-at-initialize", S.BACKOFF, "ended with code 5", tools=(), comes_back=False),
    Mode("refuses-initialize", S.BACKOFF, "no database", tools=(), comes_back=False),
    Mode("null-initialize", S.BACKOFF, "null as its result", tools=(), comes_back=False),
    Mode("wrong-version", S.BACKOFF, "1999-01-01", tools=(), comes_back=False),
    Mode("null-listing", S.DEGRADED, "null as its result", tools=(), comes_back=False),
    Mode("bad-once", S.DEGRADED, "the index is locked"),
]
KINDS_OF_MODES = """sound slow-start bom stderr-flood mute-discover closes-at-discover wrapper-leaves-child daemon
    ignores-everything deep-schema mute crash-at-start null-listing""".split()
"""Those that differ in what they do to a pipe."""


def over_both(
    every: Sequence[Fault] | Sequence[Mode], kinds: Sequence[str]
) -> list[tuple[str, Fault | Mode]]:
    """Return all of them over POSIX pipes, and some over the streams of the event loop."""
    return [("posix", one) for one in every] + [("streams", one) for one in every if str(one) in kinds]


def faulty(name: str, mode: str = "sound", **more: Any) -> ServerSpec:
    """Make the spec of a misbehaving server."""
    return ServerSpec(name, Stdio(sys.executable, ["-S", str(FAULTY), mode]), **more)


async def comes_back(mcp: McpManager, name: str, events: AsyncIterator[Event]) -> None:
    """Wait until a server is ready again; the events have to be those since before it was lost."""
    if mcp.status()[name].state is ServerState.READY:
        return
    async for event in events:
        if isinstance(event, StateChanged) and (event.server, event.after) == (name, ServerState.READY):
            return


def check(result: ToolResult, fault: Fault) -> None:
    """Assert that a call ended as its fault has it."""
    if fault.error is None:
        assert (result.success, result.text) == (True, "ok")
        return
    assert type(result.exception) is fault.error, result
    assert fault.said in str(result.exception)
    assert result.exception.server == "bad"
    if fault.error is ToolUnavailableError:
        assert result.exception.may_have_run


def children_of(mode: str) -> list[int]:
    """Read from a server's log which processes it has started."""
    return [
        int(line.split()[2]) for line in Path(f"{mode}.log").read_text().splitlines() if " child " in line
    ]


def asked(mode: str) -> list[str]:
    """Read from a server's log what it was asked, over all of its starts."""
    return [line.split(" ", 1)[1] for line in Path(f"{mode}.log").read_text().splitlines()]


def started(mode: str) -> bool:
    """Return whether a server has been started at all."""
    return Path(f"{mode}.log").exists()
