"""`diagnose` from code, on real servers: the stages, the finding, the hint and the typed error."""

from __future__ import annotations

import asyncio
import logging
import shlex
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.behaviour.conftest import listening
from tests.servers.authorization import Authorization

from dragoman import AuthRequiredError, ConnectError, Diagnosis, Http, ServerSpec, Settings, Stdio, diagnose
from dragoman.diagnosis.doctor import STAGES
from dragoman.model import Origin

if TYPE_CHECKING:
    from collections.abc import Callable


def names(found: Diagnosis) -> list[str]:
    return [stage.name for stage in found.stages]


async def test_a_healthy_server_passes_every_stage(server: Callable[..., ServerSpec]) -> None:
    found = await diagnose(server("good", "official.py", "stdio"))
    assert found.ok
    assert (found.finding, found.hint, found.error) == ("", "", None)
    assert names(found) == [name for name in STAGES if name not in ("approval", "address", "connect")]
    assert all(stage.ok for stage in found.stages)
    assert sum(stage.seconds for stage in found.stages) > 0
    assert found.listing is not None
    assert found.listing.tools


async def test_a_healthy_url_passes_every_stage() -> None:
    async with listening("http") as url:
        found = await diagnose(ServerSpec("good", Http(url)))
    assert found.ok
    assert names(found) == [name for name in STAGES if name not in ("approval", "command", "start")]


async def test_a_missing_command_is_found_before_anything_is_started() -> None:
    found = await diagnose(ServerSpec("typo", Stdio("pythonn3")))
    assert (names(found)[-1], found.stages[-1].ok) == ("command", False)
    assert found.finding == "the program `pythonn3` was not found"
    assert found.hint.startswith("Did you mean")
    assert isinstance(found.error, ConnectError)
    assert not found.ok


async def test_a_crash_has_its_exit_code_and_its_stderr(server: Callable[..., ServerSpec]) -> None:
    found = await diagnose(server("dying", "dying.py"))
    assert names(found)[-1] == "handshake"
    assert (found.exit_code, found.stderr) == (3, "license file missing")
    assert "code 3" in found.finding
    assert "license" not in found.finding
    # There is no better advice, and the command is whole.
    transport = found.spec.transport
    assert isinstance(transport, Stdio)
    whole = shlex.join([transport.command, *transport.args])
    assert found.hints == [f"Run it yourself to see its full output: `{whole}`"]


async def test_lines_that_are_not_messages_are_counted_for_their_own_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chatty, silent = (
        ServerSpec(name, Stdio(sys.executable, ["-c", f"import sys; {say}; sys.exit(1)"]))
        for name, say in (("chatty", "print('hello')"), ("silent", "pass"))
    )
    with caplog.at_level(logging.WARNING, "dragoman"):
        one, other = await asyncio.gather(diagnose(chatty), diagnose(silent))
    assert one.hint.startswith("It printed plain text")
    assert not other.hint.startswith("It printed plain text")
    # The log of the program that asks stays as it is.
    assert any("chatty" in record.getMessage() for record in caplog.records)
    assert not logging.getLogger("dragoman").handlers


@pytest.mark.parametrize(
    ("path", "stage", "hint"),
    [("/all-404", "handshake", "/mcp"), ("/all-html", "handshake", "/all-html/mcp`")],
)
async def test_a_wrong_path(faults: str, path: str, stage: str, hint: str) -> None:
    found = await diagnose(ServerSpec("lost", Http(faults + path)))
    assert names(found)[-1] == stage
    assert hint in found.hint
    assert found.finding


async def test_a_wrong_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = await diagnose(ServerSpec("closed", Http(f"http://127.0.0.1:{port}/mcp")))
    assert names(found)[-1] == "connect"
    assert found.finding == f"`127.0.0.1:{port}` refused the connection"
    assert found.hint.startswith("Nothing listens there.")


async def test_a_login_that_is_required(faults: str) -> None:
    found = await diagnose(ServerSpec("law", Http(f"{faults}/login")))
    assert isinstance(found.error, AuthRequiredError)
    assert found.hint == "It offers no login by OAuth. Enter a token: `dragoman login law --with-token`"
    async with Authorization() as server:
        found = await diagnose(ServerSpec("law", Http(server.url)))
    assert found.hints[:2] == [
        "Log in: `dragoman login law`",
        "Or enter a token: `dragoman login law --with-token`",
    ]


def test_an_unapproved_server_of_a_project_is_not_started(server: Callable[..., ServerSpec]) -> None:
    source = Path("mcp.json").absolute()
    spec = server("sound", "faulty.py", "sound").replace(origin=Origin(source=str(source), scope="project"))
    for settings in (None, Settings(servers=[spec], root=str(source.parent))):
        found = asyncio.run(diagnose(spec, settings))
        assert names(found) == ["config", "approval"]
        assert "approve" in f"{found.finding} {found.hint}"
        assert isinstance(found.error, ConnectError)
    assert not Path("sound.log").exists()


async def test_the_time_limit_is_kept(server: Callable[..., ServerSpec]) -> None:
    found = await diagnose(server("mute", "mute.py"), timeout=0.5)
    assert names(found)[-1] == "handshake"
    assert found.stages[-1].seconds < 10
    assert "stdio" in found.hint
