"""Packages in commands: which one, which version, and how to pin it."""

from __future__ import annotations

import pytest

from dragoman.config.packages import package_of, pinned
from dragoman.model import Stdio


@pytest.mark.parametrize(
    ("line", "name", "version", "exact", "after"),
    [
        ("npx -y @m/server-fs@1.2.3 /x", "@m/server-fs", "1.2.3", True, "-y @m/server-fs@9.9.9 /x"),
        ("npx @m/server-fs .", "@m/server-fs", "", False, "@m/server-fs@9.9.9 ."),
        ("npx --package=foo@latest bar", "foo", "latest", False, "--package=foo@9.9.9 bar"),
        ("npx -p foo@^1.0 bar", "foo", "^1.0", False, "-p foo@9.9.9 bar"),
        ("npx -y foo@1.0.0-beta.1", "foo", "1.0.0-beta.1", True, "-y foo@9.9.9"),
        ("uvx --from pkg[a]==1.2.0 tool", "pkg", "1.2.0", True, "--from pkg[a]==9.9.9 tool"),
        ("uvx mcp-server-git --repo x", "mcp-server-git", "", False, "mcp-server-git@9.9.9 --repo x"),
        ("uvx --python 3.12 pkg@1.0", "pkg", "1.0", True, "--python 3.12 pkg@9.9.9"),
        ("uv tool run x@1.0", "x", "1.0", True, "tool run x@9.9.9"),
        ("pipx run x==2.0", "x", "2.0", True, "run x==9.9.9"),
        ("pnpm dlx z@^1", "z", "^1", False, "dlx z@9.9.9"),
        ("npm exec -- z@1.0.0", "z", "1.0.0", True, "exec -- z@9.9.9"),
        ("/usr/bin/npx.cmd z", "z", "", False, "z@9.9.9"),
    ],
)
def test_a_package_is_found_and_pinned(line: str, name: str, version: str, exact: bool, after: str) -> None:
    command, *args = line.split(" ")
    stdio = Stdio(command, args, env={"A": "b"})
    package = package_of(stdio)
    assert package is not None
    assert (package.name, package.version, package.is_pinned) == (name, version, exact)
    done = pinned(stdio, "9.9.9")
    assert " ".join(done.args) == after
    assert done.env == {"A": "b"}
    again = package_of(done)
    assert again is not None
    assert (again.name, again.version, again.is_pinned) == (name, "9.9.9", True)


@pytest.mark.parametrize(
    "line",
    [
        "node server.js",
        "uv run server.py",
        "npm start",
        "npx",
        "npx -y",
        "npx -p",
        "npx ./local/dir",
        "npm exec --",
    ],
)
def test_a_command_without_a_package_stays(line: str) -> None:
    command, *args = line.split(" ")
    stdio = Stdio(command, args)
    assert package_of(stdio) is None
    assert pinned(stdio, "1.0.0") is stdio
