"""Secrets that are planted wherever a configuration may have one, and a look at everything that comes out."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import shlex
import string
import sys
import traceback
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import keyring
from keyring.backend import KeyringBackend
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.behaviour.turning import SERVER, Turncoat, read_tool

from dragoman import Http, McpManager, ServerSpec, Sse, Stdio
from dragoman.agent.engine import AgentEngine
from dragoman.agent.messages import Transcript
from dragoman.agent.providers import Say, ScriptedProvider
from dragoman.model import Auth
from dragoman.server.oauth.token_store import Login, TokenStore

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Iterator

LETTERS = string.ascii_letters + string.digits + "-_/+=~%&\"' ä"
"""Without the dot: what looks like a host's name, under a name that announces nothing, is not masked."""


class Seen(logging.Handler):
    """Everything that is logged, as a file would have it."""

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
        """Record text that a person could read."""
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
    """Serve an address that answers every request with what it was sent; gives `host:port`.

    Below `/half` it shakes hands and lists a tool, and only calls are answered like that.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()  # A connection that sends nothing.
            return
        if head.startswith(b"POST /half") and (said := await half(reader, head)) is not None:
            kind = b"Content-Type: application/json\r\n" if said else b""
            line = b"200 OK" if said else b"202 Accepted"
            writer.write(
                b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s"
                % (line, kind, len(said), said)
            )
            await writer.drain()
            writer.close()
            return
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


async def half(reader: asyncio.StreamReader, head: bytes) -> bytes | None:
    """Return the answer of a server that works until a tool is called."""
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    asked = json.loads(await reader.readexactly(int(length.partition(b":")[2])))
    shake = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "half", "version": "1"},
    }
    listed = {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}
    known = {"initialize": shake, "tools/list": listed}.get(asked["method"])
    if "id" not in asked:
        return b""
    return (
        None if known is None else json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": known}).encode()
    )


class Ring(KeyringBackend):
    """A keyring in memory."""

    priority: Any = 1

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[service, username]


@contextmanager
def ringing() -> Iterator[Ring]:
    """Put a keyring in the place of the system's."""
    before, ring = keyring.get_keyring(), Ring()
    keyring.set_keyring(ring)
    try:
        yield ring
    finally:
        keyring.set_keyring(before)


class Traces:
    """What an OpenTelemetry SDK is told, in the place of the application's."""

    def __init__(self, monkeypatch: Any) -> None:
        from opentelemetry import metrics, trace

        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self._tracers = TracerProvider()
        self._tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._meters = MeterProvider(metric_readers=[self._reader])
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: self._tracers)
        monkeypatch.setattr(metrics, "get_meter_provider", lambda: self._meters)

    def taken(self) -> list[str]:
        """Return everything that would be sent to a collector, and send no more."""
        found = [span.to_json() for span in self._spans.get_finished_spans()]
        data = self._reader.get_metrics_data()
        found += [] if data is None else [data.to_json()]
        self._tracers.shutdown()
        self._meters.shutdown()
        return found


def from_command(garden: Garden, folder: Path) -> str:
    """Return a reference to a command that prints a new secret."""
    file = folder / f"vault-{len(garden.secrets)}"
    file.write_text(garden.plant(plain=True), "utf-8")
    code = "import sys; print(open(sys.argv[1], encoding='utf-8').read())"
    return f"${{command:{shlex.join([sys.executable, '-S', '-c', code, str(file)])}}}"


def servers(
    garden: Garden, folder: Path, host: str, monkeypatch: Any, ring: Ring | None = None
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
        from_command(garden, folder),
    ]
    env |= {f"CANARY_COMMAND_{number}": from_command(garden, folder) for number in range(2)}
    if ring is not None:
        ring.entries = {("canary", str(number)): garden.plant() for number in range(2)}
        env |= {f"CANARY_KEYRING_{name}": f"${{keyring:canary/{name}}}" for _, name in ring.entries}
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
    more_headers = {"X-Api-Key": garden.plant(plain=True), "X-Vault": from_command(garden, folder)}
    return [
        ServerSpec("leaky", stdio),
        ServerSpec(
            "refusing", stdio.replace(args=["-S", str(SERVER), str(refusing.file), *args], log_file=None)
        ),
        ServerSpec("strict", stdio.replace(log_file=None), trust="strict"),
        ServerSpec("far", Http(url, headers=headers), auth=auth),
        ServerSpec("older", Sse(url, headers=more_headers), protocol="legacy"),
        ServerSpec("half", Http(f"http://{host}/half"), protocol="legacy"),
        ServerSpec("logged", Http(f"http://{host}/logged"), auth=Auth(mode="oauth", client_id="me")),
        ServerSpec("gone", stdio.replace(command="/no/such/command", log_file=None)),
    ], inputs


async def live(garden: Garden, folder: Path, monkeypatch: Any, status: str) -> None:
    """Live through everything that goes wrong, and take down what can be seen of it."""
    seen = Seen()
    root = logging.getLogger()
    before = root.level
    root.addHandler(seen)
    root.setLevel(logging.DEBUG)
    traces = Traces(monkeypatch)
    try:
        async with echoing(status) as host:
            with ringing() as ring:
                specs, inputs = servers(garden, folder, host, monkeypatch, ring)
                await log_in(garden, f"http://{host}/logged")
                for turn in range(2):
                    await _run(garden, specs, inputs, folder)
                    if not turn:
                        file = folder / "leaky.json"
                        offer = json.loads(file.read_text("utf-8"))
                        read_tool(offer)["description"] = "Reads something else. "
                        file.write_text(json.dumps(offer), "utf-8")
    finally:
        root.removeHandler(seen)
        root.setLevel(before)
        told = traces.taken()
    garden.outputs += [("log", line) for line in seen.lines]
    garden.outputs += [("telemetry", text) for text in told]
    garden.see("spec", *specs)
    garden.outputs += written(folder)


async def log_in(garden: Garden, url: str) -> None:
    """Plant a login, as if a user had logged in."""
    store = TokenStore("logged", url)
    login = Login(
        issuer="https://issuer.example",
        client={"client_id": "me", "client_secret": garden.plant(plain=True)},
        access_token=garden.plant(plain=True),
        refresh_token=garden.plant(plain=True),
    )
    async with store.locked():
        await store.save(login)
    assert store.path.stat().st_mode & 0o777 == 0o600


def written(folder: Path) -> list[tuple[str, str]]:
    """Read every file that we wrote: in the home, and beside what the test itself wrote.

    Not the logins: they are kept for their owner alone, which is tried where they are planted.
    """
    from dragoman.server.oauth.token_store import default_folder

    ours = [path for path in Path(os.environ["HOME"]).rglob("*") if path.is_file()]
    ours = [path for path in ours if not path.is_relative_to(default_folder())]
    ours += [*folder.glob("leaky.log.txt*"), *folder.glob("calls.db*"), *folder.glob("transcript*")]
    return [(f"file {path.name}", path.read_text("utf-8", "replace")) for path in ours]


async def _run(garden: Garden, specs: list[ServerSpec], inputs: dict[str, str], folder: Path) -> None:
    def provider(_: str) -> dict[str, str]:
        return {"X-Provided-Key": garden.plant(plain=True)} if len(garden.secrets) < 400 else {}

    log = folder / "calls.db"
    mcp = McpManager(specs, inputs=inputs, header_provider=provider, call_log=log)
    events = mcp.events()
    async with mcp:
        await mcp.wait_ready(timeout=20)
        for server in ("leaky", "strict"):
            for name in ("fail", "refuse", "read", "die", "no-such-tool"):
                result = await mcp.call(f"mcp_{server}_{name}", {"path": 5} if name == "read" else {})
                # The pieces of a result are the server's own, for the program alone.
                garden.see(f"call {name}", result.error, result.exception, result.replace(parts=()))
        marked = {"api_key": garden.plant(), "auth": {"password": garden.plant()}}
        for _ in range(2):
            headers = {
                "Authorization": f"Bearer {garden.plant(plain=True)}",
                "X-Once": garden.plant(plain=True),
            }
            result = await mcp.call("mcp_half_ask", marked, headers=headers)
            assert not result.success
            garden.see("call with headers", result.error, result.exception, result)
        for attempt in (
            mcp.read("a:b", "leaky"),
            mcp.prompt("none", server="refusing"),
            mcp.auth.login("gone"),
        ):
            try:
                await attempt
            except Exception as exc:  # noqa: BLE001 -- whatever it is, it is looked at
                garden.see("error", exc)
        await _talk(garden, mcp, folder / "transcript.jsonl")
        garden.see("status", *mcp.status().values())
        garden.see("metrics", *mcp.metrics().values())
        for name, status in mcp.status().items():
            garden.see(f"error of {name}", status.error)
            garden.see("changes", *map(str, mcp.trust.changes(name)))
            garden.see("stderr", *mcp.logs(name))
        await asyncio.gather(*mcp._parts.gate.pin_checker.looking())
        garden.see("manager", mcp, mcp.settings, mcp._parts.gate, mcp._parts.gate.redactor, mcp._parts.pool)
    garden.see("event", *events.take())
    assert log.stat().st_size > 0


async def _talk(garden: Garden, mcp: McpManager, file: Path) -> None:
    """Let a model call what fails, and keep what was said."""
    calls: list[tuple[str, Any]] = [("mcp_leaky_fail", {}), ("mcp_leaky_refuse", {}), ("mcp_half_ask", {})]
    model = ScriptedProvider([Say(calls=calls), "It failed."])
    async with AgentEngine(model, mcp) as agent:
        answer = await agent.run("Go on.")
    garden.see("answer", *answer.messages)
    Transcript(file).append(answer.messages)
