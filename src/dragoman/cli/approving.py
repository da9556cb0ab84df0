"""A person's yes, in the terminal: to what a project's file would start, and to what a server offers.

What is approved is exactly what was shown: a server is examined and left before anybody is asked, so that it
cannot offer something else while the question stands on the screen. Without a terminal nobody can be asked,
and nothing is approved unless `--yes` says that somebody has looked.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from dragoman.cli import output
from dragoman.cli.known import near, of_project
from dragoman.errors import CallDeniedError, DragomanError, UnknownToolError
from dragoman.pin_store import Pins
from dragoman.trust.layers import settings_question
from dragoman.trust_store import Approvals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.cli.options import Options
    from dragoman.cli.reviewing import Review
    from dragoman.model import ServerSpec, Settings
    from dragoman.trust.pins import Change, ServerPins
    from dragoman.trust_store import Look


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be approved, and how."""

    tools: Sequence[str] = ()
    """The only tools that are meant; everything unless given."""
    in_project: bool = False
    yes: bool = False


class Approver:
    """Asks about servers, one after the other."""

    def __init__(self, options: Options, settings: Settings, root: str, wish: Wish) -> None:
        """Prepare to ask.

        Args:
            options: What was asked for globally.
            settings: What the configuration says.
            root: The project's directory.
            wish: What is to be approved.
        """
        self._options = options
        self._settings = settings
        self._root = root
        self._wish = wish
        self._pins = Pins(root)
        self.reviews: list[Review] = []
        """Of the servers whose offers were looked at, as they are after the approval."""

    def approve(self, spec: ServerSpec) -> bool:
        """Ask about a server's entry and its offer, as far as they are in question; tell whether all is well.

        Raises:
            CallDeniedError: Nobody can be asked.
            DragomanError: The server cannot be asked what it offers, or nothing of it is pinned.
        """
        is_theirs = bool(of_project(self._settings, [spec]))
        store = Approvals()
        look = store.look(spec, self._root, self._settings.inputs) if is_theirs else None
        is_new = look is not None and look.error is not None
        if look is not None and is_new and not self._entry_agreed(look, store):
            return False
        wants_pins = bool(self._wish.tools) or self._wish.in_project
        if spec.trust == "off" and wants_pins:
            msg = f"nothing of server `{spec.name}` is pinned: its `trust` is off"
            raise DragomanError(msg, hint='write `trust = "warn"` or `"strict"` into its entry')
        # A project's server that was never used is pinned at its first use, which needs no start now.
        if spec.trust != "off" and (wants_pins or not is_theirs or self._pins.known(spec)):
            return self._offer_agreed(spec)
        if not is_new:
            why = "approved already" if is_theirs else "yours, and its `trust` is off"
            self._say(f"`{spec.name}` is {why}: there is nothing to approve")
        return True

    def approve_settings(self) -> bool:
        """Ask about what the project's files say beside their servers; return whether all is well.

        Raises:
            CallDeniedError: There is no terminal to ask at.
        """
        statements = self._settings.project
        if not statements or self._settings.trusts_project:
            why = "are approved already" if statements else "do not exist"
            self._say(f"settings of the project {why}: there is nothing to approve")
            return True
        if not self._can_ask:
            msg = "the project's settings need a yes, and there is no terminal to ask at"
            raise CallDeniedError(msg, hint="look at them with `dragoman config show`; `--yes` approves them")
        self._show(settings_question(statements, self._root))
        if not self._said_yes("Let them count?"):
            return False
        Approvals().approve_settings(statements, self._root)
        self._say(f"the project's settings are approved for {output.shorten_path(self._root)}")
        return True

    # The entry

    def _entry_agreed(self, look: Look, store: Approvals) -> bool:
        from dragoman.trust.approval import question

        spec = look.spec
        if not self._can_ask:
            msg = f"nobody is here to agree to server `{spec.name}`"
            raise self._denied(msg, spec, f"look at it with `dragoman config show {spec.name}`")
        self._show(question(spec, self._root, look.evidence, look.changes))
        if not self._said_yes("Approve it?"):
            return False
        # What was shown, also if a file has changed since.
        store.approve(spec, self._root, look.evidence)
        self._say(f"`{spec.name}` is approved for {output.shorten_path(self._root)}")
        return True

    # What it offers

    def _offer_agreed(self, spec: ServerSpec) -> bool:
        from dragoman.cli.doctor import examine
        from dragoman.cli.reviewing import pins_now, remember, review

        (examined,) = examine(self._options, self._settings, [spec])
        if examined.offered is None:
            raise examined.cause or DragomanError(f"server `{spec.name}` does not say what it offers")
        remember(self._settings, spec, examined.offered)
        looked = review(spec, self._settings, examined.offered)
        now = pins_now(examined.offered)
        changes = self._chosen(looked, now)
        if not changes and not self._is_new(looked):
            self._say(f"`{spec.name}` offers what was pinned: there is nothing to approve")
            self.reviews.append(looked)
            return True
        self._show_offer(looked, now, changes)
        if not self._can_ask:
            msg = f"nobody is here to agree to what server `{spec.name}` offers now"
            raise self._denied(msg, spec, f"look at it with `dragoman trust show {spec.name} --refresh`")
        if not self._said_yes("Approve what it offers?"):
            self.reviews.append(looked)
            return False
        names = list(self._wish.tools) or None
        self._pins.approve(spec, now, tools=names, in_project=self._wish.in_project)
        after = review(spec, self._settings, examined.offered)
        self.reviews.append(after)
        files = ", ".join(output.shorten_path(str(path)) for path in after.known)
        self._say(f"`{spec.name}`: what it offers is pinned in {files}")
        return True

    def _chosen(self, looked: Review, now: ServerPins) -> list[Change]:
        """Return the changes that are meant; a tool that nobody knows is an error."""
        changes = list(looked.verdict.changes) if looked.verdict else []
        if not self._wish.tools:
            return changes
        tools = [change for change in changes if change.kind == "tool"]
        known = {*now.tools, *(change.name for change in tools)}
        for name in self._wish.tools:
            if name not in known:
                server, alike = looked.spec.name, near(name, sorted(known))
                hint = (
                    f"did you mean {' or '.join(alike)}?"
                    if alike
                    else f"`dragoman trust show {server} --refresh` lists what changed"
                )
                msg = f"server `{server}` has no tool `{name}`"
                raise UnknownToolError(msg, server=server, tool=name, suggestions=alike, hint=hint)
        return [change for change in tools if change.name in self._wish.tools]

    def _is_new(self, looked: Review) -> bool:
        """Tell whether a lock file that is to know the server does not know it yet."""
        return not looked.known or (self._wish.in_project and self._pins.project_path not in looked.known)

    def _show_offer(self, looked: Review, now: ServerPins, changes: Sequence[Change]) -> None:
        name = looked.spec.name
        if not looked.known:
            self._show(f"`{name}` was never used; now it offers {len(now.tools)} tools:")
            self._show("\n".join(f"  {output.one_line(tool)}" for tool in sorted(now.tools)))
        elif not changes:
            self._show(
                f"`{name}` offers what you have pinned; {self._pins.project_path.name} is to have it too"
            )
        else:
            self._show(f"`{name}` offers something else than was pinned:")
            for change in changes:
                self._show("\n".join(f"  {line}" for line in looked.texts(change)))
        for finding in looked.findings:
            if not self._wish.tools or finding.subject in self._wish.tools:
                self._show(f"  ! {finding}")

    # The person

    @property
    def _can_ask(self) -> bool:
        return self._wish.yes or sys.stdin.isatty()

    def _said_yes(self, question: str) -> bool:
        return self._wish.yes or click.confirm(question, default=False, err=self._options.json)

    def _show(self, text: str) -> None:
        # What people are asked about keeps out of what programs read.
        click.echo(output.safe(text), err=self._options.json)

    def _say(self, text: str) -> None:
        if not self._options.json:
            output.say(text)

    def _denied(self, msg: str, spec: ServerSpec, look: str) -> CallDeniedError:
        words = [*self._options.program(), "trust", "approve", spec.name]
        words += [word for tool in self._wish.tools for word in ("--tools", tool)]
        words += ["--project"] if self._wish.in_project else []
        again = shlex.join([*words, "--yes"])
        return CallDeniedError(msg, server=spec.name, hint=f"{look}; `{again}` approves it without asking")
