"""The dialects of configuration; `dialect(name)` imports a dialect's module when it is first needed.

To add one: a module here with a constant of the dialect's name (`claude-code` is `CLAUDE_CODE`), the name in
`HOSTS` (or in `SEEDS` or `FORMATS`), and a folder of fixtures in `tests/fixtures/dialects/`. Hosts that share
a format share a module; `_MODULES` lists those.
"""

from __future__ import annotations

import shlex
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.config.dialect import Dialect
    from dragoman.model import ServerSpec

SEEDS = ("excelmanus", "legal", "otter", "kode", "rrclaw")
"""Dialects of the applications that dragoman has a profile for."""
HOSTS = (
    *("claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini"),
    *("windsurf", "cline", "roo", "continue", "copilot-cli", "zed", "goose", "opencode"),
    *("amazon-q", "kiro", "lm-studio", "librechat", "crush"),
)
"""Dialects of hosts that people already have, in the order in which `import --all` looks."""
FORMATS = ("fastmcp", "server-json")
"""Dialects of files that belong to no program that a person has installed."""
NAMES = ("dragoman", "mcp-json", *SEEDS, *HOSTS, *FORMATS)
_MODULES = {
    "mcp-json": "dragoman",
    **dict.fromkeys(SEEDS, "agents"),
    **dict.fromkeys(("claude-desktop", "claude-code"), "claude"),
    **dict.fromkeys(("windsurf", "lm-studio"), "cursor"),
    **dict.fromkeys(("fastmcp", "server-json"), "formats"),
    "roo": "cline",
    "copilot-cli": "vscode",
    "crush": "opencode",
    "amazon-q": "kiro",
    "continue": "continue_dev",  # `continue` is a keyword
}
"""Dialects whose module has another name."""


def dialect(name: str) -> Dialect:
    """Return the dialect of that name.

    Raises:
        KeyError: There is none.
    """
    if name not in NAMES:
        raise KeyError(name)
    key = name.replace("-", "_")
    module = import_module(f"dragoman.config.dialects.{_MODULES.get(name, key)}")
    found: Dialect = getattr(module, key.upper())
    return found


def set_command(spec: ServerSpec, *asked: str, **values: str) -> str:
    """Return the command that sets values of a server, in backticks; `doctor --fix` carries it out.

    Args:
        spec: The server. If its file is another app's, the command names the app: it changes no such file
            unasked.
        asked: Keys for which the command asks.
        values: Keys with their values.
    """
    words = [*asked, *(f"{key}={shlex.quote(value)}" for key, value in values.items())]
    name, host, first = shlex.quote(spec.name), spec.origin.dialect, ""
    if host in HOSTS and spec.origin.scope != "session":
        keys = {key.removeprefix("timeouts.").partition(".")[0] for key in (*asked, *values)}
        if keys <= dialect(host).writes.keys():
            words += ["--profile", host]
        else:  # that app's format has no such key
            first = f"`dragoman import {host} --only {name} --write`, then "
    return f"{first}`dragoman set {name} {' '.join(words)}`"
