from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.config import files
from dragoman.config.files import format_of, is_file, read, read_env_file
from dragoman.errors import ConfigError, ConfigSyntaxError


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("mcp.json", "json"),
        (".mcprc", "json"),
        ("settings.jsonc", "json"),
        ("x.toml", "toml"),
        ("x.YAML", "yaml"),
        ("x.yml", "yaml"),
        ("x.env", "env"),
        (".env", "env"),
        (".env.local", "env"),
    ],
)
def test_the_name_tells_the_format(name: str, format_: str) -> None:
    assert format_of(Path(name)) == format_


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_is_read_in_any_encoding_that_marks_itself(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "mcp.json"
    mark = "\ufeff" if encoding.endswith(("le", "be")) else ""
    path.write_bytes((mark + '{"é": 1}').encode(encoding))
    assert read(path).data == {"é": 1}


def test_the_format_may_be_given(tmp_path: Path) -> None:
    path = tmp_path / "mcp.conf"
    path.write_text("a = 1", "utf-8")
    assert read(path, "toml").data == {"a": 1}


def test_a_file_that_is_not_there_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "mcp.json")


def test_a_file_below_a_file_is_not_there(tmp_path: Path) -> None:
    (tmp_path / ".otter").write_text("", "utf-8")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / ".otter" / "config.toml")


def test_a_directory_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigSyntaxError, match="cannot be read: Is a directory") as caught:
        read(tmp_path)
    assert caught.value.source == str(tmp_path)


def test_a_path_that_no_file_can_have_cannot_be_read() -> None:
    with pytest.raises(ConfigSyntaxError, match="cannot be read: embedded null"):
        read(Path("a\0b"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    os.mkfifo(path)
    with pytest.raises(ConfigSyntaxError, match="not a regular file"):
        read(path, only_regular=True)
    assert not is_file(path)


def test_a_broken_encoding_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(b'{\n"a": "\xff"}')
    with pytest.raises(ConfigSyntaxError, match=r"not valid UTF-8 \(byte 8\)") as caught:
        read(path)
    assert caught.value.line == 2


def test_a_broken_utf_16_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(ConfigSyntaxError, match="not valid UTF-16"):
        read(path)


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 10)
    path = tmp_path / "mcp.json"
    path.write_bytes(b" " * 11)
    with pytest.raises(ConfigSyntaxError, match="larger than"):
        read(path)


def test_an_env_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("A=1\n", "utf-8")
    assert read_env_file(path) == {"A": "1"}


def test_an_env_file_that_is_not_there_is_an_error_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the env file does not exist") as caught:
        read_env_file(tmp_path / ".env", pointer="mcpServers.a.envFile")
    assert caught.value.pointer == "mcpServers.a.envFile"


def test_an_env_file_that_might_make_us_wait_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".env")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_env_file(tmp_path / ".env")
