"""Errors that leave the library: secrets masked, texts safe to print, bounded in size."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dragoman.errors import DragomanError, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.trust.redaction import Redactor

MAX_ERRORS = 50
"""Errors followed in one chain of causes."""
MAX_ERROR_CHARS = 65_536
MAX_ERROR_VALUES = 10_000
"""Values of an error that are masked; the rest is cut off."""
MAX_NESTING = 20


def mask_error(error: BaseException, redactor: Redactor, *, only_known: bool = False) -> None:
    """Mask secrets in an error and its causes, in place, and make their texts safe to print.

    For errors that leave the library: their tracebacks contain no secrets and no escape codes. Some errors of
    other libraries cannot be changed; if one shows a secret, the link to it is removed. The message of an
    exception group cannot be changed either; groups are unwrapped where they arise. Long texts are cut, so
    masking takes bounded time.

    Args:
        error: The error.
        redactor: Knows the secrets.
        only_known: Whether to mask known secrets only, and keep text that merely looks like one.
    """
    mask = redactor.mask_known if only_known else redactor.mask
    waiting: list[BaseException] = [error]
    shows: dict[int, bool] = {id(error): False}
    """Whether an error still shows a secret, by its id."""
    _ErrorMasker(error, mask, redactor).run()

    def has_secret(earlier: BaseException) -> bool:
        # Most errors have the same error as cause and context: check it once.
        known = shows.get(id(earlier))
        if known is None:
            if len(shows) >= MAX_ERRORS:
                return True
            _ErrorMasker(earlier, mask, redactor).run()
            told = str(earlier)
            known = shows[id(earlier)] = len(told) > MAX_ERROR_CHARS or printable(mask(told)) != told
            waiting.append(earlier)
        return known

    while waiting:
        one = waiting.pop()
        if one.__cause__ is not None and has_secret(one.__cause__):
            one.__cause__ = None
        if one.__context__ is not None and has_secret(one.__context__):
            one.__context__ = None
        if isinstance(one, BaseExceptionGroup):
            for earlier in cast("BaseExceptionGroup[BaseException]", one).exceptions:
                has_secret(earlier)


class _ErrorMasker:
    """Masks the texts of one error, up to a total size."""

    def __init__(self, error: BaseException, mask: Callable[[str], str], redactor: Redactor) -> None:
        self._error = error
        self._mask = mask
        self._mask_known = redactor.mask_known
        self._is_ours = isinstance(error, DragomanError)
        self._room = MAX_ERROR_CHARS
        self._values = MAX_ERROR_VALUES
        self._masked_texts: dict[str, str] = {}
        """Masked texts: an error has its message in `args` and in `message`."""

    def run(self) -> None:
        error = self._error
        # A dying server may fail thousands of calls, each with an error: skip clean texts, handle the common
        # types first.
        if error.args:
            error.args = tuple([self._of(arg) for arg in error.args])
        if isinstance(error, OSError):
            for name in ("strerror", "filename", "filename2"):
                if (text := getattr(error, name)) is not None:
                    setattr(error, name, self._of(text))
        for name, value in error.__dict__.items():
            if not value or not isinstance(value, str | tuple | list | dict):
                continue
            # A person has to open exactly this URL: keep the parts that merely look like secrets.
            masked_value = (
                self._mask_known(value)
                if name == "url" and isinstance(value, str)
                else self._of(cast("object", value))
            )
            if masked_value != value:
                setattr(error, name, masked_value)

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
        known = self._masked_texts.get(text)
        if known is None:
            masked = self._masked(text)
            # Our own errors are safe to print already; their other fields are for programs.
            known = self._masked_texts[text] = masked if self._is_ours else printable(masked)
        return known

    def _masked(self, text: str) -> str:
        if len(text) > self._room:
            text = f"{text[: self._room]}…"
        self._room = max(0, self._room - len(text))
        return self._mask(text)
