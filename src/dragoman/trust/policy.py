"""Decide which calls are allowed, need confirmation or are denied, and name the rule that decided.

How rules work:

- A rule has an action and conditions (server, tool or resource or prompt, annotation, arguments). It matches
  if all conditions match; a rule without conditions matches everything. Globs are case-sensitive. They are
  compared with the server's name in the configuration and with the tool's own name (`tool`), the URI of a
  resource (`resource`) or the name of a prompt (`prompt`). A rule that names none of these three covers all
  of them; otherwise it covers the ones it names. A rule with an annotation covers tools only.
- A tool that the configuration changes has two names, and its arguments have two forms: a rule is about
  either. Each name is decided about, and a condition of an `allow` must hold in each form that has its place.
- Reading a resource, subscribing to it and completing a template of it are requests for that resource, with
  its URI as the argument `uri`. Getting a prompt and completing its arguments are requests for that prompt.
- Within one scope (the application's code, the user's files, the project's …) the first matching rule
  decides. Between scopes the strictest decision wins: deny over ask over allow. If no rule matches, the
  default applies.
- Where a model's calls ask by default (`ask_by_default`), one more rule comes after all others: `ask` for
  tools that are not read-only. A default of `allow` does not replace it, a rule does.
- A project can only make things stricter: its `allow` is an exception to its own rules, nothing more.
- Annotations are hints from an untrusted server and never loosen a decision. Unless the spec trusts them, a
  call is decided twice, with the annotations and without, and the stricter decision wins. So `deny` on
  `destructive` covers every tool of an untrusted server, even one that calls itself read-only.
- An argument condition of an `allow` must hold for every value at its place; for other actions one value is
  enough; see `patterns`. Patterns compare text, not meaning: use `path` for files, and prefer to allow what
  is needed over denying what is known to be bad.
- An unreadable rule never loosens anything: an `allow` is dropped; any other rule becomes a `deny` for the
  servers and tools that it names.

As in `model.server`, annotations are no texts here: they declare the keys of a rule.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

from dragoman.errors import CallDeniedError, InvalidArgumentsError
from dragoman.model.approval import PendingApproval
from dragoman.model.keys import Key, keys
from dragoman.struct import HIDDEN, Struct, field
from dragoman.trust.patterns import (
    ArgumentPattern,
    UnmatchableError,
    ValuePattern,
    read_patterns,
    read_place,
)
from dragoman.trust.sanitizing import for_log, skeleton
from dragoman.visible import visible_part

Action: TypeAlias = Literal["allow", "ask", "deny"]
Scope: TypeAlias = Literal["session", "local", "project", "user", "system", "code"]

T = TypeVar("T")

MAX_RULES = 1_000
MAX_DEPTH = 100
"""Deepest nesting of arguments that can be checked."""
_PLAIN = frozenset({str, int, float, bool, type(None)})
STRICTNESS: Mapping[str, int] = {"allow": 0, "ask": 1, "deny": 2}
ANNOTATIONS = {
    "read_only": ("readOnlyHint", False),
    "destructive": ("destructiveHint", True),
    "idempotent": ("idempotentHint", False),
    "open_world": ("openWorldHint", True),
}
"""The protocol's hint for each condition, and its default for a tool without that hint."""
Kind: TypeAlias = Literal["tool", "resource", "prompt"]
_GLOBS = ("servers", "tools", "resources", "prompts")
_REASON, _PROJECT_REASON = 500, 200
"""Longest reason of a rule that is shown, in characters."""


class Rule(Struct, kw_only=True):
    """One line of a policy."""

    action: Annotated[Action, Key("what happens: `allow`, `ask` or `deny`")]
    servers: Annotated[
        Sequence[str],
        Key(
            "servers, by a glob of their names; without it, the rule also matches built-in tools",
            name="server",
        ),
    ] = ("*",)
    tools: Annotated[Sequence[str], Key("tools, by a glob of the server's own tool names", name="tool")] = ()
    """Without tools, resources and prompts, the rule covers all of them."""
    resources: Annotated[
        Sequence[str], Key("reading, subscribing and completing, by a glob of the URI", name="resource")
    ] = ()
    prompts: Annotated[
        Sequence[str], Key("getting and completing, by a glob of the prompt's name", name="prompt")
    ] = ()
    annotations: Annotated[
        Sequence[str],
        Key(
            "tools: `read_only`, `destructive`, `idempotent`, `open_world`, negated with `!`",
            name="annotation",
        ),
    ] = ()
    """Names of `ANNOTATIONS`, with `!` in front to negate them."""
    arguments: Annotated[
        Sequence[ArgumentPattern],
        Key(
            "argument names or JSON pointers, each with a glob, `{path = …}`, `{regex = …}`, a number or a "
            "boolean for the value"
        ),
    ] = ()
    other_arguments: Annotated[
        bool, Key("with `false`: only calls that have no other arguments than those in `arguments`")
    ] = True
    name: Annotated[str, Key("nothing: the error message shows it")] = ""
    reason: Annotated[str, Key("nothing: the error message shows it, to the model and to people")] = ""
    scope: Scope = "user"
    source: str = ""
    """Where it stands, as `FILE:LINE`; or the file and its number there, if the line is not known."""

    @property
    def label(self) -> str:
        """The rule in a few words: its name, or for example `deny git_commit`."""
        return self.name or self._words([*self.tools, *self.resources, *self.prompts], self.arguments)

    @property
    def public_label(self) -> str:
        """As `label`, without resources and arguments: their patterns show paths of this machine."""
        return self.name or self._words([*self.tools, *self.prompts])

    def _words(self, globs: Sequence[str], arguments: Sequence[ArgumentPattern] = ()) -> str:
        parts = [
            "" if list(self.servers) == ["*"] else f"server={'|'.join(self.servers)}",
            "|".join(globs),
            *self.annotations,
            *map(str, arguments),
        ]
        return for_log(" ".join([self.action, *filter(None, parts)]), 200)

    def __str__(self) -> str:
        if self.name:
            return f"{self.scope}: {self.name}"
        parts = [
            "" if list(self.servers) == ["*"] else f"server={'|'.join(self.servers)}",
            *(
                f"{kind}={'|'.join(globs)}"
                for kind, globs in (
                    ("tool", self.tools),
                    ("resource", self.resources),
                    ("prompt", self.prompts),
                )
                if globs
            ),
            *self.annotations,
            *map(str, self.arguments),
        ]
        return for_log(f"{self.scope}: {' '.join([self.action, *filter(None, parts)])}", 300)


class PolicyRequest(Struct, kw_only=True):
    """A call, or a request for a resource or a prompt, to decide about."""

    server: str
    """The server's name; empty for a built-in tool."""
    tool: str
    """The tool's own name, the URI of a resource, or the name of a prompt."""
    shown_name: str = ""
    """The name that the configuration gives to the tool, if that is another."""
    kind: Kind = "tool"
    arguments: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict[str, Any])
    shown_arguments: Annotated[Mapping[str, Any] | None, HIDDEN] = None
    """The same as the caller gave them, if the configuration changes them."""
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    trust_annotations: bool = False


class Decision(Struct, kw_only=True):
    """What to do with a call, and why."""

    action: Action
    rule: str = ""
    """The rule that decided; empty if the default did."""
    label: str = ""
    """The rule in a few words, for people."""
    public_label: str = ""
    """The same for people who must not see paths of this machine; empty for a call that is allowed."""
    source: str = ""
    """Where the rule stands, as `FILE:LINE`; empty for rules of a program."""
    reason: str = ""
    is_open: bool = False
    """Whether the call is allowed by the default only: no rule decided."""


class Policy(Struct, kw_only=True):
    """All rules in effect, of every scope."""

    rules: Sequence[Rule] = ()
    default: Action = "allow"
    default_reason: str = ""
    """Where the default comes from, if it is a project's."""

    def decide(self, request: PolicyRequest) -> Decision:
        """Return the decision about a call."""
        if not self.rules:
            return self._default()
        if request.trust_annotations or not any(rule.annotations for rule in self.rules):
            return self._decide(request, request.annotations)
        as_annotated = self._decide(request, request.annotations)
        unannotated = self._decide(request, {})
        return max(as_annotated, unannotated, key=lambda one: (_strictness(one), one.is_open))

    def _default(self) -> Decision:
        return Decision(action=self.default, reason=self.default_reason, is_open=self.default == "allow")

    def _decide(self, request: PolicyRequest, annotations: Mapping[str, Any]) -> Decision:
        first = self._first_rules(request, annotations)
        if request.shown_name:
            # Each name has its own first rules, and the strictest of all counts.
            first += self._first_rules(request.replace(tool=request.shown_name), annotations)
        default = self._default()
        if not first:
            return default
        strictest = max(first, key=lambda rule: STRICTNESS[rule.action])
        if all(rule.scope == "project" for rule in first) and (
            strictest.action == "allow" or STRICTNESS[strictest.action] < _strictness(default)
        ):
            return default
        return Decision(
            action=strictest.action,
            rule=str(strictest),
            label=strictest.label,
            public_label="" if strictest.action == "allow" else strictest.public_label,
            source="" if strictest.scope == "code" else strictest.source,
            reason=strictest.reason,
        )

    def _first_rules(self, request: PolicyRequest, annotations: Mapping[str, Any]) -> list[Rule]:
        """Return the first rule of each scope that matches."""
        decided: dict[str, Rule] = {}
        for rule in self.rules:
            if rule.scope not in decided and _is_met(rule, request, annotations):
                decided[rule.scope] = rule
        return list(decided.values())


_ASK = Policy(
    rules=[
        Rule(action="ask", tools=["*"], annotations=["!read_only"], scope="code", reason="no rule allows it")
    ]
)


def ask_by_default(request: PolicyRequest) -> Decision:
    """Return the decision about a call of a model that no rule decides: ask, unless it only reads."""
    decision = _ASK.decide(request)
    return Decision(action=decision.action, reason=decision.reason)


def allowing(server: str, tool: str = "", arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the rule that allows one tool of a server, or all of its tools, as a file has it.

    Args:
        server: The server.
        tool: The tool, by the server's own name; all tools by default.
        arguments: The only arguments that are allowed: texts, numbers and booleans.
    """
    rule: dict[str, Any] = {
        "action": "allow",
        "server": _literal(server),
        "tool": _literal(tool) if tool else "*",
    }
    if arguments is None:
        return rule
    exact = {
        f"/{name.replace('~', '~0').replace('/', '~1')}" if name.startswith("/") else name: (
            _literal(value) if isinstance(value, str) else value
        )
        for name, value in arguments.items()
    }
    return {**rule, "arguments": exact, "other_arguments": False}


def _literal(name: str) -> str:
    """Return the glob that matches this name only: a tool may be called `*`."""
    return re.sub(r"([*?[])", r"[\1]", name)


def _stricter(one: Action, other: Action) -> Action:
    return other if STRICTNESS[other] > STRICTNESS[one] else one


def _strictness(decision: Decision) -> int:
    return STRICTNESS[decision.action]


def _is_met(rule: Rule, request: PolicyRequest, annotations: Mapping[str, Any]) -> bool:
    return (
        _matches(request.server, rule.servers)
        and _is_about(rule, request)
        and all(_holds(condition, annotations) for condition in rule.annotations)
        and all(_fits(one, request, permits=rule.action == "allow") for one in rule.arguments)
        and (rule.other_arguments or _has_no_other(request.arguments, rule.arguments))
    )


def _has_no_other(arguments: Mapping[str, Any], named: Sequence[ArgumentPattern]) -> bool:
    names = {one.place[0] for one in named}
    return "*" in names or arguments.keys() <= names


def _fits(condition: ArgumentPattern, request: PolicyRequest, *, permits: bool) -> bool:
    if request.shown_arguments is None:
        return condition.matches(request.arguments, permits=permits)
    forms = [request.arguments, request.shown_arguments]
    if not permits:
        return any(condition.matches(form, permits=False) for form in forms)
    first = condition.place[0] if condition.place else "*"
    having = [form for form in forms if first == "*" or first in form]
    return bool(having) and all(condition.matches(form, permits=True) for form in having)


def _is_about(rule: Rule, request: PolicyRequest) -> bool:
    if not (rule.tools or rule.resources or rule.prompts):
        return request.kind == "tool" or not rule.annotations
    permits = rule.action == "allow"
    match request.kind:
        case "tool" | "prompt":
            globs = rule.tools if request.kind == "tool" else rule.prompts
            # A name that looks like a forbidden one is forbidden too.
            return _matches(request.tool, globs) or (not permits and _looks_like(request.tool, globs))
        case "resource":
            patterns = (ValuePattern("glob", glob) for glob in rule.resources)
            try:
                return any(one.matches(request.tool, permits=permits) for one in patterns)
            except UnmatchableError:
                return not permits


def _looks_like(name: str, globs: Iterable[str]) -> bool:
    """Return whether a name looks like one of the globs, with letters that others stand for or are unseen."""
    if name.isascii() and name.isprintable():
        return False
    # Accents count as nothing: some fonts draw none.
    plain = unicodedata.normalize("NFKD", visible_part(name))
    bare = "".join(letter for letter in plain if unicodedata.category(letter) not in ("Mn", "Me"))
    return _matches(skeleton(bare), [*globs, *map(skeleton, globs)])


def _matches(name: str, globs: Iterable[str]) -> bool:
    return any(glob == name or fnmatchcase(name, glob) for glob in globs)


def _holds(condition: str, annotations: Mapping[str, Any]) -> bool:
    hint, default = ANNOTATIONS[condition.removeprefix("!")]
    value = annotations.get(hint)
    held = value if isinstance(value, bool) else default
    if condition.removeprefix("!") == "destructive" and annotations.get("readOnlyHint") is True:
        # The protocol gives the hint a meaning only for tools that change something.
        held = False
    return held is not condition.startswith("!")


def copied(value: T, depth: int = 0) -> T:
    """Return a deep copy of a value, as JSON.

    The policy checks this copy, and this copy is sent: nothing can change it in between. A value that is not
    JSON (a path, an enum, a model) becomes what it would be sent as.

    Raises:
        InvalidArgumentsError: The value is nested too deeply, or contains itself.
    """
    if depth > MAX_DEPTH:
        msg = f"the arguments are nested more than {MAX_DEPTH} levels deep"
        raise InvalidArgumentsError(msg, problems=[msg], hint="send a flatter structure")
    found: Any = value
    if isinstance(value, Mapping):
        table = cast("Mapping[Any, Any]", value)
        found = {_key(key): copied(inner, depth + 1) for key, inner in table.items()}
    elif isinstance(value, list):
        found = [copied(inner, depth + 1) for inner in cast("list[Any]", value)]
    elif isinstance(value, tuple):
        found = tuple(copied(inner, depth + 1) for inner in cast("tuple[Any, ...]", value))
    elif type(found) not in _PLAIN and (plain := _as_sent(found)) is not found:
        found = copied(plain, depth + 1)
    return found


def _key(key: Any) -> Any:
    return key if type(key) in _PLAIN else next(iter(cast("dict[Any, Any]", _as_sent({key: None}))))


def _as_sent(value: Any) -> Any:
    """Return a value as it is sent in a message; a value that cannot be sent comes back unchanged."""
    if isinstance(value, str):
        return str.__str__(value)
    from pydantic_core import to_jsonable_python  # late: a model's arguments are JSON already

    try:
        return to_jsonable_python(value)
    except ValueError:
        return value


def denial(
    decision: Decision,
    *,
    tool: str,
    server: str,
    own_name: str = "",
    asked: bool = False,
    entry: PendingApproval | None = None,
) -> CallDeniedError:
    """Return the error for a denied call.

    Args:
        decision: The policy's decision.
        tool: The exposed name of the tool, the URI of the resource, or the name of the prompt.
        server: Its server.
        own_name: The server's own name of the tool, for the rule that would allow it.
        asked: Whether a person was asked and declined; otherwise there was no one to ask.
        entry: What became of it in the inbox, if it waited there.
    """
    is_told = decision.reason and (decision.rule or not asked)
    reason = f": {for_log(decision.reason, 500)}" if is_told else ""
    if decision.action == "deny":
        text, hint = "Blocked by {by}", "use another tool, or ask the user"
    elif entry is not None and entry.state == "expired":
        seconds = entry.expires_at - entry.asked_at
        text = f"`{tool}` needs confirmation by {{by}}, and nobody answered within {seconds:g} s"
        hint = "ask the user before you repeat it"
    elif asked:
        text, hint = f"the user declined `{tool}`", "do not repeat it; ask what to do instead"
    else:
        text = f"`{tool}` needs confirmation by {{by}}, but no one can be asked here"
        hint = "run it where a person can answer, or allow it in the policy"
        if own_name and server and not decision.rule:
            rule = json.dumps(allowing(server, own_name), ensure_ascii=False)
            hint += f" with the rule {for_log(rule, 300)}"
    place = f" in {for_log(decision.source, 300)}" if decision.source else ""
    by = f"rule `{decision.label or decision.rule}`{place}" if decision.rule else "the policy's default"
    public = f"rule `{decision.public_label}`" if decision.rule else "the policy's default"
    return CallDeniedError(
        f"{text.replace('{by}', by)}{reason}",
        tool=tool,
        server=server,
        rule=decision.rule or "default",
        hint=hint,
        public_message=f"{text.replace('{by}', public)}{reason} ({hint})",
    )


class ReadPolicy(Struct, kw_only=True):
    """The policy of one file, and the problems in it."""

    rules: Sequence[Rule] = ()
    default: Action | None = None
    problems: Sequence[str] = ()
    source: str = ""
    """The file's path."""


def read_policy(
    data: object, *, scope: Scope, source: str = "", lines: Sequence[int | None] = ()
) -> ReadPolicy:
    """Read a policy: a list of rules, or an object with `rules` and `default`.

    Args:
        data: The value in the file.
        scope: The file's scope.
        source: The file's name, for errors.
        lines: The line of each rule, where they are known.
    """
    problems: list[str] = []
    default: Action | None = None
    rules = data
    if isinstance(data, Mapping):
        table = cast("Mapping[str, object]", data)
        rules = table.get("rules", [])
        given = table.get("default")
        problems += [
            f"unknown key `{key}`; a policy has `rules` and `default`"
            for key in table.keys() - {"rules", "default"}
        ]
        if given is not None:
            default = _action(given)
            if default is None:
                problems.append("`default` must be `allow`, `ask` or `deny`; `deny` is used")
                default = "deny"
    if not isinstance(rules, list):
        problems.append("`rules` must be a list; every call is denied until this is fixed")
        rules = [_everything(scope, source)]
        return ReadPolicy(rules=rules, default=default, problems=problems, source=source)
    read: list[Rule] = []
    for number, item in enumerate(cast("list[object]", rules)[:MAX_RULES], 1):
        line = lines[number - 1] if number <= len(lines) else None
        place = f"{source}:{line}" if line else f"{source}#{number}"
        rule, wrong = _read_rule(item, scope, place if source else str(number))
        problems += [f"rule {number}: {text}" for text in wrong]
        read += [] if rule is None else [rule]
    if len(cast("list[object]", rules)) > MAX_RULES:
        problems.append(f"more than {MAX_RULES} rules; every call is denied until there are fewer")
        read.insert(0, _everything(scope, source))
    return ReadPolicy(rules=read, default=default, problems=problems, source=source)


def combine(parts: Iterable[tuple[Scope, ReadPolicy]], default: Action = "allow") -> Policy:
    """Combine the policies of several scopes into one.

    Args:
        parts: The scopes and their policies, the strongest first.
        default: The default if no scope sets one; a project can only set a stricter one.
    """
    listed = list(parts)
    named: list[Action] = [
        part.default for scope, part in listed if part.default is not None and scope != "project"
    ]
    chosen, reason = named[0] if named else default, ""
    for scope, part in listed:
        if scope == "project" and part.default not in (None, chosen):
            stricter = _stricter(chosen, part.default)
            if stricter != chosen:
                file = for_log(part.source.replace("\\", "/").rpartition("/")[2], 100)
                chosen, reason = stricter, f"the default of the project's file {file}"
    rules = [rule for _, part in listed for rule in part.rules]
    return Policy(rules=rules, default=chosen, default_reason=reason)


def _everything(scope: Scope, source: str) -> Rule:
    return Rule(action="deny", scope=scope, source=source, reason="the policy cannot be read")


def _action(value: object) -> Action | None:
    return cast("Action", value) if isinstance(value, str) and value in STRICTNESS else None


def _read_rule(item: object, scope: Scope, source: str) -> tuple[Rule | None, list[str]]:
    if not isinstance(item, dict):
        return _everything(scope, source), ["must be an object; every call is denied until this is fixed"]
    table = cast("dict[str, object]", item)
    known = sorted(key.name for key in keys(Rule).values())
    wrong = [
        f"unknown key `{key}`; known keys: {', '.join(known)}" for key in sorted(table.keys() - set(known))
    ]
    action = _action(table.get("action"))
    if action is None:
        wrong.append("`action` must be `allow`, `ask` or `deny`")
    globs: dict[str, Any] = {field: _globs(table, keys(Rule)[field].name, wrong) for field in _GLOBS}
    globs["servers"] = globs["servers"] or ["*"]
    annotations = _annotations(table.get("annotation"), wrong)
    if annotations and (globs["resources"] or globs["prompts"]):
        wrong.append("`annotation` applies to tools only; write another rule for resources and prompts")
    arguments = _arguments(table.get("arguments"), wrong)
    name, reason = (_text(table, key, wrong) for key in ("name", "reason"))
    others = table.get("other_arguments", True)
    if not isinstance(others, bool):
        wrong.append("`other_arguments` must be true or false")
    if wrong and action == "allow":
        return None, wrong
    if wrong:
        said = f"rule {source} cannot be read: {wrong[0]}"
        return Rule(action="deny", **globs, scope=scope, source=source, reason=said), wrong
    rule = Rule(
        action=cast("Action", action),
        **globs,
        annotations=annotations,
        arguments=arguments,
        other_arguments=others is not False,
        name=for_log(name, 100),
        reason=for_log(reason, _PROJECT_REASON if scope == "project" else _REASON),
        scope=scope,
        source=source,
    )
    return rule, []


def _globs(table: Mapping[str, object], key: str, wrong: list[str]) -> Sequence[str]:
    if key not in table:
        return ()
    value = table[key]
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, str) and item for item in items):
        wrong.append(f"`{key}` must be a name, a glob, or a list of them")
        return ["*"]
    return cast("list[str]", items)


def _annotations(value: object, wrong: list[str]) -> Sequence[str]:
    if value is None:
        return ()
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    known = [item for item in items if isinstance(item, str) and item.removeprefix("!") in ANNOTATIONS]
    if len(known) < len(items) or not items:
        wrong.append(
            f"`annotation` must be one of {', '.join(ANNOTATIONS)}, or one of these with `!` in front"
        )
    return known


def _arguments(value: object, wrong: list[str]) -> Sequence[ArgumentPattern]:
    if value is None:
        return ()
    if not isinstance(value, dict) or not value:
        wrong.append(
            "`arguments` must be an object that maps an argument's name or JSON pointer to a pattern"
        )
        return ()
    found: list[ArgumentPattern] = []
    for place, pattern in cast("dict[str, object]", value).items():
        try:
            found.append(ArgumentPattern(read_place(place), read_patterns(pattern)))
        except ValueError as exc:
            wrong.append(f"`arguments.{for_log(place, 100)}`: {exc}")
    return found


def _text(table: Mapping[str, object], key: str, wrong: list[str]) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        wrong.append(f"`{key}` must be a string")
        return ""
    return value
