"""How Chinese names are spelled in ASCII, kept so that a name never changes.

The first spelling of a text is the one for good: pinyin if the extra `pinyin` was installed then, else none.
Installing or removing the extra later, or a new release of it, changes no name that a model knows.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, cast

from dragoman.errors import ConfigError
from dragoman.storage.files import StoredFile, data_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

logger = logging.getLogger("dragoman")

MAX_SPELLINGS = 20_000
"""Texts whose spelling is kept; a server could list any number of names. Others are not spelled out."""
MAX_CHARS = 64


class Spellings:
    """The user's file of spellings; it is read at the first Chinese name."""

    def __init__(self) -> None:
        self._file = StoredFile(data_folder() / "spellings.json", _load, _dump, dict[str, str])
        self._known: dict[str, str] | None = None
        self._guard = threading.Lock()

    def of(self, texts: Iterable[str]) -> Mapping[str, str]:
        """Return the spellings of Chinese texts; an empty one says that the text has none."""
        wanted = {text for text in texts if len(text) <= MAX_CHARS}
        with self._guard:
            if self._known is None:
                self._known = dict(self._file.content() or {})
            new = wanted - self._known.keys()
            if new and len(self._known) < MAX_SPELLINGS:
                self._known = self._keep({text: spell(text) for text in sorted(new)}, self._known)
            return {text: self._known.get(text, "") for text in wanted}

    def _keep(self, made: dict[str, str], known: dict[str, str]) -> dict[str, str]:
        try:
            # Another process may have been first.
            return self._file.change(lambda found: made | known | found)
        except ConfigError as exc:
            logger.warning("the spellings of names are not kept, and may change: %s", exc)
            return made | known


def spell(text: str) -> str:
    """Return the pinyin of a Chinese text; empty if the extra `pinyin` is not installed."""
    try:
        from pypinyin import lazy_pinyin  # It is large, and few servers have Chinese names.
    except ImportError:
        return ""
    spelled = "".join(lazy_pinyin(text, errors="ignore"))
    return spelled if spelled.isascii() and spelled.isalnum() else ""


def _load(text: str) -> dict[str, str]:
    found: object = json.loads(text)
    pairs = cast("dict[str, object]", found).items() if isinstance(found, dict) else ()
    return {
        name: value
        for name, value in pairs
        if isinstance(value, str) and (not value or (value.isascii() and value.isalnum()))
    }


def _dump(spellings: dict[str, str]) -> str:
    return json.dumps(spellings, ensure_ascii=False, indent=1, sort_keys=True)
