"""API keys: from the environment, else from the keyring; never from a file of a project."""

from __future__ import annotations

import asyncio
import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYRING_SERVICE = "dragoman"


class Secret:
    """A text that is not shown by `repr`, logs or pickling; only `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, to send it."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "Secret(•••)"

    def __reduce__(self) -> str | tuple[Any, ...]:
        msg = "a secret cannot be pickled"
        raise TypeError(msg)


async def find_key(variable: str, env: Mapping[str, str], *, keyring: bool = True) -> Secret | None:
    """Look for a key in the environment, then in the keyring under `dragoman` and the variable's name."""
    value = env.get(variable, "").strip()
    if value:
        return Secret(value)
    if not keyring or find_spec("keyring") is None:
        return None
    # The keyring may block: it may ask the user to unlock it.
    found = await asyncio.to_thread(_from_keyring, variable)
    return Secret(found.strip()) if found and found.strip() else None


def _from_keyring(variable: str) -> str | None:
    keyring = importlib.import_module("keyring")
    errors = importlib.import_module("keyring.errors")
    try:
        return keyring.get_password(KEYRING_SERVICE, variable)
    except errors.KeyringError:
        # Locked or missing. The caller's error says where keys are looked for.
        return None
