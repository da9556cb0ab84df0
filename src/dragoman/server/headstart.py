"""A child that starts while what will speak to it is being imported: both take their second side by side.

Only the first connections of a process have use for this; later ones find everything imported. Whoever opens
the wire takes the child; one that nobody took is ended.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dragoman.errors import DragomanError
from dragoman.model import Stdio
from dragoman.server.child import spawn
from dragoman.server.process import whole_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import ServerSpec, Transport
    from dragoman.server.child import Child

MOST = 32
"""How many children may start before anything is imported: as many as servers start side by side."""

_given = 0


class HeadStart:
    """One child that is on its way."""

    def __init__(self, child: Child) -> None:
        self._child: Child | None = child

    def take(self) -> Child | None:
        """Return the child, the first time."""
        child, self._child = self._child, None
        return child

    async def drop(self) -> None:
        """End the child, if nobody took it."""
        if (child := self.take()) is not None:
            await child.abandon()


async def head_start(spec: ServerSpec, transport: Transport, env: Mapping[str, str]) -> HeadStart | None:
    """Start the child of a server ahead of its connection; nothing if it has none, or cannot be started.

    What is wrong then is found, and told, by whoever starts it in its turn.

    Args:
        spec: The server.
        transport: Its transport, expanded.
        env: Our environment, for what a child may inherit.
    """
    global _given  # noqa: PLW0603 -- it counts what this process has done
    ours = spec.wire == "dragoman" and sys.platform != "win32"
    if type(transport) is not Stdio or not ours or _given >= MOST:
        return None
    _given += 1
    try:
        given = whole_environment(transport, env)
        # What is imported meanwhile takes longer than the watchdog.
        child = await spawn(
            transport.command, transport.args, env=given, cwd=transport.cwd, name=spec.name, waits=True
        )
    except (DragomanError, OSError, TypeError, ValueError):
        return None
    return HeadStart(child)
