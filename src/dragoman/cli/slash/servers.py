"""The slash commands about servers: `/mcp` and what stands under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from dragoman.cli.logins import open_browser
from dragoman.cli.output import safe
from dragoman.cli.slash.command import Context, UsageError, near, server_named, split
from dragoman.cli.tables import reload_view, servers_view, tools_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rich.console import RenderableType

LINES = 30
"""How many lines of a log are shown unless somebody says."""


async def status(context: Context, words: str) -> RenderableType:
    """Show every server."""
    if words:
        word = words.split(maxsplit=1)[0]
        known = ("tools", "reload", "restart", "enable", "disable", "login", "logs")
        guess = near(word, known, f"it knows {', '.join(known)}")
        msg = f"/mcp does not know `{word}`: {guess}"
        raise UsageError(msg)
    return servers_view(context.mcp.status().values(), context.mcp.metrics())


async def server_tools(context: Context, words: str) -> RenderableType:
    """List the tools of one server or of all."""
    if words:
        server_named(context, words, "/mcp tools")
    found = [tool for tool in context.mcp.tools() if words in ("", tool.server)]
    return tools_table(found) if found else Text("no tools", style="dim")


async def reload(context: Context, words: str) -> RenderableType:
    """Read the configuration again."""
    if words:
        msg = "/mcp reload takes no words: it reads the whole configuration again"
        raise UsageError(msg)
    if not context.mcp.settings.sources:
        msg = "these servers come from no file, so there is nothing to read again"
        raise UsageError(msg)
    return reload_view(await context.mcp.reload())


async def restart(context: Context, words: str) -> RenderableType:
    """Restart a server."""
    name = server_named(context, words, "/mcp restart")
    await context.mcp.restart(name)
    return _one(context, name)


async def enable(context: Context, words: str) -> RenderableType:
    """Switch a server on."""
    name = server_named(context, words, "/mcp enable")
    await context.mcp.enable(name)
    await context.mcp.wait_ready([name])
    return _one(context, name)


async def disable(context: Context, words: str) -> RenderableType:
    """Switch a server off."""
    name = server_named(context, words, "/mcp disable")
    await context.mcp.disable(name)
    return _one(context, name)


async def login(context: Context, words: str) -> RenderableType:
    """Have the person log in to a server."""
    given, how = split(words)
    name = server_named(context, given, "/mcp login")
    if how not in ("", "paste"):
        msg = f"/mcp login takes a server and, on a machine without a browser, `paste`; not `{how}`"
        raise UsageError(msg)
    say = context.say
    if say is None:
        msg = f"nobody can be shown the address here: `dragoman login {name}` shows it"
        raise UsageError(msg)

    async def open_url(url: str) -> None:
        say(Text(f"Open this address to log in to `{name}`:\n\n  {safe(url)}\n"))
        if not how:
            await open_browser(url)

    def complain(why: str) -> None:
        say(Text(f"That cannot be used: {safe(why)}.", style="yellow"))

    paste = _paster(context) if how else None
    await context.mcp.login(name, open_url=open_url, paste=paste, on_refused=complain)
    return _one(context, name)


def _paster(context: Context) -> Callable[[], Awaitable[str]]:
    asker = context.asker
    if asker is None:
        msg = "nobody can paste an address here: log in without `paste`"
        raise UsageError(msg)

    async def paste() -> str:
        return await asker.line("The address that the browser ended at")

    return paste


async def logs(context: Context, words: str) -> RenderableType:
    """Show the last lines that a server wrote to its standard error."""
    given, count = split(words)
    name = server_named(context, given, "/mcp logs")
    if count and not (count.isdecimal() and int(count) > 0):
        msg = f"/mcp logs takes a server and a number of lines, not `{count}`"
        raise UsageError(msg)
    found = context.mcp.logs(name, lines=int(count) if count else LINES)
    if not found:
        return Text(f"`{name}` wrote nothing to its standard error", style="dim")
    return Group(*(Text(safe(line)) for line in found))


def _one(context: Context, name: str) -> RenderableType:
    metrics = context.mcp.metrics()
    return servers_view([context.mcp.status()[name]], metrics)
