"""What all languages share: the types of a tool, names that are legal and unique, and comments."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from dragoman.model import json_object
from dragoman.tools.schema.shapes import Shapes
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.model import ToolDef
    from dragoman.tools.schema.shapes import Choices, Record, Shape

MAX_NAME = 60
MAX_DOC = 2_000
MAX_ABOUT = 500
_LEGAL = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nd"})


class File(NamedTuple):
    """One file of source code."""

    path: str
    """Relative to the folder of the stubs."""
    text: str


class Typed(NamedTuple):
    """A tool with its types."""

    stem: str
    """The beginning of the names of its types."""
    name: str
    """The name by which clients of the gateway call it."""
    about: str
    arguments: Shape
    result: Shape | None
    """`None` for a result that is text."""
    records: Sequence[Record]


class Names:
    """Gives out names, each once."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved)

    def unique(self, name: str) -> str:
        """Return the name, with a number if it is taken."""
        found, number = name, 2
        while found in self._taken:
            found, number = f"{name}{number}", number + 1
        self._taken.add(found)
        return found


def words_of(name: str) -> list[str]:
    """Return the words of a name, of letters and digits only, in lower case unless they are mixed."""
    text = unicodedata.normalize("NFKC", name)[: 2 * MAX_NAME]
    legal = "".join(char if unicodedata.category(char) in _LEGAL else " " for char in text)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", legal)[: 2 * MAX_NAME].split()


def pascal(name: str) -> str:
    """Return `read_file` as `ReadFile`; always with an ASCII letter in front."""
    text = "".join(word[:1].upper() + word[1:].lower() for word in words_of(name))[:MAX_NAME]
    return text if re.match(r"[A-Z]", text) else f"X{text}"


def snake(name: str) -> str:
    """Return `readFile` as `read_file`; always with an ASCII letter in front."""
    text = "_".join(word.lower() for word in words_of(name))[:MAX_NAME].strip("_")
    return text if re.match(r"[a-z]", text) else f"x{text}"


def typed(tools: Mapping[str, ToolDef], names: Names) -> list[Typed]:
    """Return tools with their types.

    Args:
        tools: The tools of one server, by the names by which clients call them.
        names: Gives out the names of types.
    """
    return [_typed(name, tool, names) for name, tool in sorted(tools.items())]


def _typed(name: str, tool: ToolDef, names: Names) -> Typed:
    stem = names.unique(pascal(tool.own_name))

    def name_record(path: Sequence[str]) -> str:
        return names.unique(stem + "".join(map(pascal, path)))

    schema = json_object(tool.input_schema)
    given = Shapes(schema, name_record)
    arguments = given.record_of(schema, ["arguments"])
    records, result = given.records, None
    if tool.output_schema is not None:
        answer = Shapes(json_object(tool.output_schema), name_record)
        result = answer.shape_of(tool.output_schema, ["result"])
        records = [*records, *answer.records]
    return Typed(stem, name, for_model(tool.description, MAX_DOC).strip(), arguments, result, records)


def texts_or_kind(choices: Choices) -> tuple[list[str], str]:
    """Return the values of a choice if all are texts; else none, and the plain type that all have."""
    texts = [value for value in choices.values if isinstance(value, str)]
    if len(texts) == len(choices.values):
        return texts, "string"
    kinds = set(map(type, choices.values))
    return [], "boolean" if kinds == {bool} else "integer" if kinds == {int} else "any"


def comment(text: str, mark: str, *, most: int = MAX_ABOUT) -> list[str]:
    """Return a text as lines of a comment, each with the mark in front."""
    lines = [line.rstrip() for line in for_model(text, most).strip().splitlines()]
    return [f"{mark} {line}".rstrip() for line in lines]


def quoted(text: str, escape: Callable[[int], str]) -> str:
    """Return a text as a literal in double quotes.

    Args:
        text: The text.
        escape: Writes the number of a character that is not printable.
    """
    pieces = [
        f"\\{char}" if char in '"\\' else char if char.isprintable() else escape(ord(char)) for char in text
    ]
    return f'"{"".join(pieces)}"'
