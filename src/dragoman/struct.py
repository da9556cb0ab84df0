"""The base of every noun: a `msgspec.Struct` with `replace`, and with fields that no `repr` shows.

A class costs a fraction of what a frozen dataclass costs to make, and an instance a seventh. A field with the
annotation `Annotated[…, HIDDEN]`, or with a mark that masks it (`model/keys.py`), may hold a secret or a long
value: `repr` leaves it out. Commands and endpoints show structs as JSON by `trust/encoding.py`: a noun, or a
`Report` of what no noun holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, dataclass_transform

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import force_setattr

if TYPE_CHECKING:
    import inspect

__all__ = [
    "HIDDEN",
    "UNSET",
    "MutableStruct",
    "Report",
    "Struct",
    "UnsetType",
    "asdict",
    "defaults",
    "field",
    "field_names",
    "force_setattr",
    "hidden_fields",
    "is_equal",
]

HIDDEN = "hidden"
"""In `Annotated[…, HIDDEN]`: the field is not part of a `repr`."""


def _is_hidden(hint: Any) -> bool:
    # Annotations are texts nearly everywhere, and many name types that only type checkers import.
    if isinstance(hint, str):
        return "HIDDEN]" in hint
    return any(one == HIDDEN or getattr(one, "mask", "") for one in getattr(hint, "__metadata__", ()))


class _Meta(msgspec.StructMeta):
    """Gives each struct class a signature, for `help` and for notebooks.

    That of `msgspec` evaluates annotations, which fails for names that only type checkers import. This one
    shows them as they are written, as that of a dataclass does.
    """

    @property
    def __signature__(self) -> inspect.Signature:
        import inspect  # only tools ask for signatures

        names, count = self.__struct_fields__, len(self.__struct_defaults__)
        given = (*[msgspec.NODEFAULT] * (len(names) - count), *self.__struct_defaults__)
        hints = {
            name: hint.__origin__ if hasattr(hint, "__metadata__") else hint
            for one in reversed(self.__mro__)
            for name, hint in vars(one).get("__annotations__", {}).items()
        }
        return inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD
                    if name in self.__match_args__
                    else inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if default is msgspec.NODEFAULT else default,
                    annotation=hints.get(name, inspect.Parameter.empty),
                )
                for name, default in zip(names, given, strict=True)
            ]
        )


class _Base(msgspec.Struct, metaclass=_Meta):
    _hidden: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **_: Any) -> None:
        cls._hidden = cls._hidden.union(
            name for name, hint in cls.__annotations__.items() if _is_hidden(hint)
        )

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values for some fields."""
        return msgspec.structs.replace(self, **changes)

    def __repr__(self) -> str:
        shown = (name for name in self.__struct_fields__ if name not in self._hidden)
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


class MutableStruct(_Base):
    """A struct whose fields can be assigned."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Struct(_Base, frozen=True):  # pyright: ignore[reportGeneralTypeIssues] -- the base has no fields
    """A struct whose fields cannot be assigned; it is equal to another with equal fields."""


class Report(Struct):
    """What a command or an endpoint shows as JSON; a field that is `UNSET` is absent.

    Keys are added, never renamed or removed. Durations are in seconds.
    """

    @classmethod
    def of(cls, source: object, /, **values: Any) -> Self:
        """Return a report with these values, and with the attributes of an object for the other fields."""
        names = [name for name in field_names(cls) if name not in values and hasattr(source, name)]
        return cls(**{name: getattr(source, name) for name in names}, **values)


def field_names(kind: type[msgspec.Struct] | msgspec.Struct) -> tuple[str, ...]:
    """Return the names of the fields, in their order."""
    return kind.__struct_fields__


def hidden_fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Return the names of the fields that no `repr` shows."""
    return getattr(kind, "_hidden", frozenset())


def defaults(kind: type[msgspec.Struct] | msgspec.Struct) -> dict[str, Any]:
    """Return the default of each field that has one."""
    names, values = kind.__struct_fields__, kind.__struct_defaults__
    found = dict(zip(names[len(names) - len(values) :], values, strict=True))
    return {
        name: value.factory() if hasattr(value, "factory") else value
        for name, value in found.items()
        if value is not msgspec.NODEFAULT
    }


def is_equal(one: Struct, other: object, *, ignored: str) -> bool:
    """Return whether two structs of one class differ in one field at most: the ignored one."""
    if type(one) is not type(other):
        return False
    return all(getattr(one, name) == getattr(other, name) for name in field_names(one) if name != ignored)


def asdict(value: msgspec.Struct) -> dict[str, Any]:
    """Return the fields by name, without those that are `UNSET`; structs inside become mappings, too."""
    found = {name: getattr(value, name) for name in value.__struct_fields__}
    return {name: _plain(item) for name, item in found.items() if item is not UNSET}


def _plain(value: object) -> Any:
    if isinstance(value, msgspec.Struct):
        return asdict(value)
    if isinstance(value, list | tuple):
        return type(cast("list[object]", value))(map(_plain, cast("list[object]", value)))
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[object, object]", value).items()}
    return value
