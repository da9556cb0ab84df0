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
    if name in _PROGRAMS and name == command:
        yield f"install {_PROGRAMS[name]}"
    if facts.near:
        yield f"did you mean {' or '.join(f'`{one}`' for one in facts.near)}?"
    if "/" in command or "\\" in command:
        yield f"look whether `{command}` exists and may be executed (`chmod +x`)"
    else:
        yield f"`{command}` has to be on PATH; what is started from the desktop may have another PATH"


_SDK_OLD = re.compile(
    r"No module named ['\"]mcp\.[\w.]+['\"]|cannot import name [^\n]{0,200}? from ['\"]mcp\b"
    r"|AttributeError: (?:module ['\"]mcp\b|'Server' object has no attribute '(?:list|call|get|read)_)"
)
"""What a program says that was written for version 1 of the SDK and gets version 2."""
_MODULE = re.compile(
    r"(?:ModuleNotFoundError: No module named|Cannot find (?:module|package)) ['\"]([^'\"]+)['\"]"
)
_MISFIT = re.compile(
    r"ImportError: cannot import name ['\"][^'\"\n]{1,100}['\"] from ['\"]([\w.]{1,200})['\"]"
)
_PROGRAM = re.compile(
    r"No such file or directory: ['\"]([a-z][\w.-]{0,30})['\"]|\bspawn ([a-z][\w.-]{0,30}) ENOENT"
    r"|\b([a-z][\w.-]{0,30}): (?:command )?not found$|executable file not found in \$PATH",
    re.MULTILINE,
)
"""What a server says that starts a program which is not there."""
_BROWSER = re.compile(r"playwright install|Could not find (?:Chrome|browser)|puppeteer browsers install")
_NPM_MISSING = re.compile(r"npm (?:ERR!|error) (?:code )?E404|404 Not Found - GET https?://registry\.npmjs")
_PYPI_MISSING = re.compile(
    r"was not found in the package registry|No matching distribution found|No solution found when resolving"
)
_OFFLINE = re.compile(
    r"EAI_AGAIN|ENOTFOUND|Failed to fetch|dns error|getaddrinfo"
    r"|Name or service not known|Temporary failure in name resolution|NameResolutionError|fetch failed"
)
_INSTALLER = re.compile(
    r"\bnpm (?:ERR!|error|warn)|\bregistry\b|\bpypi\b|/simple/|Failed to fetch: `", re.IGNORECASE
)
"""What tells that npm, uv or pip failed, not the program that they were to start."""
_REFUSED = re.compile(
    r"ECONNREFUSED(?: ([\w.:\[\]-]{3,60}:\d{1,5}))?|\b[Cc]onnection\s+refused|actively refused it",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"\b(?:hostname: |host=|ENOTFOUND |EAI_AGAIN |resolve host )['\"]?"
    r"((?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24})\b",
    re.IGNORECASE,
)
_UNTRUSTED = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|SELF_SIGNED_CERT_IN_CHAIN|self[- ]signed certificate"
    r"|UNABLE_TO_GET_ISSUER_CERT|UNABLE_TO_VERIFY_LEAF_SIGNATURE|unable to get local issuer certificate"
    r"|invalid peer certificate"
)
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_BUNDLES = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR")
_OLD_NODE = re.compile(
    r"EBADENGINE|Unsupported engine|requires Node|SyntaxError: Unexpected (?:token|identifier)"
    r"|does not support Node(?:\.js)? v?\d|Please upgrade to a newer LTS"
)
_DAEMON = re.compile(
    r"Cannot connect to the Docker daemon|docker daemon is not running|dockerDesktopLinuxEngine"
)
_USAGE = re.compile(
    r"^(?:\[\d+\])?[ \t]{0,40}usage:|arguments? (?:are|is) required|missing (?:required )?argument"
    r"|required argument"
    r"|number of arguments|command[- ]line arg|unrecognized arguments|no such option|unknown option"
    r"|required[^\n]{0,60}? --[a-z]",
    re.IGNORECASE | re.MULTILINE,
)
_NO_SUBCOMMAND = re.compile(
    r"Required command was not provided|Unknown command: (?:undefined|null|none)\b|Missing command\b"
    r"|^[ \t]{0,40}usage:[^\n]{0,200}(?:\bCOMMAND\b|\[command\]|<command>)|(?:sub)?command is required",
    re.IGNORECASE | re.MULTILINE,
)
_SUBCOMMAND = re.compile(r"^ {1,8}([a-z][a-z-]{1,30})(?: {2,}|$)", re.MULTILINE)
"""A line of a list of commands, as command-line programs print it."""
_CHOICES = re.compile(r"(?<!\w )\{([a-z][\w,-]{2,200})\}")
"""A choice that is no value of an option."""
_SERVING = re.compile(r"(?:.*-)?(?:stdio|mcp|serve|server|start|run)(?:-.*)?")
_SIGN_IN = re.compile(
    r"\b(?:run|use|try|execute)\b[^\n]{0,60}?"
    r"([`'\"])((?:[\w@./-]{1,60} ){0,4}(?:auth|login|signin|sign-in|configure)(?: [\w-]{1,20}){0,2})\1",
    re.IGNORECASE,
)
"""Where a program names what logs in, in quotes."""
_VARIABLE = re.compile(
    r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b[^\n]{0,60}?"
    r"\b(?:not set|unset|required|missing|must be set|not provided|undefined|not found)\b"
    r"|\b(?:missing|required|set|provide|pass|no(?! attribute))\b[^\n]{0,60}?"
    r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b",
    re.IGNORECASE,
)
_JOINED = re.compile(r"[`'\"]?(?:,? and |, ?)[`'\"]?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b")
"""A further variable in the same list."""
_MOST_VARIABLES = 4
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
        how = (
            f"run it with `mcp<2`, as in `uvx --with 'mcp<2' {shown}`"
            if package is not None
            else "install `mcp<2` beside it, as in `pip install 'mcp<2'`"
        )
        yield f"`{shown}` was written for version 1 of the `mcp` package: {how}, or take a newer release"
    elif module := _MODULE.search(text):
        if re.search(r"[/\\]node_modules[/\\]", module[1]):
            yield f"`{shown}` lacks a file of its own: install it again, or take another release of it"
        elif "." in module[1].strip("./") and "/" not in module[1]:
            top = module[1].partition(".")[0]
            yield f"`{top}` is not installed there, or in another version than it wants: install that one"
        else:
            yield f"`{module[1]}` is not installed there: install it, or name the right interpreter"
    elif misfit := _MISFIT.search(text):
        top = misfit[1].partition(".")[0]
        yield f"`{top}` is there in another version than it wants: install `{shown}` anew, or a newer one"
    if _NPM_MISSING.search(text) or _PYPI_MISSING.search(text):
        yield f"the registry has no package `{shown}` (or no such version): check its name"
    elif _UNTRUSTED.search(text):
        yield "it does not trust the certificate of what it calls: give it the file of your authority"
        yield from _kept_back(facts, _BUNDLES)
    else:
        yield from _unreached(facts, is_installing=package is not None and bool(_INSTALLER.search(text)))
    if _OLD_NODE.search(text):
        yield "it needs a newer Node.js: `node --version` says what you have"
    if started := _PROGRAM.search(text):
        name = started[1] or started[2] or started[3] or ""
        what = f"`{name}`" if name else "a program"
        yield f"it starts {what}, which is not there: install {_PROGRAMS.get(name, what)}"
    if _BROWSER.search(text):
        yield "it wants a browser: its last words say how to install one"
    if _DAEMON.search(text):
        yield "Docker does not run: start it"
    if _IN_USE.search(text):
        yield "its port is taken by another process: stop that one, or give the server another port"
    if _DENIED.search(text):
        yield "it may not read or execute something: its last words name the file"


def _unreached(facts: Facts, *, is_installing: bool) -> Iterable[str]:
    refused = _REFUSED.search(facts.stderr)
    if not refused and not _OFFLINE.search(facts.stderr):
        return
    if is_installing:
        yield "it cannot reach its package registry: check network and proxy, or install the package"
    elif refused:
        where = f" at `{refused[1]}`" if refused[1] else ""
        yield f"what it needs does not run{where} (connection refused): start that, or correct its address"
        return
    else:
        host = _HOST.search(facts.stderr)
        what = f"`{host[1]}`" if host else "a service that it needs"
        yield f"it runs, but cannot reach {what}: check network, proxy and DNS"
    yield from _kept_back(facts, _PROXIES)


def _kept_back(facts: Facts, names: Sequence[str]) -> Iterable[str]:
    """Name the first of some variables that is set here and not handed on."""
    transport = facts.spec.transport
    if not isinstance(transport, Stdio) or transport.inherit_env == "all" or facts.env is None:
        return
    given = {*transport.env, *(() if transport.inherit_env == "safe" else transport.inherit_env)}
    for name in names:
        if facts.env.get(name) and name not in given:
            yield _hand_on([name])
            return


def _hand_on(names: Sequence[str]) -> str:
    listed, entries = _listed(names)
    are = "are" if len(names) > 1 else "is"
    return (
        f"{listed} {are} set here, but servers get only what their entry names: add `{entries}` to its `env`"
    )


def _listed(names: Sequence[str]) -> tuple[str, str]:
    """Return some variables as words, and as they stand in an entry."""
    quoted = [f"`{name}`" for name in names]
    words = " and ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
    return words, ", ".join(f'"{name}": "${{{name}}}"' for name in names)


def _wanted(text: str) -> list[str]:
    """Return the variables that last words ask for, in their order."""
    found: list[str] = []
    for match in _VARIABLE.finditer(text):
        name, end = match[1] or match[2], match.end(1) if match[1] else match.end(2)
        while name.isupper():
            if name not in found:
                found.append(name)
            further = _JOINED.match(text, end)
            if further is None:
                break
            name, end = further[1], further.end()
        if len(found) >= _MOST_VARIABLES:
            break
    return found[:_MOST_VARIABLES]


def _variables(facts: Facts) -> Iterable[str]:
    transport = facts.spec.transport
    if not isinstance(transport, Stdio):
        return
    if wanted := _wanted(facts.stderr):
        here: Mapping[str, str] = facts.env or {}
        missing = [name for name in wanted if name not in transport.env]
        if not missing:
            yield f"`{wanted[0]}` is given to it, but perhaps empty or wrong: check its value"
        if unset := [name for name in missing if name not in here]:
            listed, entries = _listed(unset)
            many = len(unset) > 1
            yield (
                f"it wants the variable{'s' * many} {listed}: set {'them' if many else 'it'}, "
                f"and add `{entries}` to its `env`"
            )
        if kept := [name for name in missing if name in here]:
            yield _hand_on(kept)
    elif not _SIGN_IN.search(facts.stderr) and _TOKEN.search(facts.stderr):
        yield "it wants a key or a token: its documentation says which variable; put that into its `env`"
    if sign_in := _SIGN_IN.search(facts.stderr):
        yield f"it wants a login first: run it by hand once, with `{sign_in[2]}`"


def _ending(facts: Facts) -> Iterable[str]:
    transport = facts.spec.transport
    if not isinstance(transport, Stdio):
        return
    choices = _CHOICES.search(facts.stderr) if "required" in facts.stderr else None
    if choices or _NO_SUBCOMMAND.search(facts.stderr):
        names = choices[1].split(",") if choices else _SUBCOMMAND.findall(facts.stderr)
        likely = [name for name in names if _SERVING.fullmatch(name)]
        such = (
            f"perhaps `{min(likely, key=_rank)}`" if likely else "such as `stdio`, `mcp`, `serve` or `start`"
        )
        yield f"it wants a subcommand, {such}: that goes into `args`"
    elif _USAGE.search(facts.stderr):
        yield "it wants other arguments: its last words show which; they go into `args`"
    if facts.junk and facts.exit_code is not None:
        yield "it printed text that is no message, and ended: it may want other arguments, or a subcommand"
    elif facts.junk:
        yield "it prints lines that are no messages to standard output: have it log to standard error"
    if facts.timed_out and facts.stage in ("start", "handshake"):
        if package_of(transport) is not None:
            yield "a first start downloads the package: run it by hand once, or raise `timeouts.connect`"
        yield "it says nothing: does the command start an MCP server that speaks over stdio?"
    elif facts.stage == "handshake" and facts.exit_code is not None and facts.exit_code < 0:
        yield f"it was killed by signal {-facts.exit_code}: memory may be short"
    elif facts.stage == "handshake" and facts.exit_code == 0:
        yield "it ended by itself: perhaps it is no server, or needs an option such as `stdio`"


def _rank(name: str) -> tuple[int, int]:
    """Return how little a subcommand looks like the one that serves MCP."""
    parts = name.split("-")
    signs = ("stdio", "mcp", "serve", "server", "start", "run")
    return next(index for index, sign in enumerate(signs) if sign in parts), len(name)


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
