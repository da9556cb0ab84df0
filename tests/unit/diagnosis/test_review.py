"""Versions of packages, found in folders laid out as npx and uv lay them out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.real.servers import NPM

from dragoman.config.packages import Installed, installed, package_of
from dragoman.model import Stdio


def find(line: str, **more: str) -> Installed | None:
    command, *args = line.split(" ")
    stdio = Stdio(command, args, env=more)
    package = package_of(stdio)
    assert package is not None
    return installed(package, stdio, root=str(Path.cwd()), env=os.environ)


def module(folder: Path, name: str, version: object = "1.2.3") -> Path:
    file = folder / "node_modules" / name / "package.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"name": name, "version": version}), "utf-8")
    return file


def wheel(cache: Path, entry: str, at: float) -> None:
    path = cache / entry
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (at, at))


def test_nothing_is_found_where_there_is_nothing() -> None:
    for line in ("npx -y foo", "uvx foo", "pnpm dlx foo", "pipx run foo"):
        assert find(line) is None


def test_the_projects_own_modules_come_first_from_wherever_it_is_run(tmp_path: Path, home: Path) -> None:
    module(tmp_path, "@m/fs", "2.0.0-rc.1")
    module(home / ".npm" / "_npx" / "36ee4df9ba71ded3", "@m/fs", "1.0.0")
    below = tmp_path / "sub"
    below.mkdir()
    stdio = Stdio("npx", ["@m/fs"], cwd="sub")
    package = package_of(stdio)
    assert package is not None
    found = installed(package, stdio, root=str(tmp_path), env=os.environ)
    assert found == Installed("2.0.0-rc.1", "the project's node_modules")


def test_the_cache_of_npx_is_found_by_the_words_of_the_command(tmp_path: Path, home: Path) -> None:
    # A folder that npx itself is known to make for this word.
    module(home / ".npm" / "_npx" / "b388654678d519d9", "prettier", "3.1.0")
    assert find("npx -y prettier") == Installed("3.1.0", "the cache of npx")
    assert find("npx -y prettier@latest") is None
    other = tmp_path / "elsewhere"
    assert find("npx -y prettier", npm_config_cache=str(other)) is None
    module(other / "_npx" / "b388654678d519d9", "prettier", "3.2.0")
    assert find("npx -y prettier", npm_config_cache=str(other)) == Installed("3.2.0", "the cache of npx")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"version": 3}', '{"version": "latest; rm"}', "[" * 9999]
)
def test_a_package_json_that_cannot_be_used_says_nothing(tmp_path: Path, content: str) -> None:
    module(tmp_path, "foo").write_text(content, "utf-8")
    assert find("npx foo") is None


def test_a_real_package_is_found() -> None:
    stdio = Stdio("npx", ["-y", "@modelcontextprotocol/server-filesystem", "."], cwd=str(NPM))
    package = package_of(stdio)
    assert package is not None
    found = installed(package, stdio, root="/", env=os.environ)
    real = json.loads((NPM / "node_modules" / package.name / "package.json").read_text("utf-8"))
    assert found == Installed(real["version"], "the project's node_modules")


def test_the_wheel_that_uv_fetched_last_is_found(tmp_path: Path) -> None:
    cache = tmp_path / "uv-cache"
    wheel(cache, "wheels-v5/pypi/mcp-server-git/1.0.0-py3-none-any.http", 100)
    wheel(cache, "wheels-v5/pypi/mcp-server-git/metadata.msgpack", 900)
    assert find("uvx mcp_server.git", UV_CACHE_DIR=str(cache)) == Installed("1.0.0", "the cache of uv")
    wheel(cache, "wheels-v6/index/abc/mcp-server-git/2026.1.14-py3-none-any.http", 300)
    wheel(cache, "wheels-v1/pypi/mcp-server-git/mcp_server_git-0.9.1-py3-none-any", 200)
    assert find("uvx mcp-server-git", UV_CACHE_DIR=str(cache)) == Installed("2026.1.14", "the cache of uv")
    assert find("uvx mcp-server", UV_CACHE_DIR=str(cache)) is None


def test_an_installed_tool_of_uv_comes_first(tmp_path: Path) -> None:
    tools, cache = tmp_path / "tools", tmp_path / "cache"
    wheel(cache, "wheels-v5/pypi/my-tool/3.0-py3-none-any.http", 100)
    (tools / "my-tool/lib/python3.12/site-packages/My.Tool-2.5.dist-info").mkdir(parents=True)
    (tools / "my-tool/lib/python3.12/site-packages/other-1.0.dist-info").mkdir(parents=True)
    found = find("uvx --from my_tool serve", UV_CACHE_DIR=str(cache), UV_TOOL_DIR=str(tools))
    assert found == Installed("2.5", "the tools that uv has installed")
