"""A real browser for tests: Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or ""
SECONDS = 30.0
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--disable-extensions", "--mute-audio", "--remote-debugging-port=0"),
    *("--disable-features=Translate,OptimizationHints,MediaRouter", "--no-default-browser-check"),
    # A test opens more than 200 addresses in ten seconds, which the browser would ignore.
    "--disable-ipc-flooding-protection",
)


class PageError(Exception):
    """The page threw, or did not do in time what it was to do."""


class Page:
    """One page, and what it has said on its console."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.session = ""
        self.complaints: list[str] = []
        """Errors of scripts, violations of the policy, and requests that failed."""
        self.requests: list[str] = []

    async def listen(self) -> None:
        """Take what the browser says, until it ends."""
        async for frame in self._socket:
            message = json.loads(frame.data)
            future = self._waiting.pop(message.get("id", 0), None)
            if future is not None and not future.done():
                future.set_result(message)
            about = message.get("params", {})
            match message.get("method"):
                case "Runtime.exceptionThrown":
                    details = about["exceptionDetails"]
                    self.complaints.append(str(details.get("exception", details).get("description", details)))
                case "Log.entryAdded" if about["entry"]["level"] == "error":
                    self.complaints.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
                case "Runtime.consoleAPICalled" if about["type"] == "error":
                    self.complaints.append(str(about["args"]))
                case "Network.requestWillBeSent":
                    self.requests.append(about["request"]["url"])
                case _:
                    pass

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command; return its result."""
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        command: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        await self._socket.send_str(json.dumps(command))
        async with asyncio.timeout(SECONDS):
            answer = await future
        if "error" in answer:
            raise PageError(f"{method}: {answer['error']}")
        return answer["result"]

    async def go(self, url: str) -> None:
        """Open an address."""
        await self.send("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """Return what an expression of JavaScript gives; promises are awaited."""
        found = await self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise PageError(str(details.get("exception", details).get("description", details)))
        return found["result"].get("value")

    async def until(self, script: str, seconds: float = SECONDS) -> Any:
        """Wait until an expression is true; it is evaluated with each frame of the page."""
        return await self.run(
            f"""new Promise((resolve, reject) => {{
                const end = performance.now() + {seconds * 1000};
                const look = () => {{
                    let found;
                    try {{ found = ({script}); }} catch (error) {{ found = null; }}
                    if (found) resolve(found === true ? true : String(found));
                    else if (performance.now() > end)
                        reject(new Error({json.dumps(script)} + " never came; the page says: "
                            + document.body.innerText.slice(0, 1500)));
                    else setTimeout(look, 20);
                }};
                look();
            }})"""
        )

    async def click(self, text: str, within: str = "body") -> None:
        """Click the visible button or link with this text or label, once there is one."""
        find = (
            f"[...document.querySelectorAll({json.dumps(within)})].flatMap((one) => "
            "[...one.querySelectorAll('button, a, [role=option], summary')])"
            f".find((one) => one.offsetParent !== null && !one.disabled && (one.textContent.trim() === {json.dumps(text)} "
            f"|| one.getAttribute('aria-label') === {json.dumps(text)}))"
        )
        await self.until(f"Boolean({find})")
        await self.run(f"{find}.click()")

    async def click_row(self, text: str) -> None:
        """Click the first row of a list that has this text."""
        find = f"[...document.querySelectorAll('[role=option]')].find((one) => one.innerText.includes({json.dumps(text)}))"
        await self.until(f"Boolean({find})")
        await self.run(f"{find}.click()")

    async def type(self, selector: str, text: str) -> None:
        """Put a text into a field, as typing does."""
        await self.until(f"Boolean(document.querySelector({json.dumps(selector)}))")
        await self.run(
            f"{{ const one = document.querySelector({json.dumps(selector)}); one.focus(); "
            f"one.value = {json.dumps(text)}; one.dispatchEvent(new Event('input', {{bubbles: true}})); "
            "one.dispatchEvent(new Event('change', {bubbles: true})); }"
        )

    async def size(self, width: int, height: int = 900) -> None:
        """Give the window a size."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    async def picture(self, path: Path) -> None:
        """Write what is visible as a PNG."""
        found = await self.send("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(found["data"]))


@asynccontextmanager
async def browser(folder: Path) -> AsyncGenerator[Page]:
    """Run Chromium with an empty profile in a folder; give its page."""
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={
            **os.environ,
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "XDG_CACHE_HOME": str(folder),
        },
    )
    try:
        address = await _address(process)
        async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
            page = Page(socket)
            listening = asyncio.create_task(page.listen())
            drained = asyncio.create_task(_drain(process))
            try:
                targets = await page.send("Target.getTargets")
                target = next(one for one in targets["targetInfos"] if one["type"] == "page")
                attached = await page.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
                page.session = attached["sessionId"]
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.send(f"{domain}.enable")
                yield page
            finally:
                listening.cancel()
                drained.cancel()
                await asyncio.wait({listening, drained})
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(30):
        async for line in process.stderr:
            before, _, address = line.decode().partition("DevTools listening on ")
            if not before:
                return address.strip()
    raise PageError("Chromium has ended")


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while await process.stderr.read(65_536):
        pass
