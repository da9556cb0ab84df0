"""The slash commands, which the session and the dashboard share: one table, and what each command does."""

from dragoman.cli.slash.command import Command, Context, Leave, UsageError
from dragoman.cli.slash.table import COMMANDS, run

__all__ = ["COMMANDS", "Command", "Context", "Leave", "UsageError", "run"]
