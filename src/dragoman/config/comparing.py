"""Do two specs, or two templates, mean the same?

Only what a server does is compared: not where a spec was written down, nor how a reference is spelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from dragoman.config.expand import VARIABLE, is_secret_reference, references
from dragoman.model import Auth, Stdio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.model import ServerSpec, Tls

_PLACES = {
    "workspaceFolder": "workspaceFolder",
    "workspaceFolderBasename": "workspaceFolderBasename",
    "userHome": "userHome",
    "pathSeparator": "pathSeparator",
    "/": "pathSeparator",
}
_FIELDS = (
    *("enabled", "required", "lazy", "reconnect", "replace", "health_check_interval", "denied_tools"),
    *("max_concurrency", "naming", "fallback", "trust", "trust_annotations", "wire", "protocol"),
    *("unset_variables", "title", "description"),
    *("max_message_bytes", "parallel", "mend_arguments", "attribution", "limits"),
)
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Reference:
    """One `${…}` of a template."""

    kind: Literal["variable", "input", "place", "secret"]
    name: str
    """For a secret, with what gives it: `keyring:service/name`."""
    operator: Literal["", ":-", "-"] = ""
    default: str = ""


Piece: TypeAlias = str | Reference


def pieces(template: str) -> list[Piece]:
    """Take a template apart into literal text and references; neighbouring texts are one."""
    found: list[Piece] = []

    def add(text: str) -> None:
        if found and isinstance(found[-1], str):
            found[-1] += text
        elif text:
            found.append(text)

    end = 0
    for start, stop, literal, body in references(template):
        add(template[end:start] + literal)
        reference = None if body is None else _reference(body)
        if reference is not None:
            found.append(reference)
        elif body is not None:
            add(f"${{{body}}}")
        end = stop
    add(template[end:])
    return found


def _reference(body: str) -> Reference | None:
    if body in _PLACES:
        return Reference("place", _PLACES[body])
    if body.startswith("input:") and not body.startswith("input:-"):
        return Reference("input", body.removeprefix("input:"))
    if is_secret_reference(body):
        return Reference("secret", body)
    variable = VARIABLE.fullmatch(body)
    if variable is None:
        return None
    operator = cast("Literal['', ':-', '-']", variable["operator"] or "")
    return Reference("variable", variable["name"], operator, variable["default"] or "")


def loosely(parts: Sequence[Piece]) -> list[Piece]:
    """Forget whether a default also replaces an empty value, about which hosts disagree."""
    return [
        replace(part, operator=":-") if isinstance(part, Reference) and part.operator else part
        for part in parts
    ]


def differences(wanted: ServerSpec, found: ServerSpec, title: str) -> dict[str, str]:
    """Say in which fields a spec came back otherwise than it was written, and how.

    Values are never shown: they may be secrets.
    """
    before, after = _flat(wanted), _flat(found)
    unlike: dict[str, str] = {}
    for key in {**before, **after}:
        old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
        if not _same(old, new):
            unlike[key] = _how(key, old, new, title)
    return unlike


def _flat(spec: ServerSpec) -> dict[str, object]:
    """Return everything that matters about a spec, one value a field."""
    flat: dict[str, object] = {name: getattr(spec, name) for name in _FIELDS}
    flat["allowed_tools"] = None if spec.allowed_tools and "*" in spec.allowed_tools else spec.allowed_tools
    flat["auth"] = None if spec.auth is None else _flat_auth(spec.auth)
    flat |= {f"timeouts.{name}": value for name, value in cast("dict[str, float]", spec.timeouts).items()}
    transport = spec.transport
    if isinstance(transport, Stdio):
        flat["transport"] = "stdio"
        flat["command"] = pieces(transport.command)
        flat["args"] = [pieces(arg) for arg in transport.args]
        flat["cwd"] = None if transport.cwd is None else pieces(transport.cwd)
        flat["log_file"] = None if transport.log_file is None else pieces(transport.log_file)
        flat["env_file"] = [pieces(name) for name in transport.env_file]
        inherit = transport.inherit_env
        flat["inherit_env"] = inherit if isinstance(inherit, str) else list(inherit)
        env = transport.env.items()
        return flat | {f"env.{name}": None if value is None else pieces(value) for name, value in env}
    flat["transport"] = (spec.kind, transport.alternate)
    flat["url"] = pieces(transport.url)
    flat["allow_http"] = transport.allow_http
    flat["tls"] = None if transport.tls is None else _flat_tls(transport.tls)
    return flat | {f"headers.{name.lower()}": pieces(value) for name, value in transport.headers.items()}


def _flat_auth(auth: Auth) -> object:
    found = {item.name: getattr(auth, item.name) for item in fields(auth)}
    return {name: _flat_value(value) for name, value in found.items()}


def _flat_value(value: object) -> object:
    """Return a text as its pieces; a list and a tuple of the same items are the same."""
    if isinstance(value, str):
        return pieces(value)
    return list(cast("Sequence[str]", value)) if isinstance(value, list | tuple) else value


def _flat_tls(tls: Tls) -> object:
    return [None if path is None else pieces(path) for path in (tls.ca, tls.cert, tls.key)], tls.verify


def _same(old: object, new: object) -> bool:
    if isinstance(old, float | int) and isinstance(new, float | int):
        return math.isclose(old, new, rel_tol=1e-9)
    return old == new


def _how(key: str, old: object, new: object, title: str) -> str:
    if key == "transport" and isinstance(new, tuple):
        kind, alternate = cast("tuple[str, bool]", new)
        names = {"http": "Streamable HTTP", "sse": "legacy SSE"}
        other = names["sse" if kind == "http" else "http"]
        return f"{title} tries {names[kind]}{f' first, then {other}' if alternate else ' only'}"
    if key.startswith("timeouts."):
        return f"{title} makes it {new:g} s" if isinstance(new, float) else f"{title} does not keep it"
    if _is_texts(old) and _is_texts(new) and _loose_texts(old) == _loose_texts(new):
        return f"{title} sees an empty variable otherwise where there is a default"
    return f"{title} does not keep it" if new is _ABSENT else f"{title} reads it back otherwise"


def _is_texts(value: object) -> bool:
    return isinstance(value, list)


def _loose_texts(value: Any) -> list[Any]:
    parts = cast("list[Piece | list[Piece]]", value)
    return [loosely(part) if isinstance(part, list) else loosely([part])[0] for part in parts]
