from __future__ import annotations

import asyncio
import logging
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from dragoman import McpManager
from dragoman.errors import AuthRequiredError, InvalidResultError, ProtocolError, ToolFailedError
from dragoman.model import Http, ServerSpec, Stdio
from dragoman.server.attempt import ConnectAttempt, ConnectionEnd
from dragoman.server.process.environment import SAFE_VARIABLES
from dragoman.server.protocol import sdk
from dragoman.version import VERSION

pytestmark = pytest.mark.anyio

PLAIN = str(Path(__file__).resolve().parents[3] / "servers" / "plain.py")
STDIO = ServerSpec("s", Stdio("run-me"))
HTTP = ServerSpec("s", Http("http://x/${SECRET}"))


def invalid() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(list[int]).validate_python([1, "secret"])
    return caught.value


def test_first_error_in_nested_groups_is_the_telling_one() -> None:
    group = BaseExceptionGroup(
        "", [asyncio.CancelledError(), ExceptionGroup("", [OSError("a"), ValueError("b")])]
    )
    assert str(sdk.unwrap_group(group)) == "a"


@pytest.mark.parametrize("inside", [KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_must_not_be_caught_goes_on(inside: BaseException) -> None:
    with pytest.raises(type(inside)):
        sdk.unwrap_group(BaseExceptionGroup("", [inside]))


def test_interrupt_goes_on_even_beside_an_error() -> None:
    with pytest.raises(KeyboardInterrupt):
        sdk.unwrap_group(BaseExceptionGroup("", [OSError(), KeyboardInterrupt()]))


@pytest.mark.parametrize(
    ("exc", "spec", "attempt", "said"),
    [
        (TimeoutError(), STDIO, ConnectAttempt(kind="stdio", stage="handshake"), "no answer within 30 s"),
        (
            FileNotFoundError(2, "No such file"),
            STDIO,
            ConnectAttempt(kind="stdio", stage="spawn"),
            "`run-me` cannot be started",
        ),
        (
            FileNotFoundError(2, "No such file", "x.env"),
            STDIO,
            ConnectAttempt(kind="stdio", stage="variables"),
            "x.env",
        ),
        (
            MCPError(-32000, "Connection closed"),
            STDIO,
            ConnectAttempt(kind="stdio", end=ConnectionEnd(reason="x", exit_code=3)),
            "the process ended with code 3",
        ),
        (MCPError(-32000, "Connection closed"), STDIO, ConnectAttempt(kind="stdio"), "the process ended"),
        (
            MCPError(-32603, "x"),
            HTTP,
            ConnectAttempt(kind="http", http_status=503),
            "the server answered HTTP 503",
        ),
        (MCPError(-32603, "locked"), HTTP, ConnectAttempt(kind="http", http_status=200), "locked (-32603)"),
        (invalid(), STDIO, ConnectAttempt(kind="stdio", stage="listing"), "rejected as a whole"),
        (invalid(), STDIO, ConnectAttempt(kind="stdio", stage="handshake"), "not valid MCP"),
        (httpx2.ConnectError("refused"), HTTP, ConnectAttempt(kind="http"), "ConnectError: refused"),
        (RuntimeError("odd"), HTTP, ConnectAttempt(kind="http"), "RuntimeError: odd"),
    ],
)
def test_reason_of_a_failed_connection(
    exc: Exception, spec: ServerSpec, attempt: ConnectAttempt, said: str
) -> None:
    error = sdk.connect_error(ExceptionGroup("", [exc]), spec, attempt)
    assert said in str(error)
    assert "secret" not in str(error)
    assert error.server == "s"


def test_refusal_with_the_code_of_a_closed_connection_is_a_refusal() -> None:
    refused = MCPError(-32000, "no licence")
    refused.__cause__ = ProtocolError("no licence", rpc_code=-32000)
    error = sdk.connect_error(refused, STDIO, ConnectAttempt(kind="stdio", stage="handshake"))
    assert "the server answered: no licence (-32000)" in str(error)


def test_notifications_that_the_session_cannot_read_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("client").warning("Failed to validate notification: %s", "x")
        logging.getLogger("client").warning("dropping tool")
    assert caplog.messages == ["dropping tool"]


def test_child_that_ran_out_of_time_has_no_exit_code_of_its_own() -> None:
    assert (
        sdk.connect_error(
            TimeoutError(), STDIO, ConnectAttempt(kind="stdio", end=ConnectionEnd(reason="x", exit_code=-15))
        ).exit_code
        is None
    )


def test_unauthorized_asks_for_a_login() -> None:
    error = sdk.connect_error(MCPError(-32603, "x"), HTTP, ConnectAttempt(kind="http", http_status=401))
    assert isinstance(error, AuthRequiredError)


def test_loss_says_what_is_known() -> None:
    known = ConnectionEnd(reason="the process ended with code 9", exit_code=9)
    assert sdk.unexplained_end(None, STDIO, ConnectAttempt(kind="stdio", end=known)) is known
    assert sdk.unexplained_end(None, STDIO, ConnectAttempt(kind="stdio")).reason == "the process ended"
    assert sdk.unexplained_end(None, HTTP, ConnectAttempt(kind="sse")).reason == "the server closed it"
    broken = sdk.unexplained_end(httpx2.ReadError(""), HTTP, ConnectAttempt(kind="http"))
    assert "ReadError" in broken.reason


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (MCPError(-32602, "no"), ProtocolError),
        (invalid(), ProtocolError),
        (RuntimeError("breaks its schema"), InvalidResultError),
        (OSError("odd"), ProtocolError),
        (ToolFailedError("ours"), ToolFailedError),
    ],
)
def test_failed_call_is_mapped_by_type(exc: Exception, kind: type[Exception]) -> None:
    assert type(sdk.call_error(exc, server="s", tool="t")) is kind


@pytest.mark.parametrize(
    ("status", "refused"),
    [(None, False), (200, True), (404, True), (405, True), (401, False), (429, False), (503, False)],
)
def test_only_an_answer_about_the_transport_is_a_refusal(status: int | None, refused: bool) -> None:
    assert ConnectAttempt(kind="http", http_status=status).refused is refused


@pytest.mark.requirement("excel-6.3")
async def test_a_stdio_server_is_described_and_spoken_to_by_the_types_of_the_sdk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described: list[StdioServerParameters] = []

    class Watched(StdioServerParameters):
        def model_post_init(self, _context: object, /) -> None:
            described.append(self)

    monkeypatch.setattr(sdk, "StdioServerParameters", Watched)
    async with McpManager([ServerSpec("s", Stdio(sys.executable, [PLAIN]))], cache=False) as mcp:
        assert await mcp.wait_ready()
        session = mcp._parts.supervisors["s"].session
        assert session is not None
        assert isinstance(session._session, ClientSession)
    assert [sys.executable, PLAIN] in [[one.command, *one.args] for one in described]


@pytest.mark.requirement("excel-6.3")
async def test_what_we_stand_on_in_the_sdk_is_where_it_was() -> None:
    assert await sdk._try_seam() == ""
    assert set(SAFE_VARIABLES) == set(DEFAULT_INHERITED_ENV_VARS)


class NoDispatcher(ClientSession):
    """The session of a later SDK that takes no dispatcher."""

    def __init__(self, *streams: Any, **more: Any) -> None:
        if more.pop("dispatcher", None) is not None:
            raise TypeError("unexpected keyword argument `dispatcher`")
        super().__init__(*streams, **more)


class OtherWay(ClientSession):
    """The session of a later SDK that answers pings by itself."""

    async def send_ping(self, **_: Any) -> Any:
        return None


@pytest.fixture
def moved(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "_fault", None)
    match request.param:
        case "dispatcher":
            monkeypatch.setattr(sdk.WireDispatcher, "run", None)
        case session:
            monkeypatch.setattr(sdk, "ClientSession", session)


MOVED = [NoDispatcher, OtherWay, "dispatcher"]


@pytest.mark.parametrize("moved", MOVED, indirect=True)
async def test_where_the_seam_has_moved_the_session_runs_over_streams(
    moved: None, caplog: pytest.LogCaptureFixture
) -> None:
    specs = [ServerSpec(name, Stdio(sys.executable, [PLAIN])) for name in ("one", "two")]
    async with McpManager(specs, cache=False) as mcp:
        assert await mcp.wait_ready()
        results = [await mcp.call(f"mcp_{name}_echo", {"text": name}) for name in ("one", "two")]
    assert [result.text for result in results] == ["one", "two"]
    (said,) = [line for line in caplog.messages if "runs over streams" in line]
    assert f"dragoman {VERSION}" in said
    assert f"mcp {version('mcp')}" in said


SOURCES = Path(sdk.__file__).resolve().parents[2]
OF_THE_SDK = re.compile(r"(?:session|provider|context)\._(?!_)\w+|[\"']_(?:stamp|auth_flow|dispatcher)[\"']")


@pytest.mark.requirement("excel-6.3")
def test_no_private_name_of_the_sdk_is_used() -> None:
    """Of the objects that the SDK makes: its session, and its provider of logins with its context."""
    files = [
        *SOURCES.glob("server/protocol/*.py"),
        *SOURCES.glob("server/oauth/*.py"),
        SOURCES / "server/connection.py",
    ]
    found = [(file.name, use) for file in files for use in OF_THE_SDK.findall(file.read_text("utf-8"))]
    assert found == []


def test_a_private_name_would_be_found() -> None:
    for use in ("provider._auth_flow", 'getattr(session, "_stamp")', "self._session._dispatcher"):
        assert OF_THE_SDK.search(use)
