"""Whether a project's file may start a server: what counts, what a person is asked, what is remembered.

The policy. A file that came with a project is somebody else's: nothing it names is started, asked or sent
anything before a person has seen what it would do and said yes. The yes holds for the content, not for the
name, and for that project only; any change of the content asks again.

The content is everything that decides what runs and what gets out:

- the whole transport (command, arguments, working directory, address, files, inheritance, TLS) and the login;
  only its hash is kept;
- of variables and headers the names, and the references in their values: `${AWS_SECRET_KEY}` in the place of
  a literal sends out another secret, and `${command:…}` runs something;
- the values of variables that decide which code is loaded (`LD_PRELOAD`, `NODE_OPTIONS`, `PATH`), or where
  programs connect to (`*_URL`, `*_PROXY`); other literals may be rotated without a question;
- `trust` and `trust_annotations`, since a file must not loosen the rules for itself unseen.

A new field of a transport counts until somebody decides that it need not. Not covered is what the command
itself loads: a script in the project, or the newest release of a package, can change under an approval.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from dragoman.errors import ConnectError
from dragoman.model import Stdio
from dragoman.trust.redact import is_telling, mask_args, mask_url, mask_value, mask_values
from dragoman.trust.sanitize import for_log, odd_letters, unfolded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.model import ServerSpec

VERSION = 1
MAX_APPROVALS = 10_000

# With all its dollars: `$${command:…}` is a text, and must not become a reference unseen.
_REFERENCE = re.compile(r"(?<!\$)\$++\{[^}]*+(?:\}|\Z)")
_SOURCE = re.compile(r"(?<!\$)(?:\$\$)*+\$\{(keyring|command):(?!-)([^}]++)(?:\}|\Z)")
"""Where a value is fetched from, as `config/expand.py` has it."""
_LOADER = re.compile(
    r"(?:LD|DYLD|_RLD|LIBPATH|SHLIB)_?\w*|\w*PATH|PATHEXT|COMSPEC|SHELL|ENV|BASH_ENV|ZDOTDIR|PROMPT_COMMAND|IFS|"
    r"PYTHON\w*|NODE_\w+|NPM_\w+|YARN_\w+|BUN_\w+|DENO_\w+|UV_\w+|PIP_\w+|PIPX_\w+|RUBY\w*|GEM_\w+|BUNDLE_\w+|PERL\w*|"
    r"JAVA_TOOL_OPTIONS|_?JAVA_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|DOTNET_\w+|CORECLR_\w+|GO\w+|CARGO_\w+|RUST\w+|"
    r"PHP\w*|LUA_\w+|GIT_\w+|SSH_\w+|DOCKER_\w+|KUBECONFIG|EDITOR|VISUAL|PAGER|BROWSER|HOME|USERPROFILE|APPDATA|"
    r"XDG_\w+|TMPDIR|GCONV_PATH|OPENSSL_CONF|SSL_\w+|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE|WGETRC|CURL_HOME",
    re.IGNORECASE,
)
"""Variables that make a program load or run something else."""
_DIRECTION = re.compile(
    r"\w*(?:URL|URI|PROXY|HOST|HOSTNAME|ENDPOINT|ADDRESS|ADDR|SERVER|REGISTRY|DOMAIN|COMMAND|CMD|OPTIONS|OPTS|ARGS)",
    re.IGNORECASE,
)
"""Variables that say where a program connects to, or what it runs in turn."""
_SECRET_FIELDS = frozenset({"client_secret", "private_key"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One yes: this content may be used under that name in that project."""

    root: str
    server: str
    fingerprint: str
    summary: str = ""
    """What was approved, for people, without secrets."""
    at: float = 0.0
    """Seconds since the epoch."""


def comes_from_project(spec: ServerSpec, *, by_field: bool = False) -> bool:
    """Tell whether a project's file has a say in a server.

    Args:
        spec: The server.
        by_field: Whether weaker definitions fill in what the winning one leaves out, as some hosts do.
    """
    origins = (spec.origin, *spec.shadowed) if by_field else (spec.origin,)
    return any(origin.scope == "project" for origin in origins)


def content(spec: ServerSpec) -> dict[str, Any]:
    """Return what an approval is about, as plain data."""
    found: dict[str, Any] = {
        "kind": spec.kind,
        "trust": spec.trust,
        "trust_annotations": spec.trust_annotations,
    }
    for field in fields(spec.transport):
        value = getattr(spec.transport, field.name)
        if field.name == "env":
            value = {name: _counted(name, text) for name, text in value.items()}
        elif field.name == "headers":
            value = {name.lower(): _REFERENCE.findall(text) for name, text in value.items()}
        elif hasattr(value, "__dataclass_fields__"):
            value = asdict(value)
        found[field.name] = value
    if spec.auth is not None:
        found["auth"] = asdict(spec.auth)
    return found


def _counted(name: str, value: str | None) -> object:
    if value is None or decides(name):
        return {"value": value}
    return _REFERENCE.findall(value)


def decides(name: str) -> bool:
    """Tell whether the value of a variable decides what runs or where it connects to."""
    return bool(_LOADER.fullmatch(name) or _DIRECTION.fullmatch(name))


def fingerprint(spec: ServerSpec) -> str:
    """Return a hash of the content; the order of keys does not matter."""
    text = json.dumps(content(spec), sort_keys=True, default=_plain)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _plain(value: object) -> object:
    """Give JSON what it does not know: tuples and mappings of other kinds arrive as they are."""
    if isinstance(value, set | frozenset):
        return sorted(map(str, cast("Iterable[object]", value)))
    return list(cast("Iterable[object]", value))


def question(spec: ServerSpec, root: str) -> str:
    """Return everything that a person has to see before saying yes, on many lines; only for a terminal.

    Arguments and addresses are shown whole, even where they look like a secret: what is hidden could be
    the very thing that matters. Nothing in the text can hide another part of it.
    """
    verb = "start the server" if isinstance(spec.transport, Stdio) else "connect to the server"
    lines = [
        f"{unfolded(str(spec.origin))} wants to {verb} `{unfolded(spec.name)}`",
        f"in the project {unfolded(root)}:",
        "",
    ]
    rows = list(_rows(spec))
    width = max(len(label) for label, _ in rows)
    lines += [f"  {label:<{width}}  {text}" for label, text in rows]
    warnings = list(_warnings(spec))
    return "\n".join([*lines, *([""] if warnings else []), *(f"  ! {warning}" for warning in warnings)])


def _rows(spec: ServerSpec) -> Iterable[tuple[str, str]]:
    transport = spec.transport
    if isinstance(transport, Stdio):
        words = [transport.command, *transport.args]
        yield "command", " ".join(_quoted(word) for word in words)
        # A long line wraps; one argument on a line cannot be overlooked.
        for index, arg in enumerate(transport.args):
            yield f"  argument {index + 1}", _quoted(arg)
        yield "directory", _quoted(transport.cwd) if transport.cwd else "the project"
        for name, value in sorted(transport.env.items()):
            yield "variable", _variable(name, value)
        if transport.inherit_env != "safe":
            names = transport.inherit_env
            yield "inherits", "every variable of yours" if names == "all" else unfolded(", ".join(names))
        shown = {"command", "args", "cwd", "env", "inherit_env"}
    else:
        yield "address", unfolded(transport.url)
        for name, value in sorted(mask_values(transport.headers).items()):
            yield "header", unfolded(f"{name}: {value}")
        shown = {"url", "headers"}
    yield from _other_rows(transport, shown)
    if spec.auth is not None:
        yield from _other_rows(spec.auth, ())
    for kind, what in sources(spec):
        yield ("runs first" if kind == "command" else "reads keyring"), unfolded(what)
    if spec.trust != "warn":
        yield "trust", spec.trust
    if spec.trust_annotations:
        yield "trusts its own hints", "yes"


def _other_rows(of: Any, shown: Iterable[str]) -> Iterable[tuple[str, str]]:
    for field in fields(of):
        value = getattr(of, field.name)
        if field.name in shown or value in (field.default, None, (), []):
            continue
        text = value if isinstance(value, str) else json.dumps(value, default=_shown)
        yield (
            field.name.replace("_", " "),
            unfolded(mask_value(text) if field.name in _SECRET_FIELDS else text),
        )


def _shown(value: object) -> object:
    return asdict(cast("Any", value)) if hasattr(value, "__dataclass_fields__") else _plain(value)


def _quoted(word: str) -> str:
    return unfolded(shlex.quote(word))


def _variable(name: str, value: str | None) -> str:
    if value is None:
        return unfolded(f"{name} is taken away")
    shown = value if decides(name) and not is_telling(name) else mask_value(value)
    return unfolded(f"{name}={shown}")


def sources(spec: ServerSpec) -> list[tuple[str, str]]:
    """Return what is asked for secrets before a server is reached: `keyring` or `command`, and its words."""
    texts = list(_texts([getattr(spec.transport, field.name) for field in fields(spec.transport)]))
    texts += _texts(asdict(spec.auth)) if spec.auth is not None else ()
    found = [match for text in texts for match in _SOURCE.finditer(text) if match[0].endswith("}")]
    return list(dict.fromkeys((match[1], match[2]) for match in found))


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif hasattr(value, "__dataclass_fields__"):
        yield from _texts(asdict(cast("Any", value)))
    elif isinstance(value, list | tuple):
        for item in cast("Iterable[object]", value):
            yield from _texts(item)
    elif _is_table(value):
        yield from _texts(list(value.values()))


def _warnings(spec: ServerSpec) -> Iterable[str]:
    transport = spec.transport
    words = [transport.command, *transport.args] if isinstance(transport, Stdio) else [transport.url]
    for word in (spec.name, *words):
        if odd := odd_letters(word):
            yield f"look closely at {_quoted(word)}: {odd}"
    if isinstance(transport, Stdio):
        for name in sorted(transport.env):
            if _LOADER.fullmatch(name) and transport.env[name] is not None:
                yield f"the variable {unfolded(name)} can make the command run something else"
    if any(kind == "command" for kind, _ in sources(spec)):
        yield "a command runs on your account, with all your variables, each time it connects"
    if spec.trust == "off":
        yield "it asks that later changes of its tools are not reported"


def summary(spec: ServerSpec) -> str:
    """Return what a server would do on one line without secrets: for errors, logs and the store."""
    if isinstance(spec.transport, Stdio):
        command = mask_args(spec.transport.command.split(" "))
        text = " ".join([*command, *map(shlex.quote, mask_args(spec.transport.args))])
    else:
        text = mask_url(spec.transport.url)
    return for_log(unfolded(text), 500)


def refusal(spec: ServerSpec, root: str, *, changed: bool = False) -> ConnectError:
    """Return the error for a server that nobody has approved; it says how to.

    Args:
        spec: The server.
        root: The project's directory.
        changed: Whether it was approved with another content.
    """
    why = "was changed since it was approved" if changed else "is not approved"
    name = for_log(spec.name, 100)
    where = for_log(str(spec.origin), 300)
    msg = f"server `{name}` comes from the project's file {where} and {why}: `{summary(spec)}`"
    place = "" if not root else f" in {for_log(root, 300)}"
    hint = f"look at it and run `dragoman trust approve {shlex.quote(name)}`{place}"
    return ConnectError(msg, server=spec.name, stage="approval", hint=hint)


def is_approved(spec: ServerSpec, root: str, approvals: Iterable[Approval]) -> bool:
    """Tell whether this very content was approved for this project."""
    wanted = (root, spec.name, fingerprint(spec))
    return any((one.root, one.server, one.fingerprint) == wanted for one in approvals)


def dump_approvals(approvals: Iterable[Approval]) -> str:
    """Return the text of the file that approvals are kept in."""
    rows = sorted((asdict(one) for one in approvals), key=lambda row: (row["root"], row["server"]))
    return json.dumps({"version": VERSION, "approvals": rows}, indent=2, sort_keys=True) + "\n"


def load_approvals(text: str) -> list[Approval]:
    """Read the text of the file that approvals are kept in.

    Raises:
        ValueError: It is not such a text; nothing in it counts.
    """
    try:
        data: object = json.loads(text)
    except RecursionError:
        data = None
    if not _is_table(data) or data.get("version") != VERSION:
        msg = "it is no list of approvals of this version"
        raise ValueError(msg)
    rows: object = data.get("approvals")
    if not isinstance(rows, list) or len(cast("list[object]", rows)) > MAX_APPROVALS:
        msg = "it has no list of approvals, or too long a one"
        raise ValueError(msg)
    return [_approval(row) for row in cast("list[object]", rows)]


def _approval(row: object) -> Approval:
    texts = ("root", "server", "fingerprint", "summary")
    if not _is_table(row) or not all(isinstance(row.get(name), str) for name in texts):
        msg = "one of its approvals is damaged"
        raise ValueError(msg)
    at = row.get("at")
    when = float(at) if isinstance(at, int | float) else 0.0
    return Approval(**{name: row[name] for name in texts}, at=when)


def _is_table(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, dict)
