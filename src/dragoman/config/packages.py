"""Find the package that a command starts, and its installed version, without running or fetching anything."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dragoman.model import Stdio


CONTAINERS = frozenset("docker podman nerdctl".split())
MAX_BYTES = 1_000_000
"""Of a `package.json`."""
_VERSION = re.compile(r"\d[\w.!+]*(?:-[\w.+]+)*")


class Installed(Struct):
    """An installed version."""

    version: str
    where: str
    """Where it was found, for messages."""


def installed(package: Package, stdio: Stdio, *, root: str, env: Mapping[str, str]) -> Installed | None:
    """Return the version of a package that its runner would use, or used last.

    Args:
        package: The package.
        stdio: The command that starts it.
        root: The project's directory, in which a command without `cwd` runs.
        env: The environment of this process; the server's own variables win.
    """
    env = {**env, **{name: value for name, value in stdio.env.items() if value}}
    program = _program(stdio)
    try:
        if program in ("npx", "npm"):
            return _npm(package, Path(root, stdio.cwd or ""), env)
        if program in ("uvx", "uv"):
            return _uv(package, env)
    except OSError:
        pass
    return None


def not_installed(stdio: Stdio, *, root: str, env: Mapping[str, str]) -> str:
    """Return the package that npx or uvx has to download first; empty for other programs."""
    package = package_of(stdio)
    is_known = package is not None and _program(stdio) in ("npx", "uvx")
    if package is None or not is_known or installed(package, stdio, root=root, env=env) is not None:
        return ""
    return package.name


def may_download(stdio: Stdio) -> bool:
    """Return whether a command may download what it starts: a package runner, or a container's `run`."""
    return package_of(stdio) is not None or _program(stdio) in CONTAINERS


def _npm(package: Package, folder: Path, env: Mapping[str, str]) -> Installed | None:
    prefix = next(
        (
            parent
            for parent in (folder, *folder.parents)
            if (parent / "package.json").is_file() or (parent / "node_modules").is_dir()
        ),
        folder,
    )
    if version := _npm_version(prefix / "node_modules", package.name):
        return Installed(version, "the project's node_modules")
    cache = env.get("npm_config_cache") or env.get("NPM_CONFIG_CACHE")
    if not cache and sys.platform == "win32":
        cache = str(Path(env.get("LOCALAPPDATA", ""), "npm-cache"))
    word = f"{package.name}@{package.version}" if package.version else package.name
    # npx has a folder for each set of packages, named by a hash of their specifiers.
    key = hashlib.sha512(word.encode()).hexdigest()[:16]
    home = Path(cache) if cache else Path.home() / ".npm"
    if version := _npm_version(home / "_npx" / key / "node_modules", package.name):
        return Installed(version, "the cache of npx")
    return None


def _npm_version(modules: Path, name: str) -> str:
    file = modules / name / "package.json"
    if not file.is_file() or file.stat().st_size > MAX_BYTES:
        return ""
    try:
        data: object = json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError):
        return ""
    found = cast("dict[str, Any]", data).get("version") if isinstance(data, dict) else None
    return found if isinstance(found, str) and _VERSION.fullmatch(found) else ""


def _uv(package: Package, env: Mapping[str, str]) -> Installed | None:
    name = re.sub(r"[-_.]+", "-", package.name).lower()
    tools = env.get("UV_TOOL_DIR") or Path(_data(env), "uv", "tools")
    for pattern in ("lib/python*/site-packages", "Lib/site-packages"):
        for site in Path(tools, name).glob(pattern):
            if versions := list(_dist_versions(site, name)):
                return Installed(versions[0], "the tools that uv has installed")
    cache = Path(env.get("UV_CACHE_DIR") or Path(_cache(env), "uv"))
    found = [
        (entry.stat(follow_symlinks=False).st_mtime, version)
        for pattern in (f"wheels-v*/pypi/{name}", f"wheels-v*/index/*/{name}")
        for folder in cache.glob(pattern)
        for entry in os.scandir(folder)
        if (version := _wheel_version(entry.name, name))
    ]
    return Installed(max(found)[1], "the cache of uv") if found else None


def _dist_versions(site: Path, name: str) -> Iterator[str]:
    for folder in site.glob("*.dist-info"):
        title, _, version = folder.name.removesuffix(".dist-info").rpartition("-")
        if re.sub(r"[-_.]+", "-", title).lower() == name and _VERSION.fullmatch(version):
            yield version


def _wheel_version(entry: str, name: str) -> str:
    """Return the version of `1.2.0-py3-none-any.http`, which older releases prefix with the package name."""
    title = name.replace("-", "_")
    rest = entry[len(title) + 1 :] if entry.lower().startswith(f"{title}-") else entry
    version = rest.partition("-")[0]
    return version if "-" in rest and _VERSION.fullmatch(version) else ""


def _data(env: Mapping[str, str]) -> str:
    if sys.platform == "win32":
        return env.get("APPDATA", "")
    return env.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")


def _cache(env: Mapping[str, str]) -> str:
    if sys.platform == "win32":
        return env.get("LOCALAPPDATA", "")
    return env.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")


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


class Package(Struct, kw_only=True):
    """A package that a command starts."""

    registry: str
    """`npm` or `pypi`."""
    name: str
    version: str = ""
    """As written; empty if the command has none."""
    index: int = 0
    """Its index in the arguments."""
    joint: str = "@"
    """The separator of name and version."""

    @property
    def is_pinned(self) -> bool:
        """True if the command names an exact version."""
        return bool(_EXACT.fullmatch(self.version))


def package_of(stdio: Stdio) -> Package | None:
    """Return the package that a command starts; `None` if the command is not a package runner."""
    program = _program(stdio)
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


def _program(stdio: Stdio) -> str:
    return re.split(r"[/\\]", stdio.command)[-1].lower().removesuffix(".exe").removesuffix(".cmd")


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
    """Return the command with an exact version of its package; unchanged if it has no package."""
    package = package_of(stdio)
    if package is None:
        return stdio
    old = stdio.args[package.index]
    option, equals, spec = old.partition("=") if old.startswith("--") else ("", "", old)
    bare = spec.removesuffix(package.version).rstrip("@=") if package.version else spec
    word = f"{option}{equals}{bare}{package.joint}{version}"
    args = [*stdio.args[: package.index], word, *stdio.args[package.index + 1 :]]
    return stdio.replace(args=args)
