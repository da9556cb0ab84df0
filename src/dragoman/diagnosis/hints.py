"""Rules that turn the facts of a failed diagnosis into hints: what usually causes it, and what to do.

A rule reads facts, not our own error messages: the standard error of a process, an HTTP status, the kind of
a network error. Each hint tells the user what to do. Nothing here reads files or uses the network.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.config.dialects import set_command
from dragoman.config.packages import package_of
from dragoman.config.templates import references
from dragoman.diagnosis.signs import (
    BROWSER,
    CHOICES,
    DAEMON,
    DENIED,
    HOST,
    IN_USE,
    INSTALLER,
    MISFIT,
    MODULE,
    NO_SUBCOMMAND,
    NPM_MISSING,
    OFFLINE,
    OLD_NODE,
    PROGRAM,
    PROXIES,
    PYPI_MISSING,
    REFUSED,
    SDK_OLD,
    SERVING,
    SIGN_IN,
    SUBCOMMAND,
    TOKEN,
    UNTRUSTED,
    USAGE,
    wanted_variables,
    wrong_path,
)
from dragoman.model import Stdio
from dragoman.server.process.environment import is_launcher, without_password
from dragoman.struct import Struct
from dragoman.trust.addresses import is_loopback, split_url
from dragoman.trust.masking import mask_args, mask_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.model import ServerSpec

MOST = 3
"""The most hints that are shown; the likeliest come first."""

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


class Facts(Struct, kw_only=True):
    """The facts of a diagnosis that failed."""

    spec: ServerSpec
    stage: str
    """The stage that failed; a key of `STAGES` in `doctor`."""
    stderr: str = ""
    exit_code: int | None = None
    http_status: int | None = None
    content_type: str = ""
    """Of the answer, if it is not an MCP message."""
    network: str = ""
    """`dns`, `refused`, `unreachable`, `tls`, `plain`, `proxy`, or empty; as `reason` of `ConnectError`."""
    proxy: str = ""
    """The proxy that the environment sets for the address."""
    timed_out: bool = False
    junk: int = 0
    """The number of lines on standard output that are not messages."""
    near: Sequence[str] = ()
    """Programs on PATH with a name similar to the command."""
    folder_missing: bool = False
    reason: str = ""
    """As `reason` of `ConnectError`."""
    works: tuple[str, str] | None = None
    """A URL and a kind of transport (`http`, `sse`) that were tried instead, and work."""
    env: Mapping[str, str] | None = None
    """The environment of this process, to find variables that are set but not passed to the server."""


def hints(facts: Facts) -> list[str]:
    """Return what the user can do, the likeliest first."""
    found: list[str] = []
    for rule in _RULES:
        found += [hint for hint in rule(facts) if hint not in found]
    transport = facts.spec.transport
    if not found and isinstance(transport, Stdio) and facts.stage == "handshake":
        words = [mask_command(transport.command), *mask_args(transport.args)]
        found.append(f"Run it yourself to see its full output: `{shlex.join(words)}`")
    return found[:MOST]


def _command(facts: Facts) -> Iterable[str]:
    transport = facts.spec.transport
    if not isinstance(transport, Stdio) or facts.stage not in ("command", "start"):
        return
    if facts.folder_missing:
        yield f"The directory `{transport.cwd}` does not exist. Create it, or change `cwd`."
        return
    command = transport.command
    name = re.split(r"[/\\]", command)[-1]
    if " " in command.strip():
        first, _, rest = command.strip().partition(" ")
        split = {"command": first, "args": json.dumps(rest.split())}
        yield f"`command` is the program only, the rest is `args`: {set_command(facts.spec, **split)}"
        return
    if name in _PROGRAMS and name == command:
        yield f"Install {_PROGRAMS[name]}."
    if facts.near:
        near = str(Path(command).with_name(facts.near[0]))
        names = " or ".join(f"`{one}`" for one in facts.near)
        yield f"Did you mean {names}? {set_command(facts.spec, command=near)}"
    if "/" in command or "\\" in command:
        yield f"Check that `{command}` exists and is executable (`chmod +x`)."
    else:
        yield f"Make sure that `{command}` is on PATH. Desktop apps may have a different PATH."


def _stderr(facts: Facts) -> Iterable[str]:
    text = facts.stderr
    transport = facts.spec.transport
    if not isinstance(transport, Stdio) or not text:
        return
    package = package_of(transport)
    shown = package.name if package is not None else transport.command
    if SDK_OLD.search(text):
        if package is not None and Path(transport.command).stem == "uvx":
            how = set_command(facts.spec, args=json.dumps(["--with", "mcp<2", *transport.args]))
        else:
            how = "install `mcp<2` in its environment (`pip install 'mcp<2'`)"
        yield f"`{shown}` needs version 1 of the `mcp` package. Use a newer release, or {how}"
    elif module := MODULE.search(text):
        if re.search(r"[/\\]node_modules[/\\]", module[1]):
            yield f"A file of `{shown}` is missing. Reinstall it, or use another release."
        elif "." in module[1].strip("./") and "/" not in module[1]:
            top = module[1].partition(".")[0]
            yield f"`{top}` is missing, or its version does not fit. Install the version it needs."
        else:
            yield f"`{module[1]}` is not installed. Install it, or use the right interpreter in `command`."
    elif misfit := MISFIT.search(text):
        top = misfit[1].partition(".")[0]
        yield f"The installed version of `{top}` does not fit. Reinstall or upgrade `{shown}`."
    if NPM_MISSING.search(text) or PYPI_MISSING.search(text):
        yield f"The registry has no package `{shown}` (or not this version). Check the name."
    elif UNTRUSTED.search(text):
        yield "It does not trust the certificate of a service. Point it to your CA certificate file."
    else:
        yield from _unreached(facts, is_installing=package is not None and bool(INSTALLER.search(text)))
    if OLD_NODE.search(text):
        yield "It needs a newer Node.js. Check yours: `node --version`"
    if started := PROGRAM.search(text):
        name = started[1] or started[2] or started[3] or ""
        what = f"`{name}`" if name else "a program"
        yield f"It starts {what}, which was not found. Install {_PROGRAMS.get(name, 'it')}."
    elif wrong := wrong_path(text):
        yield f"{wrong}. Create it, or correct the path that the server is given."
    if BROWSER.search(text):
        yield "It needs a browser. Its last stderr lines tell how to install one."
    if DAEMON.search(text):
        yield "Docker is not running. Start it."
    if IN_USE.search(text):
        yield "Its port is in use. Stop the other process, or use another port."
    if DENIED.search(text):
        yield "Permission denied. Its last stderr lines name the file."


def _unreached(facts: Facts, *, is_installing: bool) -> Iterable[str]:
    refused = REFUSED.search(facts.stderr)
    if not refused and not OFFLINE.search(facts.stderr):
        return
    if is_installing:
        yield "It cannot reach its package registry. Check network and proxy, or install the package."
    elif refused:
        where = f" at `{refused[1]}`" if refused[1] else ""
        yield f"A service that it needs refuses connections{where}. Start it, or correct its address."
        return
    else:
        host = HOST.search(facts.stderr)
        what = f"`{host[1]}`" if host else "a service that it needs"
        yield f"It runs, but cannot reach {what}. Check network, proxy and DNS."
    yield from _without_password(facts)


def _without_password(facts: Facts) -> Iterable[str]:
    """Suggest to pass on the password of a proxy: only package launchers get it by default."""
    transport = facts.spec.transport
    if not isinstance(transport, Stdio) or transport.inherit_env == "all" or facts.env is None:
        return
    given = {*transport.env, *(() if transport.inherit_env == "safe" else transport.inherit_env)}
    for name in PROXIES:
        value = facts.env.get(name, "")
        if without_password(value) != value and name not in given:
            if not is_launcher(transport.command, facts.env, transport.env):
                yield (
                    f"The password in `{name}` is not passed to the server. "
                    f"If it needs it: {_set_env(facts.spec, [name])}"
                )
            return


def _pass_on(spec: ServerSpec, names: Sequence[str]) -> str:
    are = "are" if len(names) > 1 else "is"
    return f"{_listed(names)} {are} set, but not passed to the server. Pass it on: {_set_env(spec, names)}"


def _set_env(spec: ServerSpec, names: Sequence[str]) -> str:
    return set_command(spec, **{f"env.{name}": f"${{{name}}}" for name in names})


def _listed(names: Sequence[str]) -> str:
    """Return variables as prose."""
    quoted = [f"`{name}`" for name in names]
    return " and ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))


def _variables(facts: Facts) -> Iterable[str]:
    transport = facts.spec.transport
    if not isinstance(transport, Stdio):
        return
    if wanted := wanted_variables(facts.stderr):
        here: Mapping[str, str] = facts.env or {}
        missing = [name for name in wanted if name not in transport.env]
        if not missing:
            yield f"`{wanted[0]}` is passed to it, but may be empty or wrong. Check its value."
        if unset := [name for name in missing if name not in here]:
            many = len(unset) > 1
            yield (
                f"It needs the variable{'s' * many} {_listed(unset)}. Enter {'them' if many else 'it'}: "
                f"{set_command(facts.spec, *(f'env.{name}' for name in unset))}"
            )
        if kept := [name for name in missing if name in here]:
            yield _pass_on(facts.spec, kept)
    elif not SIGN_IN.search(facts.stderr) and TOKEN.search(facts.stderr):
        yield "It needs a key or token. Add the variable that its documentation names to its `env`."
    if sign_in := SIGN_IN.search(facts.stderr):
        yield f"It requires login. Run it yourself once, with `{sign_in[2]}`."


def _ending(facts: Facts) -> Iterable[str]:
    transport = facts.spec.transport
    if not isinstance(transport, Stdio):
        return
    choices = CHOICES.search(facts.stderr) if "required" in facts.stderr else None
    if choices or NO_SUBCOMMAND.search(facts.stderr):
        names = choices[1].split(",") if choices else SUBCOMMAND.findall(facts.stderr)
        likely = [name for name in names if SERVING.fullmatch(name)]
        if likely:
            best = min(likely, key=_rank)
            command = set_command(facts.spec, args=json.dumps([*transport.args, best]))
            yield f"It needs a subcommand, probably `{best}`: {command}"
        else:
            yield "It needs a subcommand, such as `stdio`, `mcp`, `serve` or `start`. Add it to `args`."
    elif USAGE.search(facts.stderr):
        yield "It needs other arguments; its last stderr lines show which. Change `args`."
    if facts.junk and facts.exit_code is not None:
        yield "It printed plain text and exited. It may need other arguments, or a subcommand."
    elif facts.junk:
        yield "It logs to standard output, which is for MCP messages. Make it log to standard error."
    if facts.timed_out and facts.stage in ("start", "handshake"):
        longer = set_command(facts.spec, **{"timeouts.connect": "2m"})
        check = "It does not answer. Check that the command starts an MCP server over stdio."
        if package_of(transport) is not None:
            yield f"The first start downloads the package. Run it yourself once, or wait longer: {longer}"
            yield check
        else:
            yield f"{check} If it is only slow, wait longer: {longer}"
    elif facts.stage == "handshake" and facts.exit_code is not None and facts.exit_code < 0:
        yield f"It was killed by signal {-facts.exit_code}. Check whether memory ran out."
    elif facts.stage == "handshake" and facts.exit_code == 0 and not wrong_path(facts.stderr):
        yield "It exited without an error. It may not be a server, or need an argument such as `stdio`."


def _rank(name: str) -> tuple[int, int]:
    """Return a sort key: the likeliest subcommand to serve MCP comes first."""
    parts = name.split("-")
    signs = ("stdio", "mcp", "serve", "server", "start", "run")
    return next(index for index, sign in enumerate(signs) if sign in parts), len(name)


def _network(facts: Facts) -> Iterable[str]:
    host = "the proxy" if facts.proxy else "the server"
    match facts.network:
        case "dns":
            yield "Host not found. Check the address, and that you are online."
        case "refused":
            yield f"Nothing listens there. Start {host}, and check host and port."
        case "unreachable":
            yield f"{host.capitalize()} does not answer. Check host and port, the network, firewall and VPN."
        case "tls":
            yield "The certificate is not trusted. Set `tls.ca` to your CA certificate file."
        case "plain":
            yield f"The server does not speak TLS. Use http:// instead of https://{_without_tls(facts.spec)}."
        case "proxy":
            yield "The proxy variables of the environment are invalid. Write them as http://host:port."
        case _:
            pass
    if facts.proxy and facts.network:
        yield f"The environment sets the proxy {facts.proxy}. Add the host to NO_PROXY to bypass it."


def _without_tls(spec: ServerSpec) -> str:
    """Return the command that does without TLS; only for this machine, since others could read the rest."""
    url = "" if isinstance(spec.transport, Stdio) else spec.transport.url
    parts = split_url(url)
    if parts is None or not is_loopback(parts.host):
        return ""
    return f": {set_command(spec, url=re.sub('^https', 'http', url))}"


def _http(facts: Facts) -> Iterable[str]:
    spec, status = facts.spec, facts.http_status
    if isinstance(spec.transport, Stdio):
        return
    if facts.works is not None:
        yield _instead(spec, *facts.works)
    elif facts.content_type.endswith("/html"):
        yield "A web page answers, not an MCP server, and none at /mcp or /sse there. Check the address."
    elif status in TRIED:
        yield "No MCP server answers there, nor at /mcp or /sse. Check the address."
    match status:
        case 401:
            yield from _login(facts)
        case 403:
            yield "Access denied: the token lacks a permission, or the server checks `Origin`."
        case 407:
            yield "The proxy requires a password: set HTTPS_PROXY to http://user:password@host:port."
        case 429:
            yield "Too many requests. Wait, then try again."
        case 502 | 503 | 504:
            yield "A gateway answers, but cannot reach the server. Check that the server runs."
        case _ if status is not None and status >= 500:
            yield "The server failed. Check its own log."
        case _ if status is not None and 300 <= status < 400:
            yield "The server redirects. Use the address that it redirects to."
        case _:
            pass
    if facts.timed_out and not facts.network:
        yield "It accepts the connection, but does not answer. Check that it is an MCP server."


TRIED = frozenset({400, 404, 405, 406, 410, 415})
"""Statuses after which other paths and the other transport are worth a try."""


def _instead(spec: ServerSpec, url: str, kind: str) -> str:
    assert not isinstance(spec.transport, Stdio)  # noqa: S101 -- checked by the caller
    changed = {"url": url} if url != spec.transport.url else {}
    if kind != spec.kind and not spec.transport.alternate:
        changed["transport"] = kind
    where = f"at {url}" if "url" in changed else f"there over {'SSE' if kind == 'sse' else 'Streamable HTTP'}"
    return f"An MCP server answers {where}: {set_command(spec, **changed)}"


def _login(facts: Facts) -> Iterable[str]:
    spec = facts.spec
    assert not isinstance(spec.transport, Stdio)  # noqa: S101 -- checked by the caller
    login = f"dragoman login {shlex.quote(spec.name)}"
    header = next((name for name in spec.transport.headers if name.lower() == "authorization"), "")
    if header:
        asked = [one.body or "" for one in references(spec.transport.headers[header])]
        if any(body.startswith("input:") for body in asked):
            new = f"Enter a new one: `{login}`"
        elif asked:
            new = f"It stands in {_listed(asked)}: set a new one there."
        else:
            scheme = spec.transport.headers[header].lower().startswith("bearer ")
            form = "" if scheme else ", as `Bearer TOKEN`"
            new = f"Enter a new one{form}: {set_command(spec, f'headers.{header}')}"
        yield f"The server rejects the `{header}` header: the token is wrong or has expired. {new}"
    elif facts.reason == "saved_token":
        yield f"The saved token is wrong or has expired. Enter a new one: `{login} --with-token`"
    elif facts.reason == "no_oauth":
        yield f"It offers no login by OAuth. Enter a token: `{login} --with-token`"
    else:
        yield f"Log in: `{login}`"
        yield f"Or enter a token: `{login} --with-token`"


def _other(facts: Facts) -> Iterable[str]:
    if facts.stage == "listing":
        yield "It is connected, but cannot list its tools. Check its own log."


_RULES: tuple[Callable[[Facts], Iterable[str]], ...] = (
    _command,
    _stderr,
    _variables,
    _ending,
    _network,
    _http,
    _other,
)
