import http.client
import json
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from subprocess import Popen
from urllib.parse import urlsplit

import pytest

from dragoman.demo import studio

Launch = Callable[..., Popen[str]]

HTTP = [("dragoman.demo.studio",), ("dragoman.demo.legal", "--http")]
STDIO = [("dragoman.demo.studio", "--stdio"), ("dragoman.demo.legal",)]
INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
)
posix_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals to send")


def first_line(process: Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def url_in(line: str) -> str:
    return json.loads(line)["url"]


def ended(process: Popen[str]) -> tuple[int, str, str]:
    """Close stdin, wait for the end, and give the exit code and what was left on stdout and stderr."""
    stdout, stderr = process.communicate(timeout=30)
    return process.returncode, stdout, stderr


@contextmanager
def open_event_stream(url: str) -> Generator[None]:
    """Hold a session's stream of server messages open, as a connected client of the protocol of 2025 does."""
    address = urlsplit(url)
    assert address.hostname is not None
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    with closing(connection):
        connection.request("POST", address.path, INITIALIZE, headers)
        with connection.getresponse() as response:
            assert response.status == 200
            headers["Mcp-Session-Id"] = response.headers["Mcp-Session-Id"]
            response.read()
        connection.request("GET", address.path, headers=headers)
        with connection.getresponse() as response:
            assert response.status == 200
            yield


@pytest.mark.parametrize("command", HTTP, ids=lambda command: command[0])
def test_http_server_announces_its_address_once_and_stops_when_stdin_ends(
    launch: Launch, command: tuple[str, ...]
) -> None:
    process = launch(*command, "--until-eof")
    line = first_line(process)
    url = url_in(line)
    assert line == f'{{"url": "{url}"}}\n'
    address = urlsplit(url)
    assert (address.scheme, address.hostname, address.path) == ("http", "127.0.0.1", "/mcp")
    with socket.create_connection((address.hostname, address.port), timeout=30):
        pass
    assert ended(process) == (0, "", "")


@posix_signals
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_http_server_with_an_open_stream_ends_by_the_signal_in_silence(launch: Launch, number: int) -> None:
    process = launch("dragoman.demo.studio")
    with open_event_stream(url_in(first_line(process))):
        process.send_signal(number)
        assert ended(process) == (-number, "", "")


@pytest.mark.parametrize("command", STDIO, ids=lambda command: command[0])
def test_stdio_server_stops_when_stdin_ends(launch: Launch, command: tuple[str, ...]) -> None:
    process = launch(*command)
    assert process.stdin is not None
    print(INITIALIZE, file=process.stdin, flush=True)
    assert json.loads(first_line(process))["result"]["protocolVersion"] == "2025-06-18"
    assert ended(process) == (0, "", "")


@posix_signals
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stdio_server_ends_by_the_signal_in_silence(launch: Launch, number: int) -> None:
    process = launch("dragoman.demo.legal")
    assert process.stdin is not None
    print(INITIALIZE, file=process.stdin, flush=True)
    assert json.loads(first_line(process))["id"] == 1
    process.send_signal(number)
    assert process.wait(timeout=30) == -number
    assert ended(process) == (-number, "", "")


def test_stdio_server_whose_client_stopped_reading_ends_in_silence(launch: Launch) -> None:
    process = launch("dragoman.demo.studio", "--stdio")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    print(INITIALIZE, file=process.stdin, flush=True)
    code, _, stderr = ended(process)
    assert (code, stderr) == (0, "")


def test_port_in_use_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit) as stopped:
        studio.main(["--port", str(taken.getsockname()[1])])
    assert stopped.value.code == 2
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", ""])
def test_address_that_others_can_reach_is_a_usage_error(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        studio.main(["--host", host])
    assert stopped.value.code == 2
    assert "argument --host" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_port_out_of_range_is_a_usage_error(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        studio.main(["--port", port])
    assert stopped.value.code == 2
    assert "argument --port" in capsys.readouterr().err
