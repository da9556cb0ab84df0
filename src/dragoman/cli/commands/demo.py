"""`dragoman demo`: two bundled servers, without configuration or API key."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.exits import run
from dragoman.cli.options import Options, common_options
from dragoman.cli.output import say_json
from dragoman.struct import Report

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from rich.console import Console

    from dragoman.manager.manager import McpManager

CALLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Text", "mcp_studio_greet", {"name": "traveller"}),
    ("Structured data", "mcp_studio_measure", {"text": "one line\nand another"}),
    ("An image", "mcp_studio_swatch", {"colour": "violet", "width": 96, "height": 32}),
    ("A tool error", "mcp_studio_divide", {"a": 1, "b": 0}),
    ("A result with source and date", "mcp_legal_search_statutes", {"query": "deposit", "limit": 1}),
)
"""One call for each kind of result, with a title."""
CHINESE = {
    "Text": "文本",
    "Structured data": "结构化数据",
    "An image": "图片",
    "A tool error": "工具的错误",
    "A result with source and date": "带来源和日期的结果",
    "traveller": "旅行者",
    "one line\nand another": "第一行\n第二行",
    "deposit": "押金",
    "[bold]dragoman[/] connects an agent to its MCP servers. Starting two bundled servers:\n": (
        "[bold]dragoman[/] 把智能体和它的 MCP 服务器连接起来。正在启动两个自带的服务器：\n"
    ),
    "\n[bold]{count} tools[/] (model names: mcp_SERVER_TOOL):\n": (
        "\n[bold]{count} 个工具[/]（模型看到的名字：mcp_服务器_工具）：\n"
    ),
    "[dim]Session with these two servers{model}. Type[/] /help [dim]for commands.[/]": (
        "[dim]与这两个服务器{model}的会话。输入[/] /help [dim]查看命令。[/]"
    ),
    " and {model}": "和 {model} ",
}
"""What the demo says to a reader of Chinese."""


class DemoServer(Report, kw_only=True):
    """One of the demo's servers."""

    name: str
    state: str
    tools: int | None
    """The number of tools."""


class DemoCall(Report, kw_only=True):
    """One of the demo's calls."""

    tool: str
    success: bool
    text: str
    error: str | None


class DemoReport(Report, kw_only=True):
    """What `demo` did."""

    servers: Sequence[DemoServer]
    tools: Sequence[str]
    """The names of the tools for a model."""
    calls: Sequence[DemoCall]


@click.command()
@common_options
@click.option("--no-session", is_flag=True, help="Do not start a session at the end.")
@click.pass_obj
def demo(options: Options, no_session: bool) -> None:
    """Connect two bundled demo servers and call their tools.

    One server uses stdio, the other Streamable HTTP. In a terminal, an interactive session starts at the end.
    """
    interactive = sys.stdin.isatty() and sys.stdout.isatty() and not no_session and not options.json
    raise click.exceptions.Exit(run(_run(options, interactive=interactive)))


async def _run(options: Options, *, interactive: bool) -> int:
    from rich.console import Console

    from dragoman.config.profiles import profile_named
    from dragoman.demo.launch import demo_servers
    from dragoman.languages import language_of
    from dragoman.manager.manager import McpManager
    from dragoman.model import Settings

    options.quiet_logs()
    console = Console(highlight=False, quiet=options.json)
    language = profile_named(options.profile).language or language_of(os.environ)
    words = CHINESE if language == "zh" else {}
    console.print(
        _said(
            words, "[bold]dragoman[/] connects an agent to its MCP servers. Starting two bundled servers:\n"
        )
    )
    visit = _Visit(words) if interactive else None
    handlers = visit.handlers if visit is not None else None
    async with (
        demo_servers() as specs,
        McpManager(
            Settings(servers=specs, language=language), call_log=interactive, handlers=handlers
        ) as mcp,
    ):
        await _watch_start(console, mcp)
        _list_tools(console, mcp, words)
        results = [await _show_call(console, mcp, *call, words) for call in CALLS]
        ready = all(status.state == "ready" for status in mcp.status().values())
        if options.json:
            calls = [DemoCall.of(one, tool=tool) for (_, tool, _), one in zip(CALLS, results, strict=True)]
            say_json(
                DemoReport(
                    servers=[DemoServer.of(status) for status in mcp.status().values()],
                    tools=[tool.name for tool in mcp.tools()],
                    calls=calls,
                )
            )
        if ready and visit is not None:
            await visit.open(options, console, mcp)
    return 0 if ready else 1


def _said(words: Mapping[str, str], text: str, **values: object) -> str:
    """Return a text in the words of a language."""
    return words.get(text, text).format(**values)


class _Visit:
    """The session with the two servers, and with a model if one is configured."""

    def __init__(self, words: Mapping[str, str]) -> None:
        from dragoman.cli.session.line_editor import TerminalAsker
        from dragoman.cli.session.questions import Consent
        from dragoman.cli.session.screen import Screen
        from dragoman.model import Handlers

        self._words = words
        self._screen = Screen()
        self._asker = TerminalAsker(self._screen)
        self.handlers = Handlers(approval=Consent(self._asker).approve_call)
        """Ask before a call of the model."""

    async def open(self, options: Options, console: Console, mcp: McpManager) -> None:
        """Run the session."""
        from rich.markup import escape

        from dragoman.cli.commands.chat import choose_model
        from dragoman.cli.output import one_line
        from dragoman.cli.session.conversation import Conversation
        from dragoman.cli.session.log import NAME, logbook
        from dragoman.cli.session.session import TerminalSession
        from dragoman.storage.files import state_folder

        screen = self._screen
        provider, why = await choose_model(None, os.environ)
        console.print()
        if why:
            screen.complain(why)
        model = _said(self._words, " and {model}", model=escape(one_line(provider.model))) if provider else ""
        told = "[dim]Session with these two servers{model}. Type[/] /help [dim]for commands.[/]"
        console.print(_said(self._words, told, model=model))
        with logbook(state_folder() / NAME, screen.print_line, debug=options.debug):
            async with Conversation(mcp, provider) as conversation:
                await TerminalSession(mcp, screen, conversation=conversation, asker=self._asker).run()


async def _watch_start(console: Console, mcp: McpManager) -> None:
    """Show the servers while they start; outside a terminal only the result."""
    from rich.live import Live

    from dragoman.cli.tables import status_table

    if not console.is_terminal:
        await mcp.wait_ready()
        console.print(status_table(mcp.status().values()))
        return
    with Live(status_table(mcp.status().values()), console=console, refresh_per_second=12) as live:
        waiting = asyncio.ensure_future(mcp.wait_ready())
        async for _ in _ticks_until(waiting):
            live.update(status_table(mcp.status().values()))


async def _ticks_until(future: asyncio.Future[Any]) -> AsyncGenerator[None]:
    """Yield about ten times a second until a future is done, and once more after it."""
    while not future.done():
        await asyncio.wait({future}, timeout=0.1)
        yield
    future.result()


def _list_tools(console: Console, mcp: McpManager, words: Mapping[str, str]) -> None:
    from dragoman.cli.tables import tools_table

    tools = mcp.tools()
    console.print(
        _said(words, "\n[bold]{count} tools[/] (model names: mcp_SERVER_TOOL):\n", count=len(tools))
    )
    console.print(tools_table(tools))


async def _show_call(
    console: Console, mcp: McpManager, title: str, tool: str, given: dict[str, Any], words: Mapping[str, str]
) -> Any:
    from rich.padding import Padding
    from rich.text import Text

    from dragoman.cli.tables import result_view

    arguments = {name: words.get(value, value) for name, value in given.items()}
    shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    console.print(Text.assemble("\n", (words.get(title, title), "bold"), "  ", (f"{tool}({shown})", "cyan")))
    result = await mcp.call(tool, arguments)
    console.print(Padding(result_view(result), (0, 0, 0, 2), expand=False))
    return result
