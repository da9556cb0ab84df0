"""One small file a dialect; `dialect(name)` imports it when it is needed.

To add one: a module here with a `DIALECT`, its name in `HOSTS` (or in `SEEDS` or `FORMATS`, as below), and a
folder of fixtures in `tests/fixtures/dialects/`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.config.dialect import Dialect

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
_MODULES = {"continue": "continue_dev"}
"""Where a module cannot have the dialect's name, because that is a keyword."""


def dialect(name: str) -> Dialect:
    """Return the dialect of that name.

    Raises:
        KeyError: There is none.
    """
    if name not in NAMES:
        raise KeyError(name)
    module = import_module(f"dragoman.config.dialects.{_MODULES.get(name, name.replace('-', '_'))}")
    found: Dialect = module.DIALECT
    return found
