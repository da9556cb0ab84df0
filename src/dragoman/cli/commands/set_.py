"""`dragoman set | unset`: change single values of a server's entry, in the file that defines it."""

from __future__ import annotations

import json
import sys
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli import output
from dragoman.cli.commands.edit import own_settings
from dragoman.cli.known import unknown
from dragoman.cli.options import SERVERS, Options, common_options, typed
from dragoman.struct import UNSET, Report, UnsetType
from dragoman.trust.masking import mask_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.config.write import Target
    from dragoman.model import ServerSpec

_TEXTS = ("env.", "headers.")
"""Tables whose values are always texts."""


class SetReport(Report, kw_only=True):
    """`dragoman set --json` and `unset --json`."""

    server: str
    file: str
    set: Sequence[str]
    """The keys that have a value now."""
    unset: Sequence[str]
    changed: bool
    diff: str | UnsetType = UNSET
    """With `--dry-run`; masked."""


@click.command("set")
@common_options
@click.argument("name", shell_complete=SERVERS)
@click.argument("words", nargs=-1, required=True, metavar="KEY[=VALUE]...")
@click.option("--dry-run", is_flag=True, help="Show the change as a diff, and write nothing.")
@click.pass_obj
def set_(options: Options, name: str, words: tuple[str, ...], *, dry_run: bool) -> None:
    """Change values of a server, in the file that defines it.

    \b
    dragoman set github env.GITHUB_TOKEN='${GITHUB_TOKEN}'
    dragoman set files timeouts.call=2m lazy=true
    dragoman set docs headers.Authorization='Bearer ${TOKEN}'
    dragoman set github env.GITHUB_TOKEN                       (asks for the value)

    The keys are those of dragoman's own format (see docs/configuration.md), whatever the format of the file
    is. Lists and tables are written as JSON: args='["-y", "package"]'. The value of a variable or a header
    may be left out: it is asked for, or without a terminal read from standard input, a line for each.
    Everything else in the file stays as it is.
    """  # noqa: D301 -- click wants the backspace itself
    spec, target = target_for(options, name)
    _change(options, spec, target, parse_values(words, spec), dry_run=dry_run)


@click.command()
@common_options
@click.argument("name", shell_complete=SERVERS)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option("--dry-run", is_flag=True, help="Show the change as a diff, and write nothing.")
@click.pass_obj
def unset(options: Options, name: str, keys: tuple[str, ...], *, dry_run: bool) -> None:
    """Remove values of a server, such as `env.TOKEN` or `timeouts.call`, from the file that defines it."""
    spec, target = target_for(options, name)
    _change(options, spec, target, dict.fromkeys(keys), dry_run=dry_run)


def parse_values(words: Iterable[str], spec: ServerSpec) -> dict[str, Any]:
    """Parse `key=value` words; a value is JSON if it can be, but variables and headers are always texts.

    The value of a variable or a header that stands alone is asked for.
    """
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals and key.startswith(_TEXTS):
            found[key] = _asked(key, spec)
            continue
        if not equals or not key.strip("."):
            msg = f"Expected KEY=VALUE, not `{word}`. To remove a value, use `dragoman unset`."
            raise click.UsageError(msg)
        found[key] = text
        if not key.startswith(_TEXTS):
            try:
                value: object = json.loads(text)
            except (ValueError, RecursionError):
                continue
            found[key] = text if value is None else value
    return found


def _asked(key: str, spec: ServerSpec) -> str:
    """Ask for a value, which may be a secret, or read it from standard input.

    A token without a scheme gets that of the value that it replaces.
    """
    table, _, name = key.partition(".")
    values: Mapping[str, str | None] = getattr(spec.transport, table, {})
    is_bearer = (values.get(name) or "").lower().startswith("bearer ")
    if sys.stdin.isatty():
        what = f"token for {key}" if is_bearer else key
        text = click.prompt(f"{what} of `{output.one_line(spec.name)}`", hide_input=True, err=True)
    else:
        text = sys.stdin.readline().rstrip("\r\n")
    if not text:
        msg = f"No value for `{key}`: write {key}=VALUE, or give it on standard input."
        raise click.UsageError(msg)
    if not text.isprintable():
        msg = f"The value for `{key}` has control characters: copy it again."
        raise click.UsageError(msg)
    return f"Bearer {text}" if is_bearer and " " not in text else text


def _change(
    options: Options, spec: ServerSpec, target: Target, values: Mapping[str, Any], *, dry_run: bool
) -> None:
    """Change values of a server and print what was done."""
    from dragoman.config import write

    name = spec.name
    diff = write.preview_values(target, name, spec.origin.pointer, values)
    changed = bool(diff)
    if changed and not dry_run:
        write.change_values(target, name, spec.origin.pointer, values)
    where = output.shorten_path(str(target.path))
    if options.json:
        output.say_json(
            SetReport(
                server=name,
                file=str(target.path),
                set=[key for key, value in values.items() if value is not None],
                unset=[key for key, value in values.items() if value is None],
                changed=changed and not dry_run,
                diff=mask_diff(diff) if dry_run else UNSET,
            )
        )
        return
    if not changed:
        output.say(f"`{name}` in {where} has these values already")
        return
    if dry_run:
        show_diff(diff)
        return
    keys = ", ".join(values)
    verb = "Removed" if all(value is None for value in values.values()) else "Set"
    output.say(f"{verb} {keys} of `{name}` in {where}")
    if spec.origin.scope == "project":
        output.say(
            f"The project's server has changed. Approve it: {typed(f'dragoman trust approve {quote(name)}')}",
            fg="yellow",
        )


def target_for(options: Options, name: str) -> tuple[ServerSpec, Target]:
    """Return a server, and the file that defines it."""
    from dragoman.config.write import target_of_spec

    settings = own_settings(options, name)
    spec = next((one for one in (*settings.servers, *settings.unapproved) if one.name == name), None)
    if spec is None:
        raise unknown(settings, name)
    return spec, target_of_spec(spec, settings.root)


def mask_diff(diff: str) -> str:
    """Mask what looks like a secret."""
    return mask_text(diff)


def show_diff(diff: str, *, err: bool = False) -> None:
    """Print a diff in colors; secrets are masked."""
    for line in mask_diff(diff).splitlines():
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        if line.startswith(("---", "+++")):
            # Both lines name the same file.
            if line.startswith("---"):
                click.secho(output.safe(output.shorten_path(line[4:])), bold=True, err=err)
            continue
        click.secho(output.safe(line), fg=colour, err=err)
