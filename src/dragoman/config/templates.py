"""Variables in configuration text: one syntax inside, every dialect's own at the edge.

The syntax inside (a *template*):

- `${VAR}`, or `${env:VAR}`: the variable's value; without one, `unset_variables` of the spec decides. What
  Claude Code sets by itself, `CLAUDE_PROJECT_DIR`, is the project's directory unless it is set.
- `${VAR:-text}`: `text` where VAR is unset or empty; `${VAR-text}`: only where it is unset.
- `${input:id}`: a value that a person gives.
- `${keyring:service/name}`: an entry of the system's keyring; the last `/` parts the two.
- `${command:words}`: what a command prints, without its last line break. The words are split as a shell
  would, but no shell runs.
- `${claim:name}`: in values of a tool's arguments, what the access token of the caller says.
- `${workspaceFolder}`, `${workspaceFolderBasename}`, `${userHome}`, `${pathSeparator}` or `${/}`.
- `$${` is a literal `${`. Any other `$` is itself, and so is a `${…}` that names none of the above, or
  that has no end. References do not nest: the first `}` ends one.

Expansion is one pass and never looks at what it has put in. It is total: any text gives a text or a
`MissingVariableError`. A leading `~` is the home directory in commands, directories and file names.
`VariableSyntax` says which of this a dialect has; `to_template` turns the dialect's text into a template, so
that what the dialect would leave alone stays alone.

Nothing is looked up or run here: the code that connects queries the keyring and runs the commands that
`secret_references` returns, and passes their values as `fetched`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, cast

from dragoman.errors import MissingVariableError
from dragoman.model import Stdio
from dragoman.model.keys import keys, texts_of
from dragoman.struct import HIDDEN, Struct, field
from dragoman.trust.sandbox import with_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dragoman.model import Auth, ServerSpec, Transport

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
# A run of dollars is tried from its first one only, and what has no end is taken up to the end of the text:
# otherwise the rest of the text would be read again from every `$`.
_MARK = re.compile(r"(?<!\$)(\$++)\{")
_HOST_REFERENCE = re.compile(r"(?<!\$)(\$++)\{(?:([^}]*+)\}|[^}]*+)")
"""A reference as hosts know it: they have no escape, so every `$` before the last one is itself."""
_REFERENCE = re.compile(
    r"(?<!\$)(?:(?P<escaped>(?:\$\$)++)\{|(?P<pairs>(?:\$\$)*+)\$\{(?:(?P<body>[^}]*+)\}|(?P<open>[^}]*+)))"
)
_ESCAPED = re.compile(r"(?<!\$)((?:\$\$)++)\{")
VARIABLE = re.compile(rf"(?:env:)?(?P<name>{_NAME})(?:(?P<operator>:?-)(?P<default>.*))?", re.DOTALL)
_BARE = re.compile(rf"(?<!\$)(\$*)\$({_NAME})")
_SECRET_KINDS = frozenset({"keyring", "command"})
CLAIM = "claim:"
_ROOT_VARIABLES = frozenset({"CLAUDE_PROJECT_DIR"})
"""What hosts set to the project's directory: files that are written for them count on it."""
PLACES = frozenset({"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator", "/"})


class ExpansionContext(Struct, kw_only=True):
    """What variables are looked up in, and what relative paths refer to."""

    env: Annotated[Mapping[str, str], HIDDEN]
    root: str
    """The project's directory."""
    home: str
    inputs: Annotated[Mapping[str, str], HIDDEN] = field(default_factory=dict[str, str])
    """Answers to `${input:id}`, by id."""
    fetched: Annotated[Mapping[str, str] | None, HIDDEN] = None
    """What keyring and commands gave, by what stands in the reference; without it, such a reference stays as
    it is written, for those who only look."""
    claims: Annotated[Mapping[str, str] | None, HIDDEN] = None
    """What is known of the caller, by name; without it, a claim is no reference."""


class _Brackets(Struct):
    opening: str
    closing: str


class Spelling(_Brackets, kw_only=True):
    """A reference that a host does not write as `${…}`: what stands around its name.

    Blanks may be there or not.
    """

    kind: Literal["variable", "input"] = "variable"
    prefix: str = ""
    """What an input's id has in front of the name."""
    loss: str = ""
    """What the host does with it that dragoman does not."""

    def write(self, name: str) -> str:
        """Write a reference."""
        return f"{self.opening}{name.removeprefix(self.prefix)}{self.closing}"


class VariableSyntax(Struct, kw_only=True):
    """Which variable syntax a dialect has; everything else in its text is literal."""

    braces: bool = False
    """`${VAR}`."""
    defaults: bool = False
    """`${VAR:-text}`."""
    default_if_empty: bool = True
    """Whether `:-` also replaces an empty value, as shells do."""
    env_prefix: bool = False
    """`${env:VAR}`."""
    bare: bool = False
    """`$VAR`."""
    keep_bare: bool = False
    """Whether a `$VAR` without a value stays as it is written."""
    inputs: bool = False
    """`${input:id}`."""
    places: bool | frozenset[str] = False
    """`${workspaceFolder}` and its like, or those of them that the dialect has."""
    escape: bool = False
    """`$${` for a literal `${`."""
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that the host itself sets, and the template that stands for each."""
    spellings: tuple[Spelling, ...] = ()
    """References that are written otherwise; they come before all others."""

    def has_place(self, name: str) -> bool:
        """Return whether the dialect has `${workspaceFolder}` or another place."""
        return self.places if isinstance(self.places, bool) else name in self.places


NATIVE = VariableSyntax(braces=True, defaults=True, env_prefix=True, inputs=True, places=True, escape=True)
NONE = VariableSyntax()


def escape(text: str) -> str:
    """Turn literal text into the template that gives it back."""
    return _MARK.sub(lambda match: f"{match[1] * 2}{{", text)


def escape_before(text: str) -> str:
    """Turn literal text into a template that a reference may follow: no `$` of it belongs to that."""
    bare = text.rstrip("$")
    return escape(bare) + "$" * (2 * (len(text) - len(bare)))


def to_template(text: str, style: VariableSyntax) -> str:
    """Turn a dialect's text into a template with the same meaning."""
    if style.escape:
        return text
    if style.spellings:
        return _spelled_to_template(text, style)
    return _plain_to_template(text, style)


def spelled(text: str, style: VariableSyntax) -> Iterator[tuple[re.Match[str], Spelling, str]]:
    """Find the references of a dialect's own spellings, with the name that each has inside."""
    for match in _spelling_pattern(style.spellings).finditer(text):
        spelling = style.spellings[int((match.lastgroup or "_0")[1:])]
        yield match, spelling, spelling.prefix + match[match.lastgroup or 0].rstrip()


def _spelled_to_template(text: str, style: VariableSyntax) -> str:
    pieces: list[str] = []
    end = 0
    for match, spelling, name in spelled(text, style):
        before = text[end : match.start()]
        literal = before.rstrip("$")
        reference = f"${{input:{name}}}" if spelling.kind == "input" else _variable(name)
        # Hosts have no escape: a `$` in front of a reference is itself.
        pieces += _plain_to_template(literal, style), escape_before(before[len(literal) :]), reference
        end = match.end()
    return "".join([*pieces, _plain_to_template(text[end:], style)])


@lru_cache
def _spelling_pattern(spellings: tuple[Spelling, ...]) -> re.Pattern[str]:
    # Blanks behind a name belong to it here, and are cut off by `spelled`: no character is looked at twice.
    inner = {"variable": r"[A-Za-z_][A-Za-z0-9_]*+", "input": r"[\w./~@][^{}()\n]*+"}

    def around(text: str) -> str:
        return r"\s*+".join(map(re.escape, text.strip(" ").split(" ")))

    return re.compile(
        "|".join(
            rf"{around(one.opening)}\s*+(?P<_{at}>{inner[one.kind]})\s*+{around(one.closing)}"
            for at, one in enumerate(spellings)
        )
    )


def _plain_to_template(text: str, style: VariableSyntax) -> str:
    pieces: list[str] = []
    end = 0
    for match in _HOST_REFERENCE.finditer(text):
        if match[2] is None:
            break
        pieces.append(_bare_to_template(text[end : match.start()], style))
        pieces.append(_reference_to_template(match, style))
        end = match.end()
    pieces.append(_bare_to_template(text[end:], style))
    return "".join(pieces)


def _reference_to_template(match: re.Match[str], style: VariableSyntax) -> str:
    dollars, body = match[1], match[2]
    literal = escape(match[0])
    before = "$" * (2 * (len(dollars) - 1))
    if _input_id(body) is not None:
        return f"{before}${{{body}}}" if style.inputs else literal
    if body in PLACES:
        return f"{before}${{{body}}}" if style.has_place(body) else literal
    variable = VARIABLE.fullmatch(body)
    if variable is None:
        return literal
    name, operator, default = variable["name"], variable["operator"], variable["default"]
    known = style.env_prefix if body.startswith("env:") else style.braces
    if not known or (operator and not style.defaults) or operator == "-":
        return literal
    if name in style.renamed:
        return before + style.renamed[name]
    if operator is None:
        return f"{before}{_variable(name)}"
    return f"{before}${{{name}{':-' if style.default_if_empty else '-'}{default}}}"


def _bare_to_template(text: str, style: VariableSyntax) -> str:
    if not style.bare:
        return escape(text)

    def reference(match: re.Match[str]) -> str:
        name = match[2]
        template = f"${{{name}-${name}}}" if style.keep_bare else _variable(name)
        return match[1] * 2 + style.renamed.get(name, template)

    return _BARE.sub(reference, escape(text))


def _variable(name: str) -> str:
    """Refer to a variable, even if it has the name of a place."""
    return f"${{env:{name}}}" if name in PLACES else f"${{{name}}}"


def _input_id(body: str) -> str | None:
    """Return what `input:id` asks for; `input:-text` is a variable of that name with a default."""
    asks = body.startswith("input:") and not body.startswith("input:-")
    return body.removeprefix("input:") if asks else None


def is_claim(body: str) -> bool:
    """Return whether a reference is to a claim; `claim:-text` is a variable with a default."""
    name = body.removeprefix(CLAIM)
    return name != body and bool(name) and not name.startswith("-")


def is_secret_reference(body: str) -> bool:
    """Return whether a keyring or a command gives the value; `keyring:-text` is a variable with a default."""
    kind, _, rest = body.partition(":")
    return kind in _SECRET_KINDS and bool(rest) and not rest.startswith("-")


def secret_references(spec: ServerSpec) -> dict[str, str]:
    """Return what a spec asks keyrings and commands for, each with the key where it stands first."""
    found: dict[str, str] = {}
    for key, text in _templates(spec):
        for one in references(text):
            if one.body is not None and is_secret_reference(one.body):
                found.setdefault(one.body, key)
    return found


def input_ids(spec: ServerSpec) -> list[str]:
    """Return the ids of the inputs that a spec refers to, in their order."""
    bodies = (one.body or "" for _, text in _templates(spec) for one in references(text))
    return list(dict.fromkeys(name for body in bodies if (name := _input_id(body)) is not None))


def _templates(spec: ServerSpec) -> Iterator[tuple[str, str]]:
    """Yield every template of a spec with its key, as the two expansions below have them."""
    yield from _templates_in(spec.transport)
    if spec.auth is not None:
        yield from ((f"auth.{name}", text) for name, text in _templates_in(spec.auth))


def _templates_in(of: Struct) -> Iterator[tuple[str, str]]:
    for name, key in keys(type(of)).items():
        value: object = getattr(of, name)
        if isinstance(value, Struct):
            yield from ((f"{name}.{inner}", text) for inner, text in _templates_in(value))
        elif key.is_template and value:
            yield from _texts_in(name, value)


def _texts_in(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        items = cast("Mapping[str, str | None]", value).items()
        yield from ((f"{name}.{inner}", text) for inner, text in items if text is not None)
    else:
        texts = enumerate(cast("Sequence[str]", value))
        yield from ((f"{name}.{index}", text) for index, text in texts)


class Reference(NamedTuple):
    """A reference in a template, or a `${` that its dollars make literal."""

    start: int
    end: int
    literal: str
    """What the dollars in front of it stand for."""
    body: str | None
    """What stands in the braces; `None` if it is not a reference."""


def references(text: str) -> Iterator[Reference]:
    """Yield the references of a template, in time that is linear in the text."""
    if "${" not in text:
        return
    for match in _REFERENCE.finditer(text):
        if match["escaped"]:
            yield _literal(match, len(match["escaped"]))
        elif match["open"] is None:
            yield Reference(*match.span(), "$" * (len(match["pairs"]) // 2), match["body"])
        else:
            for escaped in _ESCAPED.finditer(text, match.start("open")):
                yield _literal(escaped, len(escaped[1]))


def _literal(match: re.Match[str], dollars: int) -> Reference:
    return Reference(*match.span(), "$" * (dollars // 2) + "{", None)


def variables(text: str) -> list[str]:
    """Return the environment variables that a template refers to, in order."""
    found: list[str] = []
    for _, _, _, body in references(text):
        variable = None if body is None or body in PLACES else VARIABLE.fullmatch(body)
        if variable and variable["name"] not in found:
            found.append(variable["name"])
    return found


def expand(text: str, expansion: ExpansionContext, missing: Callable[[str, str], str]) -> str:
    """Replace every reference in a template.

    Args:
        text: The template.
        expansion: Where values come from.
        missing: Called with the name and the whole reference of a variable that has no value;
            gives the text to use, or raises.
    """
    if "$" not in text:
        return text
    pieces: list[str] = []
    last = 0
    for start, end, literal, body in references(text):
        pieces += text[last:start], literal
        if body is not None:
            pieces.append(_value(body, expansion, missing))
        last = end
    return "".join([*pieces, text[last:]])


def _value(body: str, expansion: ExpansionContext, missing: Callable[[str, str], str]) -> str:
    whole = f"${{{body}}}"
    match body:
        case "workspaceFolder":
            return expansion.root
        case "workspaceFolderBasename":
            return os.path.basename(expansion.root)  # noqa: PTH119 -- no path object is needed for a name
        case "userHome":
            return expansion.home
        case "pathSeparator" | "/":
            return os.sep
        case _ if (wanted := _input_id(body)) is not None:
            answer = expansion.inputs.get(wanted)
            return missing(body, whole) if answer is None else answer
        case _ if expansion.claims is not None and is_claim(body):
            claim = expansion.claims.get(body.removeprefix(CLAIM))
            return missing(body, whole) if claim is None else claim
        case _ if is_secret_reference(body):
            if expansion.fetched is None:
                return whole
            return missing(body, whole) if (given := expansion.fetched.get(body)) is None else given
        case _:
            pass
    variable = VARIABLE.fullmatch(body)
    if variable is None:
        return whole
    name, operator, default = variable["name"], variable["operator"], variable["default"]
    found = expansion.env.get(name, expansion.root if name in _ROOT_VARIABLES else None)
    if operator and (found is None or (operator == ":-" and not found)):
        return default
    return missing(name, whole) if found is None else found


def expand_home(path: str, home: str) -> str:
    """Replace a leading `~` by the home directory."""
    return home + path[1:] if path == "~" or path.startswith(("~/", "~\\")) else path


def expand_auth(spec: ServerSpec, expansion: ExpansionContext) -> Auth | None:
    """Return how a server wants to be logged in to, with every variable replaced; it holds secrets too.

    Raises:
        MissingVariableError: A variable has no value.
    """
    if spec.auth is None:
        return None
    text = _text_of(spec, expansion)
    given = texts_of(spec.auth)
    return spec.auth.replace(**{name: text(value, f"auth.{name}") for name, value in given.items()})


def _text_of(spec: ServerSpec, expansion: ExpansionContext) -> Callable[[str, str], str]:
    """Return what expands a template of a spec, given its key."""

    def text(template: str, key: str) -> str:
        if "${" not in template:
            return template

        def missing(name: str, whole: str) -> str:
            if spec.unset_variables != "error":
                return whole if spec.unset_variables == "keep" else ""
            raise _missing(spec, key, name)

        return expand(template, expansion, missing)

    return text


def expand_transport(spec: ServerSpec, expansion: ExpansionContext) -> Transport:
    """Return the spec's transport with every variable replaced: ready to connect.

    The result holds secrets. It is for the connection alone: never log, cache or show it.

    Raises:
        MissingVariableError: A variable has no value; it names the field, the file and the line.
    """
    text = _text_of(spec, expansion)

    def path(template: str, key: str) -> str:
        return expand_home(text(template, key), expansion.home)

    def placed(template: str, key: str) -> str:
        # What no child resolves for itself is read from the project's directory.
        return os.path.join(expansion.root, path(template, key))  # noqa: PTH118 -- as in `_value`

    transport = spec.transport
    if isinstance(transport, Stdio):
        return transport.replace(
            command=path(transport.command, "command"),
            args=[text(arg, f"args.{index}") for index, arg in enumerate(transport.args)],
            env={
                name: None if value is None else text(value, f"env.{name}")
                for name, value in transport.env.items()
            },
            cwd=None if transport.cwd is None else path(transport.cwd, "cwd"),
            env_file=[path(name, "env_file") for name in transport.env_file],
            log_file=None if transport.log_file is None else placed(transport.log_file, "log_file"),
            sandbox=with_paths(transport.sandbox, lambda one: placed(one, "sandbox")),
        )
    headers = {name: text(value, f"headers.{name}") for name, value in transport.headers.items()}
    tls = transport.tls
    if tls is not None:
        paths = {"ca": tls.ca, "cert": tls.cert, "key": tls.key}
        given = {name: placed(file, f"tls.{name}") for name, file in paths.items() if file is not None}
        tls = tls.replace(**given)
    return transport.replace(url=text(transport.url, "url"), headers=headers, tls=tls)


def _missing(spec: ServerSpec, key: str, name: str) -> MissingVariableError:
    asked = name.startswith("input:")
    what = f"the input `{name.removeprefix('input:')}`" if asked else f"the variable `{name}`"
    hint = f"run `dragoman login {shlex.quote(spec.name)}`, which asks for it"
    if not asked:
        hint = f"give it a value where dragoman starts: `export {name}=…`"
        # A project's file is shared: no secret belongs into it.
        if key.startswith(("env.", "headers.")) and spec.origin.scope in ("user", "local"):
            from dragoman.config.dialects import set_command

            hint += f"; or enter it once: {set_command(spec, key)}"
    return reference_error(spec, key, variable=name, what=what, why="has no value", hint=hint)


def reference_error(
    spec: ServerSpec, key: str, *, variable: str, what: str, why: str, hint: str
) -> MissingVariableError:
    """Return the error for a reference without a value; it names the field, the file and the line.

    Args:
        spec: The server.
        key: The field with the reference.
        variable: What stands in the reference, without secrets.
        what: What was to give the value, as the beginning of a sentence.
        why: The end of that sentence.
        hint: What to do.
    """
    pointer = ".".join(part for part in (spec.origin.pointer, key) if part)
    line = spec.lines.get(key) or spec.lines.get(key.partition(".")[0]) or spec.origin.line
    return MissingVariableError(
        f"{what} {why}; `{key}` of server `{spec.name}` needs it",
        variable=variable,
        source=spec.origin.source,
        pointer=pointer,
        line=line,
        hint=hint,
    )
