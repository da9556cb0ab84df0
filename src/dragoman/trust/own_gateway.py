"""Recognise dragoman's own gateway among the servers: dragoman must not start itself."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from dragoman.model import Stdio

if TYPE_CHECKING:
    from dragoman.model import Transport

_RUNNERS = frozenset({"uvx", "uv", "pipx", "env", "poetry", "hatch"})


def is_own_gateway(transport: Transport) -> bool:
    """Return whether a server is `dragoman serve`, started directly, by Python or by a runner."""
    if not isinstance(transport, Stdio):
        return False
    words = [transport.command, *transport.args]
    runs = _name(words[0]) in _RUNNERS
    for index, word in enumerate(words):
        is_place = index == 0 or words[index - 1] == "-m" or runs
        if is_place and _name(word) == "dragoman" and "serve" in words[index + 1 :]:
            return True
    return False


def _name(word: str) -> str:
    name = PurePath(word.replace("\\", "/")).name.lower().removesuffix(".exe")
    return name.partition("==")[0].partition("@")[0]
