"""Apps: the pages that servers have for their tools, read for a front end, and kept to their own server.

A front end shows a page in a sandboxed frame. What the page wants from its server goes through `AppProxy`,
which knows one server: a page can call that server's tools that list "app" in their visibility, and read that
server's resources. The policy, the pins and the limits apply as to any other call.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, Protocol, cast

from dragoman.errors import CallDeniedError, DragomanError, ServerError
from dragoman.model import App, ToolResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dragoman.manager.parts import Parts
    from dragoman.manager.resources import Resources
    from dragoman.model import Part
    from dragoman.tools.registry import ToolRegistry

MIME_TYPE = "text/html;profile=mcp-app"
_DOMAINS = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
_PERMISSIONS = ("camera", "microphone", "geolocation", "clipboardWrite")
_ORIGIN = re.compile(r"(?:https?|wss?)://(?:\*\.)?[A-Za-z0-9.-]+(?::(?:\d{1,5}|\*))?/?", re.ASCII)
"""An origin, perhaps with `*.` before its host. Anything else could change the meaning of a policy header."""


class AppCaller(Protocol):
    """The part of a manager that a page may use."""

    @property
    def registry(self) -> ToolRegistry:
        """The tools."""
        ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        audience: Any = "model",
    ) -> ToolResult:
        """Call a tool."""
        ...

    async def read(self, uri: str, server: str | None = None) -> list[Part]:
        """Read a resource."""
        ...


class Apps:
    """The pages that servers have for their tools; `McpManager.apps` is this."""

    def __init__(self, parts: Parts, caller: AppCaller) -> None:
        """Open pages of the servers in `parts`, which call their tools by `caller`."""
        self._parts = parts
        self._caller = caller

    async def open(self, result: ToolResult | App) -> AppProxy:
        """Read the page of a result's app; return it with the calls that it may make.

        Args:
            result: A result with an `app`, or the app itself.

        Raises:
            DragomanError: The result has no app, the server does not answer, or the resource is not a page.
            CallDeniedError: The policy does not allow reading it.
        """
        app = result if isinstance(result, App) else result.app
        if app is None:
            msg = "this result has no app"
            raise DragomanError(msg, hint="only tools whose `app_uri` is set have one")
        self._parts.open_server(app.server)
        return AppProxy(self._caller, await read_app(app, self._parts.resources))


class AppProxy:
    """What one page may do: call tools of its own server that are meant for apps, and read its resources."""

    def __init__(self, manager: AppCaller, app: App) -> None:
        self._manager = manager
        self._app = app

    @property
    def app(self) -> App:
        """The page."""
        return self._app

    async def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> ToolResult:
        """Call a tool of the page's own server, by the server's own name for it; a failure is a result.

        A tool of another server, an unknown tool, and a tool without "app" in its visibility are refused.
        """
        server = self._app.server
        name = self._manager.registry.exposed_name(server, tool)
        if name is None:
            msg = f"the app of server `{server}` asked for `{tool}`, which that server does not offer"
            hint = "an app can call the tools of its own server only"
            error = CallDeniedError(msg, tool=tool, server=server, rule="app", hint=hint)
            return ToolResult(success=False, text=str(error), error=str(error), exception=error)
        return await self._manager.call(name, arguments, timeout=timeout, audience="app")

    async def read(self, uri: str) -> list[Part]:
        """Read a resource of the page's own server.

        Raises:
            DragomanError: The server does not have it, or does not answer.
            CallDeniedError: The policy does not allow it.
        """
        return await self._manager.read(uri, self._app.server)


async def read_app(app: App, resources: Resources) -> App:
    """Return an app with its page.

    Raises:
        ServerError: The resource is not a page for apps.
        CallDeniedError: The policy does not allow reading it.
        DragomanError: The server does not answer.
    """
    await resources.permit(app.uri, app.server)
    raw = await resources.ask(app.server, lambda session: session.read_resource(app.uri), app.uri)
    contents = cast("Sequence[object]", raw.get("contents") or ())
    for entry in contents:
        if isinstance(entry, dict):
            content = cast("dict[str, Any]", entry)
            if content.get("uri") == app.uri and _is_page(content.get("mimeType")):
                ui = _ui(content) or await _listed_ui(app, resources)
                return app.replace(html=_text(content, app), **_fields(ui))
    msg = f"`{app.uri}` of server `{app.server}` is not a page for apps ({MIME_TYPE})"
    raise ServerError(msg, server=app.server)


async def _listed_ui(app: App, resources: Resources) -> Mapping[str, Any]:
    """Return what the listing says about the page; nothing if the server does not list it."""
    try:
        listed = await resources.list_resources(app.server)
    except DragomanError:
        return {}
    found = [one for one in listed if one.uri == app.uri]
    return _ui({"_meta": found[0].meta}) if found else {}


def _is_page(mime_type: object) -> bool:
    return isinstance(mime_type, str) and mime_type.replace(" ", "").lower() == MIME_TYPE


def _ui(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    meta: object = entry.get("_meta")
    ui = cast("dict[str, Any]", meta).get("ui") if isinstance(meta, dict) else None
    return cast("dict[str, Any]", ui) if isinstance(ui, dict) else {}


def _text(content: Mapping[str, Any], app: App) -> str:
    if isinstance(text := content.get("text"), str):
        return text
    try:
        return base64.b64decode(str(content.get("blob", "")), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as exc:
        msg = f"the page `{app.uri}` of server `{app.server}` cannot be decoded"
        raise ServerError(msg, server=app.server) from exc


def _fields(ui: Mapping[str, Any]) -> dict[str, Any]:
    csp, asked, border = ui.get("csp"), ui.get("permissions"), ui.get("prefersBorder")
    declared = cast("dict[str, Any]", csp) if isinstance(csp, dict) else {}
    permissions = cast("dict[str, Any]", asked) if isinstance(asked, dict) else {}
    domain = ui.get("domain")
    return {
        "csp": {name: origins for name in _DOMAINS if (origins := _origins(declared.get(name)))},
        "permissions": tuple(name for name in _PERMISSIONS if isinstance(permissions.get(name), dict)),
        "domain": domain if isinstance(domain, str) else "",
        "prefers_border": border if isinstance(border, bool) else None,
    }


def _origins(listed: object) -> tuple[str, ...]:
    entries = cast("list[object]", listed) if isinstance(listed, list) else []
    return tuple(one for one in entries if isinstance(one, str) and _ORIGIN.fullmatch(one))
