"""A person uses the console in a real browser, from the link to the log out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.browser import CHROMIUM, browser
from tests.unit.console.visiting import notes, serving

from dragoman.console.app import ConsoleApp
from dragoman.gateway.app import Guard
from dragoman.manager.manager import McpManager
from dragoman.model import ServerSpec, Stdio

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")
NUMBER = 12345678901234567890
RULES = {"rules": [{"action": "ask", "server": "notes", "tool": "add", "reason": "each note"}]}


async def test_a_person_finds_why_a_server_is_down_calls_a_tool_and_answers(tmp_path: Path) -> None:
    server = notes()
    gone = ServerSpec(name="gone", transport=Stdio(command="/nonexistent/program"))
    options = {"cache": False, "policy": RULES, "approvals": "inbox", "call_log": tmp_path / "calls.sqlite3"}
    async with McpManager([server.spec(), gone], **options) as mcp:
        await mcp.wait_ready()
        app = ConsoleApp(mcp, Guard(None, hosts=(), origins=()))
        async with serving(app) as origin, browser(tmp_path / "profile") as page:
            await page.go(app.link(origin))
            await page.until("document.querySelector('.card.bad, .card.warn .cause')")
            text = await page.run("document.body.innerText")
            assert "the program `/nonexistent/program` was not found" in text
            assert "dragoman doctor gone" in text
            assert "token" not in await page.run("location.href")

            await page.click("Tools", "nav")
            await page.type("input[type=search]", "note add")
            await page.click_row("mcp_notes_add")
            await page.type("form .fields input", "größer <img src=x onerror=alert(1)>")
            await page.type("form .fields .field:nth-of-type(2) input", "12x")
            await page.until("document.querySelector('form .wrong').innerText || true")
            assert await page.run("document.querySelector('form button.main').disabled") is True
            await page.type("form .fields .field:nth-of-type(2) input", str(NUMBER))
            await page.until("!document.querySelector('form button.main').disabled")
            await page.click("Call", "form")
            await page.click("Call", "dialog")

            await page.until("document.querySelector('nav .badge')")
            await page.run("location.hash = '#/inbox'")
            await page.click("Allow once")
            await page.click("Allow", "dialog")
            await page.until("document.body.innerText.includes('Nothing waits for you.')")

            await page.run("location.hash = '#/calls'")
            await page.until("document.querySelector('.row .outcome.good')")
            await page.click_row("mcp_notes_add")
            await page.until("document.querySelector('.detail pre')?.innerText.includes('added größer')")
            assert "<img" in await page.run("document.querySelector('.detail pre').innerText")
            await page.click("Repeat …")
            await page.until(f"document.querySelector('form textarea.code')?.value.includes('{NUMBER}')")

            await page.click("Log out")
            await page.until("document.querySelector('#token')")
            # Signs of a policy that was violated, and of a request that failed.
            assert page.complaints == []
            assert {one.startswith((origin, "data:")) for one in page.requests} == {True}
    assert [call.arguments["number"] for call in server.calls] == [NUMBER]
