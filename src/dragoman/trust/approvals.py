"""Approvals: whether a project's file may start a server.

A file that came with a project was written by someone else: none of its servers is started or contacted
before a person has seen what it would do and approved it. An approval covers the content, not the name, and
only that project; after any change of the content the person is asked again.
"""

from __future__ import annotations

import json
import re
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from dragoman.errors import ConnectError
from dragoman.model import Stdio
from dragoman.model.keys import keys
from dragoman.struct import Struct, asdict, defaults, field, field_names
from dragoman.trust.masking import mask_args, mask_command, mask_text, mask_url, mask_value, mask_values
from dragoman.trust.sanitizing import for_log, odd_letters, unfolded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dragoman.model import Input, ServerSpec

# Matches all dollar signs: `$${command:…}` is literal text and must not turn into a reference unnoticed.
_REFERENCE = re.compile(r"(?<!\$)\$++\{[^}]*+(?:\}|\Z)")
_SOURCE = re.compile(r"(?<!\$)(?:\$\$)*+\$\{(keyring|command):(?!-)([^}]++)(?:\}|\Z)")
"""Sources of fetched values, as in `config/templates.py`."""
_INPUT = re.compile(r"\$\{input:(?!-)([^}]++)(?:\}|\Z)")
_LOADER = re.compile(
    r"(?:LD|DYLD|_RLD|LIBPATH|SHLIB)(?:_\w*)?|\w*PATH|PATHEXT|COMSPEC|HOME|USERPROFILE|XDG_CONFIG_\w+|SHELL|ENV|BASH_ENV|ZDOTDIR|PROMPT_COMMAND|IFS|"
    r"PYTHON\w*|NODE_\w+|NPM_\w+|YARN_\w+|PNPM_\w+|BUN_\w+|DENO_\w+|UV_\w+|PIP_\w+|PIPX_\w+|RUBY\w*|GEM_\w+|"
    r"BUNDLE_\w+|PERL\w*|JAVA_\w+|_?JAVA_OPTIONS|JDK_\w+|MAVEN_\w+|GRADLE_\w+|CLASSPATH|DOTNET_\w+|CORECLR_\w+|"
    r"GO[A-Z0-9]+|CARGO_\w+|RUST\w+|PHP\w*|LUA_\w+|GIT_\w+|SSH_\w+|DOCKER_\w+|KUBECONFIG|EDITOR|VISUAL|PAGER|BROWSER|"
    r"LESSOPEN|LESSCLOSE|GCONV_PATH|OPENSSL_\w+|SSL_\w+|CURL_\w+|REQUESTS_CA_BUNDLE|WGETRC|VIRTUAL_ENV",
    re.IGNORECASE,
)
"""Variables that make a program load or run something else."""
_CREDENTIAL = re.compile(
    r"(?:\w*_)?(?:TOKEN|KEY|APIKEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|PAT|ACCESS_KEY_ID)",
    re.IGNORECASE,
)
"""Variables that hold credentials: their values may rotate, unless they are paths or URLs."""
_CREDENTIAL_HEADER = re.compile(
    r"authorization|(?:[\w-]*-)?(?:api-?key|token|secret|password|access-key|subscription-key)", re.IGNORECASE
)
_REDIRECTS = re.compile(
    r"\s|[./~\\@|!<>(&;`-]|\$(?!\{)|[A-Za-z]:[\\/]|[\w+.-]{1,20}:/|[^\x00-\x1f\x7f]*+[\x00-\x1f\x7f]"
)
"""Matches a path, URL, option, command or a value of several lines: not a plain credential."""
_IN_PARTS = frozenset({"transport", "auth", "env", "headers", "tls"})
"""Fields that are hashed part by part."""


class Covered(Struct, kw_only=True):
    """One file, or the files of one folder, whose content the approval covers."""

    path: str
    """Relative to the project if it is inside it."""
    digest: str
    """The hash of its content; a word if there is none."""
    size: int = 0
    target: str = ""
    """The target, if it is a symbolic link."""


class Evidence(Struct, kw_only=True):
    """The files and programs on disk that an entry refers to, and its inputs."""

    programs: Mapping[str, str] = field(default_factory=dict[str, str])
    """The path of each program that is started, by the word in the entry; the command comes first."""
    files: Sequence[Covered] = ()
    gaps: Sequence[str] = ()
    """What the approval cannot cover, as text for people."""
    inputs: Sequence[Input] = ()


NO_EVIDENCE = Evidence()


def parts(spec: ServerSpec, evidence: Evidence = NO_EVIDENCE) -> dict[str, str]:
    """Return a hash of each part that an approval covers, by the part's name.

    Fields with default values are left out, so that a new field in dragoman does not invalidate approvals.
    """
    found: dict[str, object] = {"kind": spec.kind, **counted_fields(spec)}
    found |= counted_fields(spec.transport)
    env: Mapping[str, str | None] = getattr(spec.transport, "env", {})
    headers: Mapping[str, str] = getattr(spec.transport, "headers", {})
    for name, value in env.items():
        found[f"env.{name}"] = value if value is None or not may_rotate(name, value) else references(value)
    for name, value in headers.items():
        counted = references(value) if _CREDENTIAL_HEADER.fullmatch(name) else value
        same = cast("list[object]", found.setdefault(f"headers.{name.lower()}", []))
        same.append(counted)
    tls = getattr(spec.transport, "tls", None)
    for of, prefix in ((tls, "tls"), (spec.auth, "auth")):
        if of is not None:
            found |= {prefix: True, **{f"{prefix}.{key}": value for key, value in counted_fields(of).items()}}
    for one in evidence.inputs:
        found[f"input {one.id}"] = _unusual(one, (name for name in field_names(one) if name != "scope"))
    found |= {f"program {word}": path for word, path in evidence.programs.items()}
    found |= {f"file {one.path}": (one.digest, one.size, one.target) for one in evidence.files}
    return {name: _hash(value) for name, value in found.items()}


def counted_fields(of: Struct, leave: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields that an approval covers as a whole and that differ from their defaults."""
    counted = (name for name, key in keys(type(of)).items() if key.is_approved)
    return _unusual(of, (name for name in counted if name not in _IN_PARTS and name not in leave))


def _unusual(of: Struct, names: Iterable[str]) -> dict[str, Any]:
    usual = defaults(of)
    values = {name: getattr(of, name) for name in names}
    return {name: value for name, value in values.items() if name not in usual or value != usual[name]}


def _hash(value: object) -> str:
    import hashlib  # late: only needed if there is an approval to compare with

    text = json.dumps(value, sort_keys=True, default=plain)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def may_rotate(name: str, value: str) -> bool:
    """Return whether the value of a variable may change without asking again: that of a credential."""
    is_credential = _CREDENTIAL.fullmatch(name) and not loads(name)
    return bool(is_credential) and not _REDIRECTS.match(value)


def loads(name: str) -> bool:
    """Return whether a variable decides which code a program loads or runs."""
    return bool(_LOADER.fullmatch(name))


def references(text: str) -> list[str]:
    """Return the references in a template, as written."""
    return _REFERENCE.findall(text)


def input_ids(spec: ServerSpec) -> set[str]:
    """Return the ids of the inputs that an entry refers to."""
    return {match for text in _all_texts(spec) for match in _INPUT.findall(text)}


def fingerprint(spec: ServerSpec, evidence: Evidence = NO_EVIDENCE) -> str:
    """Return a hash of the content; the order of keys does not matter."""
    return f"sha256:{_hash(parts(spec, evidence))}"


def entry_parts(found: Mapping[str, str]) -> dict[str, str]:
    """Return the parts that are known without looking at the disk."""
    return {name: value for name, value in found.items() if not name.startswith(("file ", "program "))}


def sources(spec: ServerSpec) -> list[tuple[str, str]]:
    """Return the secrets to fetch before connecting: `keyring` or `command`, and the reference's text."""
    texts = _all_texts(spec)
    found = [match for text in texts for match in _SOURCE.finditer(text) if match[0].endswith("}")]
    return list(dict.fromkeys((match[1], match[2]) for match in found))


def _all_texts(spec: ServerSpec) -> Iterable[str]:
    yield from _texts([getattr(spec.transport, name) for name in field_names(spec.transport)])
    if spec.auth is not None:
        yield from _texts(asdict(spec.auth))


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Struct):
        yield from _texts(asdict(value))
    elif isinstance(value, list | tuple):
        for item in cast("Iterable[object]", value):
            yield from _texts(item)
    elif _is_table(value):
        yield from _texts(list(value.values()))


def plain(value: object) -> object:
    """Convert values that JSON does not know, such as other kinds of mappings."""
    if isinstance(value, set | frozenset):
        return sorted(map(str, cast("Iterable[object]", value)))
    if isinstance(value, Struct):
        # As above, so that a new field does not invalidate approvals.
        return _unusual(value, field_names(value))
    return list(cast("Iterable[object]", value))


def _is_table(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, dict)


VERSION = 2
OLDER = 1
"""The format of dragoman 0.1: its approvals cover less, so each server is asked about once more."""
MAX_APPROVALS = 10_000
_SHORT = 16
"""Stored characters of a part's hash: they only show what changed; the fingerprint decides."""
_OLD = "it was approved with dragoman 0.1, which did not cover its files and its program"
COVERAGE = 3
"""Raised whenever an approval covers more files than before."""
_NARROWER = "it was approved with an earlier dragoman, which covered fewer of the files that it runs"
_SHOWN = 5
"""Changes listed in an error."""
_MAX_ROWS = 40
"""Files listed in a question, so that the command stays in sight."""


class Approval(Struct, kw_only=True):
    """One approval: this content may be used under that name in that project."""

    root: str
    server: str
    fingerprint: str
    summary: str = ""
    """What was approved, for people, without secrets."""
    at: float = 0.0
    """Seconds since the epoch."""
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    """A short hash of each part, to show later which of them changed; empty for an approval of 0.1."""
    coverage: int = 1
    """Which files it covers, as `COVERAGE` at its time."""


def changes_of(approval: Approval, now: Mapping[str, str], evidence: Evidence = NO_EVIDENCE) -> list[str]:
    """Return what changed since an approval, without secrets.

    Args:
        approval: The approval.
        now: The current parts.
        evidence: The files and programs behind the parts.
    """
    if not approval.parts:
        return [_OLD]
    before = approval.parts
    short = {name: value[:_SHORT] for name, value in now.items()}
    names = sorted(name for name in before.keys() | short.keys() if before.get(name) != short.get(name))
    if not names or approval.coverage >= COVERAGE:
        return [_change(name, before, short, evidence) for name in names]
    old = [name for name in names if name in before or not name.startswith(("file ", "program "))]
    return [_NARROWER, *(_change(name, before, short, evidence) for name in old)]


def _change(name: str, before: Mapping[str, str], now: Mapping[str, str], evidence: Evidence) -> str:
    kind, _, rest = name.partition(" ")
    shown = f"`{for_log(unfolded(rest or name), 200)}`"
    what = "is new" if name not in before else "is gone" if name not in now else "changed"
    if kind == "file":
        return f"the file {shown} {what}"
    if kind == "input":
        return f"the input {shown} {what}"
    if kind == "program":
        path = evidence.programs.get(rest, "")
        where = f"is now another program: {for_log(unfolded(path), 200)}" if path else "is not found"
        return f"{shown} {where}"
    return f"{shown} {what}"


def question(
    spec: ServerSpec, root: str, evidence: Evidence = NO_EVIDENCE, changes: Sequence[str] = ()
) -> str:
    """Return the text that a person reviews before approving a server, on many lines; only for a terminal.

    Arguments and URLs are shown in full, even if they look like secrets: a hidden part could be the one that
    matters. Nothing in the text can hide another part of it.

    Args:
        spec: The server.
        root: The project's directory.
        evidence: The files and programs on disk.
        changes: What changed since an earlier approval.
    """
    verb = "start the server" if isinstance(spec.transport, Stdio) else "connect to the server"
    lines = [
        f"{unfolded(str(spec.origin))} wants to {verb} `{unfolded(spec.name)}`",
        f"in the project {unfolded(root)}:",
        "",
    ]
    rows = [*_rows(spec), *_evidence_rows(evidence)]
    width = max(len(label) for label, _ in rows)
    lines += [f"  {label:<{width}}  {text}" for label, text in rows]
    warnings = list(_warnings(spec, evidence))
    lines += ["", *(f"  ! {warning}" for warning in warnings)] if warnings else []
    if changes:
        lines += ["", "It was approved before, but:", *(f"  - {change}" for change in changes)]
    return "\n".join(lines)


def _evidence_rows(evidence: Evidence) -> Iterable[tuple[str, str]]:
    for word, path in evidence.programs.items():
        yield "program", (path and _quoted(path)) or f"{_quoted(word)} is not found"
    for one in evidence.files[:_MAX_ROWS]:
        yield "covers", covered_text(one)
    if (more := len(evidence.files) - _MAX_ROWS) > 0:
        yield "covers", f"{more:,} more files"
    if evidence.files:
        yield "", "not covered: other files that these files load"
    elif evidence.programs:
        yield "covers", "no file now: what the program installs or downloads is not watched"
    for one in evidence.inputs:
        if one.default is not None:
            yield "input", unfolded(f"{one.id}: {mask_value(one.default) if one.secret else one.default}")


def covered_text(one: Covered) -> str:
    """Return a covered file with its size and hash, for people."""
    link = f" -> {_quoted(one.target)}" if one.target else ""
    return f"{_quoted(one.path)}{link}  {one.digest[:12]}, {one.size:,} bytes"


def _rows(spec: ServerSpec) -> Iterable[tuple[str, str]]:
    transport = spec.transport
    if isinstance(transport, Stdio):
        words = [transport.command, *transport.args]
        yield "command", " ".join(_quoted(word) for word in words)
        # A long line wraps; with one argument per line none is overlooked.
        for index, arg in enumerate(transport.args):
            yield f"  argument {index + 1}", _quoted(arg)
        yield "directory", _quoted(transport.cwd) if transport.cwd else "the project"
        for name, value in sorted(transport.env.items()):
            yield "variable", _variable(name, value)
        if transport.inherit_env != "safe":
            names = transport.inherit_env
            yield (
                "inherits",
                "all your environment variables" if names == "all" else unfolded(", ".join(names)),
            )
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
    if spec.trust is not None:
        yield "trust", spec.trust
    if spec.trust_annotations:
        yield "trusts its own hints", "yes"
    for tool, rules in sorted(spec.tools.items()):
        yield "changes tool", unfolded(f"{tool}: {json.dumps(_masked(plain(rules)), ensure_ascii=False)}")
    for name, value in counted_fields(spec, ("trust", "trust_annotations", "tools")).items():
        yield (
            name.replace("_", " "),
            unfolded(value if isinstance(value, str) else json.dumps(value, default=plain)),
        )


def _masked(value: object) -> object:
    """Return a value whose texts are masked where they look like secrets; references stay readable."""
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, list):
        return [_masked(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {name: _masked(item) for name, item in cast("dict[str, object]", value).items()}
    return _masked(plain(value)) if isinstance(value, Struct) else value


def _other_rows(of: Struct, shown: Collection[str]) -> Iterable[tuple[str, str]]:
    for name, key in keys(type(of)).items():
        value = getattr(of, name)
        if name in shown or value in (key.default, None, (), []):
            continue
        text = value if isinstance(value, str) else json.dumps(value, default=plain)
        yield name.replace("_", " "), unfolded(mask_value(text) if key.mask == "value" else text)


def _quoted(word: str) -> str:
    return unfolded(shlex.quote(word))


def _variable(name: str, value: str | None) -> str:
    if value is None:
        return unfolded(f"{name} is removed")
    # Only credentials are hidden; any other value may matter: a command, a URL, a file name.
    shown = mask_value(value) if may_rotate(name, value) else value
    return unfolded(f"{name}={shown}")


def _warnings(spec: ServerSpec, evidence: Evidence) -> Iterable[str]:
    transport = spec.transport
    words = [transport.command, *transport.args] if isinstance(transport, Stdio) else [transport.url]
    for word in (spec.name, *words):
        if odd := odd_letters(word):
            yield f"look closely at {_quoted(word)}: {odd}"
    if isinstance(transport, Stdio):
        for name in sorted(transport.env):
            if loads(name) and transport.env[name] is not None:
                yield f"the variable {unfolded(name)} can make the command run something else"
    if any(kind == "command" for kind, _ in sources(spec)):
        yield "a command runs with your account and all your variables each time it connects"
    if spec.trust == "off":
        yield "later changes of its tools are not reported (`trust` is off)"
    yield from (unfolded(gap) for gap in evidence.gaps)


def summary(spec: ServerSpec) -> str:
    """Return the command or URL of a server on one line without secrets, for errors, logs and the store."""
    if isinstance(spec.transport, Stdio):
        command = mask_command(spec.transport.command)
        text = " ".join([command, *map(shlex.quote, mask_args(spec.transport.args))])
    else:
        text = mask_url(spec.transport.url)
    return for_log(unfolded(text), 500)


def refusal(spec: ServerSpec, root: str, *, changes: Sequence[str] | None = None) -> ConnectError:
    """Return the error for a server that is not approved; it says how to approve it.

    Args:
        spec: The server.
        root: The project's directory.
        changes: What changed since it was approved; `None` if it never was.
    """
    name = for_log(spec.name, 100)
    where = for_log(str(spec.origin), 300)
    msg = f"server `{name}` comes from the project's file {where} and "
    if changes is None:
        msg += f"is not approved: `{summary(spec)}`"
    else:
        more = f"; and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        why = f" ({'; '.join(changes[:_SHOWN])}{more})" if changes else ""
        msg += f"has changed since it was approved{why}: `{summary(spec)}`"
    place = "" if not root else f" in {for_log(root, 300)}"
    hint = (
        f"review it and run `dragoman trust approve {shlex.quote(name)}`{place}; a program that trusts the "
        "project's files passes `trust_project=True`"
    )
    return ConnectError(msg, server=spec.name, stage="approval", hint=hint)


def new_approval(spec: ServerSpec, root: str, evidence: Evidence, at: float) -> Approval:
    """Return the approval of the content that was shown."""
    found = parts(spec, evidence)
    return Approval(
        root=root,
        server=spec.name,
        fingerprint=fingerprint(spec, evidence),
        summary=summary(spec),
        at=at,
        parts={name: value[:_SHORT] for name, value in found.items()},
        coverage=COVERAGE,
    )


def dump_approvals(approvals: Iterable[Approval]) -> str:
    """Return the text of the approvals file."""
    rows = sorted((asdict(one) for one in approvals), key=lambda row: (row["root"], row["server"]))
    return json.dumps({"version": VERSION, "approvals": rows}, indent=2, sort_keys=True) + "\n"


def load_approvals(text: str) -> list[Approval]:
    """Read the text of the approvals file.

    Raises:
        ValueError: The text is invalid; ignore all of it.
    """
    return list(_read_approvals(text))


@lru_cache(maxsize=1)  # it is read before each start of a server
def _read_approvals(text: str) -> tuple[Approval, ...]:
    try:
        data: object = json.loads(text)
    except RecursionError:
        data = None
    if not _is_table(data) or data.get("version") not in (OLDER, VERSION):
        msg = "it is not an approvals file of this version"
        raise ValueError(msg)
    rows: object = data.get("approvals")
    if not isinstance(rows, list) or len(cast("list[object]", rows)) > MAX_APPROVALS:
        msg = "its list of approvals is missing or too long"
        raise ValueError(msg)
    return tuple(_approval(row) for row in cast("list[object]", rows))


def _approval(row: object) -> Approval:
    texts = ("root", "server", "fingerprint", "summary")
    if not _is_table(row) or not all(isinstance(row.get(name), str) for name in texts):
        msg = "one of its approvals is damaged"
        raise ValueError(msg)
    at, kept, coverage = row.get("at"), row.get("parts", {}), row.get("coverage", 1)
    when = float(at) if isinstance(at, int | float) else 0.0
    is_table = _is_table(kept) and all(isinstance(part, str) for part in kept.values())
    if not is_table or not isinstance(coverage, int):
        msg = "one of its approvals is damaged"
        raise ValueError(msg)
    return Approval(**{name: row[name] for name in texts}, at=when, parts=dict(kept), coverage=coverage)
