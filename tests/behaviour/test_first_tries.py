"""What people try first with the library works, or its error shows the right form."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dragoman import ConfigError, DragomanError, McpManager, ServerSpec, ServerState, Stdio, ToolDef
from dragoman.blocking import McpManager as BlockingManager
from dragoman.model import ReadyReport
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

PLAIN = Path(__file__).resolve().parents[1] / "servers/plain.py"
ENTRY: dict[str, Any] = {"command": sys.executable, "args": [str(PLAIN)]}
DOCUMENT: dict[str, Any] = {"mcpServers": {"plain": ENTRY}}


def names(mcp: McpManager | BlockingManager) -> list[str]:
    return [spec.name for spec in mcp.settings.servers]


# ── How a manager is made


@pytest.mark.parametrize(
    "document",
    [
        DOCUMENT,
        {"servers": {"plain": ENTRY}},
        {"mcp_servers": {"plain": ENTRY}},
        {"mcp": {"servers": {"plain": ENTRY}}},
        {"mcpServers": [{"name": "plain", "transport": "stdio", **ENTRY}]},
        {"plain": ENTRY},
        {"plain": ServerSpec("plain", Stdio(sys.executable, [str(PLAIN)]))},
    ],
)
def test_the_content_of_a_file_is_taken_as_it_is(document: dict[str, Any]) -> None:
    for manager in (McpManager, BlockingManager):
        mcp = manager(document)
        (spec,) = mcp.settings.servers
        assert (spec.name, spec.transport) == ("plain", Stdio(sys.executable, [str(PLAIN)]))
        assert mcp.settings.problems == () or mcp.settings.problems == []


def test_a_server_may_be_called_servers() -> None:
    assert names(McpManager({"servers": ENTRY})) == ["servers"]


async def test_a_document_starts_without_an_approval() -> None:
    with anyio.fail_after(30):
        async with McpManager(DOCUMENT, cache=False) as mcp:
            assert await mcp.wait_ready()
            assert (await mcp.call("mcp_plain_echo", {"text": "x"})).text == "x"


@pytest.mark.parametrize("path", ["mcp.json", "./mcp.json", Path("mcp.json")])
def test_a_path_is_a_configuration_file(path: str | Path) -> None:
    Path("mcp.json").write_text(json.dumps(DOCUMENT), "utf-8")
    for mcp in (McpManager(path), McpManager.from_config(path), McpManager.from_config(config=path)):
        assert names(mcp) == ["plain"]
    for blocking in (BlockingManager(path), BlockingManager.from_config(path)):
        assert names(blocking) == ["plain"]


def test_a_manager_that_is_made_of_a_file_can_read_it_again() -> None:
    with BlockingManager("mcp.json", missing_ok=True, cache=False) as mcp:
        assert mcp.tools() == []
        Path("mcp.json").write_text(json.dumps(DOCUMENT), "utf-8")
        assert list(mcp.reload().started) == ["plain"]


def test_a_file_that_is_missing_is_an_error_with_its_path() -> None:
    for make in (McpManager, McpManager.from_config, BlockingManager, BlockingManager.from_config):
        with pytest.raises(ConfigError, match=r"no\.json.*file not found .check the path"):
            make("no.json")
    with pytest.raises(ConfigError, match="file not found"):
        McpManager.from_config(config="no.json")


def test_a_file_that_may_be_missing_is_no_problem(caplog: pytest.LogCaptureFixture) -> None:
    for make in (McpManager, McpManager.from_config, BlockingManager, BlockingManager.from_config):
        mcp = make("no.json", missing_ok=True)
        assert names(mcp) == []
        assert not mcp.settings.problems
    assert caplog.records == []


def test_a_file_that_a_variable_names_stays_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_MCP_CONFIG", "no.json")
    mcp = McpManager.from_config()
    assert ["DRAGOMAN_MCP_CONFIG" in str(problem) for problem in mcp.settings.problems] == [True]


def test_the_name_of_a_profile_is_not_a_path() -> None:
    assert McpManager.from_config("kode").settings.profile == "kode"
    with pytest.raises(ConfigError, match=r"McpManager\.from_config\('kode'\)"):
        McpManager("kode")
    with pytest.raises(ConfigError, match="unknown profile"):
        McpManager.from_config("kodee")


@pytest.mark.parametrize(
    ("make", "form"),
    [
        (lambda: Stdio("npx", "-y pkg"), r'Stdio\("npx", \["-y", "package"\]\)'),
        (lambda: Stdio(["npx", "-y"]), r'Stdio\("npx", \["-y", "package"\]\)'),  # type: ignore[arg-type]
        (lambda: ServerSpec("x", "http://h"), r'ServerSpec\("x", Http\("https://…"\)\)'),  # type: ignore[arg-type]
        (lambda: ServerSpec("x", "npx -y p"), r'ServerSpec\("x", Stdio\("npx", \['),  # type: ignore[arg-type]
        (lambda: ServerSpec("x", ENTRY), r'McpManager\(\{"x": \{…\}\}\)'),  # type: ignore[arg-type]
        (lambda: McpManager(ServerSpec("x", Stdio("npx"))), r"McpManager\(\[spec\]\)"),  # type: ignore[arg-type]
        (lambda: McpManager(["mcp.json"]), "the list holds a str"),  # type: ignore[list-item]
    ],
)
def test_a_wrong_form_fails_at_construction_and_shows_the_right_one(
    make: Callable[[], object], form: str
) -> None:
    with pytest.raises(TypeError, match=form):
        make()


def test_an_error_about_a_form_repeats_no_secret() -> None:
    for make in (lambda: ServerSpec("x", "https://u:hunter2@h"), lambda: Stdio("npx", "--token hunter2")):  # type: ignore[arg-type]
        with pytest.raises(TypeError) as caught:
            make()
        assert "hunter2" not in str(caught.value)


# ── Who is ready


async def test_the_report_names_who_is_not_ready_and_why(server: Callable[..., ServerSpec]) -> None:
    specs = [
        server("plain", "plain.py"),
        ServerSpec("absent", Stdio("no-such-command-anywhere")),
        server("mute", "mute.py"),
    ]
    with anyio.fail_after(30):
        async with McpManager(specs, cache=False) as mcp:
            assert await mcp.wait_ready(["plain", "absent"]) == ReadyReport(
                ready=("plain",), not_ready={"absent": mcp.status()["absent"].last_error or ""}
            )
            report = await mcp.wait_ready(timeout=0.1)
            assert not report
            assert list(report.not_ready) == ["absent", "mute"]
            assert "no-such-command-anywhere" in report.not_ready["absent"]
            assert report.not_ready["mute"] == "still connecting"
            assert str(report).startswith("1 of 3 servers ready; `absent`: ")
            ready = await mcp.wait_ready(["plain"])
            assert ready
            assert str(ready) == "1 of 1 server ready"


def test_the_blocking_manager_has_the_same_report(server: Callable[..., ServerSpec]) -> None:
    with BlockingManager([server("plain", "plain.py")], cache=False) as mcp:
        report = mcp.wait_ready()
        assert report
        assert report.ready == ("plain",)


# ── Names that people look for


async def test_close_is_shutdown(server: Callable[..., ServerSpec]) -> None:
    with anyio.fail_after(30):
        mcp = await McpManager.connect_all([server("plain", "plain.py")], cache=False)
        await mcp.close()
        assert mcp.status()["plain"].state == "closed"
        await mcp.close()


def test_to_openai_is_to_openai_schema(server: Callable[..., ServerSpec]) -> None:
    with BlockingManager([server("plain", "plain.py")], cache=False) as mcp:
        mcp.wait_ready()
        assert mcp.registry.to_openai() == mcp.registry.to_openai_schema() != []
        assert mcp.registry.view(allow=["plain:echo"]).to_openai()[0]["function"]["name"] == "mcp_plain_echo"


# ── What is logged


PROGRAM = """
import asyncio, sys
from dragoman import McpManager

async def main():
    async with McpManager({"plain": {"command": sys.executable, "args": [sys.argv[1]]}}, cache=False) as mcp:
        await mcp.wait_ready()
        print((await mcp.call("mcp_plain_fail")).error)
        print((await mcp.call("mcp_plain_nothing")).error, file=sys.stderr)

asyncio.run(main())
"""


def test_a_failed_call_is_not_printed_beside_its_result() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(PLAIN)], capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stdout.splitlines()[0] == "the disk is full"
    told = [line for line in done.stderr.splitlines() if "failed" in line or "mcp_plain" in line]
    assert len(told) == 1
    assert told[0].startswith("unknown tool `mcp_plain_nothing` (did you mean ")


async def test_a_failed_call_is_one_error_in_the_log_of_an_application(
    server: Callable[..., ServerSpec], caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(30):
        async with McpManager([server("plain", "plain.py")], cache=False) as mcp:
            await mcp.wait_ready()
            await mcp.call("mcp_plain_fail")
    (record,) = (one for one in caplog.records if one.levelno >= logging.ERROR)
    assert (record.levelno, record.name) == (logging.ERROR, "dragoman.calls")
    assert "`mcp_plain_fail` failed: the disk is full" in record.getMessage()


async def test_equal_warnings_are_one(
    server: Callable[..., ServerSpec], caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(30):
        async with McpManager([server("plain", "plain.py")], cache=False):
            for _ in range(5):
                logging.getLogger("dragoman").warning("%s: the %s is old", "plain", "key")
            logging.getLogger("dragoman").warning("plain: the lock is old")
    assert [line for line in caplog.messages if "is old" in line] == [
        "plain: the key is old",
        "plain: the lock is old",
    ]


# ── Required arguments with a default


async def test_a_required_argument_with_a_default_is_filled_in() -> None:
    schema = {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["png", "jpeg"], "default": "png"},
            "page": {"type": "integer"},
        },
        "required": ["type"],
        "additionalProperties": False,
    }
    shot = ToolDef(name="shot", description="", input_schema=schema, func=lambda **given: json.dumps(given))
    with anyio.fail_after(30):
        async with McpManager([ScriptedServer("browser", tools=[shot]).spec()], cache=False) as mcp:
            await mcp.wait_ready()
            result = await mcp.call("mcp_browser_shot")
            assert result.text == '{"type": "png"}'
            (change,) = result.meta["dragoman/coerced"]
            assert (change["path"], change["to"]) == ("type", '"png"')
            assert (await mcp.call("mcp_browser_shot", {"type": "jpeg"})).success
            wrong = await mcp.call("mcp_browser_shot", {"page": "one"})
            assert "`page`" in (wrong.error or "")


# ── What a manager says of itself, and of a wrong use


@pytest.mark.parametrize("given", [42, None, 1.5])
def test_what_is_no_configuration_is_named(given: Any) -> None:
    for manager in (McpManager, BlockingManager):
        with pytest.raises(TypeError, match=f"a mapping, or the path .* not of {type(given).__name__}"):
            manager(given)


def test_a_misspelt_state_lists_the_states() -> None:
    with pytest.raises(ValueError, match="unknown state 'redy'; a server is idle, connecting, ready"):
        ServerState("redy")


async def test_a_notebook_shows_the_servers_as_a_table() -> None:
    async with McpManager({"plain": ENTRY, "<b>": {"command": "no-such-program"}}, cache=False) as mcp:
        await mcp.wait_ready()
        page = mcp._repr_html_()
        assert "<td>plain</td><td>ready</td>" in page
        assert "&lt;b&gt;" in page
        assert "<b>" not in page
        assert "plain ready" in repr(mcp)
    assert McpManager([])._repr_html_() == "no servers"


async def test_the_loop_of_another_thread_gets_a_sentence_that_says_what_to_do() -> None:
    async with McpManager({"plain": ENTRY}, cache=False) as mcp:
        await mcp.wait_ready()

        async def elsewhere() -> None:
            with pytest.raises(DragomanError, match="belongs to another event loop") as caught:
                await mcp.call("mcp_plain_law", {})
            assert "run_coroutine_threadsafe" in str(caught.value.hint)

        await anyio.to_thread.run_sync(lambda: asyncio.run(elsewhere()))
        assert (await mcp.call("plain:law", {})).success
