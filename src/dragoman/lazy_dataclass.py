"""Dataclasses whose methods are compiled at their first use.

The standard library writes the methods of a dataclass as source text and compiles them when the class is
made: 0.6 ms for a frozen one, and half of the time that our modules take to import, though most of the
classes are not used in most programs. Here a class gets its fields and slots at once, and each method when
it is first looked up. The standard library still makes that method, so nothing else differs.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, **options):
        """Make a dataclass; it takes the options `frozen`, `slots`, `kw_only` and `eq`."""
        return _made(cls, **options) if cls is not None else lambda one: _made(one, **options)


class _Method:
    """Stands in a class for one of its methods, until that is looked up."""

    def __init__(self, name: str, compiled: Callable[[str], Any]) -> None:
        self._name = name
        self._compiled = compiled

    def __get__(self, instance: object, owner: type) -> Any:
        return self._compiled(self._name).__get__(instance, owner)


def _made(
    cls: Any, *, frozen: bool = False, slots: bool = False, kw_only: bool = False, eq: bool = True
) -> Any:
    if any(map(dataclasses.is_dataclass, cls.__bases__)):
        # A frozen class can only extend a frozen one, and what is made below is that in effect, not by name.
        return dataclasses.dataclass(frozen=frozen, slots=slots, kw_only=kw_only, eq=eq)(cls)
    body = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    has_hash = body.get("__hash__") is not None
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    params = made.__dataclass_params__
    params.init, params.repr, params.eq, params.frozen = True, True, eq, frozen

    def compiled(name: str) -> Any:
        full = dataclasses.dataclass(
            init=name == "__init__",
            repr=name == "__repr__",
            eq=name in ("__eq__", "__hash__"),
            frozen=frozen,
            slots=slots,
            kw_only=kw_only,
        )(type(cls)(cls.__name__, cls.__bases__, dict(body)))
        method = full.__dict__[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(made, name, method)
        return method

    names = ["__init__", "__repr__", *(["__eq__"] if eq else ()), *(["__hash__"] if eq and frozen else ())]
    for name in names:
        if name not in body or (name == "__hash__" and not has_hash):
            setattr(made, name, _Method(name, compiled))
    if eq and not frozen and not has_hash:
        made.__hash__ = None
    if frozen:
        _freeze(made, slots=slots)
    return made


def _freeze(cls: Any, *, slots: bool) -> None:
    fields = cls.__dataclass_fields__

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in fields:
            msg = f"cannot assign to field {name!r}"
            raise dataclasses.FrozenInstanceError(msg)
        object.__setattr__(self, name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is cls or name in fields:
            msg = f"cannot delete field {name!r}"
            raise dataclasses.FrozenInstanceError(msg)
        object.__delattr__(self, name)

    cls.__setattr__ = set_attribute
    cls.__delattr__ = delete_attribute
    if slots:
        # `pickle` and `copy` would assign the attributes.
        cls.__getstate__ = _state
        cls.__setstate__ = _set_state


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
