"""What a failure of a server usually means, and what to do about it: rules over what an examination found.

A rule looks at facts, not at our own messages: the last words of a process, an HTTP status, the kind of an
error of the network. Each hint is one sentence that can be acted upon. Nothing here looks anything up.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragoman.model import Stdio
from dragoman.trust.packages import package_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.model import ServerSpec

MOST = 3
"""More hints than that help nobody."""

_PROGRAMS = {
    "npx": "Node.js (https://nodejs.org), which brings npx",
    "npm": "Node.js (https://nodejs.org), which brings npm",
    "node": "Node.js (https://nodejs.org)",
    "pnpm": "pnpm, or use `npx -y`",
    "yarn": "yarn, or use `npx -y`",
    "bunx": "Bun (https://bun.sh), or use `npx -y`",
    "bun": "Bun (https://bun.sh), or use `npx -y`",
    "deno": "Deno (https://deno.com)",
    "uvx": "uv (https://docs.astral.sh/uv), which brings uvx",
    "uv": "uv (https://docs.astral.sh/uv)",
    "pipx": "pipx, or use `uvx`",
    "docker": "Docker, and start it",
    "podman": "Podman",
    "python": "Python, or write `python3`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What an examination found out about a server that does not work."""

    spec: ServerSpec
    stage: str
    """Where it ended, as the stages of an examination are called."""
    stderr: str = ""
    exit_code: int | None = None
    http_status: int | None = None
    content_type: str = ""
    """Of an answer that is none: what it is instead."""
    network: str = ""
    """`no-host`, `refused`, `unreachable`, `timeout`, `certificate`, `no-tls`, `proxy`, or nothing."""
    proxy: str = ""
    """The proxy that the environment names for the address."""
    timed_out: bool = False
    junk: int = 0
    """How many lines on standard output were no messages."""
    near: Sequence[str] = ()
    """Programs on PATH with a name like that of the command."""
    folder_missing: bool = False
    env: Mapping[str, str] | None = None
    """Our own environment: what is set here, but not handed on."""


def hints(facts: Facts) -> list[str]:
    """Return what to do, the likeliest first."""
    found: list[str] = []
    for rule in _RULES:
        found += [hint for hint in rule(facts) if hint not in found]
    return found[:MOST]


def _command(facts: Facts) -> Iterable[str]:
    transport = facts.spec.transport
    if not isinstance(transport, Stdio) or facts.stage not in ("command", "start"):
        return
    if facts.folder_missing:
        yield f"its directory `{transport.cwd}` does not exist: create it, or change `cwd`"
        return
    command = transport.command
    name = re.split(r"[/\\]", command)[-1]
    if " " in command.strip():
        first, _, rest = command.strip().partition(" ")
        args = json.dumps(rest.split())
        yield f'`command` is one word, the others are `args`: `"command": "{first}", "args": {args}`'
        return
    elif name in _PROGRAMS and name == command:
        yield f"install {_PROGRAMS[name]}"
    if facts.near:
        yield f"did you mean {' or '.join(f'`{one}`' for one in facts.near)}?"
    if "/" in command or "\\" in command:
        yield f"look whether `{command}` exists and may be executed (`chmod +x`)"
    else:
        yield f"`{command}` has to be on PATH; what is started from the desktop may have another PATH"


_SDK_OLD = re.compile(
    r"No module named ['\"]mcp\.[\w.]+['\"]|cannot import name [^\n]* from ['\"]mcp\b"
    r"|AttributeError: (?:module ['\"]mcp\b|'Server' object has no attribute '(?:list|call|get|read)_)"
)
"""What a program says that was written for version 1 of the SDK and gets version 2."""
_MODULE = re.compile(
    r"(?:ModuleNotFoundError: No module named|Cannot find (?:module|package)) ['\"]([^'\"]+)['\"]"
)
_NPM_MISSING = re.compile(r"npm (?:ERR!|error) (?:code )?E404|404 Not Found - GET https?://registry\.npmjs")
_PYPI_MISSING = re.compile(
    r"was not found in the package registry|No matching distribution found|No solution found when resolving"
)
_OFFLINE = re.compile(r"EAI_AGAIN|ENOTFOUND|ECONNREFUSED.*registry|Failed to fetch|dns error|getaddrinfo")
_OLD_NODE = re.compile(
    r"EBADENGINE|Unsupported engine|requires Node|SyntaxError: Unexpected (?:token|identifier)"
)
_DAEMON = re.compile(
    r"Cannot connect to the Docker daemon|docker daemon is not running|dockerDesktopLinuxEngine"
)
_USAGE = re.compile(r"^\s*usage:|the following arguments are required|missing required argument", re.I | re.M)
_VARIABLE = re.compile(
    r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b[^\n]{0,60}?"
    r"\b(?:not set|unset|required|missing|must be set|not provided|undefined|not found)\b"
    r"|\b(?:missing|required|set|provide|no)\b[^\n]{0,60}?\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"\b(?:api.?key|access.?token|auth(?:entication)? token|credentials)\b", re.IGNORECASE)
_IN_USE = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
_DENIED = re.compile(r"EACCES|[Pp]ermission denied")


def _last_words(facts: Facts) -> Iterable[str]:
    text = facts.stderr
    transport = facts.spec.transport
    if not isinstance(transport, Stdio) or not text:
        return
    package = package_of(transport)
    shown = package.name if package is not None else transport.command
    if _SDK_OLD.search(text):
        yield (
            f"`{shown}` was written for version 1 of the `mcp` package: run it with `mcp<2`, as in "
            f"`uvx --with 'mcp<2' {shown}`, or take a newer release of it"
        )
    elif module := _MODULE.search(text):
        yield f"`{module[1]}` is not installed there: install it, or name the right interpreter"
    if _NPM_MISSING.search(text) or _PYPI_MISSING.search(text):
        yield f"the registry has no package `{shown}` (or no such version): check its name"
    elif _OFFLINE.search(text):
        yield "it cannot reach its package registry: check network and proxy, or install the package"
    if _OLD_NODE.search(text):
        yield "it needs a newer Node.js: `node --version` says what you have"
    if _DAEMON.search(text):
        yield "Docker does not run: start it"
    if _IN_USE.search(text):
        yield "its port is taken by another process: stop that one, or give the server another port"
    if _DENIED.search(text):
        yield "it may not read or execute something: its last words name the file"


def _variables(facts: Facts) -> Iterable[str]:
    transport = facts.spec.transport
    if not isinstance(transport, Stdio):
        return
    for match in _VARIABLE.finditer(facts.stderr):
        name = match[1] or match[2]
        if not name.isupper():
            continue
        if name in transport.env:
            yield f"`{name}` is given to it, but perhaps empty or wrong: check its value"
        elif facts.env is not None and name in facts.env:
            yield (
                f"`{name}` is set here, but servers get only what their entry names: "
                f'add `"{name}": "${{{name}}}"` to its `env`'
            )
        else:
            yield f'it wants the variable `{name}`: set it, and add `"{name}": "${{{name}}}"` to its `env`'
        return
    if _TOKEN.search(facts.stderr):
        yield "it wants a key or a token: its documentation says which variable; put that into its `env`"


def _ending(facts: Facts) -> Iterable[str]:
    transport = facts.spec.transport
    if not isinstance(transport, Stdio):
        return
    if _USAGE.search(facts.stderr):
        yield "it wants other arguments: its last words show which; they go into `args`"
    if facts.junk:
        yield "it prints lines that are no messages to standard output: have it log to standard error"
    if facts.timed_out and facts.stage in ("start", "handshake"):
        if package_of(transport) is not None:
            yield "a first start downloads the package: run it by hand once, or raise `timeouts.connect`"
        yield "it says nothing: does the command start an MCP server that speaks over stdio?"
    elif facts.stage == "handshake" and facts.exit_code is not None and facts.exit_code < 0:
        yield f"it was killed by signal {-facts.exit_code}: memory may be short"
    elif facts.stage == "handshake" and facts.exit_code == 0:
        yield "it ended by itself: perhaps it is no server, or needs an option such as `stdio`"


def _network(facts: Facts) -> Iterable[str]:
    host = "the proxy" if facts.proxy else "the server"
    match facts.network:
        case "no-host":
            yield "no such host: check the address, and whether you are online"
        case "refused":
            yield f"nothing listens there: start {host}, and check host and port"
        case "unreachable" | "timeout":
            yield f"{host} does not answer: check host and port, the network, a firewall or a VPN"
        case "certificate":
            yield "its certificate is not trusted: name its authority in `tls.ca`"
        case "no-tls":
            yield "it does not speak TLS there: try http:// instead of https://"
        case "proxy":
            yield "the proxy variables of the environment cannot be used: http://host:port is their form"
        case _:
            pass
    if facts.proxy and facts.network:
        yield f"the environment names the proxy {facts.proxy}: add the host to NO_PROXY to go without"


def _http(facts: Facts) -> Iterable[str]:
    spec, status = facts.spec, facts.http_status
    if isinstance(spec.transport, Stdio):
        return
    kind = spec.kind
    other = "sse" if kind == "http" else "http"
    if facts.content_type.endswith("/html"):
        yield "a web page answers, not an MCP server: check the path, which often ends in /mcp or /sse"
        if kind == "sse":
            yield f'or it speaks Streamable HTTP: `"transport": "{other}"`'
    match status:
        case 401:
            given = any(name.lower() == "authorization" for name in spec.transport.headers)
            if given:
                yield "it refuses the `Authorization` header: the token is wrong or has expired"
            else:
                yield f"log in: `dragoman login {spec.name}`"
                yield 'or give it a token: `"headers": {"Authorization": "Bearer ${TOKEN}"}`'
        case 403:
            yield "it knows who you are and refuses: the token lacks a right, or the server checks `Origin`"
        case 404 | 410:
            yield "nothing is at that path: it often ends in /mcp (Streamable HTTP) or /sse (legacy SSE)"
        case 405 | 406 | 415 | 400:
            yield f'it may speak the other transport: `"transport": "{other}"`'
        case 407:
            yield "the proxy wants a login: http://user:password@host:port in HTTPS_PROXY"
        case 429:
            yield "it takes no more requests for now: wait"
        case 502 | 503 | 504:
            yield "what stands before the server cannot reach it: is it up?"
        case _ if status is not None and status >= 500:
            yield "the server itself failed: its own log says why"
        case _ if status is not None and 300 <= status < 400:
            yield "it sends us elsewhere: use the address that it names"
        case _:
            pass
    if facts.timed_out and not facts.network:
        yield "it takes the connection but does not answer: is it an MCP server?"


def _other(facts: Facts) -> Iterable[str]:
    if facts.stage == "listing":
        yield "it is connected, but cannot list its tools: its own log says why"
    if isinstance(facts.spec.transport, Stdio) and facts.stage == "handshake":
        yield "run the command by hand: what it prints then says more"


_RULES: tuple[Callable[[Facts], Iterable[str]], ...] = (
    _command,
    _last_words,
    _variables,
    _ending,
    _network,
    _http,
    _other,
)
