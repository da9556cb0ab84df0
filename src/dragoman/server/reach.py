"""How a server is reached right now: admitted, its variables replaced, its paths placed, its secrets known.

Nothing of a spec is expanded before the guard lets it pass, and what is expanded is known as a secret before
anybody else gets it. What opens connections is imported here too, late.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.config.expand import expand_auth, expand_transport
from dragoman.model import Stdio
from dragoman.server.late import is_loaded, late_import_module
from dragoman.server.secret_sources import fetch
from dragoman.trust.redactor import in_use

if TYPE_CHECKING:
    from dragoman.config.expand import Surroundings
    from dragoman.guard import Guard
    from dragoman.model import Auth, ServerSpec, Transport

CONNECTION = "dragoman.server.connection"


async def reach(spec: ServerSpec, surroundings: Surroundings, guard: Guard) -> tuple[Transport, Auth | None]:
    """Return how a server is reached and logged in to, with every variable replaced.

    Raises:
        ConnectError: It comes from a project's file, and it is not approved as it is now.
        MissingVariableError: A variable, a keyring or a command has no value.
    """
    # A server that needs no approval is not worth a thread.
    program = await asyncio.to_thread(guard.admit, spec) if guard.binds(spec) else ""
    surroundings = await fetch(spec, surroundings)
    # Wherever such a value stands, it is a secret.
    guard.redactor.add((surroundings.fetched or {}).values())
    in_use.set(guard.redactor)
    transport = placed(expand_transport(spec, surroundings), surroundings.root)
    auth = expand_auth(spec, surroundings)
    if program and isinstance(transport, Stdio):
        # What was looked at is what is started: the PATH is not searched once more.
        transport = replace(transport, command=program)
    if isinstance(transport, Stdio) and transport.env_file:
        await asyncio.to_thread(guard.learn, transport, surroundings.env, auth)
    else:
        guard.learn(transport, surroundings.env, auth)
    return transport, auth


def is_imported() -> bool:
    """Tell whether what opens connections is there already."""
    return is_loaded(CONNECTION)


async def connection_module() -> Any:
    """Import what opens connections: the SDK takes a second of CPU, which in a thread delays nobody."""
    return await late_import_module(CONNECTION)


def placed(transport: Transport, root: str) -> Transport:
    """Read a child's relative paths from the project's directory."""
    if not isinstance(transport, Stdio) or not root:
        return transport
    return replace(
        transport,
        cwd=str(Path(root, transport.cwd or "")),
        env_file=[str(Path(root, name)) for name in transport.env_file],
    )
