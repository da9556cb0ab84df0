"""Answers to `${input:id}` that the user gave once: a file that only its owner can read.

The answers for a project's servers are kept by the project's directory, apart from those for the user's own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from dragoman.storage.files import StoredFile, user_data_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def kept_answers(project: str = "", *, user: str = "") -> dict[str, str]:
    """Return the answers by id: those for the user's own servers, or for the servers of a project."""
    return (_file(user).content() or {}).get(project, {})


def keep_answers(answers: Mapping[str, str], project: str = "", *, user: str = "") -> None:
    """Keep answers by id.

    Raises:
        ConfigError: The file cannot be written.
    """
    _file(user).change(lambda old: {**old, project: {**old.get(project, {}), **answers}})


def forget_answers(names: Iterable[str], project: str = "", *, user: str = "") -> bool:
    """Forget answers by id, and return whether there was one.

    Raises:
        ConfigError: The file cannot be written.
    """
    gone = set(names) & kept_answers(project, user=user).keys()
    if gone:

        def change(old: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
            rest = {name: text for name, text in old.get(project, {}).items() if name not in gone}
            return {**old, project: rest}

        _file(user).change(change)
    return bool(gone)


def _file(user: str) -> StoredFile[dict[str, dict[str, str]]]:
    return StoredFile(user_data_folder(user) / "answers.json", _read, json.dumps, dict)


def _read(text: str) -> dict[str, dict[str, str]]:
    found: object = json.loads(text)
    table = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    return {
        project: {name: text for name, text in cast("dict[str, object]", kept).items() if type(text) is str}
        for project, kept in table.items()
        if isinstance(kept, dict)
    }
