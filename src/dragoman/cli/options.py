"""The options that every command has, taken before and after the subcommand alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.model import Settings


@dataclass(slots=True)
class Options:
    """What was asked for globally; later mentions win."""

    profile: str = "dragoman"
    config: str | None = None
    json: bool = False
    debug: bool = False
    timeout: float | None = None
    """Seconds for everything that waits for a server; the servers' own limits unless given."""

    def load(self) -> Settings:
        """Read the configuration that these options point to, as far as it is in effect.

        Of a project's files that is what was approved. The command shows the problems itself.
        """
        from dragoman.config.discover import load
        from dragoman.trust.layers import effective, has_project

        settings = load(self.profile, config=self.config, log_problems=self.debug)
        if not has_project(settings):
            return effective(settings, refused=(), trusts_settings=False)
        from dragoman.trust_store import Approvals  # most folders have no such files

        return Approvals().decide(settings, settings.root)

    def program(self) -> list[str]:
        """Return the words that start the program on the same configuration, for a hint."""
        words = ["dragoman"]
        words += [] if self.profile == "dragoman" else ["--profile", self.profile]
        return [*words, "--config", self.config] if self.config else words

    def quiet_logs(self) -> None:
        """Keep log lines off the screen until the command ends; it shows the same things in its own way."""
        import logging

        logger = logging.getLogger("dragoman")
        if self.debug or logger.disabled:
            return
        logger.disabled = True
        if context := click.get_current_context(silent=True):
            context.find_root().call_on_close(lambda: setattr(logger, "disabled", False))


class Duration(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] -- not generic in older releases
    """Seconds, written as `30`, `30s`, `500ms` or `2m`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a duration."""
        from dragoman.config.durations import seconds

        try:
            return seconds(value, "s")
        except ValueError as error:
            self.fail(str(error), param, ctx)


def timeout_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--timeout`, which goes to the shared `Options`."""
    text = "How long servers may take: 30, 30s, 2m; their own limits unless given."
    return _bound(click.option("--timeout", type=Duration(), metavar="DURATION", help=text))(command)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    options = context.ensure_object(Options)
    if value is not None and parameter.name:
        setattr(options, parameter.name, value)
    return value


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--profile`, `--config`, `--json` and `--debug`."""
    for option in reversed(
        (
            click.option(
                "--profile",
                metavar="NAME",
                help="Whose configuration is read: dragoman, excelmanus, claude-code, …",
            ),
            click.option("--config", metavar="FILE", help="Read this file and no other."),
            click.option("--json", is_flag=True, default=None, help="Print JSON for programs."),
            click.option("--debug", is_flag=True, default=None, help="Show tracebacks and log lines."),
        )
    ):
        command = _bound(option)(command)
    return command


def _bound(option: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Attach an option whose value goes to the shared `Options` only, not to the function."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        decorated = option(command)
        parameter: click.Parameter = decorated.__click_params__[-1]
        parameter.callback = _remember
        parameter.expose_value = False
        return decorated

    return decorate
