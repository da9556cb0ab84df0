"""Errors are safe to print, whatever text of a server or a file is in them."""

from __future__ import annotations

import copy
import pickle
import traceback
from typing import Any

import pytest

from dragoman import errors
from dragoman.errors import MAX_CHARS, ConnectError, DragomanError, InvalidSpecError, ProtocolError
from dragoman.trust.error_masking import MAX_ERROR_CHARS, mask_error
from dragoman.trust.redaction import Redactor

HOSTILE = "\x1b]52;c;ZXZpbA==\x07 \x1b]8;;http://evil.example\x1b\\x \x9b31m \u202eabc\u2069 \r\x00\x7f\u2028 \ud800"
STEERING = set("\x1b\x07\x9b\u202e\u2069\r\x00\x7f\u2028\ud800")
CLASSES = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DragomanError)
]
MORE: dict[str, Any] = {
    **dict.fromkeys(
        ("server", "tool", "stage", "state", "variable", "source", "pointer", "rule", "stderr_tail"), HOSTILE
    ),
    "may_have_run": True,
    "status": 500,
    "seconds": 1.0,
    "problems": [HOSTILE, "b"],
    "line": 3,
}


def made(kind: type[DragomanError]) -> DragomanError:
    taken = kind.declared_fields
    return kind(HOSTILE, hint=HOSTILE, **{name: value for name, value in MORE.items() if name in taken})


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_can_be_pickled_and_copied_with_all_its_fields(kind: type[DragomanError]) -> None:
    error = made(kind)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert (vars(other), other.args, str(other)) == (vars(error), error.args, str(error))


def test_a_constructor_takes_the_declared_fields_and_nothing_else() -> None:
    with pytest.raises(TypeError, match="ConnectError: missing keyword argument 'server'"):
        ConnectError("x", stage="spawn")  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="DragomanError: unexpected keyword argument 'server'"):
        DragomanError("x", server="a")  # pyright: ignore[reportCallIssue]
    error = errors.AuthRequiredError("x", server="a", url="https://example.org")
    assert (error.stage, error.exit_code, error.hint) == ("connect", None, "")
    assert InvalidSpecError("x").problems == ("x",)


def test_a_subclass_with_a_constructor_of_its_own_declares_no_fields() -> None:
    class OwnError(errors.ServerError):
        extra: str

        def __init__(self, message: str) -> None:
            super().__init__(message, server="a")
            self.extra = "b"

    assert vars(OwnError("x")) == {"message": "x", "hint": "", "server": "a", "extra": "b"}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_no_error_steers_a_terminal(kind: type[DragomanError]) -> None:
    error = made(kind)
    error.add_note(HOSTILE)
    shown = [str(error), repr(error), "".join(traceback.format_exception(error)), error.message, error.hint]
    shown += [
        *getattr(error, "problems", ()),
        getattr(error, "stderr_tail", ""),
        getattr(error, "location", ""),
    ]
    assert not STEERING & set("".join(shown))
    assert "evil.example" in str(error)


def test_what_people_write_stays_in_an_error_as_it_is() -> None:
    text = "дверь 門 دریا می‌خواهم 👩‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿 a\tb\nc é"
    assert str(DragomanError(text)) == text
    assert str(DragomanError("a\r\nb")) == "a\nb"


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    text = str(DragomanError("begin" + "x" * 10**6 + "end"))
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "characters left out" in text
    assert len(text) < MAX_CHARS + 100


def test_an_error_can_still_be_copied_and_names_stay_usable() -> None:
    error = InvalidSpecError(HOSTILE, problems=[HOSTILE], source="a", pointer="b", line=1)
    assert str(copy.copy(error)) == str(error)
    assert str(pickle.loads(pickle.dumps(DragomanError(HOSTILE)))) == str(DragomanError(HOSTILE))
    assert errors.UnknownToolError("x", tool=HOSTILE, suggestions=[HOSTILE]).suggestions == (HOSTILE,)


def test_foreign_errors_in_the_chain_are_made_safe_too() -> None:
    class ForeignError(Exception):
        def __init__(self) -> None:
            super().__init__(HOSTILE, {"data": [HOSTILE]})
            self.text = HOSTILE

    class StubbornError(Exception):
        def __str__(self) -> str:
            return HOSTILE

    foreign = ForeignError()
    foreign.add_note(HOSTILE)
    foreign.__context__ = StubbornError()
    foreign.__context__.__context__ = OSError(5, HOSTILE, HOSTILE)
    error = ConnectError("x", server="a", stage="b")
    error.__cause__ = foreign
    mask_error(error, Redactor())
    assert not STEERING & set("".join(traceback.format_exception(error)))
    assert error.__cause__ is foreign
    assert foreign.__context__ is None


def test_an_error_with_much_in_it_is_cut() -> None:
    redactor = Redactor(f"hunter2-{number}-abcdef" for number in range(40))
    error = ProtocolError(
        "hunter2-1-abcdef " + "x" * 15_000_000,
        data={"a": "y" * 15_000_000, "b": list(range(10**6)), "c": ["hunter2-2-abcdef"] * 10**5},
    )
    mask_error(error, redactor)
    assert "hunter2" not in repr(vars(error))
    assert len(repr(vars(error))) < 6 * MAX_ERROR_CHARS
