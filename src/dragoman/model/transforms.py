"""Transforms as they are wanted: how the configuration changes a tool of a server, and its arguments.

As in `model.server`, annotations are no texts here: they declare keys.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from dragoman.model.keys import Key
from dragoman.struct import UNSET, Struct, field


class ArgumentTransform(Struct, kw_only=True, omit_defaults=True):  # noqa: PLW1641 -- its values have no hash
    """How one argument of a tool is changed."""

    name: Annotated[str, Key("the name that it is shown under", unless_given="its own")] = ""
    description: Annotated[str | None, Key("the description that is shown", unless_given="the server's")] = (
        None
    )
    value: Annotated[
        Any,
        Key(
            "the value that is always sent; the argument is not shown, and no caller can change it. "
            "`${VAR}` and `${claim:NAME}` are replaced",
            is_template=True,
            mask="value",
        ),
    ] = UNSET
    default: Annotated[
        Any,
        Key("the value that is sent if a caller gives none; as `value`", is_template=True, mask="value"),
    ] = UNSET
    hidden: Annotated[
        bool, Key("the argument is not shown; it is never sent, or its `default` always is")
    ] = False
    required: Annotated[bool, Key("a caller has to give it")] = False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArgumentTransform):
            return NotImplemented
        # In JSON, 1, 1.0 and true are three values.
        same = self.name == other.name and self.description == other.description
        same = same and (self.hidden, self.required) == (other.hidden, other.required)
        return (
            same
            and _exact(self.value) == _exact(other.value)
            and _exact(self.default) == _exact(other.default)
        )

    @property
    def constant(self) -> Any:
        """The value that is always sent; `UNSET` if there is none."""
        return self.default if self.hidden and self.value is UNSET else self.value

    @property
    def is_shown(self) -> bool:
        """Whether a caller sees the argument."""
        return not self.hidden and self.value is UNSET


def _exact(value: Any) -> str:
    return "" if value is UNSET else json.dumps(value, sort_keys=True)


class ToolTransform(Struct, kw_only=True, omit_defaults=True):
    """How one tool of a server is changed before anything else sees it."""

    name: Annotated[
        str, Key("the name that it has among the tools of its server", unless_given="its own")
    ] = ""
    title: Annotated[str | None, Key("the title that is shown", unless_given="the server's")] = None
    description: Annotated[str | None, Key("the description that is shown", unless_given="the server's")] = (
        None
    )
    hidden: Annotated[bool, Key("the tool is not offered")] = False
    arguments: Annotated[
        Mapping[str, ArgumentTransform], Key("changes of its arguments, by the server's names for them")
    ] = field(default_factory=dict[str, ArgumentTransform])

    @property
    def is_guard(self) -> bool:
        """Whether it keeps something from callers, so that the tool is not offered without it."""
        return any(not one.is_shown for one in self.arguments.values())
