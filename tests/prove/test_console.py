"""The console in a real browser at full size: 50 servers, 10,000 tools and 100,000 calls; hostile texts; rules.

Chromium has to be installed. Pictures of every view at three widths are written to `.cache/proof/console/`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import time
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser import CHROMIUM, browser
from tests.prove.test_gateway import install
from tests.unit.console.visiting import serving

from dragoman.console.app import ConsoleApp
from dragoman.gateway.app import Guard
from dragoman.manager.manager import McpManager, parts_of
from dragoman.model import ServerSpec, Stdio, ToolDef
from dragoman.observe.call_log import COLUMNS, copy_call, open_for_writing, to_row
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.browser import Page
    from tests.prove.conftest import Proof

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / ".cache" / "proof" / "console"
SERVERS, TOOLS, CALLS = 50, 200, 100_000
"""Servers, tools of each, and calls in the log."""
SIZES = ((360, 740), (1024, 768), (1920, 1080))
VIEWS = ("fleet", "tools", "calls", "inbox", "trust", "logs", "tasks")
FIRST_PAINT, LONG_TASK, EVENT_SECONDS = 1.0, 0.05, 0.2

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed"),
]

MARKUP = (
    "<img src=x onerror=window.hit=1>",
    "<script>window.hit=1</script>",
    "<svg onload=window.hit=1>",
    "\"'><script>window.hit=1</script>",
    "javascript:window.hit=1",
    "{{constructor.constructor('window.hit=1')()}}",
    "${window.hit=1}",
    "</textarea><script>window.hit=1</script>",
    "</title><script>window.hit=1</script>",
    "<style>*{display:none}</style>",
    "<base href=//attacker.example>",
    "<meta http-equiv=refresh content='0;url=//attacker.example'>",
    "<iframe srcdoc='<script>parent.hit=1</script>'>",
    "<a href=javascript:window.hit=1>x</a>",
    "<form action=//attacker.example><input autofocus onfocus=window.hit=1>",
    "[x](javascript:window.hit=1)",
    "data:text/html,<script>window.hit=1</script>",
)
SIGNS = (
    *("\u202egnp.exe", "\u200b\u200b\u200b", "\u2066\u2067\u2068", "\x1b[2J\x1b]0;x\x07", "\0\0", "\r\n\r\n"),
    *("\ud800", "\uffff", "a\u0301" * 200, "W" * 5000, "長" * 3000, "🏳️‍🌈" * 300, "\u3164" * 50, " " * 4000),
    *(
        "__proto__",
        "constructor",
        "toString",
        "#/logs/../..",
        "?x=1&y=2",
        "%2e%2e%2f",
        "\\u003cscript\\u003e",
    ),
)
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}}}
HOSTILE = [f"{sign}{markup}" for markup, sign in itertools.product(MARKUP, ("", *SIGNS))][:200]


def quiet(number: int) -> ScriptedServer:
    server = ScriptedServer(f"server-{number:02}")

    def tool(text: str = "", count: int = 0) -> str:
        return f"{text} {count}"

    for one in range(TOOLS):
        about = f"Does thing {one} of {number}."
        server.add(ToolDef(name=f"tool_{one:03}", description=about, input_schema=SCHEMA, func=tool))
    return server


def hostile() -> ScriptedServer:
    server = ScriptedServer("hostile")

    def answer(**given: Any) -> str:
        return "\n".join([*given.values(), *HOSTILE])

    for number, text in enumerate(HOSTILE):
        schema = {
            "type": "object",
            "title": text,
            "required": [text],
            "properties": {
                text: {"type": "string", "description": text, "default": text, "pattern": text},
                f"{text} choice": {"enum": [text, {"x": text}, 10**30, None], "description": text},
                "list": {"type": "array", "items": {"type": "object", "properties": {text: {"const": text}}}},
            },
        }
        server.add(ToolDef(name=f"t{number}", description=text, input_schema=schema, func=answer))
    return server


def fill_log(path: Path, calls: int) -> None:
    """Write calls as the log does, all in one transaction."""
    now = time.time()
    insert = f"INSERT INTO calls({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
    with closing(open_for_writing(path)) as connection:
        connection.execute("BEGIN")
        connection.executemany(
            insert,
            (
                to_row(
                    copy_call(
                        at=now - (calls - number) * 0.5,
                        server=f"server-{number % SERVERS:02}",
                        tool=f"mcp_server-{number % SERVERS:02}_tool_{number % TOOLS:03}",
                        call_id=f"call-{number}",
                        duration=number % 700 / 100,
                        code="tool.failed" if number % 9 == 0 else "",
                        arguments={"text": f"note {number}", "count": 10**20 + number},
                        text=HOSTILE[number % len(HOSTILE)] if number % 50 == 0 else f"answer {number}",
                    )
                )
                for number in range(calls)
            ),
        )
        connection.execute("COMMIT")


@asynccontextmanager
async def open_console(
    servers: list[ServerSpec], folder: Path, **options: Any
) -> AsyncGenerator[tuple[McpManager, Page, ConsoleApp, str]]:
    async with McpManager(servers, cache=False, call_log=folder / "calls.sqlite3", **options) as mcp:
        await mcp.wait_ready()
        app = ConsoleApp(mcp, Guard(None, hosts=(), origins=()))
        async with serving(app) as origin, browser(folder / "profile") as page:
            yield mcp, page, app, origin


async def show(page: Page, view: str) -> None:
    """Open a view and wait until it has read its data."""
    await page.run(f"location.hash = '#/{view}'")
    name = view.partition("/")[0]
    await page.until(f"document.querySelector('nav a[aria-current]')?.hash === '#/{name}'")
    await page.run("new Promise((go) => setTimeout(go, 250))")


async def fits(page: Page) -> str:
    """Return what is wider than the window; empty if nothing is."""
    return await page.run(
        "document.documentElement.scrollWidth <= innerWidth ? '' : [...document.querySelectorAll('body *')]"
        ".filter((one) => one.getBoundingClientRect().right > innerWidth + 1)"
        ".map((one) => one.tagName + '.' + one.className).slice(0, 5).join(' ')"
    )


async def test_a_large_fleet_is_shown_at_once_and_stays_fluent(tmp_path: Path, proof: Proof) -> None:
    fill_log(tmp_path / "calls.sqlite3", CALLS)
    servers = [quiet(number) for number in range(SERVERS)]
    async with open_console([one.spec() for one in servers], tmp_path) as (mcp, page, app, origin):
        assert len(mcp.tools()) == SERVERS * TOOLS
        await page.size(1280)
        await page.go(app.link(origin))
        await page.until(f"document.querySelectorAll('.card').length === {SERVERS}")
        await page.go("about:blank")
        # A second visit, as every visit but the first of a day.
        await page.go(f"{origin}/#/fleet")
        await page.until(f"document.querySelectorAll('.card').length === {SERVERS}")
        painted = await page.run("performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000")
        shown = await page.run("performance.now() / 1000")
        proof.record(first_paint=round(painted, 3), fleet_shown=round(shown, 3))
        assert painted <= FIRST_PAINT
        await page.run(
            "window.long = []; new PerformanceObserver((list) => list.getEntries().forEach("
            "(one) => window.long.push(one.duration / 1000))).observe({entryTypes: ['longtask']})"
        )
        await page.run(
            "setTimeout(() => { const end = performance.now() + 80; while (performance.now() < end); })"
        )
        await page.until("window.long.length")  # A long task is seen.
        await show(page, "tools")
        await page.until("document.querySelector('.count, .master p').innerText.startsWith('10,000')")
        await page.run("window.long.length = 0")
        words = "thing 17 of 4"
        for end in range(1, len(words) + 1):
            await page.type("input[type=search]", words[:end])
        await page.until("document.querySelectorAll('.row').length > 0")
        await page.run(
            "new Promise((done) => { const list = document.querySelector('.rows'); let at = 0;"
            "const step = () => { list.scrollTop = at += 3000; at < 400000 ? requestAnimationFrame(step) : done(); };"
            "step(); })"
        )
        filtering = await page.run("Math.max(0, ...window.long)")
        await show(page, "calls")
        await page.until("document.querySelectorAll('.row').length > 5")
        await page.run("window.long.length = 0")
        await page.run(
            "(async () => { const list = document.querySelector('.rows'); for (let turn = 0; turn < 60; turn++) {"
            "list.scrollTop = list.scrollHeight; await new Promise((go) => setTimeout(go, 30)); } })()"
        )
        rows = int(await page.run("document.querySelector('[aria-setsize]').getAttribute('aria-setsize')"))
        scrolling = await page.run("Math.max(0, ...window.long)")
        proof.record(
            tools=SERVERS * TOOLS,
            calls=CALLS,
            rows_scrolled=rows,
            longest_task_tools=round(filtering, 3),
            longest_task_calls=round(scrolling, 3),
        )
        assert rows > 2000
        assert max(filtering, scrolling) <= LONG_TASK

        delays = await _delays(page, mcp)
        proof.record(event_p95=round(delays[int(len(delays) * 0.95)], 3))
        assert delays[int(len(delays) * 0.95)] <= EVENT_SECONDS
        assert page.complaints == [], page.complaints


async def _delays(page: Page, mcp: McpManager) -> list[float]:
    """Make 500 calls a second; return the seconds from the end of some calls to their row in the page."""
    await page.run(
        "window.seen = {}; new MutationObserver(() => document.querySelectorAll('.row').forEach((row) => {"
        "if (row.querySelector('.outcome.good')) window.seen[row.dataset.key] ??= Date.now() / 1000; }))"
        ".observe(document.querySelector('.rows'), {subtree: true, childList: true})"
    )
    await page.run("document.querySelector('.rows').scrollTop = 0")
    ended: dict[str, float] = {}

    async def one(number: int) -> None:
        result = await mcp.call(
            f"mcp_server-{number % SERVERS:02}_tool_{number % TOOLS:03}", {"count": number}
        )
        ended[result.call_id] = time.time()

    loop = asyncio.get_running_loop()
    begin = loop.time()
    tasks: list[asyncio.Task[None]] = []
    for number in range(2500):
        tasks.append(asyncio.create_task(one(number)))
        await asyncio.sleep(max(0.0, begin + number / 500 - loop.time()))
    await asyncio.gather(*tasks)
    await page.run("new Promise((go) => setTimeout(go, 1000))")
    seen: dict[str, float] = json.loads(await page.run("JSON.stringify(window.seen)"))
    found = sorted(seen[name] - at for name, at in ended.items() if name in seen)
    assert len(found) > 100
    return found


async def test_hostile_texts_neither_run_nor_break_the_page(tmp_path: Path, proof: Proof) -> None:
    server = hostile()
    gone = ServerSpec(name="<img src=x onerror=window.hit=1>", transport=Stdio(command=f"/{MARKUP[1]}"))
    async with open_console([server.spec(), gone], tmp_path) as (mcp, page, app, origin):
        tools = mcp.tools()
        await page.size(360, 740)
        await page.go(app.link(origin))
        await page.until("document.querySelector('.card')")
        await page.run("window.alert = window.confirm = window.prompt = () => { window.hit = 1; }")
        for tool in tools:
            await page.run(f"location.hash = '#/tools/' + encodeURIComponent({json.dumps(tool.name)})")
            await page.until(f"document.querySelector('.detail h1')?.innerText === {json.dumps(tool.name)}")
            assert await fits(page) == "", tool.description
            assert await page.run("window.hit ?? 0") == 0, tool.description
        for tool in tools[:3]:
            await page.run(f"location.hash = '#/tools/' + encodeURIComponent({json.dumps(tool.name)})")
            await page.type("form textarea.code[aria-label]", "{}")
            await mcp.call(tool.name, {})
        for view, (width, height) in itertools.product(VIEWS, SIZES):
            await page.size(width, height)
            await show(page, view)
            assert await fits(page) == "", view
            assert await page.run("window.hit ?? 0") == 0, view
        await show(page, "calls")
        await page.run("document.querySelector('.row').click()")
        await page.until("document.querySelector('.detail pre')")
        assert await page.run("window.hit ?? 0") == 0
        assert page.complaints == []
        assert {one.startswith((origin, "data:")) for one in page.requests} == {True}
    proof.record(hostile_texts=len(HOSTILE), hostile_tools=len(tools))


@pytest.fixture(scope="module")
def axe() -> str:
    """The rules of accessibility, as a script."""
    install("install_servers.py", "axe")
    return (ROOT / ".cache" / "axe" / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


async def test_every_view_keeps_the_rules_of_accessibility(tmp_path: Path, proof: Proof, axe: str) -> None:
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir(parents=True)
    found, looked = await look_at_views(tmp_path, PICTURES, axe)
    proof.record(views_looked_at=looked, violations=len(found))
    assert found == []


async def look_at_views(folder: Path, pictures: Path, axe: str) -> tuple[list[str], int]:
    """Open every view at three widths, light and dark; return the violations and how many were looked at."""
    server = ScriptedServer("notes")

    @server.tool
    def add(text: str, tags: list[str], number: int = 3, loud: bool = False) -> dict[str, Any]:
        """Add a note, and list the notes that are there."""
        return {"notes": [{"text": text, "tags": ", ".join(tags), "number": number, "loud": loud}]}

    @server.tool
    def fail() -> str:
        """Fail."""
        msg = "no paper left"
        raise ValueError(msg)

    gone = ServerSpec(name="gone", transport=Stdio(command="/usr/local/bin/statutes-server"))
    rules = {"rules": [{"action": "ask", "server": "notes", "tool": "fail", "reason": "it costs paper"}]}
    specs = [server.spec(), gone]
    found: list[str] = []
    looked = 0
    async with open_console(specs, folder, policy=rules, approvals="inbox") as (mcp, page, app, origin):
        for number in range(40):
            given = {"text": f"note {number}", "tags": ["a", "b"], "number": number}
            await mcp.call("mcp_notes_add", given if number % 7 else {"text": 5})
        asking = asyncio.create_task(mcp.call("mcp_notes_fail"))
        parts_of(mcp).call_log.flush()  # type: ignore[union-attr]
        await page.go(app.link(origin))
        await page.until("document.querySelector('.card')")
        await page.run(axe + "; 0")
        for shade, (width, height) in itertools.product(("light", "dark"), SIZES):
            await page.size(width, height)
            await page.run(f"document.documentElement.dataset.theme = '{shade}'")
            for view in (*VIEWS, "tools/mcp_notes_add", "calls/first", "fleet/open", "tools/called"):
                await _arrange(page, view)
                looked += 1
                name = view.replace("/", "-")
                await page.picture(pictures / f"{name}-{width}-{shade}.png")
                if wide := await fits(page):
                    found.append(f"{view} at {width}: wider than the window: {wide}")
                violations = await page.run(
                    "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map("
                    "(one) => one.id + ': ' + one.nodes.map((node) => node.target.join(' ')).slice(0, 3).join(', ')))"
                )
                found += [f"{view} at {width}, {shade}: {one}" for one in violations]
        assert page.complaints == []
        asking.cancel()
        await asyncio.wait({asking})
    return sorted(set(found)), looked


async def _arrange(page: Page, view: str) -> None:
    match view:
        case "calls/first":
            await show(page, "calls")
            await page.run("document.querySelectorAll('.row')[1].click()")
            await page.until("document.querySelector('.detail pre')")
        case "fleet/open":
            await show(page, "fleet")
            await page.run(
                "document.querySelectorAll('.fold[aria-expanded=false]').forEach((one) => one.click())"
            )
            await page.until("document.querySelector('.card dl')")
        case "tools/called":
            await show(page, "tools/mcp_notes_add")
            await page.until("document.querySelector('form .fields input')")
            await page.type(
                "form .raw textarea", '{"text": "milk", "tags": ["a"], "number": 12345678901234567890}'
            )
            await page.click("Call", "form")
            await page.click("Call", "dialog")
            await page.until("document.querySelector('.result')")
        case _:
            await show(page, view)
