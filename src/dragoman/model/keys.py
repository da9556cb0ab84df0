"""Keys: what a configuration file may say, declared once, in the annotation of the field that it sets.

What reads, writes, compares, approves, shares, shows and documents keys asks `keys` for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, is_typeddict

import msgspec

from dragoman.struct import Struct, defaults, field_names

Form: TypeAlias = Literal["flag", "choice", "text", "count", "seconds", "size", "names", "table", "other"]
"""How a value is written: `count` is a whole number above zero, `names` one text or a list of them."""


class _Documented(Struct):
    doc: str
    """What the key means, in one sentence."""


class Key(_Documented, kw_only=True):
    """What holds for one key of a configuration file."""

    # How it is written
    name: str = ""
    """Its name in a file; that of the field unless given."""
    spellings: Sequence[str] = ()
    """Other names for it in dragoman's own format; those inside a table stand beside the table."""
    milliseconds: Sequence[str] = ()
    """Other names under which a plain number is milliseconds."""
    opposite: str = ""
    """The key that says the contrary."""
    unit: Literal["", "s", "bytes"] = ""
    contains: str = ""
    """What each valid text contains."""
    is_template: bool = False
    """Whether `${…}` is replaced in its texts."""
    in_files: bool = True
    """Whether a file can set it; otherwise only a program can."""
    unless_given: str = ""
    """What holds if it is absent, where that is not simply the field's default."""
    # What follows from it
    layers: Literal["strongest", "every"] = "strongest"
    """Of several files that say it, whether the strongest counts, or every one of them.

    Where a host merges servers by field, the keys of a table are merged one by one."""
    is_approved: bool = True
    """Whether the approval of a project's server covers it."""
    restarts: bool = True
    """Whether a change of it restarts the server; otherwise it is read at each use."""
    is_of_process: bool = False
    """Whether servers with different values cannot share one process."""
    mask: Literal["", "command", "words", "url", "value"] = ""
    """How secrets in it are masked: those in a command line, in arguments, in an address, or all of it.

    `trust.encoding` masks such a field wherever it is shown, and no `repr` has it."""
    is_users_own: bool = False
    """Whether no file of a project can set it, approved or not."""
    is_always_shown: bool = False
    """Whether `config show --json` has it although it is the default."""
    # Filled in by `keys`
    field: str = ""
    type: Any = None
    """The type of the field, without `None`."""
    default: Any = msgspec.UNSET

    @property
    def form(self) -> Form:
        """How a value is written, by the type of the field and the unit."""
        if self.unit:
            return "seconds" if self.unit == "s" else "size"
        if is_table(self.type):
            return "table"
        origin = get_origin(self.type)
        forms: dict[Any, Form] = {bool: "flag", str: "text", int: "count"}
        origins: dict[Any, Form] = {Literal: "choice", Sequence: "names", Mapping: "table"}
        return forms.get(self.type) or origins.get(origin) or "other"

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it can be, if it is a choice."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def is_private(self) -> bool:
        """Whether a value, or one inside it, may be a secret."""
        return bool(self.mask) or (is_table(self.type) and any(one.mask for one in keys(self.type).values()))


def is_table(kind: Any) -> bool:
    """Return whether a type is a class with keys of its own."""
    return is_typeddict(kind) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct))


@cache
def keys(kind: type[Any]) -> Mapping[str, Key]:
    """Return the keys of a class by their fields, in the order of the fields."""
    usual = defaults(kind) if issubclass(kind, msgspec.Struct) else {}
    found: dict[str, Key] = {}
    for cls in reversed(kind.__mro__):
        for name, hint in getattr(cls, "__annotations__", {}).items():
            if not hasattr(hint, "__metadata__") and "Key(" in str(hint):
                # What it marks as secret would be shown.
                msg = f"the annotation of {cls.__name__}.{name} is a text, so its key is not found"
                raise TypeError(msg)
            for key in getattr(hint, "__metadata__", ()):
                if isinstance(key, Key):
                    found[name] = key.replace(
                        field=name,
                        name=key.name or name,
                        type=_without_none(hint.__origin__),
                        default=usual.get(name, msgspec.UNSET),
                    )
    order = field_names(kind) if issubclass(kind, msgspec.Struct) else found
    return {name: found[name] for name in order if name in found}


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return Union[tuple(one for one in get_args(kind) if one is not NoneType)]  # noqa: UP007 -- a list of types


def nested(*kinds: type[Any]) -> dict[str, Key]:
    """Return the keys of classes and of the tables in them by their places, as `lazy` or `timeouts.call`."""
    found: dict[str, Key] = {}
    for kind in kinds:
        for name, key in keys(kind).items():
            found[name] = key
            if is_table(key.type):
                found |= {f"{name}.{inner}": one for inner, one in keys(key.type).items()}
    return found


def texts_of(value: Struct, *, secret: bool = False) -> dict[str, str]:
    """Return the texts of a login that are templates, by field; or those that are never shown."""
    found = {
        name: getattr(value, name)
        for name, key in keys(type(value)).items()
        if (key.mask == "value" if secret else key.is_template)
    }
    return {name: text for name, text in found.items() if isinstance(text, str)}
