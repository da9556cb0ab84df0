"""Rules that a person has written together with a yes: which there are for a call, and into which file.

A rule goes by the names of servers and tools, into the user's own file: after all rules that are there, or
before a rule of the user's that asks. It is offered only if it is about this server alone, if it would allow
this very call from then on, and if no rule that denies could come too late because of it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from dragoman.config import edit
from dragoman.config.files import format_of
from dragoman.config.profiles import profile_named
from dragoman.config.templates import ExpansionContext
from dragoman.config.write import add_rule, rules_target, target, target_at
from dragoman.errors import ConfigError
from dragoman.model import Always, AlwaysRule
from dragoman.struct import Struct
from dragoman.trust.layers import of_project
from dragoman.trust.masking import mask_arguments
from dragoman.trust.policy import allowing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.config.write import Target
    from dragoman.model import PendingApproval, Settings
    from dragoman.storage.inbox import InboxStore
    from dragoman.trust.policy import PolicyRequest

MAX_TEXT = 2_000
"""The longest rule that is offered: a person has to read it."""


def rules_file(
    settings: Settings, server: str, *, env: Mapping[str, str] | None = None, config: str | None = None
) -> Target | None:
    """Return the user's file for rules about a server; `None` if a rule there would not be about it alone.

    Rules go by name. That of a server of a project or of the command line may be another server's tomorrow.

    Args:
        settings: The configuration in effect.
        server: The server.
        env: The environment that the configuration was read with.
        config: The file that the user named.
    """
    spec = settings.server(server)
    if spec is None or spec.origin.scope == "code" or of_project(spec, settings):
        return None
    home = os.path.expanduser("~")  # noqa: PTH111 -- a text is needed
    expansion = ExpansionContext(env=os.environ if env is None else env, root=settings.root, home=home)
    named = next((one.path for one in settings.sources if one.scope == "session"), None)
    try:
        return rules_target(
            settings, target(profile_named(settings.profile), expansion, config=config or named)
        )
    except ConfigError:
        return None


def always_rules(
    request: PolicyRequest,
    file: Target | None,
    *,
    allows: Callable[[Mapping[str, Any], str], bool],
    asking: AskingRule | None = None,
    mask: Callable[[str], str] = lambda text: text,
) -> list[AlwaysRule]:
    """Return the rules that a person can choose for a call, the narrowest first.

    Args:
        request: The call.
        file: The user's file for rules about its server.
        allows: Returns whether one more rule would allow the call: the last one, or one before another, which
            its place names.
        asking: The rule that asks, if it is the user's.
        mask: Masks known secrets: a rule with one is not offered.
    """
    if file is None or request.kind != "tool" or not request.server:
        return []
    found: list[AlwaysRule] = []
    for covers in get_args(Always):
        rule = _rule(request, covers, mask)
        text = "" if rule is None else edit.written(rule, file.format)
        if rule is None or len(text) > MAX_TEXT:
            continue
        if allows(rule, ""):
            found.append(AlwaysRule(covers=covers, rule=rule, text=text, file=str(file.path)))
        elif asking is not None and allows(rule, asking.place):
            found.append(
                AlwaysRule(
                    covers=covers,
                    rule=rule,
                    text=edit.written(rule, format_of(Path(asking.file))),
                    file=asking.file,
                    before=asking.place,
                    asking=asking.data,
                )
            )
    return found


class AskingRule(Struct):
    """A rule of the user's that asks about a call."""

    file: str
    place: str
    """As `FILE:LINE`."""
    data: Mapping[str, Any]
    """As it stands in the file."""


def asking_rule(settings: Settings, place: str) -> AskingRule | None:
    """Return the rule at a place, if it is in a file of the user's and alone on its line."""
    found: list[AskingRule] = []
    for one in settings.policy if place else ():
        said: Any = one.data
        rules: Any = cast("dict[str, Any]", said).get("rules") if isinstance(said, dict) else said
        for number, rule in enumerate(cast("list[Any]", rules) if isinstance(rules, list) else [], 1):
            line = one.rule_lines[number - 1] if number <= len(one.rule_lines) else None
            at = f"{one.source}:{line}" if line else f"{one.source}#{number}"
            if one.scope == "user" and at == place and isinstance(rule, dict):
                found.append(AskingRule(one.source, place, cast("dict[str, Any]", rule)))
    return found[0] if len(found) == 1 else None


def _rule(request: PolicyRequest, covers: Always, mask: Callable[[str], str]) -> dict[str, Any] | None:
    if covers == "server":
        return allowing(request.server)
    if covers == "tool":
        return allowing(request.server, request.tool)
    given = dict(request.arguments)
    is_plain = (
        given and "*" not in given and all(type(one) in (str, int, float, bool) for one in given.values())
    )
    texts = [*given, *(one for one in given.values() if isinstance(one, str))]
    if (
        not is_plain
        or mask_arguments(given, limit=sys.maxsize) != given
        or any(mask(one) != one for one in texts)
    ):
        return None
    return allowing(request.server, request.tool, given)


def answer_pending(
    store: InboxStore, identifier: str, *, allow: bool, by: str, always: Always | None = None
) -> PendingApproval:
    """Answer a call that waits in an inbox, and write the rule that was chosen with a yes.

    Raises:
        ApprovalError: The entry is unknown, or was decided already; nothing is written.
        ConfigError: The rule cannot be written. The answer counts.
    """
    failed: list[ConfigError] = []

    def write(entry: PendingApproval) -> bool:
        (one,) = (one for one in entry.always if one.covers == always)
        try:
            add_rule(target_at(Path(one.file), "dragoman", ""), one.rule, before=one.asking or None)
        except ConfigError as exc:
            failed.append(exc)
        return not failed

    # Inside the answer: whoever waits for it follows the rule only if it stands in the file.
    entry = store.answer(identifier, allow=allow, by=by, always=always, write=write)
    for exc in failed:
        msg = f"`{identifier}` is approved, but the rule was not written: {exc.message}"
        raise ConfigError(msg, source=exc.source, hint=exc.hint) from exc
    return entry
