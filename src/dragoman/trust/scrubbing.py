"""Errors that leave the library: without secrets, safe to print, and of a bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dragoman.errors import DragomanError, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.trust.redactor import Redactor

MAX_ERRORS = 50
"""How many links of a chain of errors are followed."""
MAX_ERROR_CHARS = 65_536
MAX_ERROR_VALUES = 10_000
"""How much of what an error holds is looked at; the rest is cut off."""
MAX_NESTING = 20


def scrub_error(error: BaseException, redactor: Redactor, *, only_known: bool = False) -> None:
    """Mask the texts of an error, and of the errors that it came from, in place, and make them safe to print.

    For errors that leave the library: the traceback shows no secret and steers no terminal. What an error of
    another library keeps to itself cannot be changed; if it shows a secret, the link to it is cut. The
    message of an exception group cannot be changed either; those are opened where they arise and never
    leave. Long texts are cut, so that no error takes long, whatever a server put into it.

    Args:
        error: The error.
        redactor: What knows the secrets.
        only_known: Whether what merely looks like a secret stays: a model needs a tool's own words.
    """
    mask = redactor.mask_known if only_known else redactor.mask
    waiting: list[BaseException] = [error]
    shows: dict[int, bool] = {id(error): False}
    """Of each error that was met, whether it still shows a secret."""
    _Scrubber(error, mask, redactor).run()

    def still_shows(earlier: BaseException) -> bool:
        # Most errors have the same one as their cause and as their context: once is enough.
        known = shows.get(id(earlier))
        if known is None:
            if len(shows) >= MAX_ERRORS:
                return True
            _Scrubber(earlier, mask, redactor).run()
            told = str(earlier)
            known = shows[id(earlier)] = len(told) > MAX_ERROR_CHARS or printable(mask(told)) != told
            waiting.append(earlier)
        return known

    while waiting:
        one = waiting.pop()
        if one.__cause__ is not None and still_shows(one.__cause__):
            one.__cause__ = None
        if one.__context__ is not None and still_shows(one.__context__):
            one.__context__ = None
        if isinstance(one, BaseExceptionGroup):
            for earlier in cast("BaseExceptionGroup[BaseException]", one).exceptions:
                still_shows(earlier)


class _Scrubber:
    """Masks the texts of one error, as many as there is room for."""

    def __init__(self, error: BaseException, mask: Callable[[str], str], redactor: Redactor) -> None:
        self._error = error
        self._mask = mask
        self._mask_known = redactor.mask_known
        self._is_ours = isinstance(error, DragomanError)
        self._room = MAX_ERROR_CHARS
        self._values = MAX_ERROR_VALUES
        self._known: dict[str, str] = {}
        """The message is there twice."""

    def run(self) -> None:
        error = self._error
        # A server that dies may end thousands of calls, each with an error: what is clean is left as it is,
        # and what most errors are made of is short work.
        if error.args:
            error.args = tuple([self._of(arg) for arg in error.args])
        if isinstance(error, OSError):
            for name in ("strerror", "filename", "filename2"):
                if (text := getattr(error, name)) is not None:
                    setattr(error, name, self._of(text))
        for name, value in error.__dict__.items():
            if not value or not isinstance(value, str | tuple | list | dict):
                continue
            # A person has to open this very address: what looks like a secret in it is none.
            scrubbed = (
                self._mask_known(value)
                if name == "url" and isinstance(value, str)
                else self._of(cast("object", value))
            )
            if scrubbed != value:
                setattr(error, name, scrubbed)

    def _of(self, value: object, depth: int = MAX_NESTING) -> object:
        if isinstance(value, str):
            return self._text(value) if value else value
        if isinstance(value, bytes):
            text = value[: self._room].decode("utf-8", "surrogateescape")
            masked = self._masked(text)
            return value if masked == text and len(text) == len(value) else masked.encode("utf-8", "replace")
        if depth and type(value) in (tuple, list):
            items = cast("tuple[object, ...]", value)
            kept = items[: max(0, self._values)]
            self._values -= len(items)
            return type(items)(self._of(item, depth - 1) for item in kept)
        if depth and isinstance(value, dict):
            table = list(cast("dict[object, object]", value).items())
            kept = table[: max(0, self._values)]
            self._values -= len(table)
            return {self._of(key, 0): self._of(item, depth - 1) for key, item in kept}
        return value

    def _text(self, text: str) -> str:
        known = self._known.get(text)
        if known is None:
            masked = self._masked(text)
            # Our own are safe to print already; what they keep beside their message is for programs.
            known = self._known[text] = masked if self._is_ours else printable(masked)
        return known

    def _masked(self, text: str) -> str:
        if len(text) > self._room:
            text = f"{text[: self._room]}…"
        self._room = max(0, self._room - len(text))
        return self._mask(text)
