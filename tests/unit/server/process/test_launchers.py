from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dragoman.model import Stdio
from dragoman.server.process.environment import (
    LAUNCHER_VARIABLES,
    child_environment,
    is_launcher,
    without_password,
)
from dragoman.trust.masking import is_sensitive_name

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requirement("otter-p0.npx")


@pytest.mark.parametrize(
    ("command", "own", "launches"),
    [
        ("npx", (), True),
        ("UVX", (), True),
        ("npx.cmd", (), True),
        ("/bin/pipx", (), True),
        ("/project/npx", (), False),
        ("./npx", (), False),
        ("bin/npx", (), False),
        ("npx", ("PATH",), False),
        ("npx-like", (), False),
        ("python", (), False),
    ],
)
def test_launchers_are_programs_of_the_machine(command: str, own: tuple[str, ...], launches: bool) -> None:
    assert is_launcher(command, {"PATH": "/usr/bin:/bin"}, own) is launches


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:secret@proxy:3128", "http://proxy:3128"),
        ("http://me:se@cret@proxy:3128/", "http://proxy:3128/"),
        ("me:secret@proxy:3128", "proxy:3128"),
        ("http://proxy:3128", "http://proxy:3128"),
        ("localhost,.example", "localhost,.example"),
        ("", ""),
    ],
)
def test_address_of_a_proxy_loses_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_no_variable_of_a_launcher_holds_a_credential() -> None:
    assert [name for name in LAUNCHER_VARIABLES if is_sensitive_name(name)] == []


def test_env_file_that_sets_path_chooses_the_program(tmp_path: Path) -> None:
    (tmp_path / "one.env").write_text("PATH=/elsewhere\n")
    ours = {"HTTP_PROXY": "http://me:secret@proxy:1", "UV_INDEX_URL": "http://i"}
    assert child_environment(Stdio("uvx"), ours) == ours
    given = child_environment(Stdio("uvx", env_file=[str(tmp_path / "one.env")]), ours)
    assert given == {"HTTP_PROXY": "http://proxy:1", "PATH": "/elsewhere"}
