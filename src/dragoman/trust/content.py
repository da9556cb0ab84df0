"""What a person approves when a project's file may start a server, and what may change without a question.

The content is everything that decides what runs, where it connects, what gets out and what a model gets:

- every field of the entry, of its transport, its TLS and its login that is not in `NOT_COUNTED`; a new field
  counts until it is listed there;
- of variables and headers the names and values. Only the value of a credential (`GITHUB_TOKEN`,
  `Authorization`) may rotate without a question; the references in it count all the same: `${AWS_SECRET_KEY}`
  in the place of a literal sends out another secret, and `${command:…}` runs something;
- the inputs that the entry refers to, with their defaults;
- what `evidence.py` finds on disk: the program that the command resolves to, and the content of the files in
  the project that the command names, of env files and of TLS files.

Not covered is what those files load in turn, and the newest release of a package that a runner fetches.
"""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeGuard, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.model import Input, ServerSpec

# With all its dollars: `$${command:…}` is a text, and must not become a reference unseen.
_REFERENCE = re.compile(r"(?<!\$)\$++\{[^}]*+(?:\}|\Z)")
_SOURCE = re.compile(r"(?<!\$)(?:\$\$)*+\$\{(keyring|command):(?!-)([^}]++)(?:\}|\Z)")
"""Where a value is fetched from, as `config/expand.py` has it."""
_INPUT = re.compile(r"\$\{input:(?!-)([^}]++)(?:\}|\Z)")
_LOADER = re.compile(
    r"(?:LD|DYLD|_RLD|LIBPATH|SHLIB)(?:_\w*)?|\w*PATH|PATHEXT|COMSPEC|SHELL|ENV|BASH_ENV|ZDOTDIR|PROMPT_COMMAND|IFS|"
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
"""Variables whose value proves who one is: it may rotate, unless it is a path or an address."""
_CREDENTIAL_HEADER = re.compile(
    r"authorization|(?:[\w-]*-)?(?:api-?key|token|secret|password|access-key|subscription-key)", re.IGNORECASE
)
_REDIRECTS = re.compile(
    r"\s|[./~\\@|!<>(&;`-]|\$(?!\{)|[A-Za-z]:[\\/]|[\w+.-]{1,20}:/|[^\x00-\x1f\x7f]*+[\x00-\x1f\x7f]"
)
"""How a value begins that leads somewhere or means something: a path, an address, an option, a command; or it
has more than one line."""
_SAID = frozenset({"env", "headers", "tls"})
"""Fields of a transport that are taken apart."""

NOT_COUNTED: Mapping[str, frozenset[str]] = {
    "ServerSpec": frozenset(
        # An approval is kept by the name; the transport and the login are taken apart.
        {"name", "transport", "auth"}
        # When it runs and for how long, which decides neither what runs nor what a model gets.
        | {"enabled", "lazy", "reconnect", "replace", "timeouts", "health_check_interval"}
        | {"max_concurrency", "parallel"}
        # Words for people, and where the entry stands.
        | {"title", "description", "origin", "shadowed", "lines", "extras", "notes"}
    ),
    "Stdio": frozenset(),
    "Http": frozenset(),
    "Sse": frozenset(),
    "Tls": frozenset(),
    "Auth": frozenset(),
    "Input": frozenset({"scope"}),  # where it stands
}
"""The fields that are no part of what is approved, by class; every other field is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """One file, or the files of one folder, whose content is part of what is approved."""

    path: str
    """Relative to the project where it lies in it."""
    digest: str
    """Of its content; a word where it has none."""
    size: int = 0
    target: str = ""
    """Where it really lies, if a link leads there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is found on disk of what an entry names, and the inputs that it refers to."""

    programs: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the word that names it, the path of each program that is started; the command is the first."""
    files: Sequence[Covered] = ()
    gaps: Sequence[str] = ()
    """What is named but cannot be covered, for people."""
    inputs: Sequence[Input] = ()


NO_EVIDENCE = Evidence()


def parts(spec: ServerSpec, evidence: Evidence = NO_EVIDENCE) -> dict[str, str]:
    """Return a hash of each part of what an approval is about, by what it is called.

    Fields that have their default are left out, so that a field that is new in dragoman asks nobody.
    """
    found: dict[str, object] = {"kind": spec.kind, **counted_fields(spec)}
    found |= counted_fields(spec.transport, leave=_SAID)
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
        found[f"input {one.id}"] = counted_fields(one)
    found |= {f"program {word}": path for word, path in evidence.programs.items()}
    found |= {f"file {one.path}": (one.digest, one.size, one.target) for one in evidence.files}
    return {name: _hash(value) for name, value in found.items()}


def counted_fields(of: Any, leave: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the fields that count and do not have their default."""
    left = NOT_COUNTED.get(type(of).__name__, frozenset())
    found: dict[str, Any] = {}
    for one in fields(of):
        value = getattr(of, one.name)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if one.name not in left | leave and value != default:
            found[one.name] = value
    return found


def _hash(value: object) -> str:
    import hashlib  # late: it is needed only where there is an approval to compare with

    text = json.dumps(value, sort_keys=True, default=plain)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def may_rotate(name: str, value: str) -> bool:
    """Return whether the value of a variable may change without a question: that of a credential."""
    is_credential = _CREDENTIAL.fullmatch(name) and not loads(name)
    return bool(is_credential) and not _REDIRECTS.match(value)


def loads(name: str) -> bool:
    """Return whether a variable decides which code a program loads or runs."""
    return bool(_LOADER.fullmatch(name))


def references(text: str) -> list[str]:
    """Return the references in a template, each as it is written."""
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
    """Return what is asked for secrets before a server is reached: `keyring` or `command`, and its words."""
    texts = _all_texts(spec)
    found = [match for text in texts for match in _SOURCE.finditer(text) if match[0].endswith("}")]
    return list(dict.fromkeys((match[1], match[2]) for match in found))


def _all_texts(spec: ServerSpec) -> Iterable[str]:
    yield from _texts([getattr(spec.transport, one.name) for one in fields(spec.transport)])
    if spec.auth is not None:
        yield from _texts(asdict(spec.auth))


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


def plain(value: object) -> object:
    """Give JSON what it does not know: tuples and mappings of other kinds arrive as they are."""
    if isinstance(value, set | frozenset):
        return sorted(map(str, cast("Iterable[object]", value)))
    if hasattr(value, "__dataclass_fields__"):
        return asdict(cast("Any", value))
    return list(cast("Iterable[object]", value))


def _is_table(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, dict)
