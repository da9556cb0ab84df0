"""Questions of a server to a person: a form made of its schema, or an address to visit. Pure.

The schema of an elicitation is flat: text, numbers, yes or no, and choices. A form says what is asked, reads
what a person typed, and names everything that does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from dragoman.tools.validation import Validators

TRUE_WORDS = frozenset({"y", "yes", "true", "1", "on"})
FALSE_WORDS = frozenset({"n", "no", "false", "0", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One thing that is asked for."""

    name: str
    kind: Literal["text", "integer", "number", "boolean", "choice", "choices"]
    title: str
    description: str = ""
    required: bool = False
    default: Any = None
    choices: Mapping[str, str] | None = None
    """From what is sent to what is shown."""

    def read(self, typed: str) -> Any:
        """Turn what a person typed into the value that is sent.

        Raises:
            ValueError: It says what is expected.
        """
        text = typed.strip()
        match self.kind:
            case "integer":
                return _number(text, int, "a whole number")
            case "number":
                return _number(text, float, "a number")
            case "boolean":
                return _truth(text)
            case "choice":
                return self._chosen(text)
            case "choices":
                return [self._chosen(piece.strip()) for piece in text.split(",") if piece.strip()]
            case "text":
                return typed

    def _chosen(self, text: str) -> str:
        choices = self.choices or {}
        if text in choices:
            return text
        shown = [value for value, label in choices.items() if label.casefold() == text.casefold()]
        if len(shown) == 1:
            return shown[0]
        msg = f"choose one of: {', '.join(choices)}"
        raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a server asks a person to fill in."""

    server: str
    message: str
    fields: tuple[Field, ...]
    schema: Mapping[str, Any]

    def problems(self, values: Mapping[str, Any]) -> list[str]:
        """Return everything in the values that does not fit, in words."""
        return Validators().of(dict(self.schema)).problems(dict(values))

    def defaults(self) -> dict[str, Any]:
        """Return the values that the server proposes."""
        return {field.name: field.default for field in self.fields if field.default is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """An address that a server asks a person to visit; nothing opens it without consent."""

    server: str
    message: str
    url: str
    id: str = ""


def question(server: str, params: Mapping[str, Any]) -> Form | Visit:
    """Read the parameters of `elicitation/create`."""
    message = str(params.get("message", ""))
    if params.get("mode") == "url" or ("url" in params and "requestedSchema" not in params):
        return Visit(
            server=server,
            message=message,
            url=str(params.get("url", "")),
            id=str(params.get("elicitationId", "")),
        )
    schema = _mapping(params.get("requestedSchema"))
    required = cast("list[object]", schema.get("required") or [])
    properties = _mapping(schema.get("properties"))
    fields = tuple(_field(name, _mapping(properties[name]), required=name in required) for name in properties)
    return Form(server=server, message=message, fields=fields, schema=schema)


def _field(name: str, schema: Mapping[str, Any], *, required: bool) -> Field:
    kind: Literal["text", "integer", "number", "boolean", "choice", "choices"] = "text"
    choices: dict[str, str] | None = None
    match schema.get("type"):
        case "integer" | "number" | "boolean" as plain:
            kind = plain
        case "array":
            kind, choices = "choices", _choices(_mapping(schema.get("items")))
        case _:
            choices = _choices(schema)
            kind = "choice" if choices else "text"
    return Field(
        name=name,
        kind=kind,
        title=str(schema.get("title") or name),
        description=str(schema.get("description") or ""),
        required=required,
        default=schema.get("default"),
        choices=choices,
    )


def _choices(schema: Mapping[str, Any]) -> dict[str, str] | None:
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list):
        options = [_mapping(option) for option in cast("list[object]", titled)]
        return {
            str(option.get("const")): str(option.get("title") or option.get("const")) for option in options
        }
    listed = schema.get("enum")
    if not isinstance(listed, list):
        return None
    values = [str(value) for value in cast("list[object]", listed)]
    names = schema.get("enumNames")
    shown = [str(name) for name in cast("list[object]", names)] if isinstance(names, list) else []
    labels = shown if len(shown) == len(values) else values
    return dict(zip(values, labels, strict=True))


def _number(text: str, read: type[int | float], what: str) -> int | float:
    try:
        value = read(text)
    except ValueError:
        msg = f"{what} is expected, not `{text}`"
        raise ValueError(msg) from None
    if not math.isfinite(value):
        msg = f"{what} is expected, not `{text}`"
        raise ValueError(msg)
    return value


def _truth(text: str) -> bool:
    word = text.casefold()
    if word in TRUE_WORDS | FALSE_WORDS:
        return word in TRUE_WORDS
    msg = f"yes or no is expected, not `{text}`"
    raise ValueError(msg)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
