"""Which version of a package a runner has on this machine, read from its folders; nothing is run or fetched.

Looked into are the project's `node_modules`, the cache of `npx`, the installed tools and the cache of `uvx`,
not the folders of other runners. A runner whose command names no version may fetch a newer one at any start,
so that what is found is what was used last, not what will be used next.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dragoman.model import Stdio
    from dragoman.trust.packages import Package

MAX_BYTES = 1_000_000
"""Of a `package.json`."""
_VERSION = re.compile(r"\d[\w.!+]*(?:-[\w.+]+)*")


@dataclass(frozen=True, slots=True)
class Installed:
    """A version that is on this machine."""

    version: str
    where: str
    """For people: whose folder it is in."""


def installed(package: Package, stdio: Stdio, *, root: str, env: Mapping[str, str]) -> Installed | None:
    """Find the version of a package that its runner would use, or used last.

    Args:
        package: The package.
        stdio: The command that starts it.
        root: The project's directory, where a command without a `cwd` runs.
        env: The variables of this process; the server's own come before them.
    """
    env = {**env, **{name: value for name, value in stdio.env.items() if value}}
    program = Path(stdio.command.replace("\\", "/")).name.lower().removesuffix(".exe").removesuffix(".cmd")
    try:
        if program in ("npx", "npm"):
            return _npm(package, Path(root, stdio.cwd or ""), env)
        if program in ("uvx", "uv"):
            return _uv(package, env)
    except OSError:
        pass
    return None


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
    # npx has a folder for each set of packages, named after a hash of the words in its command.
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
    """Read `1.2.0-py3-none-any.http`, or with the package before it, as older releases wrote it."""
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
