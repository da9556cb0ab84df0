"""No text from a server or a file can hold the program up: every pattern and every parser is timed.

Patterns are found by walking the source: every `re.compile(…)` and `re.sub(…, …)` of the package is tried with
texts that are built from the pattern itself (runs of what it repeats, openings without an end, near misses).
A pattern that is put together at run time needs a sample in `AT_RUN_TIME`. Parsers are listed in `PARSERS`.

Both have to be linear and to take at most 50 ms for 64 KB, by the CPU's time and at their best of several
attempts: a busy machine fails nothing.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "dragoman"
SMALL, LARGE = 16 * 1024, 64 * 1024
MOST_SECONDS = 0.05
"""For a text of `LARGE` characters."""
MOST_RATIO = 10
"""Of the times for `LARGE` and `SMALL`: 4 where the work is linear, 16 where it is quadratic."""
MEASURABLE = 0.004
"""Below this a ratio says nothing."""
ATTEMPTS = 5
METHODS = {"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}

AT_RUN_TIME: dict[str, list[tuple[str, str]]] = {}
"""By the place of a pattern that depends on arguments: examples of it, each with the method that is used."""


# ── finding the patterns


@dataclass(frozen=True)
class Found:
    """A pattern of the package, and what is called on it."""

    where: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, ast.parse(path.read_text("utf-8"))


def uses(tree: ast.Module) -> dict[str, set[str]]:
    """Return which methods of a pattern are called on each name."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS and isinstance(node.value, ast.Name):
            found.setdefault(node.value.id, set()).add(node.attr)
    return found


@cache
def found_patterns() -> tuple[list[Found], list[str]]:
    """Return every pattern of the package, and the places of those that only a run can tell."""
    patterns: list[Found] = []
    unknown: list[str] = []
    everywhere: dict[str, set[str]] = {}
    parsed = list(trees())
    for _, tree in parsed:
        for name, methods in uses(tree).items():
            everywhere.setdefault(name, set()).update(methods)
    for name, tree in parsed:
        source_calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_re(node)]
        if not source_calls:
            continue
        module = importlib.import_module(name)
        owners = {id(value): target for target, value in assignments(tree)}
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
                methods = (
                    (uses(tree).get(owner) or everywhere.get(owner) or {"search"}) if owner else {"search"}
                )
            patterns.append(Found(place, pattern, frozenset(methods)))
    return patterns, unknown


def is_re(call: ast.Call) -> bool:
    function = ast.unparse(call.func)
    return function == "_compiled" or (
        function.startswith("re.") and function.removeprefix("re.") in METHODS | {"compile"}
    )


def assignments(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.walk(tree):
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
                return [self.sample(branch, before) for branch in argument[1]][0]
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
            taken = {char for char in found}
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


def cost(work: Callable[[], object], *, enough: float = MOST_SECONDS / 10) -> float:
    """Return the CPU seconds that some work takes at its best."""
    best = float("inf")
    for _ in range(ATTEMPTS):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
        if best <= enough:
            break
    return best


def trouble(run: Callable[[Any], object], makers: list[Callable[[int], Any]]) -> str:
    """Say what is wrong with the slowest of the texts, or nothing."""
    for size in (24, 200, 1500):
        for make in makers:
            text = make(size)
            if (taken := cost(lambda: run(text))) > MOST_SECONDS / 4:
                return f"{taken * 1000:.0f} ms for {size} characters of {text[:60]!r}"
    small: list[tuple[float, Callable[[int], Any]]] = []
    for make in makers:
        text = make(SMALL)
        taken = cost(lambda: run(text), enough=MOST_SECONDS / 4)
        if taken > MOST_SECONDS:
            return f"{taken * 1000:.0f} ms for {SMALL} characters of {text[:60]!r}"
        small.append((taken, make))
    small.sort(key=lambda one: -one[0])
    for before, make in small[:4]:
        text = make(LARGE)
        taken = cost(lambda: run(text))
        if taken > MOST_SECONDS:
            return f"{taken * 1000:.0f} ms for {LARGE} characters of {text[:60]!r}"
        if taken > MEASURABLE and taken > MOST_RATIO * before:
            return f"{taken * 1000:.1f} ms for {LARGE}, {before * 1000:.1f} ms for {SMALL} of {text[:60]!r}"
    return ""


def run_of(pattern: re.Pattern[Any], method: str) -> Callable[[Any], object]:
    if method in ("sub", "subn"):
        filler = b"-" if isinstance(pattern.pattern, bytes) else "-"
        return lambda text: pattern.sub(filler, text)
    if method == "finditer":
        return lambda text: sum(1 for _ in pattern.finditer(text))
    return lambda text: getattr(pattern, method)(text)


def pattern_trouble(pattern: re.Pattern[Any], method: str) -> str:
    makers = hard_texts(pattern)
    if isinstance(pattern.pattern, bytes):
        makers = [lambda size, make=make: make(size).encode("latin-1", "replace") for make in makers]
    return trouble(run_of(pattern, method), makers)
