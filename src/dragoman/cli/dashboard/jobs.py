"""What the dashboard has the manager do, job beside job; what goes wrong becomes a message, not a crash."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from rich.text import Text

from dragoman.cli.dashboard.dialogs import Login
from dragoman.cli.output import one_line, safe
from dragoman.cli.session.call_lines import short_arguments
from dragoman.cli.session.questions import AbandonedError
from dragoman.cli.slash.command import Context, Leave, PastCall, UsageError
from dragoman.cli.slash.table import run
from dragoman.errors import DragomanError
from dragoman.tools.rendering import describe
from dragoman.trust.addresses import read_link
from dragoman.trust.redact import mask_text

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from textual.worker import Worker

    from dragoman.cli.dashboard.app import Dashboard
    from dragoman.cli.dashboard.offers import Offer
    from dragoman.cli.dashboard.stream import CallStream
    from dragoman.cli.session.questions import Asker
    from dragoman.manager import McpManager
    from dragoman.model import Prompt, Resource, ToolDef

MAX_SHOWN = 20_000
"""Characters of a resource or prompt that are put on the screen."""


class Jobs:
    """Runs them; the dashboard shows how they fare."""

    def __init__(self, app: Dashboard, mcp: McpManager, stream: CallStream, asker: Asker) -> None:
        self._app = app
        self._mcp = mcp
        self._stream = stream
        self._context = Context(mcp=mcp, asker=asker, say=app.print, on_progress=self._progress)
        self.switched: dict[str, bool] = {}
        """Which servers were switched on or off since the configuration was read."""
        self._running: set[Worker[None]] = set()

    def is_on(self, server: str) -> bool:
        """Tell whether a server is switched on."""
        spec = self._mcp.settings.server(server)
        return self.switched.get(server, spec is None or (spec.enabled and self._mcp.settings.enabled))

    def restart(self, server: str) -> None:
        """Restart a server."""
        self._begin(f"restarting {server}", self._restart(server))

    def switch(self, server: str) -> None:
        """Switch a server off, or on again."""
        turn_on = not self.is_on(server)
        self._begin(f"switching {server} {'on' if turn_on else 'off'}", self._switch(server, turn_on=turn_on))

    def login(self, server: str) -> None:
        """Have the person at the screen log in."""
        self._begin(f"logging in to {server}", self._login(server))

    def command(self, line: str) -> None:
        """Carry out a slash command."""
        match line.split():
            case ["/mcp", "login", server, *_] if server in self._mcp.status():
                # The command opens a browser by itself, and one of text would take the screen over.
                self.login(server)
            case _:
                self._begin(line, self._command(line))

    def use(self, offer: Offer, arguments: Mapping[str, Any]) -> None:
        """Call a tool, read a resource, or get a prompt."""
        match offer.kind:
            case "tool":
                self._begin(f"calling {offer.name}", self._call(cast("ToolDef", offer.item), arguments))
            case "resource":
                self._begin(f"reading {offer.name}", self._read(cast("Resource", offer.item)))
            case "prompt":
                self._begin(f"getting {offer.name}", self._prompt(cast("Prompt", offer.item), arguments))

    def stop(self) -> None:
        """Cancel whatever runs."""
        running = [one for one in self._running if one.is_running]
        for worker in running:
            worker.cancel()
        if running:
            self._app.say("stopped", "yellow")

    def _begin(self, doing: str, job: Coroutine[Any, Any, str]) -> None:
        self._app.say(f"{doing} …", "yellow")
        worker = self._app.run_worker(self._carry_out(job), group="jobs")
        self._running = {one for one in self._running if one.is_running} | {worker}

    async def _carry_out(self, job: Coroutine[Any, Any, str]) -> None:
        try:
            said = await job
        except Leave:
            self._app.exit()
        except (UsageError, AbandonedError, DragomanError) as error:
            self._app.complain(str(error))
        else:
            self._app.say(said, "green")
        self._app.draw_soon()

    async def _restart(self, server: str) -> str:
        await self._mcp.restart(server)
        return self._state(server)

    async def _switch(self, server: str, *, turn_on: bool) -> str:
        await (self._mcp.enable(server) if turn_on else self._mcp.disable(server))
        self.switched[server] = turn_on
        return self._state(server) if turn_on else f"{server} is off"

    def _state(self, server: str) -> str:
        status = self._mcp.status()[server]
        if status.state.value != "ready":
            msg = f"{server} is {status.state.value}: {status.last_error or 'no reason is known'}"
            raise DragomanError(msg)
        return f"{server} is ready"

    async def _login(self, server: str) -> str:
        dialog = Login(server)
        await self._app.push_screen(dialog, lambda _: worker.cancel() if worker else None)
        worker = next((one for one in self._running if one.is_running), None)
        try:
            await self._mcp.login(
                server, open_url=lambda url: _open(self._app, dialog, url), paste=dialog.paste
            )
        finally:
            worker = None
            dialog.leave()
        return f"logged in to {server}"

    async def _command(self, line: str) -> str:
        self._app.print(Text(f"› {safe(line)}", "bold"))
        before = list(self._context.calls)[-1:]
        outcome = await run(self._context, line)
        self._app.print(outcome)
        made = list(self._context.calls)[-1:]
        if made and made != before:
            self._stream.attach(made[0].result)
        match line.split():
            case ["/mcp", "enable" | "disable" as word, server]:
                self.switched[server] = word == "enable"
            case _:
                pass
        return ""

    async def _call(self, tool: ToolDef, arguments: Mapping[str, Any]) -> str:
        self._app.show("calls")
        result = await self._mcp.call(tool.name, arguments, on_progress=self._progress)
        self._stream.attach(result)
        given = short_arguments(dict(arguments))
        self._context.calls.append(PastCall(tool=tool.name, arguments=given, result=result))
        self._app.show_call(result.call_id)
        if not result.success:
            raise DragomanError(one_line(result.error or "the call failed"))
        return f"{tool.name}: ok"

    async def _read(self, resource: Resource) -> str:
        parts = await self._mcp.read(resource.uri, resource.server)
        self._print(resource.uri, "\n".join(describe(part) for part in parts))
        return ""

    async def _prompt(self, prompt: Prompt, arguments: Mapping[str, Any]) -> str:
        words = {key: str(value) for key, value in arguments.items()}
        messages = await self._mcp.prompt(prompt.name, words, server=prompt.server)
        self._print(prompt.name, "\n".join(_message(message) for message in messages))
        return ""

    def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        self._app.say(f"{share} {message or ''}", "yellow")

    def _print(self, title: str, text: str) -> None:
        self._app.print(Text(f"› {one_line(title)}", "bold"))
        self._app.print(Text(safe(mask_text(text[:MAX_SHOWN]))))


def schema_of(offer: Offer) -> Mapping[str, Any] | None:
    """Return the schema of what an offer takes; nothing if it takes nothing."""
    match offer.kind:
        case "tool":
            return cast("ToolDef", offer.item).input_schema
        case "resource":
            return None
        case "prompt":
            listed = cast("Prompt", offer.item).arguments
            names = [str(one.get("name", "")) for one in listed]
            fields = {
                name: {"type": "string", "description": one.get("description")}
                for name, one in zip(names, listed, strict=True)
            }
            needed = [name for name, one in zip(names, listed, strict=True) if one.get("required")]
            return {"type": "object", "properties": fields, "required": needed} if fields else None


def _message(message: Mapping[str, Any]) -> str:
    content: Any = message.get("content")
    fields = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    text = fields.get("text")
    return f"{message.get('role', '')}: {text if isinstance(text, str) else fields.get('type', '')}"


def _open(app: Dashboard, dialog: Login, url: str) -> None:
    dialog.show_address(url)
    # A browser of text would take the screen over; where there are windows, there is another.
    if sys.platform in {"darwin", "win32"} or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        with suppress(ValueError):
            app.open_url(read_link(url).url)
