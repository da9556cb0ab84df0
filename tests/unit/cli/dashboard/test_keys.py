"""The dashboard by keyboard, on real managers with real servers: what a key does, and what is then to be seen."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.behaviour.turning import RUG_PULLS, Turncoat
from tests.servers.http_faults import FaultServer
from tests.unit.cli.dashboard.driving import LARGE, seated

from dragoman.cli.session.questions import Consent
from dragoman.demo.studio import solid_png
from dragoman.errors import ConfigError
from dragoman.manager.manager import McpManager
from dragoman.model import Handlers, Http, Part, ServerSpec, Settings, Stdio, ToolResult
from dragoman.observe.call_log import CallLog
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from dragoman.cli.dashboard.dialogs import ScreenAsker

SERVERS = Path(__file__).resolve().parents[3] / "servers"


def shop() -> ScriptedServer:
    server = ScriptedServer(
        "shop",
        resources={"shop://hours": "nine to five"},
        prompts={"greeting": "Greet {name} kindly."},
    )

    @server.tool
    def price(item: str, count: int = 1) -> str:
        """Tell what something costs."""
        if item == "moon":
            raise LookupError("the moon is not for sale")
        return f"{count} × {item}: {count * 3} coins"

    @server.tool
    def photo() -> Part:
        """Show the shop."""
        return Part(kind="image", data=solid_png((1, 2, 3), width=64, height=48), mime_type="image/png")

    @server.tool
    async def wait() -> str:
        """Wait until the user gives up."""
        await asyncio.Event().wait()
        return "never"

    return server


def bank() -> ScriptedServer:
    server = ScriptedServer("bank")

    @server.tool
    def balance() -> str:
        """Tell what is left."""
        return "nothing"

    return server


@pytest.mark.requirement("otter-later.visual")
async def test_servers_their_tools_and_every_detail_of_a_call_are_shown(tmp_path: Path) -> None:
    async with seated([bank().spec(), shop().spec()], log=tmp_path / "calls.sqlite3") as seat:
        await seat.sees("2 of 2 servers ready", "● ready", "balance")
        await seat.press("down")
        await seat.sees("price", "shop://hours", "greeting", "Show the shop.")

        # From the server to its tools, to the form of one of them, and to its result.
        await seat.press("enter", "down", "enter")
        await seat.sees("call mcp_shop_price", "item: str (required)", "default: 1")
        await seat.press("enter")
        await seat.sees("Missing: item")
        await seat.type("apple")
        await seat.press("down")
        await seat.type("4")
        await seat.press("enter")
        await seat.sees('item="apple", count=4', "4 × apple: 12 coins", "ok in")
        await seat.until(lambda: "1 call " in seat.text)


async def test_a_call_that_failed_is_seen_in_the_stream_and_counted(tmp_path: Path) -> None:
    async with seated([shop().spec()], log=tmp_path / "calls.sqlite3") as seat:
        await seat.command("/call price item=moon")
        await seat.sees("✗ the moon is not for sale")
        await seat.press("2")
        await seat.sees("tool.failed", "the moon is not for sale", "1 failed", 'item="moon"')


async def test_calls_of_other_programs_come_in_through_the_log(tmp_path: Path) -> None:
    log = tmp_path / "calls.sqlite3"
    async with seated([shop().spec()], log=log) as seat:
        await seat.press("2")
        await seat.sees("No calls yet")
        other = CallLog(log)
        other.note(
            server="far",
            tool="mcp_far_tool",
            call_id="far-1",
            arguments={"token": "very-secret", "x": 1},
            duration=0.5,
            text="\x1b[31mred\x1b[0m answer",
        )
        await asyncio.to_thread(other.close)
        await seat.sees("mcp_far_tool", "by another program", "500 ms", "answer")
        assert "very-secret" not in seat.text
        assert "\x1b" not in seat.text


async def test_an_image_is_a_line_where_it_cannot_be_shown(tmp_path: Path) -> None:
    async with seated([shop().spec()], log=tmp_path / "calls.sqlite3") as seat:
        await seat.sees("photo")
        await seat.press("1", "enter")
        await seat.sees("No arguments.")
        await seat.press("enter")
        await seat.sees("[image 64×48 png]")


async def test_restart_connects_anew() -> None:
    server = shop()
    async with seated([server.spec()]) as seat:
        await seat.press("r")
        await seat.sees("shop is ready")
        assert server.connections == 2
        server.stop()
        await seat.press("r")
        await seat.sees("◌ retrying", "the scripted server is stopped", "retrying in")


async def test_a_server_is_switched_off_and_on_again() -> None:
    server = shop()
    async with seated([server.spec()]) as seat:
        await seat.sees("price")
        await seat.press("e")
        await seat.sees("○ off", "shop is disabled", "No tools, resources or prompts.")
        assert seat.mcp.tools() == []
        await seat.press("e")
        await seat.sees("● ready", "price")
        await seat.command("/mcp disable shop")
        await seat.press("1")
        await seat.sees("○ off")


async def test_the_log_of_a_server_is_followed() -> None:
    transport = Stdio(sys.executable, [str(SERVERS / "noisy.py")], env={"TOKEN": "hush-hush-12345"})
    noisy = ServerSpec("noisy", transport)
    async with seated([noisy, bank().spec()]) as seat:
        await seat.press("3")
        await seat.sees("the shop opens", "its key is •••")
        await seat.command("/call say words=again")
        await seat.press("3")
        await seat.sees("the shop opens", "it said again")
        assert "hush-hush" not in seat.text
        await seat.press("f")
        await seat.type("opens")
        await seat.until(lambda: "it said again" not in seat.text)
        assert "the shop opens" in seat.text
        await seat.press("escape", "shift+tab", "down")
        await seat.sees("no stderr output yet")


async def test_the_filter_narrows_offers_and_calls_and_escape_shows_all() -> None:
    async with seated([shop().spec()], size=LARGE) as seat:
        await seat.mcp.call("mcp_shop_price", {"item": "apple"})
        await seat.mcp.call("mcp_shop_photo")
        await seat.sees("mcp_shop_price", "mcp_shop_photo", "shop://hours")
        await seat.press("f")
        await seat.type("price")
        await seat.sees("filter: price")
        await seat.until(lambda: "mcp_shop_photo" not in seat.text and "shop://hours" not in seat.text)
        assert "mcp_shop_price" in seat.text
        await seat.press("escape")
        await seat.sees("shop://hours", "mcp_shop_photo")


async def test_the_filter_finds_tools_by_what_they_do_if_none_is_called_so() -> None:
    async with seated([shop().spec()], size=LARGE) as seat:
        await seat.sees("photo", "shop://hours")
        await seat.press("f")
        await seat.type("how much does it cost")
        await seat.until(lambda: "shop://hours" not in seat.text and "price" in seat.text)
        assert "photo" not in seat.text
        await seat.press("escape")
        await seat.sees("shop://hours", "photo")


async def test_the_command_line_runs_slash_commands_completes_and_remembers() -> None:
    async with seated([shop().spec()]) as seat:
        await seat.command("/mcp tools")
        await seat.sees("› /mcp tools", "mcp_shop_price(item: str")
        await seat.press("slash")
        await seat.type("nonsense")
        await seat.press("enter")
        await seat.sees("Unknown command /nonsense")
        await seat.press("slash")
        await seat.type("call mcp_shop_pri")
        line = seat.app.query_one("#command")
        await seat.until(lambda: line._suggestion)
        await seat.press("right")
        assert line.value == "/call mcp_shop_price "
        await seat.type("item=pear")
        await seat.press("enter")
        await seat.sees("1 × pear: 3 coins")
        await seat.press("slash", "up", "up")
        assert line.value == "/nonsense"
        await seat.press("down")
        assert line.value == "/call mcp_shop_price item=pear"
        await seat.press("escape")
        assert line.value == ""


async def test_what_a_command_lacks_is_asked_for() -> None:
    async with seated([shop().spec()]) as seat:
        await seat.command("/call price")
        await seat.sees("item (str)")
        await seat.type("plum")
        await seat.press("enter")
        await seat.sees("1 × plum: 3 coins")
        await seat.command("/call price")
        await seat.sees("item (str)")
        await seat.press("escape")
        await seat.sees("cancelled")


async def test_escape_stops_a_call_that_runs() -> None:
    server = shop()
    async with seated([server.spec()]) as seat:
        await seat.command("/call wait")
        await seat.until(lambda: server.calls)
        await seat.sees("1 running")
        await seat.press("escape")
        await seat.sees("Stopped.", "0 running")
        assert server.calls[0].cancelled


async def test_resources_are_read_and_prompts_filled_in() -> None:
    async with seated([shop().spec()]) as seat:
        await seat.sees("greeting")
        await seat.press("1", "end", "enter")
        await seat.sees("get greeting")
        await seat.type("Ann")
        await seat.press("enter")
        await seat.sees("user: Greet Ann kindly.")
        await seat.press("1", "up", "enter")
        await seat.sees("nine to five")


async def test_a_call_that_a_rule_asks_about_waits_for_the_person() -> None:
    def asking(asker: ScreenAsker) -> Handlers:
        return Handlers(approval=Consent(asker).approve_call)

    policy = {"default": "ask"}
    async with seated([bank().spec()], handlers=asking, policy=policy) as seat:
        await seat.command("/call balance")
        await seat.sees('Call "balance"?')
        await seat.press("n")
        await seat.sees("✗")
        await seat.command("/call balance")
        await seat.sees('Call "balance"?')
        await seat.press("y")
        await seat.sees("nothing", "✓")


async def test_a_changed_tool_waits_for_the_person(tmp_path: Path) -> None:
    coat = Turncoat(tmp_path)
    async with McpManager([coat.spec]) as mcp:
        assert await mcp.wait_ready()
        await mcp.trust.approve("coat")
    coat.change(RUG_PULLS["description"])
    async with seated([coat.spec], consent=Consent, default_trust="ask", size=LARGE) as seat:
        await seat.sees('Tools of "coat" changed since you approved them', 'Approve the changes of "coat"?')
        assert len(seat.mcp.tools()) == 4
        await seat.press("y")
        await seat.until(lambda: len(seat.mcp.tools()) == 5)


async def test_reload_without_files_says_why_not() -> None:
    async with seated([bank().spec()]) as seat:
        await seat.press("R")
        await seat.sees("These servers do not come from a configuration file")


async def test_login_to_a_server_that_has_none_says_so() -> None:
    async with seated([bank().spec()]) as seat:
        await seat.press("l")
        await seat.until(
            lambda: "log in to" not in seat.text and "bank" in seat.app.query_one("#message").render().plain
        )


async def test_a_login_asks_for_the_token_of_a_server_without_oauth() -> None:
    async with FaultServer() as server, seated([ServerSpec("locked", Http(server.url("login")))]) as seat:
        await seat.sees("needs a token", "press l")
        await seat.press("l")
        await seat.sees("Token for locked")
        await seat.type("right")
        await seat.press("enter")
        await seat.sees("1 of 1 server ready", "logged in to locked")


async def test_the_keys_are_explained_and_the_theme_changes() -> None:
    async with seated([bank().spec()]) as seat:
        await seat.press("question_mark")
        await seat.sees("restart the server")
        await seat.press("end")
        await seat.sees("/model [NAME]", "/quit")
        await seat.press("escape")
        await seat.sees("q Quit")
        assert seat.app.current_theme.dark
        await seat.press("t")
        assert not seat.app.current_theme.dark


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_leaving_by_key(key: str) -> None:
    async with seated([bank().spec()]) as seat:
        await seat.press(key)
        await seat.until(lambda: not seat.app.is_running or seat.app._exit)


async def test_quit_in_the_command_line_leaves() -> None:
    async with seated([bank().spec()]) as seat:
        await seat.press("slash")
        await seat.type("quit")
        await seat.press("enter")
        await seat.until(lambda: seat.app._exit)


async def test_hostile_names_and_answers_do_nothing_to_the_screen() -> None:
    server = ScriptedServer("evil")

    @server.tool
    def shout() -> ToolResult:
        """Say [bold red]this[/] and \x1b[2J that."""
        return ToolResult(success=True, text="[link=x]click[/link] \x1b[2Jgone \u202ereversed")

    async with seated([server.spec()]) as seat:
        await seat.sees("Say [bold red]this[/] and")
        await seat.command("/call shout")
        await seat.sees("[link=x]click[/link]")
        assert not {"\x1b", "\u202e"} & set(seat.text)


async def test_a_line_of_the_output_is_whole_also_where_a_scrollbar_comes_later() -> None:
    async with seated([bank().spec()]) as seat:
        # As long as the pane is wide, while there is no scrollbar.
        seat.app.print("x" * 70 + " whole!!")
        await seat.sees("whole")
        seat.app.print("\n".join(map(str, range(40))))
        await seat.sees("39")
        seat.app.query_one("#output").scroll_home(animate=False)
        await seat.sees("whole!!")


async def test_a_long_complaint_leaves_the_command_line_in_sight_and_shows_that_it_goes_on() -> None:
    async with seated([bank().spec()]) as seat:
        seat.app.complain("word " * 40)
        await seat.until(lambda: "/ for a command" in seat.text and "…" in seat.lines[-2])


@pytest.mark.parametrize("names", [(), ("bank",)])
async def test_files_that_cannot_be_used_are_told_of(names: tuple[str, ...]) -> None:
    specs = [bank().spec() for _ in names]
    settings = Settings(servers=specs, problems=[ConfigError("not valid JSON", source="mcp.json", line=2)])
    async with seated(settings) as seat:
        await seat.sees("1 configuration problem: run `dragoman config check`")
        assert ("mcp.json:2: not valid JSON" in seat.text) is not bool(names)
