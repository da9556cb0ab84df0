"""A dataclass that compiles its methods late differs from the standard library's in nothing else."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, InitVar, field
from typing import Any, ClassVar

import pytest

from dragoman import lazy_dataclass

STANDARD: Any = dataclasses.dataclass
LAZY: Any = vars(lazy_dataclass)["dataclass"]
KINDS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"frozen": True},
        {"slots": True},
        {"frozen": True, "slots": True},
        {"frozen": True, "slots": True, "kw_only": True},
        {"slots": True, "eq": False},
    ],
    ids=str,
)


def both(options: dict[str, Any]) -> tuple[Any, Any]:
    """Return the same class, made by the standard library and by us."""

    def body() -> Any:
        class Point:
            """A point."""

            kind: ClassVar[str] = "point"
            x: int
            y: int = 2
            tags: list[str] = field(default_factory=list[str], compare=False)
            secret: str = field(default="", repr=False)
            kept: str = field(default="k", init=False)
            scale: InitVar[int] = 1

            def __post_init__(self, scale: int) -> None:
                object.__setattr__(self, "x", self.x * scale)

        return Point

    return STANDARD(**options)(body()), LAZY(**options)(body())


@KINDS
def test_instances_are_shown_compared_and_hashed_as_those_of_the_standard_library(
    options: dict[str, Any],
) -> None:
    def seen(cls: Any) -> list[object]:
        one, same, other = cls(x=1, tags=["a"]), cls(x=1), cls(x=1, y=3)
        hashes = hash(one) == hash(same) if cls.__hash__ is not None else "unhashable"
        changed = dataclasses.replace(one, y=5, scale=2)
        return [
            repr(one),
            one == same,
            one == other,
            one == (1, 2),
            hashes,
            repr(changed),
            changed.tags,
            str(inspect.signature(cls)),
            cls.__match_args__,
            cls.__hash__ is None,
            cls.__init__.__qualname__,
            [(one.name, one.kw_only) for one in dataclasses.fields(cls)],
            hasattr(one, "__dict__"),
            repr(copy.copy(one)),
        ]

    standard, lazy = map(seen, both(options))
    assert lazy == standard


@KINDS
def test_wrong_arguments_and_assignments_fail_as_those_of_the_standard_library(
    options: dict[str, Any],
) -> None:
    def seen(cls: Any) -> list[str]:
        made = cls(x=1)

        def assign() -> None:
            made.x = 3

        def remove() -> None:
            del made.y

        return [_failure(cls), _failure(lambda: cls(x=1, z=2)), _failure(assign), _failure(remove)]

    standard, lazy = map(seen, both(options))
    assert lazy == standard


def _failure(job: Any) -> str:
    try:
        job()
    except (TypeError, AttributeError) as exc:
        return f"{type(exc).__name__}: {exc}"
    return "no failure"


@LAZY(frozen=True, slots=True)
class Kept:  # noqa: PLW1641 -- the decorator adds `__hash__`
    """A class that pickle can find."""

    name: str
    more: dict[str, int] = field(default_factory=dict[str, int])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kept) and other.name == self.name


def test_a_frozen_instance_is_pickled_and_its_own_equality_is_kept() -> None:
    kept: Any = Kept
    read = pickle.loads(pickle.dumps(kept("a", {"b": 1})))
    assert read == kept("a", {"c": 2})
    assert read.more == {"b": 1}
    assert hash(kept("a", ())) == hash(kept("a", ()))


def test_a_class_of_the_standard_library_can_extend_a_frozen_one() -> None:
    _, lazy = both({"frozen": True, "slots": True})
    options = {"frozen": True, "slots": True}
    more = STANDARD(**options)(type("More", (lazy,), {"__annotations__": {"z": "int"}, "z": 0}))
    again = LAZY(**options)(type("Again", (lazy,), {"__annotations__": {"z": "int"}, "z": 0}))
    assert repr(more(1, z=3)) == "More(x=1, y=2, tags=[], kept='k', z=3)"
    assert again(1, z=3) == again(1, z=3)
    with pytest.raises(FrozenInstanceError):
        more(1).z = 4


def test_importing_the_model_compiles_no_method() -> None:
    program = (
        "import dataclasses\n"
        "from dragoman import model\n"
        "def left(cls):\n"
        "    return type(cls.__dict__.get('__init__')).__name__\n"
        "found = [left(one) for one in vars(model).values()\n"
        "         if isinstance(one, type) and dataclasses.is_dataclass(one)]\n"
        "print(found.count('_Method'), len(found))\n"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    late, count = map(int, output.stdout.split())
    # The defaults of some fields are instances.
    assert late > 0.9 * count
