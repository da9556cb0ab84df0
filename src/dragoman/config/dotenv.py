"""Env files: `NAME=value` lines, as Docker and the dotenv tools write them. Nothing is expanded or run."""

from __future__ import annotations

import re

_LINE = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*
        (?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'|(?P<bare>[^\n]*?))[ \t]*(?:[ \t]\#[^\n]*)?$""",
    re.MULTILINE | re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def parse_env(text: str) -> dict[str, str]:
    """Return the variables of an env file; lines that are no assignment are passed over."""
    found: dict[str, str] = {}
    for match in _LINE.finditer(text.replace("\r\n", "\n")):
        double, single = match["double"], match["single"]
        if double is not None:
            found[match["name"]] = re.sub(
                r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), double, flags=re.DOTALL
            )
        else:
            found[match["name"]] = match["bare"] if single is None else single
    return found
