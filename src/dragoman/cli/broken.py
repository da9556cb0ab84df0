"""What a command says of files that cannot be used: an error where no server is left, else a remark.

Without it a mistake in a file would look like a file without servers. `config check` shows all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.cli import output
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.model import Settings

CHECK = "`dragoman config check` shows them"


def insist(settings: Settings) -> None:
    """Go on only if there is a server, or if nothing is wrong with the files.

    Raises:
        ConfigError: The first thing that is wrong, and how many others there are.
    """
    if settings.servers or not settings.problems:
        return
    first, *others = settings.problems
    if not others or not isinstance(first, ConfigError):
        raise first
    hint = f"{many(settings)}: {CHECK}"
    raise ConfigError(first.message, source=first.source, pointer=first.pointer, line=first.line, hint=hint)


def remark(settings: Settings) -> None:
    """Say on standard error that something is wrong with the files."""
    if settings.problems:
        output.warn(f"{many(settings)}: {CHECK}")


def many(settings: Settings) -> str:
    """Say how many things are wrong."""
    count = len(settings.problems)
    return f"{count} problem{'s' * (count > 1)} in files"
