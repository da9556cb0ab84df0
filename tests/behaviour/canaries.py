"""Secrets that are planted wherever a configuration may have one, and a look at everything that comes out."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import string
import sys
import traceback
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.behaviour.turning import SERVER, Turncoat, read_tool

from dragoman import Http, McpManager, ServerSpec, Sse, Stdio
from dragoman.model import Auth

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator

LETTERS = string.ascii_letters + string.digits + "-_/+=~%&\"' ä"
"""Without the dot: what looks like a host's name, under a name that announces nothing, is not masked."""


class Seen(logging.Handler):
    """Everything that is logged, by anybody, as a file would have it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@dataclass
class Garden:
    """The secrets, and all texts in which none of them may be."""

    random: random.Random
    secrets: list[str] = field(default_factory=list[str])
    outputs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def plant(self, *, plain: bool = False) -> str:
        """Return a new secret; a plain one can stand in an address."""
        letters = string.ascii_letters + string.digits if plain else LETTERS
        body = "".join(self.random.choice(letters) for _ in range(self.random.randint(10, 40)))
        self.secrets.append(f"q{len(self.secrets)}X{body}Z")
        return self.secrets[-1]

    def see(self, where: str, *things: object) -> None:
        """Take down something that somebody could read."""
        for thing in things:
            self.outputs += [(where, str(thing)), (where, repr(thing))]
            if isinstance(thing, BaseException):
                lines = "".join(traceback.format_exception(thing))
                self.outputs += [(where, lines), (where, repr(vars(thing)))]

    def found(self) -> list[tuple[str, str, str]]:
        """Return where a secret was seen, in whatever dress."""
        hits: list[tuple[str, str, str]] = []
        for secret in self.secrets:
            encoded = base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]
            dresses = {secret, quote(secret), quote(secret, safe=""), encoded, json.dumps(secret)[1:-1]}
            dresses |= {repr(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
            for where, text in self.outputs:
                hits += [(where, dress, text[:300]) for dress in dresses if dress in text]
        return hits


@asynccontextmanager
async def echoing(status: str) -> AsyncIterator[str]:
    """Serve an address that answers every request with what it was sent; gives `host:port`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = b"you sent: " + head
        shown = head.split(b"\r\n")[0]
        writer.write(
            b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nX-Echo: %s\r\n"
            b"Connection: close\r\n\r\n%s" % (status.encode(), len(body), shown, body)
        )
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listener:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"


def servers(
    garden: Garden, folder: Path, host: str, monkeypatch: Any
) -> tuple[list[ServerSpec], dict[str, str]]:
    """Return servers with fifty secrets between them, and the answers to their inputs."""
    env: dict[str, str | None] = {f"CANARY_{number}": garden.plant() for number in range(20)}
    for number in range(8):
        monkeypatch.setenv(f"PLANTED_{number}", garden.plant())
        env[f"CANARY_REFERENCE_{number}"] = f"${{PLANTED_{number}}}"
    inputs = {f"id{number}": garden.plant() for number in range(3)}
    env |= {f"CANARY_INPUT_{name}": f"${{input:{name}}}" for name in inputs}
    names = [f"CANARY_INHERITED_TOKEN_{number}" for number in range(4)]
    for name in names:
        monkeypatch.setenv(name, garden.plant())
    lines = [f"CANARY_FILE_{number}='{garden.plant(plain=True)}'" for number in range(5)]
    (folder / "canary.env").write_text("\n".join(lines), "utf-8")
    args = ["--token", garden.plant(), f"--api-key={garden.plant()}", f"X-Api-Key: {garden.plant()}"]
    args += [
        f"--db=postgres://me:{garden.plant(plain=True)}@db.example/x",
        f'{{"apiKey": "{garden.plant(plain=True)}"}}',
    ]
    coat = Turncoat(folder, "leaky")
    coat.change(lambda offer: offer.update(leaky=True))
    stdio = Stdio(
        sys.executable,
        ["-S", str(SERVER), str(coat.file), *args],
        env=env,
        env_file=[str(folder / "canary.env")],
        inherit_env=names,
        log_file=str(folder / "leaky.log.txt"),
    )
    refusing = Turncoat(folder, "refusing")
    refusing.change(lambda offer: offer.update(leaky=True, refuses=True))
    password, query = garden.plant(plain=True), garden.plant(plain=True)
    url = f"http://me:{password}@{host}/mcp?key={query}&page=2"
    headers = {"Authorization": f"Bearer {garden.plant(plain=True)}", "X-Other": garden.plant(plain=True)}
    auth = Auth(mode="none", client_id="me", client_secret=garden.plant())
    more_headers = {"X-Api-Key": garden.plant(plain=True)}
    return [
        ServerSpec("leaky", stdio),
        ServerSpec(
            "refusing", replace(stdio, args=["-S", str(SERVER), str(refusing.file), *args], log_file=None)
        ),
        ServerSpec("strict", replace(stdio, log_file=None), trust="strict"),
        ServerSpec("far", Http(url, headers=headers), auth=auth),
        ServerSpec("older", Sse(url, headers=more_headers), protocol="legacy"),
        ServerSpec("sdk", Http(url, headers=more_headers), wire="sdk"),
        ServerSpec("gone", replace(stdio, command="/no/such/command", log_file=None)),
    ], inputs


async def live(garden: Garden, folder: Path, monkeypatch: Any, status: str) -> None:
    """Live through everything that goes wrong, and take down what can be seen of it."""
    seen = Seen()
    root = logging.getLogger()
    before = root.level
    root.addHandler(seen)
    root.setLevel(logging.DEBUG)
    try:
        async with echoing(status) as host:
            specs, inputs = servers(garden, folder, host, monkeypatch)
            for turn in range(2):
                await _run(garden, specs, inputs)
                if not turn:
                    file = folder / "leaky.json"
                    offer = json.loads(file.read_text("utf-8"))
                    read_tool(offer)["description"] = "Reads something else. "
                    file.write_text(json.dumps(offer), "utf-8")
    finally:
        root.removeHandler(seen)
        root.setLevel(before)
    garden.outputs += [("log", line) for line in seen.lines]
    garden.see("spec", *specs)
    garden.outputs += written(folder)


def written(folder: Path) -> list[tuple[str, str]]:
    """Read every file that we wrote: in the home, and beside what the test itself wrote."""
    ours = [path for path in Path(os.environ["HOME"]).rglob("*") if path.is_file()]
    ours += folder.glob("leaky.log.txt*")
    return [(f"file {path.name}", path.read_text("utf-8", "replace")) for path in ours]


async def _run(garden: Garden, specs: list[ServerSpec], inputs: dict[str, str]) -> None:
    mcp = McpManager(specs, inputs=inputs)
    events = mcp.events()
    async with mcp:
        await mcp.wait_ready(timeout=20)
        for server in ("leaky", "strict"):
            for name in ("fail", "refuse", "read", "die", "no-such-tool"):
                result = await mcp.call(f"mcp_{server}_{name}", {"path": 5} if name == "read" else {})
                # The pieces of a result are the server's own, for the program alone.
                garden.see(f"call {name}", result.error, result.exception, replace(result, parts=()))
        for attempt in (mcp.read("a:b", "leaky"), mcp.prompt("none", server="refusing"), mcp.login("gone")):
            try:
                await attempt
            except Exception as exc:  # noqa: BLE001 -- whatever it is, it is looked at
                garden.see("error", exc)
        garden.see("status", *mcp.status().values())
        for name, supervisor in mcp._supervisors.items():
            garden.see(f"error of {name}", supervisor.error)
            garden.see("changes", *map(str, mcp.changes(name)))
        await asyncio.gather(*mcp._guard.pinboard.looking())
        garden.see("manager", mcp, mcp.settings, mcp._guard, mcp._guard.redactor, mcp._crew)
    garden.see("event", *events.take())
