"""No text from a server or a file can hold the program up: every pattern and every parser is timed.

Patterns are found by walking the source: every `re.compile(…)` and `re.sub(…, …)` of the package is tried with
texts that are built from the pattern itself (runs of what it repeats, openings without an end, near misses).
A pattern that is put together at run time needs a sample in `DEPENDENT`. Parsers are listed in `parsers()`.

A pattern that has been measured is in `tests/data/measured_patterns.txt` and is measured again by `make prove
ONLY=patterns` alone, which writes that list: `make test` measures the patterns that are new or changed.

Both have to be linear. No test asserts seconds: how long 64 KB may take is a multiple of what a fixed piece of work
takes in the same process, and what looks too slow is measured again, in turns with that work. So a machine that is
slow or busy fails nothing.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import math
import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.stopwatch import STOPWATCH, Stopwatch

from dragoman.errors import DragomanError
from dragoman.trust import readings, sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "dragoman"
LARGE = 64 * 1024
LEVELS = {24: 1000, 256: 150, 1024: 10, 4 * 1024: 3, 16 * 1024: 2, LARGE: 0}
"""By the size of a text: how many of those that are the slowest then are tried at the next size."""
MOST_SHORT = 1024
"""Texts up to this size have a tenth of the time: they find what takes forever, before a larger size does."""
MOST = 32
"""How many times the reference work a text of `LARGE` characters may take: about 0.12 s on a machine of 2024."""
METHODS = {"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
MENTIONED = re.compile(rf"\bre\.|\b_compiled\b|\.(?:{'|'.join(METHODS)})\b")

MEASURED = Path(__file__).parent / "data" / "measured_patterns.txt"
"""The fingerprints of the patterns that were measured."""
OTHERS = {"dragoman.server.oauth.safe_fetch:_PARAMETER"}
"""Patterns that another change replaces."""
DEPENDENT = {
    "dragoman.config.dialects.agents:pattern": [
        ("A_MCP_(?:(?P<s>[A-Z0-9_]+)_)??(?P<k>SERVER_URL|TIMEOUT)", "fullmatch")
    ],
    "dragoman.agent.code.stubs:f'\\\\b{word}\\\\b'": [(r"\bword\b", "search")],
    "dragoman.cli.options:f'`dragoman {known}(?!-|import\\\\b|[^`]* --profile )'": [
        (r"`dragoman (?:--(?:profile|config) (?:'[^']*'|[^\s'`]+) )*(?!-|import\b|[^`]* --profile )", "sub")
    ],
    "dragoman.trust.sandbox:f'(?<![a-z]){word}(?![a-z])'": [(r"(?<![a-z])kube\w*|k8s(?![a-z])", "search")],
    "dragoman.trust.sandbox:re.escape(name).replace('\\\\*', '.*')": [
        (r"(?is)\.config/.*chrom.*", "fullmatch")
    ],
    "dragoman.trust.sandbox:pattern": [(one.pattern, "finditer") for one in sandbox._DENIED],
    "dragoman.cli.known:f'(?<![\\\\w-]){re.escape(name)}(?![\\\\w-])'": [
        (r"(?<![\w-])name(?![\w-])", "search")
    ],
    "dragoman.config.edit:pattern": [(r"(?<!\S)word(?!\S)", "sub")],
    "dragoman.trust.masking:is_closed": [(r"(?<!\\)\"", "search")],
    "dragoman.adapters.bridge:self._illegal": [("[^A-Za-z0-9_-]", "sub"), (r"\W|^(?=\d)", "sub")],
    "dragoman.tools.names:f'[^{self.characters}]'": [("[^a-zA-Z0-9_-]", "sub")],
    "dragoman.trust.readings:f'{SEQUENCE}|(?![\\\\x80-\\\\x9f\\\\ud800-\\\\udfff]){HARMFUL}|{shown}'": [
        (readings._unseen().pattern, "sub")
    ],
    # Only compiled, never matched.
    "dragoman.tools.export.apis.openai:pattern": [],
}
"""By the place of a pattern that depends on arguments: examples of it, each with the method that is used."""
IN_CONTAINERS = {"dragoman.config.templates": "_spelling_pattern", "dragoman.trust.findings": "_sign"}
"""Functions that make patterns, by their module: what they made is found where it is kept."""


# ── finding the patterns


@dataclass(frozen=True)
class Found:
    """A pattern of the package, and what is called on it."""

    where: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]
    most: float = MOST


def parsed() -> Iterator[tuple[str, list[ast.AST]]]:
    """Yield the nodes of each module that may have to do with patterns: each test process waits for this."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        if not MENTIONED.search(text):
            continue
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        wanted = (ast.Attribute, ast.Assign, ast.Call)
        yield name, [node for node in ast.walk(ast.parse(text)) if isinstance(node, wanted)]


def uses(nodes: list[ast.AST]) -> dict[str, set[str]]:
    """Return which methods of a pattern are called on each name."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in METHODS and isinstance(node.value, ast.Name):
            found.setdefault(node.value.id, set()).add(node.attr)
    return found


@cache
def found_patterns() -> tuple[list[Found], list[str]]:
    """Return every pattern of the package, and the places of those that only a run can tell."""
    patterns: list[Found] = []
    unknown: list[str] = []
    everywhere: dict[str, set[str]] = {}
    modules = [(name, nodes, uses(nodes)) for name, nodes in parsed()]
    for _, _, used in modules:
        for name, methods in used.items():
            everywhere.setdefault(name, set()).update(methods)
    for name, nodes, used in modules:
        source_calls = [node for node in nodes if isinstance(node, ast.Call) and is_re(node, name)]
        if not source_calls:
            continue
        module = importlib.import_module(name)
        owners = {id(value): target for target, value in assignments(nodes)}
        for call in source_calls:
            owner = owners.get(id(call), "")
            place = f"{name}:{owner or ast.unparse(call.args[0])}"
            method = ast.unparse(call.func).rpartition(".")[2]
            try:
                pattern = evaluated(call, module)
            except NameError:
                unknown.append(place)
                continue
            if method in METHODS:
                methods = {method}
            else:
                methods = (used.get(owner) or everywhere.get(owner) or {"search"}) if owner else {"search"}
            patterns.append(Found(place, pattern, frozenset(methods)))
    return patterns, unknown


def is_re(call: ast.Call, module: str) -> bool:
    match call.func:
        case ast.Name("_compiled"):
            return module in ("dragoman.visible", "dragoman.trust.sanitizing")
        case ast.Attribute(ast.Name("re"), method):
            return method in METHODS | {"compile"}
        case _:
            return False


def assignments(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def evaluated(call: ast.Call, module: Any) -> re.Pattern[Any]:
    """Compile what a call compiles; a `NameError` where that depends on arguments."""
    names = vars(module)
    given = [eval(compile(ast.Expression(call.args[0]), "", "eval"), names)]
    method = ast.unparse(call.func)
    flags = next((word.value for word in call.keywords if word.arg == "flags"), None)
    if flags is None and method in ("re.compile", "_compiled") and len(call.args) > 1:
        flags = call.args[1]
    if flags is not None:
        given.append(eval(compile(ast.Expression(flags), "", "eval"), names))
    return re.compile(*given)


# ── texts that are hard for a pattern


OUTSIDERS = "!\0\nZ"
"""What may follow a run, so that a pattern that wants something else has to give up."""


@dataclass
class Maker:
    """Builds texts from a pattern: what it repeats, behind what it wants before."""

    groups: dict[int, str] = field(default_factory=dict[int, str])
    pumps: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    letters: dict[str, None] = field(default_factory=dict[str, None])
    literals: dict[str, None] = field(default_factory=dict[str, None])

    def sample(self, items: Any, before: str = "") -> str:
        """Return a short text that the items match, and note every repeat on the way."""
        text = ""
        for operation, argument in items:
            text += self.one(str(operation), argument, before + text)
        return text

    def one(self, operation: str, argument: Any, before: str) -> str:
        match operation:
            case "LITERAL":
                self.literals.setdefault(chr(argument))
                return self.letter(chr(argument))
            case "NOT_LITERAL":
                return self.letter("a" if argument != ord("a") else "b")
            case "ANY":
                return self.letter("a")
            case "IN":
                return self.members(argument)[0]
            case "BRANCH":
                found = [self.sample(branch, before) for branch in argument[1]]
                return found[0]
            case "SUBPATTERN":
                number, _, _, inner = argument
                found = self.sample(inner, before)
                if number is not None:
                    self.groups[number] = found
                return found
            case "ATOMIC_GROUP":
                return self.sample(argument, before)
            case "GROUPREF":
                return self.groups.get(argument, "")
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inner = argument
                unit = self.sample(inner, before)
                if most > 60:
                    for each in dict.fromkeys([unit, *self.variants(inner)]):
                        self.pumps.append((before, each))
                return unit * max(1, min(least, 40))
            case "ASSERT" | "ASSERT_NOT":
                self.sample(argument[1], before)
                return ""
            case _:
                return ""

    def variants(self, inner: Any) -> list[str]:
        """Return what else one round of a repeat can be."""
        found: list[str] = []
        for operation, argument in inner:
            match str(operation):
                case "IN":
                    found += self.members(argument)
                case "BRANCH":
                    found += [Maker().sample(branch) for branch in argument[1]]
                case "SUBPATTERN":
                    found += self.variants(argument[3])
                case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                    found += self.variants(argument[2])
                case _:
                    pass
        return found[:12]

    def members(self, argument: Any) -> list[str]:
        """Return some of what a class holds: the ends of its ranges, and one of each kind."""
        negated = str(argument[0][0]) == "NEGATE"
        found: list[str] = []
        for operation, value in argument:
            match str(operation):
                case "LITERAL":
                    found.append(chr(value))
                case "RANGE":
                    found += [chr(value[0]), chr(value[1])]
                case "CATEGORY":
                    found += {"SPACE": " \n", "DIGIT": "1", "WORD": "a_1"}.get(
                        str(value).rpartition("_")[2] if "NOT" not in str(value) else "", "!a"
                    )
                case _:
                    pass
        if negated:
            taken = set(found)
            found = [char for char in "a 1!\n\t\"'{$" if char not in taken] or ["\u4e00"]
        return [self.letter(char) for char in found] or ["a"]

    def letter(self, char: str) -> str:
        self.letters.setdefault(char)
        return char


def hard_texts(pattern: re.Pattern[Any]) -> list[Callable[[int], str]]:
    """Return makers of texts, each of which takes the length that is wanted."""
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    maker = Maker()
    whole = maker.sample(
        re._parser.parse(
            source, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
        )
    )
    letters = list(dict.fromkeys([*maker.literals, *maker.letters]))[:14]
    units = list(dict.fromkeys([*(unit for _, unit in maker.pumps), *letters, " ", "\n", "a", "aA", "1"]))[
        :30
    ]
    openings = list(dict.fromkeys(before for before, _ in maker.pumps))[:20]
    makers: dict[tuple[str, str, str], Callable[[int], str]] = {}

    def add(before: str, unit: str, after: str) -> None:
        if unit:
            makers.setdefault(
                (before, unit, after),
                lambda size: before + unit * (max(0, size - len(before) - len(after)) // len(unit)) + after,
            )

    for before, unit in maker.pumps[:60]:
        for after in ("", *OUTSIDERS):
            add(before, unit, after)
        add("", before + unit, "!")
        add("", unit + before, "")
    for unit in units:
        add("", unit, "")
        add("", unit, "!")
    for opening in openings:
        add("", opening, "")
        add("", opening + " ", "")
    add("", whole, "")
    add("", whole + "!", "")
    for first in letters[:8]:
        for second in letters[:8]:
            add("", first + second, "!")
            add(first, second, "!")
    marks = [char for char in dict.fromkeys([*maker.literals, *maker.letters]) if not char.isalnum()][:5]
    for opening in marks:
        for first in marks:
            for second in [*marks, "a"]:
                add(opening, first + second, "!")
    return list(makers.values())


# ── timing


def trouble(
    run: Callable[[Any], object],
    makers: list[Callable[[int], Any]],
    *,
    most: float = MOST,
    watch: Stopwatch = STOPWATCH,
) -> str:
    """Say what is wrong with the slowest of the texts, or nothing."""
    hardest = makers
    for size, kept in LEVELS.items():
        seconds: list[float] = []
        for make in hardest:
            text = make(size)
            is_short = size <= MOST_SHORT
            taken, found = watch.excess(
                partial(run, text),
                most=most / 10 if is_short else most,
                quarter=None if is_short else partial(run, make(size // 4)),
            )
            if found:
                return f"{found}, for {size} characters of {text[:60]!r}"
            seconds.append(taken)
        # What is not linear stands out at a small size already: only the slowest texts are tried at larger ones.
        slowest = sorted(range(len(hardest)), key=lambda at: -seconds[at])[:kept]
        hardest = [hardest[at] for at in slowest]
    return ""


def run_of(pattern: re.Pattern[Any], method: str) -> Callable[[Any], object]:
    if method in ("sub", "subn"):
        filler = b"-" if isinstance(pattern.pattern, bytes) else "-"
        return lambda text: pattern.sub(filler, text)
    if method == "finditer":
        return lambda text: sum(1 for _ in pattern.finditer(text))
    run: Callable[[Any], object] = getattr(pattern, method)
    return run


def pattern_trouble(pattern: re.Pattern[Any], method: str, most: float = MOST) -> str:
    makers = hard_texts(pattern)
    if isinstance(pattern.pattern, bytes):
        makers = [lambda size, make=make: make(size).encode("latin-1", "replace") for make in makers]
    return trouble(run_of(pattern, method), makers, most=most)


# ── the gate


def kept_patterns() -> Iterator[Found]:
    """Yield the patterns that functions make and data keeps."""
    from dragoman.config.dialects import HOSTS, dialect
    from dragoman.config.templates import _spelling_pattern
    from dragoman.trust import findings

    for name in HOSTS:
        if spellings := dialect(name).style.spellings:
            yield Found(f"spellings of {name}", _spelling_pattern(spellings), frozenset({"finditer"}))
    for value in vars(findings).values():
        for sign in value if isinstance(value, tuple | list) else ():
            if isinstance(sign, findings.Sign):
                # Many words with gaps between them, for texts of a few thousand characters.
                yield Found(f"sign {sign.kind}", sign.pattern, frozenset({"search"}), 4 * MOST)


def fingerprint(found: Found, method: str) -> str:
    """Return what names a pattern, how it is used, and how long it may take."""
    about = repr((found.pattern.pattern, found.pattern.flags, method, found.most))
    return hashlib.sha256(about.encode()).hexdigest()[:24]


def all_patterns() -> dict[str, tuple[Found, str]]:
    """Return every pattern with a method that is called on it, by its fingerprint."""
    given = [*found_patterns()[0], *kept_patterns()]
    for place, samples in DEPENDENT.items():
        given += [Found(place, re.compile(sample), frozenset({method})) for sample, method in samples]
    return {
        fingerprint(one, method): (one, method)
        for one in given
        for method in sorted(one.methods)
        if one.where not in OTHERS
    }


@pytest.mark.timeout(300)
def test_a_new_pattern_is_linear_in_every_text() -> None:
    measured = set(MEASURED.read_text("utf-8").split())
    troubles = {
        f"{one.where} {method}": pattern_trouble(one.pattern, method, one.most)
        for key, (one, method) in all_patterns().items()
        if key not in measured
    }
    assert {place: trouble for place, trouble in troubles.items() if trouble} == {}


def test_every_pattern_that_depends_on_arguments_has_a_sample() -> None:
    patterns, at_run_time = found_patterns()
    makers = {f"{module}:" for module in IN_CONTAINERS}
    assert {place for place in at_run_time if not place.startswith(tuple(makers))} == set(DEPENDENT)
    assert len(patterns) > 150


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"\s+$", r"\$\{[^}]*\}"])
def test_the_gate_finds_a_pattern_that_is_not_linear(pattern: str) -> None:
    assert pattern_trouble(re.compile(pattern), "search")


class Machine:
    """A machine with a clock of its own: what a step of work takes depends on how busy it is."""

    def __init__(self, *, step: float = 1e-7, slow_for: int = 0) -> None:
        self.now = 0.0
        self.step = step
        self.slow_for = slow_for
        """How many pieces of work run at a third of the speed, because another process shares the core."""

    def work(self, steps: float) -> None:
        self.slow_for -= 1
        self.now += steps * self.step * (3 if self.slow_for >= 0 else 1)

    def trouble(self, steps: Callable[[int], float]) -> str:
        """Return what the gate says about work that takes so many steps for a text of this size."""
        watch = Stopwatch(clock=lambda: self.now, reference=lambda: self.work(REFERENCE_STEPS))
        return trouble(lambda text: self.work(steps(len(text))), [lambda size: "a" * size], watch=watch)


REFERENCE_STEPS = 40_000
ALLOWED = MOST * REFERENCE_STEPS / LARGE
"""Steps for each character of a text."""


@pytest.mark.parametrize("step", [1e-8, 1e-7, 1e-5], ids=["fast", "usual", "slow"])
@pytest.mark.parametrize(
    ("steps", "is_linear"),
    [
        (lambda size: 0.9 * ALLOWED * size, True),
        (lambda size: 1.1 * ALLOWED * size, False),
        # At the largest size these two take a twentieth of the time that is allowed, and ten times as much.
        (lambda size: 0.05 * ALLOWED * size**2 / LARGE, False),
        (lambda size: 10 * ALLOWED * size**2 / LARGE, False),
        (lambda size: 0.05 * ALLOWED * size * math.log2(size) / 16, True),
        (lambda size: 2.0 ** min(size, 60), False),
    ],
    ids=["slow", "too slow", "quadratic and quick", "quadratic", "nearly linear", "exponential"],
)
def test_the_gate_judges_growth_and_not_the_speed_of_the_machine(
    steps: Callable[[int], float], is_linear: bool, step: float
) -> None:
    assert (Machine(step=step).trouble(steps) == "") is is_linear


@pytest.mark.parametrize("slow_for", range(40))
def test_a_busy_moment_is_no_verdict(slow_for: int) -> None:
    assert Machine(slow_for=slow_for).trouble(lambda size: 0.9 * ALLOWED * size) == ""
    assert Machine(slow_for=slow_for).trouble(lambda size: 0.3 * ALLOWED * size**2 / LARGE) != ""


# ── parsers


def document_parser(format_: Any) -> Callable[[str], object]:
    def read(text: str) -> object:
        from dragoman.config.documents import parse

        document = parse(text, "f", format_)
        return document.line(("a", "b")), document.repeats

    return read


def loaded_as(host: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        import json

        from dragoman.config.dialects import dialect
        from dragoman.config.documents import parse
        from dragoman.config.entries import build

        found = dialect(host)
        text = text[: len(text) // 8 + 1]
        entry = {"command": text, "args": [text], "env": {"A": text}, "timeout": text}
        remote = {"url": text, "headers": {"A": text}, "type": text, text[:4000]: text}
        key = found.container[0] if found.container else "mcpServers"
        document = parse(json.dumps({key: {"a": entry, "b": remote}}), "f", "json")
        found.patch(document, "/")
        for one in found.find(document, "/"):
            with suppress(DragomanError):
                build(one, found, "project")
        return None

    return read


WITH_PATTERNS = ("codex", "continue", "crush", "fastmcp", "goose", "kiro", "librechat", "opencode", "vscode")
"""Dialects with a syntax of their own in values; the others share the rest."""


def spec_of(text: str) -> Any:
    from dragoman.model import ServerSpec, Stdio

    return ServerSpec("a", Stdio("x", [text], env={"TOKEN": text}, cwd=text))


def parsers() -> dict[str, Callable[[str], object]]:
    """Return everything that reads a text of a server or a file."""
    import json

    from dragoman import visible
    from dragoman.cli import output
    from dragoman.config import documents, edit, templates, values
    from dragoman.diagnosis import hints, review
    from dragoman.errors import printable
    from dragoman.server.protocol.rpc import Rpc
    from dragoman.server.transports.http_response import EventStream
    from dragoman.server.transports.stdio import Lines
    from dragoman.suggest import suggest
    from dragoman.tools import local, names
    from dragoman.tools.export.apis import openai
    from dragoman.tools.result import render
    from dragoman.tools.schema import problems
    from dragoman.tools.schema.cost import cost_of, flatten
    from dragoman.trust import approvals, findings, masking, patterns, pins, sanitizing
    from dragoman.trust.limits import Limits
    from dragoman.trust.masking import excerpt
    from dragoman.trust.redaction import Redactor, is_path, secret_values

    redactor = Redactor(f"hunter2-{number}-/+=&abcdef" for number in range(5))
    around = templates.ExpansionContext(env={"A": "b"}, root="/", home="/")
    hostile = {"type": "object", "properties": {"a": {"type": "string"}}}

    class Listener:
        def __getattr__(self, _name: str) -> Any:
            return lambda *_args, **_more: None

    def rpc(data: str) -> None:
        Rpc(Listener()).receive(data.encode("utf-8", "replace"))  # type: ignore[arg-type]

    return {
        **{f"config {name}": document_parser(name) for name in ("json", "toml", "yaml", "env")},
        **{f"dialect {name}": loaded_as(name) for name in WITH_PATTERNS},
        "json lines": lambda text: documents.json_lines(json.dumps({text[:4000]: text})),
        "toml lines": documents.toml_lines,
        "dotenv": documents.parse_env,
        "dotenv lines": documents.env_lines,
        "edit json": lambda text: edit.put_json(text, ("a", "b"), 1),
        "edit toml": lambda text: edit.put_toml(text, ("a", "b"), {"c": 1}),
        "template": lambda text: templates.expand(text, around, lambda _, whole: whole),
        "variables": templates.variables,
        "template of a host": lambda text: templates.to_template(
            text, templates.VariableSyntax(braces=True, bare=True, defaults=True)
        ),
        "escape": templates.escape_before,
        "duration": lambda text: values.seconds(text, "s"),
        "size": values.size_in_bytes,
        "docstring": local.read_docstring,
        "exposed name": lambda text: text.join(names.around_tool("{server}_{tool}", text)),
        "suggestions": lambda text: suggest(
            text, [text[at:] for at in range(0, len(text), len(text) // 50 + 1)]
        ),
        "event stream": lambda text: list(EventStream(10**6).feed(text.encode("utf-8", "replace"))),
        "lines": lambda text: list(Lines(10**6).feed(text.encode("utf-8", "replace"))),
        "message": rpc,
        "answer": lambda text: rpc(json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"x": text}})),
        "half a message": lambda text: rpc('{"jsonrpc":"2.0","id":1,"result":' + text),
        "mask text": masking.mask_text,
        "mask url": masking.mask_url,
        "mask url's path": lambda text: masking.mask_url(f"https://a/{text}"),
        "mask value": masking.mask_value,
        "mask argument": lambda text: masking.mask_args([text]),
        "mask arguments": lambda text: masking.mask_args(text.split(" ")),
        "mask header": lambda text: masking.mask_args(["-H", text]),
        "mask call": lambda text: masking.mask_arguments({"a": text, text: [text]}),
        "telling name": masking.is_sensitive_name.__wrapped__,
        "looks random": masking.looks_random,
        "looks like a login": masking.is_login,
        # `mask` is this and `mask_text`, and remembers short texts.
        "redactor": redactor.mask_known,
        "redactor of encodings": Redactor(["AAAAAAAAAAAA-%41=41", "\\u0061\\x41&lt;a\u00e9"]).mask_known,
        "path of a secret": lambda text: is_path(text, "TOKEN_FILE", on_disk=False),
        "secrets of a server": lambda text: secret_values(spec_of(text).transport),
        "excerpt": lambda text: excerpt(text, 2_000, redactor.mask_known),
        "for terminals": sanitizing.for_terminal,
        "for JSON": sanitizing.for_json,
        "a name": visible.is_visible,
        "visible part": visible.visible_part,
        "for logs": lambda text: sanitizing.for_log(text, None),
        "for models": sanitizing.for_model,
        "unfolded": sanitizing.unfolded,
        "skeleton": sanitizing.skeleton,
        "error": printable,
        "one line": output.one_line,
        "findings": findings.inspect_text,
        "difference": lambda text: pins.text_difference(text, text[1:] + "x"),
        "approval": lambda text: (approvals.question(spec_of(text), "/"), approvals.sources(spec_of(text))),
        "package": lambda text: review.package_of(spec_of(text).transport),
        "path of a policy": patterns.plain_path,
        "number": lambda text: problems.read_as(text, "number"),
        "object": lambda text: problems.read_as(text, "object"),
        "value in a problem": problems.shown,
        "place in a problem": lambda text: problems.place_of([text, 1, text]),
        "schema": lambda text: cost_of(
            flatten({**hostile, "pattern": text, text: {"const": text}}, is_readable=lambda _: True).schema
        ),
        "limits": lambda text: Limits().excess("name_chars", len(text), what=text),
        "carried text": lambda text: render.is_carried({"a": text}, [text]),
        "hints": lambda text: hints.hints(hints.Facts(spec=spec_of("a"), stage="handshake", stderr=text)),
        "pattern for OpenAI": openai.reads.__wrapped__,
        "markdown": lambda text: streamed(text[: len(text) // 4]),
    }


def streamed(text: str) -> object:
    from dragoman.cli.session.render_turn import Blocks

    blocks = Blocks()
    return [*blocks.feed(text), *blocks.end()]


UNITS = (
    *(" ", "\n", "\t", "\r", "a", "1", '"', "'", "\\", "`", "$", "{", "[", "(", "<", "#", "-", "*", "_", "."),
    *(
        ":",
        "=",
        ",",
        ";",
        "/",
        "@",
        "%",
        "&",
        "!",
        "|",
        "~",
        "?",
        "\x1b",
        "\x9b",
        "\0",
        "é",
        "\u200d",
        "\u0301",
    ),
    *(
        "👩",
        "\U000e0041",
        "\ud800",
        '\\"',
        "${",
        "${a",
        "$$",
        "$$${a",
        "{{",
        "{{a",
        "{{ ",
        "$(",
        "$(a",
        "${{ ",
    ),
    *(
        "a.",
        '"a".',
        "a:",
        "a: ",
        "- ",
        "a: [",
        "a: {",
        "[[",
        "]]",
        "[a]\n",
        "[a.b]\n",
        "a=1\n",
        "a = [",
        'a="',
    ),
    *(
        "'''",
        '"""',
        "//",
        "/*",
        "*/",
        "# ",
        "&a ",
        "*a ",
        "!!a ",
        "<<: ",
        "a=",
        "a=b;",
        "a=b ",
        "a://",
        "a://b@",
    ),
    *("a:b@", "://", "?a=b&", "/a", "/a1", "Bearer ", "token ", "--a ", "-p", "-H a: ", "eyJ", "sk-", "ghp_"),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "password=",
        '"token": "',
        "{'token': '",
        '\\"token\\": \\"',
        "data: a\n",
    ),
    *(
        "data:\n\n",
        "id: 1\n",
        ": \n",
        "\r\n",
        '{"id":1,',
        '"id":1}',
        '"a":',
        ",1",
        "[1,",
        "{}",
        "[]",
        "null,",
    ),
    *(
        ":param a: ",
        ":a ",
        "Args:\n",
        "  a: b\n",
        "a (b): c\n",
        "---\n",
        "Parameters\n----\n",
        "\x1b[",
        "\x1b]0;",
    ),
    *(
        "\x1b[1;2",
        "* a\n",
        "1. a\n",
        "> ",
        "```\n",
        "~~~",
        "![",
        "[a](",
        "**",
        "__",
        "<a>",
        "&amp;",
        "| a ",
        "aA",
    ),
    *(
        "a1",
        "usage: ",
        "no such option ",
        "1s",
        "1.",
        "1 ",
        "1e",
        "9",
        "MB",
        "(?:",
        "a|",
        "a*",
        "do not tell ",
    ),
    *("A_B ", "missing ", "ignore all previous "),
    *("%41", "%25", "\\u0061", "\\x41", "&#65;", "&lt;", "=41", "=\n", "QUFB\n", "0x41, ", "\u2800", "-k="),
)
FRAMES = (("", ""), ("", "!"), ('"', ""))


def framed(unit: str, frame: tuple[str, str]) -> Callable[[int], str]:
    before, after = frame
    return lambda size: before + unit * (size // len(unit)) + after


TIMES_LONGER = {
    "config yaml": 10,
    "edit toml": 12,
    "markdown": 20,
    # Each letter of these texts becomes an escape; lines of logs are cut before, questions are shown in full.
    "for logs": 3,
    "for JSON": 3,
    "unfolded": 3,
    "approval": 12,
    "hints": 4,
    "mask arguments": 6,
    "secrets of a server": 3,
}
"""Where 64 KB take longer, by the library that does the work or for the reason above; all are linear."""
PARSERS = parsers()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_is_linear_in_every_text(name: str) -> None:
    assert parser_trouble(name) == ""


def parser_trouble(name: str) -> str:
    parser = PARSERS[name]

    def run(text: str) -> None:
        with suppress(DragomanError, ValueError, LookupError, TypeError, RecursionError):
            parser(text)

    makers = [framed(unit, frame) for unit in UNITS for frame in FRAMES]
    return trouble(run, makers, most=TIMES_LONGER.get(name, 1) * MOST)


@pytest.mark.parametrize(
    "names",
    [
        [f"mcp_a_server_with_a_long_name_{number:05}_and_a_tool_{number:05}" for number in range(10_000)],
        ["a" * 200 + str(number) for number in range(10_000)],
        ["ab" * 120 + str(number) for number in range(10_000)],
    ],
    ids=["alike", "runs", "pairs"],
)
def test_a_guess_among_ten_thousand_long_names_is_quick(names: list[str]) -> None:
    from dragoman.suggest import suggest

    assert STOPWATCH.excess(lambda: suggest(names[7000][:-1] + "x", names), most=MOST)[1] == ""
