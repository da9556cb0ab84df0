"""`dragoman web` and `dragoman serve --console`: a link on stderr, and a console behind it."""

from __future__ import annotations

import re
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx2
import pytest
from tests.unit.cli.program import configure, dragoman, dragoman_command, entry

from dragoman.console.app import KEY_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def running(*arguments: str) -> Iterator[tuple[str, str]]:
    """Run a command until it has printed the link of its console; give the address and the token."""
    command = [*dragoman_command(), *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if found := re.search(r"console: (http://127\.0\.0\.1:\d+/\S*?)#token=(\S+)", line):
                break
        else:
            pytest.fail(said)
        try:
            yield found[1], found[2]
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
    assert process.returncode in (0, 130), rest
    assert "Traceback" not in rest


@pytest.mark.usefixtures("warm_python")
def test_the_link_opens_the_console_of_the_configured_servers() -> None:
    configure(plain=entry("plain.py"))
    with running("web", "--read-only") as (address, token), httpx2.Client(base_url=address) as client:
        assert "<script" in client.get("").text
        key = client.post("api/session", json={"token": token}).json()["key"]
        about = client.get("api/session", headers={KEY_HEADER: key}).json()
        assert (about["read_only"], about["is_operator"], about["gateway"]) == (True, True, False)
        fleet = client.get("api/fleet", headers={KEY_HEADER: key}).json()
        assert [row["name"] for row in fleet["servers"]] == ["plain"]


@pytest.mark.usefixtures("warm_python")
def test_the_gateway_has_its_console_below_its_address() -> None:
    configure(plain=entry("plain.py"))
    arguments = ("serve", "--http", "0", "--console", "--token", "the-token")
    with running(*arguments) as (address, token), httpx2.Client(base_url=address) as client:
        assert address.endswith("/console/")
        assert client.get("api/fleet").status_code == 401
        operator = client.post("api/session", json={"token": token}).json()["key"]
        assert client.get("api/session", headers={KEY_HEADER: operator}).json()["is_operator"] is True
        user = client.post("api/session", json={"token": "the-token"}).json()["key"]
        assert client.get("api/session", headers={KEY_HEADER: user}).json()["is_operator"] is False
        # The endpoint for clients is where it was.
        assert client.post(address.replace("/console/", "/mcp")).status_code == 401


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("web", "--json"), "does not support --json"),
        (("web", "--listen", "nowhere"), "is not [HOST:]PORT"),
        (("serve", "--console"), "--console needs --http"),
        (("serve", "--http", "0", "--read-only"), "--read-only needs --console"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(arguments: tuple[str, ...], said: str) -> None:
    configure(plain=entry("plain.py"))
    found = dragoman(*arguments)
    assert found.returncode == 2
    assert said in found.stderr
