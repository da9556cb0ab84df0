"""The arguments of a tool that the configuration changes, as its server is sent them.

Values may refer to variables and to what is known of the caller. A value that cannot be found denies the
call: what the configuration fixes is never left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dragoman.config.templates import CLAIM, expand, is_claim, references, variables
from dragoman.errors import CallDeniedError, InvalidArgumentsError
from dragoman.server.protocol.context import caller_claims
from dragoman.tools.result.build import check
from dragoman.tools.transforms import sent_arguments, texts_in
from dragoman.trust.masking import is_sensitive_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.call.context import CallContext
    from dragoman.config.templates import ExpansionContext
    from dragoman.model import AppliedTransform, ServerSpec, ToolDef

RULE = "transform"
"""The rule of a call that a transform denies."""


MAX_KEPT = 1_000
"""Groups of values that are remembered."""


class _Kept(NamedTuple):
    """A group of values of a transform, as they were the last time."""

    by: AppliedTransform
    """Kept, so that its id is not reused."""
    variables: Sequence[str]
    claims: Sequence[str]
    given: Sequence[str | None]
    """The values of these variables and claims."""
    values: Mapping[str, Any]


class TransformValues:
    """The values of transforms with their references replaced; each is made anew when a reference changes."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], _Kept] = {}

    def of(
        self, values: Mapping[str, Any], *, context: CallContext, tool: ToolDef, expansion: ExpansionContext
    ) -> Mapping[str, Any]:
        """Return values of a transform as they are sent.

        Raises:
            CallDeniedError: One has no value now, or does not fit.
        """
        by = cast("AppliedTransform", tool.transform)
        place = (id(by), *values)
        known = self._kept.get(place)
        names = (known.variables, known.claims) if known is not None else _references(values)
        claims = caller_claims()
        if claims is None:
            claims = {"sub": context.user} if context.user else {}
        # As texts: 1 and true are equal in Python.
        said = [_text(claims.get(name)) for name in names[1]]
        given = [*(expansion.env.get(name) for name in names[0]), *said]
        if known is None or known.given != given:
            texts = {name: text for name, text in zip(names[1], said, strict=True) if text is not None}
            found = _found(context, tool, values, expansion.replace(claims=texts))
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            known = self._kept[place] = _Kept(by, *names, given, found)
        return known.values


def complete(context: CallContext, tool: ToolDef, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that the server of a changed tool is sent.

    Raises:
        CallDeniedError: A value of the configuration has no value now, or does not fit.
        InvalidArgumentsError: They have a name that is only the server's.
    """
    by = tool.transform
    supervisor = context.supervisors.get(tool.server)
    if by is None or not by.references or supervisor is None:
        return sent_arguments(tool, arguments)
    expansion = supervisor.expansion

    def value_of(values: Mapping[str, Any]) -> Mapping[str, Any]:
        return context.transform_values.of(values, context=context, tool=tool, expansion=expansion)

    return sent_arguments(tool, arguments, value_of=value_of)


def as_written(tool: ToolDef, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with references that the configuration adds to a call, as they are written there."""
    by = tool.transform
    if by is None or not by.references:
        return {}
    given = {by.renamed.get(name, name) for name in shown}
    return {**{name: value for name, value in by.defaults.items() if name not in given}, **by.fixed}


def check_current(spec: ServerSpec, tool: ToolDef) -> None:
    """Check just before a call is sent that its tool is changed as the configuration says now.

    Raises:
        CallDeniedError: The configuration has changed meanwhile.
    """
    wanted = spec.tools.get(tool.original_name)
    rules = None if tool.transform is None else tool.transform.rules
    if wanted is not rules and wanted != rules:
        msg = f"`{tool.name}` was changed in the configuration during the call: nothing was sent"
        raise CallDeniedError(msg, tool=tool.name, server=tool.server, rule=RULE, hint="call it again")


def _references(values: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the variables and the claims that values refer to."""
    texts = list(texts_in(values))
    bodies = [one.body or "" for text in texts for one in references(text)]
    claims = [body.removeprefix(CLAIM) for body in bodies if is_claim(body)]
    return [name for text in texts for name in variables(text)], claims


def _text(claim: object) -> str | None:
    return claim if claim is None or isinstance(claim, str) else json.dumps(claim)


def _found(
    context: CallContext, tool: ToolDef, values: Mapping[str, Any], expansion: ExpansionContext
) -> Mapping[str, Any]:
    """Return values with their references replaced, converted to what the server takes."""
    found = {name: _expanded(tool, name, value, expansion) for name, value in values.items()}
    secrets = (
        text
        for name, value in found.items()
        if is_sensitive_name(name) or any(map(is_sensitive_name, _references({name: values[name]})[0]))
        for text in texts_in(value)
    )
    context.gate.redactor.add_passing(secrets)
    by = cast("AppliedTransform", tool.transform)
    try:
        fitting, _ = check(context.validators.of(by.values), tool, found, coerces=True)
    except InvalidArgumentsError:
        fitting = {}
    if fitting.keys() != found.keys():
        names = ", ".join(f"`{name}`" for name in found)
        raise _denied(tool, f"the configuration's value for one of {names} does not fit")
    return fitting


def _expanded(tool: ToolDef, argument: str, value: Any, expansion: ExpansionContext) -> Any:
    """Return a value with its references replaced."""

    def missing(name: str, _whole: str) -> str:
        claim = name.removeprefix(CLAIM)
        has_claim = claim != name
        what = f"the claim `{claim}`" if has_claim else f"the variable `{name}`"
        why = f"the argument `{argument}` needs {what}, which has no value"
        raise _denied(tool, why, public=f"it needs the claim `{claim}` of the caller" if has_claim else "")

    if isinstance(value, str):
        return expand(value, expansion, missing)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _expanded(tool, argument, item, expansion) for name, item in fields.items()}
    if isinstance(value, list | tuple):
        return [_expanded(tool, argument, item, expansion) for item in cast("list[Any]", value)]
    return value


def _denied(tool: ToolDef, why: str, *, public: str = "") -> CallDeniedError:
    """Return the error for a value that cannot be sent; a remote client gets the public reason."""
    start = f"`{tool.name}` was not called"
    public = public or "a value that its configuration adds is missing or does not fit"
    return CallDeniedError(
        f"{start}: {why}",
        tool=tool.name,
        server=tool.server,
        rule=RULE,
        hint=f"check `tools.{tool.original_name}` of server `{tool.server}` in the configuration",
        public_message=f"{start}: {public}",
    )
