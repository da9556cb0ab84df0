from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.errors import ConfigError
from dragoman.model import Stdio
from dragoman.server.process.environment import (
    TAIL_BYTES,
    StderrTail,
    child_environment,
    kill_group,
    removed_variables,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requirement("kode-connect.stdio", "kode-config.stdio", "excel-1.4")

OURS = {"A": "1", "B": "2", "PATH": "/bin"}


def test_safe_child_inherits_nothing_from_us() -> None:
    assert child_environment(Stdio("x", env={"OWN": "3"}), OURS) == {"OWN": "3"}


def test_child_inherits_what_is_named_or_everything() -> None:
    assert child_environment(Stdio("x", inherit_env=["A", "ABSENT"]), OURS) == {"A": "1"}
    assert child_environment(Stdio("x", inherit_env="all"), OURS) == OURS


def test_env_wins_over_files_and_none_takes_away(tmp_path: Path) -> None:
    (tmp_path / "one.env").write_text("A=file\nC=file\n")
    stdio = Stdio("x", inherit_env="all", env_file=[str(tmp_path / "one.env")], env={"C": "own", "B": None})
    assert child_environment(stdio, OURS) == {"A": "file", "C": "own", "PATH": "/bin"}
    assert removed_variables(stdio) == ["B"]


@pytest.mark.parametrize("kind", ["absent", "folder", "pipe", "binary"])
def test_env_file_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "one.env"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "binary":
            path.write_bytes(b"A=\xff\xfe\x00")
        case _:
            pass
    with pytest.raises(ConfigError, match=r"cannot read an env file: .*one\.env") as caught:
        child_environment(Stdio("x", env_file=[str(path)]), {})
    assert caught.value.hint


def test_env_file_may_have_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "one.env").write_text("A=ä\n", "utf-16")
    assert child_environment(Stdio("x", env_file=[str(tmp_path / "one.env")]), {}) == {"A": "ä"}


def test_killing_a_group_that_is_gone_is_no_error() -> None:
    child = os.posix_spawn("/bin/true", ["true"], {}, setpgroup=0)
    os.waitpid(child, 0)
    kill_group(child)


@pytest.mark.anyio
async def test_tail_remembers_the_end_of_what_was_written() -> None:
    source, sink = os.pipe()
    with StderrTail(source) as tail:
        os.write(sink, b"first\nlast\n")
        assert tail.text() == "first\nlast"
        os.write(sink, b"later \xff\n")
        os.close(sink)
    assert tail.text() == "first\nlast\nlater \ufffd"


@pytest.mark.anyio
async def test_tail_is_bounded() -> None:
    source, sink = os.pipe()
    with StderrTail(source) as tail:
        for _ in range(5):
            os.write(sink, b"x" * TAIL_BYTES)
            tail.text()
        os.write(sink, b"end")
        os.close(sink)
    assert len(tail.text()) == TAIL_BYTES
    assert tail.text().endswith("end")


@pytest.mark.parametrize("inherited", ["all", ["A", "B"]])
def test_variable_of_the_entry_wins_over_the_one_that_is_inherited(inherited: Any) -> None:
    given = child_environment(Stdio("x", env={"A": "own"}, inherit_env=inherited), OURS)
    assert (given["A"], given["B"]) == ("own", "2")
