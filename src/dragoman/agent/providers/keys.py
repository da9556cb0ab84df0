"""Where keys come from: the environment, else the system's keyring; never a file, never an argument.

A key is wrapped as soon as it is found, so that no `repr`, log line or traceback of locals can show it.
"""

from __future__ import annotations

import asyncio
import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLES = {"openai": "OPENAI_API_KEY", "responses": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
KEYRING_SERVICE = "dragoman"


class Secret:
    """A text that shows itself to nobody who does not ask for it by name."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself; only what sends it may ask."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "Secret(•••)"

    def __reduce__(self) -> str | tuple[Any, ...]:
        msg = "a secret is not written down"
        raise TypeError(msg)


async def find_key(variable: str, env: Mapping[str, str], *, keyring: bool = True) -> Secret | None:
    """Look for a key in the environment, then in the keyring under `dragoman` and the variable's name."""
    value = env.get(variable, "").strip()
    if value:
        return Secret(value)
    if not keyring or find_spec("keyring") is None:
        return None
    # The keyring may ask a person to unlock it, or a bus to answer.
    found = await asyncio.to_thread(_from_keyring, variable)
    return Secret(found.strip()) if found and found.strip() else None


def _from_keyring(variable: str) -> str | None:
    keyring = importlib.import_module("keyring")
    errors = importlib.import_module("keyring.errors")
    try:
        return keyring.get_password(KEYRING_SERVICE, variable)
    except errors.KeyringError:
        # Locked, or none on this machine: as good as no key, and the error says where one is looked for.
        return None
