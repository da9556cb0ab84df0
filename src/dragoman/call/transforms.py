"""The arguments of a tool that the configuration changes, as its server is sent them.

Values may refer to variables and to what is known of the caller. A value that cannot be found denies the
call: what the configuration fixes is never left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from dragoman.config.templates import CLAIM, expand, variables
from dragoman.errors import CallDeniedError, InvalidArgumentsError
from dragoman.server.protocol.context import caller_claims
from dragoman.tools.result.build import check
from dragoman.tools.transforms import sent_arguments, texts_in
from dragoman.trust.masking import is_sensitive_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.call.context import CallContext
    from dragoman.config.templates import ExpansionContext
    from dragoman.model import ServerSpec, ToolDef

RULE = "transform"
"""The rule of a call that a transform denies."""


def complete(context: CallContext, tool: ToolDef, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that the server of a changed tool is sent.

    Raises:
        CallDeniedError: A value of the configuration has no value now, or does not fit.
        InvalidArgumentsError: They have a name that is only the server's.
    """
    by = tool.transform
    supervisor = context.supervisors.get(tool.server)
    if by is None or not by.has_references or supervisor is None:
        return sent_arguments(tool, arguments)
    expansion = supervisor.expansion.replace(claims=_claims(context))

    def value_of(values: Mapping[str, Any]) -> dict[str, Any]:
        found = {name: _found(tool, name, value, expansion) for name, value in values.items()}
        secrets = (
            text
            for name, value in found.items()
            if is_sensitive_name(name) or any(map(is_sensitive_name, _variables(values[name])))
            for text in texts_in(value)
        )
        context.gate.redactor.add_passing(secrets)
        try:
            validator = context.validators.of(by.values)
            return check(validator, tool, found, coerces=True)[0]
        except InvalidArgumentsError as exc:
            names = ", ".join(f"`{name}`" for name in found)
            raise _denied(tool, f"the configuration's value for one of {names} does not fit") from exc

    return sent_arguments(tool, arguments, value_of=value_of)


def as_written(tool: ToolDef, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with references that the configuration adds to a call, as they are written there."""
    by = tool.transform
    if by is None or not by.has_references:
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


def _variables(value: Any) -> list[str]:
    return [name for text in texts_in(value) for name in variables(text)]


def _claims(context: CallContext) -> dict[str, str]:
    """Return what is known of the caller, as texts."""
    claims = caller_claims()
    if claims is None:
        return {"sub": context.user} if context.user else {}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in claims.items()
        if value is not None
    }


def _found(tool: ToolDef, argument: str, value: Any, expansion: ExpansionContext) -> Any:
    """Return a value of the configuration with its references replaced."""

    def missing(name: str, _whole: str) -> str:
        what = (
            f"the claim `{name.removeprefix(CLAIM)}`" if name.startswith(CLAIM) else f"the variable `{name}`"
        )
        raise _denied(tool, f"the argument `{argument}` needs {what}, which has no value")

    if isinstance(value, str):
        return expand(value, expansion, missing)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _found(tool, argument, item, expansion) for name, item in fields.items()}
    if isinstance(value, list | tuple):
        return [_found(tool, argument, item, expansion) for item in cast("list[Any]", value)]
    return value


def _denied(tool: ToolDef, why: str) -> CallDeniedError:
    msg = f"`{tool.name}` was not called: {why}"
    hint = f"check `tools.{tool.original_name}` of server `{tool.server}` in the configuration"
    return CallDeniedError(msg, tool=tool.name, server=tool.server, rule=RULE, hint=hint)
