"""Whether a project's file may start a server: what counts, what a person is asked, what is remembered.

The policy. A file that came with a project was written by someone else: nothing it names is started, asked or
sent anything before a person has seen what it would do and said yes. The yes holds for the content, not for
the name, and for that project only; any change of the content asks again. `content.py` says what counts.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from dragoman.errors import ConnectError
from dragoman.model import Stdio
from dragoman.trust.content import (
    NO_EVIDENCE,
    counted_fields,
    fingerprint,
    loads,
    may_rotate,
    parts,
    plain,
    sources,
)
from dragoman.trust.redact import mask_args, mask_url, mask_value, mask_values
from dragoman.trust.sanitize import for_log, odd_letters, unfolded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.model import ServerSpec
    from dragoman.trust.content import Covered, Evidence

VERSION = 2
OLDER = 1
"""What dragoman 0.1 wrote: its approvals cover less, so that each of them is asked for once more."""
MAX_APPROVALS = 10_000
_SHORT = 16
"""Characters of a part's hash that are kept: they tell what changed, and the fingerprint decides."""
_OLD = "it was approved with dragoman 0.1, which did not cover what its files and its program are"
_SHOWN = 5
"""Changes that an error names."""

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
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    """A short hash of each part, to say later which of them changed; empty for an approval of 0.1."""


def changes_of(approval: Approval, now: Mapping[str, str], evidence: Evidence = NO_EVIDENCE) -> list[str]:
    """Say what is not as it was approved, without secrets.

    Args:
        approval: What was approved.
        now: The parts as they are.
        evidence: What the parts were made of.
    """
    if not approval.parts:
        return [_OLD]
    before = approval.parts
    short = {name: value[:_SHORT] for name, value in now.items()}
    names = sorted(name for name in before.keys() | short.keys() if before.get(name) != short.get(name))
    return [_change(name, before, short, evidence) for name in names]


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
        where = f"is {for_log(unfolded(path), 200)} now, which is another program" if path else "is not found"
        return f"{shown} {where}"
    return f"{shown} {what}"


def question(
    spec: ServerSpec, root: str, evidence: Evidence = NO_EVIDENCE, changes: Sequence[str] = ()
) -> str:
    """Return everything that a person has to see before saying yes, on many lines; only for a terminal.

    Arguments and addresses are shown whole, even where they look like a secret: what is hidden could be
    the very thing that matters. Nothing in the text can hide another part of it.

    Args:
        spec: The server.
        root: The project's directory.
        evidence: What was found on disk.
        changes: What is not as it was approved before.
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
    for one in evidence.files:
        yield "covers", covered_text(one)
    if evidence.files:
        yield "", "not covered: what these files load in turn"
    for one in evidence.inputs:
        if one.default is not None:
            yield "input", unfolded(f"{one.id}: {mask_value(one.default) if one.secret else one.default}")


def covered_text(one: Covered) -> str:
    """Say which file is covered, how large it is and what its content hashes to."""
    link = f" -> {_quoted(one.target)}" if one.target else ""
    return f"{_quoted(one.path)}{link}  {one.digest[:12]}, {one.size:,} bytes"


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
    if spec.trust is not None:
        yield "trust", spec.trust
    if spec.trust_annotations:
        yield "trusts its own hints", "yes"
    for name, value in counted_fields(spec, frozenset({"trust", "trust_annotations"})).items():
        yield (
            name.replace("_", " "),
            unfolded(value if isinstance(value, str) else json.dumps(value, default=plain)),
        )


def _other_rows(of: Any, shown: Iterable[str]) -> Iterable[tuple[str, str]]:
    for one in fields(of):
        value = getattr(of, one.name)
        if one.name in shown or value in (one.default, None, (), []):
            continue
        text = value if isinstance(value, str) else json.dumps(value, default=plain)
        yield (
            one.name.replace("_", " "),
            unfolded(mask_value(text) if one.name in _SECRET_FIELDS else text),
        )


def _quoted(word: str) -> str:
    return unfolded(shlex.quote(word))


def _variable(name: str, value: str | None) -> str:
    if value is None:
        return unfolded(f"{name} is taken away")
    # Anything but a credential may be what matters: a command, an address, the name of a file.
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
        yield "a command runs on your account, with all your variables, each time it connects"
    if spec.trust == "off":
        yield "it asks that later changes of its tools are not reported"
    yield from (unfolded(gap) for gap in evidence.gaps)


def summary(spec: ServerSpec) -> str:
    """Return what a server would do on one line without secrets: for errors, logs and the store."""
    if isinstance(spec.transport, Stdio):
        command = mask_args(spec.transport.command.split(" "))
        text = " ".join([*command, *map(shlex.quote, mask_args(spec.transport.args))])
    else:
        text = mask_url(spec.transport.url)
    return for_log(unfolded(text), 500)


def refusal(spec: ServerSpec, root: str, *, changes: Sequence[str] | None = None) -> ConnectError:
    """Return the error for a server that is not approved; it says how to approve it.

    Args:
        spec: The server.
        root: The project's directory.
        changes: What is not as it was approved, if it was approved before.
    """
    name = for_log(spec.name, 100)
    where = for_log(str(spec.origin), 300)
    msg = f"server `{name}` comes from the project's file {where} and "
    if changes is None:
        msg += f"is not approved: `{summary(spec)}`"
    else:
        more = f"; and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        why = f" ({'; '.join(changes[:_SHOWN])}{more})" if changes else ""
        msg += f"was changed since it was approved{why}: `{summary(spec)}`"
    place = "" if not root else f" in {for_log(root, 300)}"
    hint = f"look at it and run `dragoman trust approve {shlex.quote(name)}`{place}"
    return ConnectError(msg, server=spec.name, stage="approval", hint=hint)


def new_approval(spec: ServerSpec, root: str, evidence: Evidence, at: float) -> Approval:
    """Return the approval of a content, as it was shown."""
    found = parts(spec, evidence)
    return Approval(
        root=root,
        server=spec.name,
        fingerprint=fingerprint(spec, evidence),
        summary=summary(spec),
        at=at,
        parts={name: value[:_SHORT] for name, value in found.items()},
    )


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
    if not _is_table(data) or data.get("version") not in (OLDER, VERSION):
        msg = "it is not a list of approvals of this version"
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
    at, kept = row.get("at"), row.get("parts", {})
    when = float(at) if isinstance(at, int | float) else 0.0
    if not _is_table(kept) or not all(isinstance(part, str) for part in kept.values()):
        msg = "one of its approvals is damaged"
        raise ValueError(msg)
    return Approval(**{name: row[name] for name in texts}, at=when, parts=dict(kept))


def _is_table(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, dict)
