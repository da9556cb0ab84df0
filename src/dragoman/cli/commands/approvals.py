"""`dragoman approvals list | show | approve | deny`: the calls that wait for an answer."""

from __future__ import annotations

import json
import shlex
import time
from typing import TYPE_CHECKING

import click

from dragoman.cli import output
from dragoman.cli.options import Options, common_options
from dragoman.struct import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from dragoman.model import Always, PendingApproval

BY = "dragoman approvals"
_LABEL = 11
"""The width of a line's label."""
_CHOICES: Sequence[Always] = ("tool", "arguments", "server")
_USER = click.option("--user", default="", metavar="ID", help="The inbox of a user of a gateway with users.")


class ApprovalsReport(Report, kw_only=True):
    """`dragoman approvals list --json`; the other commands show one entry."""

    approvals: Sequence[PendingApproval]


@click.group(invoke_without_command=True)
@common_options
@click.pass_context
def approvals(context: click.Context) -> None:
    """List, show and answer calls that wait for a yes.

    With `serve`, the daemon and a session, a call that a rule asks about waits here until it is answered: by
    the client that made it, here, or by a program. The first answer counts.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_, everything=False, user="")


def _id(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("identifier", metavar="ID")(command)


@approvals.command("list")
@common_options
@click.option("--all", "everything", is_flag=True, help="Include what was decided in the last 7 days.")
@_USER
@click.pass_obj
def list_(options: Options, user: str, *, everything: bool) -> None:
    """List the calls that wait, the oldest first."""
    from dragoman.storage.inbox import InboxStore

    with InboxStore(user=user) as store:
        found = store.pending(decided=everything)
    if options.json:
        output.say_json(ApprovalsReport(approvals=found))
        return
    if not found:
        output.say("Nothing waits for an answer.")
    for one in found:
        output.say(_line(one))
    if waiting := [one for one in found if one.state == "pending"]:
        output.note(f"Look at one: dragoman approvals show {waiting[0].id}{_of(user)}")


@approvals.command()
@common_options
@_id
@_USER
@click.pass_obj
def show(options: Options, identifier: str, user: str) -> None:
    """Show a call with its arguments, the rule that asks, and the rules that can be written with a yes."""
    from dragoman.storage.inbox import InboxStore

    with InboxStore(user=user) as store:
        entry = store.get(identifier)
    _say(options, entry)
    if entry.state == "pending" and not options.json:
        output.note(f"Let it go on: dragoman approvals approve {entry.id}{_of(user)}")
        output.note(f"Or deny it: dragoman approvals deny {entry.id}{_of(user)}")


@approvals.command()
@common_options
@_id
@click.option(
    "--always",
    type=click.Choice(_CHOICES),
    help="Also write the rule that `show` has: for this tool, with these arguments only, or for the server.",
)
@_USER
@click.pass_obj
def approve(options: Options, identifier: str, always: Always | None, user: str) -> None:
    """Let a call go on."""
    _answer(options, identifier, user=user, allow=True, always=always)


@approvals.command()
@common_options
@_id
@_USER
@click.pass_obj
def deny(options: Options, identifier: str, user: str) -> None:
    """Deny a call: the model is told so."""
    _answer(options, identifier, user=user, allow=False)


def _answer(
    options: Options, identifier: str, *, user: str, allow: bool, always: Always | None = None
) -> None:
    from dragoman.config.rules import answer_pending
    from dragoman.storage.inbox import InboxStore

    with InboxStore(user=user) as store:
        entry = answer_pending(store, identifier, allow=allow, by=BY, always=always)
    if options.json:
        output.say_json(entry)
        return
    verb = "Approved" if allow else "Denied"
    output.say(f"{verb}: {_what(entry)}")
    for one in entry.always:
        if one.covers == always:
            output.say(f"Added to {output.shorten_path(one.file)}:\n  {one.text}")


def _say(options: Options, entry: PendingApproval) -> None:
    if options.json:
        output.say_json(entry)
        return
    output.say(_line(entry), bold=True)
    caller = entry.caller
    who = ", ".join(
        text
        for text in (
            caller.client,
            caller.principal,
            f"user {caller.user}" if caller.user else "",
            f"{caller.program} (process {caller.process})" if caller.process else caller.program,
        )
        if text
    )
    place = f" in {output.shorten_path(entry.source)}" if entry.source else ""
    _field("asked by", f"rule `{entry.rule}`{place}" if entry.rule else "the policy's default")
    _field("because", entry.reason)
    _field("caller", who)
    for name, value in entry.arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for number, line in enumerate(text.splitlines() or [""]):
            _field("" if number else "arguments", f"{_name(name)} = {line}" if not number else f"    {line}")
    for one in entry.always:
        where = output.shorten_path(one.file)
        before = f", before line {one.before.rpartition(':')[2]}" if one.before else ""
        output.say(f"  --always {one.covers} adds to {where}{before}:\n    {one.text}")


def _of(user: str) -> str:
    return f" --user {shlex.quote(user)}" if user else ""


def _field(label: str, text: str) -> None:
    # One line, whatever clients and servers call themselves: a second could look like one of ours.
    if text := " ".join(text.splitlines()):
        output.say(f"  {label:<{_LABEL}}{text}")


def _name(text: str) -> str:
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)


def _line(entry: PendingApproval) -> str:
    now = time.time()
    if entry.state == "pending":
        when = f"asked {now - entry.asked_at:.0f} s ago, {max(0.0, entry.expires_at - now):.0f} s left"
    else:
        state = {"sent": "approved", "approved": "approved, not sent yet"}.get(entry.state, entry.state)
        when = f"{state} by {entry.answered_by}" if entry.answered_by else state
    return f"{entry.id}  {_what(entry)}  {when}"


def _what(entry: PendingApproval) -> str:
    of = f" of {output.one_line(entry.server)}" if entry.server else ""
    return f"{output.one_line(entry.original_name)}{of}"
