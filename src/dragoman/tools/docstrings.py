"""What a docstring says of a function, and of each of its parameters, in Google, Sphinx or NumPy style."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_GOOGLE = re.compile(
    r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters):\s*$"
)
_NUMPY = re.compile(r"(Parameters|Other Parameters)\s*$")
_RULE = re.compile(r"\s*-{3,}\s*$")
_ENTRY = re.compile(r"\*{0,2}(?P<name>\w++)\s*+(?:\([^)]*+\)\s*+)?:\s*+(?P<text>.*)$")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?::.*)?$")
_SPHINX = re.compile(r":(?P<field>\w++)(?P<words>\s[^:]*+)?+:\s*+(?P<text>.*)$")
_SPHINX_NAME = re.compile(r"\*{0,2}(\w+)")
_PARAMETER_FIELDS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword", "kwarg"})


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring, taken apart."""

    description: str
    """Everything but what is about parameters."""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


def read_docstring(text: str) -> Docstring:
    """Take a docstring apart; what does not look like parameters stays in the description."""
    # Each blank line at the beginning would cost `cleandoc` as much as all that follow.
    text = "\n" + text.lstrip("\n") if text.startswith("\n") else text
    lines = inspect.cleandoc(text.rstrip()).splitlines()
    kept: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        following = lines[at + 1] if at + 1 < len(lines) else ""
        if _GOOGLE.match(line) and (not following.strip() or following[:1].isspace()):
            end = _end_of_block(lines, at + 1, 0)
            parameters |= _google(lines[at + 1 : end])
            at = end
        elif _NUMPY.match(line) and _RULE.match(following):
            end = _end_of_numpy(lines, at + 2)
            parameters |= _numpy(lines[at + 2 : end])
            at = end
        elif (found := _SPHINX.match(line)) and (
            found["field"] == "type" or (found["field"] in _PARAMETER_FIELDS and _sphinx_name(found["words"]))
        ):
            end = _end_of_block(lines, at + 1, 0, blank_ends=True)
            if found["field"] != "type":
                parameters[_sphinx_name(found["words"])] = _joined([found["text"], *lines[at + 1 : end]])
            at = end
        else:
            kept.append(line)
            at += 1
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), parameters)


def _sphinx_name(words: str | None) -> str:
    """Return the parameter that a field is about: its last word, without the stars."""
    last = (words or "").split()[-1:]
    name = _SPHINX_NAME.fullmatch(last[0]) if last else None
    return name[1] if name else ""


def _end_of_block(lines: list[str], start: int, indent: int, *, blank_ends: bool = False) -> int:
    """Return where what is indented further than `indent` ends."""
    for at in range(start, len(lines)):
        line = lines[at]
        if not line.strip():
            if blank_ends:
                return at
        elif _indent(line) <= indent:
            return at
    return len(lines)


def _end_of_numpy(lines: list[str], start: int) -> int:
    """Return where a section ends: before the next heading, or where nothing is a parameter any more."""
    for at in range(start, len(lines)):
        following = lines[at + 1] if at + 1 < len(lines) else ""
        if lines[at].strip() and _RULE.match(following):
            return at
        if (
            at
            and not lines[at - 1].strip()
            and lines[at].strip()
            and not _NUMPY_ENTRY.match(lines[at].strip())
        ):
            return at
    return len(lines)


def _google(lines: list[str]) -> dict[str, str]:
    indent = min((_indent(line) for line in lines if line.strip()), default=0)
    return {
        found["name"]: _joined([found["text"], *more])
        for head, more in _entries(lines, indent)
        if (found := _ENTRY.match(head)) is not None
    }


def _numpy(lines: list[str]) -> dict[str, str]:
    return {
        found["name"]: _joined(more)
        for head, more in _entries(lines, 0)
        if (found := _NUMPY_ENTRY.match(head)) is not None
    }


def _entries(lines: list[str], indent: int) -> Iterator[tuple[str, list[str]]]:
    """Yield each entry's first line, and the lines that go on with it."""
    head, more = "", list[str]()
    for line in lines:
        if line.strip() and _indent(line) <= indent:
            if head:
                yield head, more
            head, more = line.strip(), []
        else:
            more.append(line)
    if head:
        yield head, more


def _joined(lines: list[str]) -> str:
    return " ".join(stripped for line in lines if (stripped := line.strip()))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
