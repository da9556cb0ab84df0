"""Which package a command starts: `npx -y @scope/server@1.2`, `uvx --from pkg tool`, `docker run image`.

Only names and versions are read from the arguments; nothing is looked up. A package without an exact version
is whatever its registry gives today, so an approval or a pin of the command says little about the code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.model import Stdio

_NPM = re.compile(r"(?P<name>@[\w.~-]+/[\w.~-]+|[\w.~-]+)(?:@(?P<version>[^@\s/]+))?")
_PYPI = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[\w,.\s-]*\])?(?:(?:==|@)(?P<version>[\w.!+*-]+))?")
_EXACT = re.compile(r"v?\d++(?:\.\d++)++(?:[.+-]?\w[\w.+-]*+)?|\d++\.\d++[\w.+!-]*+")
_RUNNERS = {
    "npx": ("npm", 0),
    "bunx": ("npm", 0),
    "uvx": ("pypi", 0),
    "pnpm": ("npm", 1),
    "yarn": ("npm", 1),
    "bun": ("npm", 1),
    "npm": ("npm", 1),
    "uv": ("pypi", 2),
    "pipx": ("pypi", 1),
}
"""The program, its registry, and how many words (`dlx`, `exec`, `tool run`) come before the package."""
_SUBCOMMANDS = frozenset({"dlx", "exec", "x", "tool", "run"})
_FROM = frozenset({"-p", "--package", "--from", "--spec"})
_WITH_VALUE = frozenset(
    {
        "-c",
        "--call",
        "--python",
        "--with",
        "--index",
        "--index-url",
        "--registry",
        "--cache",
        "-w",
        "--workspace",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that a command starts."""

    registry: str
    """`npm` or `pypi`."""
    name: str
    version: str = ""
    """As written, empty where the command names none."""
    index: int = 0
    """Where it stands among the arguments."""
    joint: str = "@"
    """What stands between name and version there."""

    @property
    def is_pinned(self) -> bool:
        """Whether the command starts this version and no other."""
        return bool(_EXACT.fullmatch(self.version))


def package_of(stdio: Stdio) -> Package | None:
    """Return the package that a command starts, if it is one of a runner's."""
    program = re.split(r"[/\\]", stdio.command)[-1].lower().removesuffix(".exe").removesuffix(".cmd")
    if program not in _RUNNERS:
        return None
    registry, words = _RUNNERS[program]
    index = _position(list(stdio.args), words)
    if index is None:
        return None
    match = (_NPM if registry == "npm" else _PYPI).fullmatch(_spec(stdio.args[index]))
    if match is None:
        return None
    named = (index > 0 and stdio.args[index - 1] in _FROM) or stdio.args[index].startswith("--")
    joint = "==" if registry == "pypi" and (named or program == "pipx") else "@"
    return Package(
        registry=registry, name=match["name"], version=match["version"] or "", index=index, joint=joint
    )


def _spec(arg: str) -> str:
    return arg.partition("=")[2] if arg.startswith("--") else arg


def _position(args: list[str], words: int) -> int | None:
    plain: int | None = None
    skip = False
    for index, arg in enumerate(args):
        if skip:
            skip = False
            continue
        if arg in _FROM:
            return index + 1 if index + 1 < len(args) else None
        if arg.partition("=")[0] in _FROM and "=" in arg:
            return index
        if arg == "--":
            return index + 1 if index + 1 < len(args) else None
        if arg.startswith("-"):
            skip = arg in _WITH_VALUE
        elif words and arg in _SUBCOMMANDS:
            words -= 1
        elif words:
            return None
        else:
            plain = index
            break
    return plain


def pinned(stdio: Stdio, version: str) -> Stdio:
    """Return the command with an exact version of its package; the same where it starts none."""
    package = package_of(stdio)
    if package is None:
        return stdio
    old = stdio.args[package.index]
    option, equals, spec = old.partition("=") if old.startswith("--") else ("", "", old)
    bare = spec.removesuffix(package.version).rstrip("@=") if package.version else spec
    word = f"{option}{equals}{bare}{package.joint}{version}"
    args = [*stdio.args[: package.index], word, *stdio.args[package.index + 1 :]]
    return replace(stdio, args=args)
