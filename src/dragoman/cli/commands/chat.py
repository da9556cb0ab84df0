"""`dragoman chat`: a session with a model and the configured servers; without a model, a tool console."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.adhoc import AdHocCommand, is_url, offer_to_keep, take_url
from dragoman.cli.exits import run
from dragoman.cli.options import THINK, Options, common_options, yes_option
from dragoman.cli.output import one_line, warn
from dragoman.storage.files import state_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.agent.messages import Price, Provider
    from dragoman.cli.session.conversation import Conversation
    from dragoman.cli.session.line_editor import TerminalAsker
    from dragoman.cli.session.log import Warnings
    from dragoman.cli.session.questions import Consent
    from dragoman.cli.session.screen import Screen
    from dragoman.config.write import Target
    from dragoman.manager.manager import McpManager
    from dragoman.model import Handlers

MODEL_VARIABLE = "DRAGOMAN_MODEL"
START_WAIT = 10.0
"""Seconds to wait for servers at the start; slower servers join later."""
# The default model for each API key.
_KEYS = (
    ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-4-5"),
    ("OPENAI_API_KEY", "openai:gpt-5-mini"),
    ("GEMINI_API_KEY", "gemini:gemini-flash-latest"),
    ("DEEPSEEK_API_KEY", "deepseek:deepseek-chat"),
    ("DASHSCOPE_API_KEY", "qwen:qwen-plus"),
)


@click.command(cls=AdHocCommand, epilog="A URL, or a command after `--`, is a server that is not configured.")
@common_options
@yes_option
@click.argument("url", required=False)
@click.option("--model", metavar="NAME", help=f"E.g. openai:gpt-5, deepseek:…, local ({MODEL_VARIABLE}).")
@click.option(
    "--transcript",
    type=click.Path(dir_okay=False),
    help="Save the conversation to this JSON Lines file, and continue from it.",
)
@click.option("--price", metavar="IN,OUT", help="Prices per million tokens, to show the cost.")
@click.option("--num-ctx", type=click.IntRange(min=512), help="Tokens that the model reads at once.")
@click.option("--think", type=click.Choice(list(THINK)), help="Whether and how much the model thinks first.")
@click.pass_obj
def chat(
    options: Options,
    *,
    url: str | None,
    model: str | None,
    transcript: str | None,
    price: str | None,
    num_ctx: int | None,
    think: str | None,
) -> None:
    """Chat with a model that can use the tools of your servers.

    Without --model, dragoman uses the API whose key is set, or a local model server (Ollama, llama.cpp, LM
    Studio). Without any model you can still call tools with slash commands. When reading from a pipe, each
    line is a message; the exit code is 1 if one of them failed.
    """
    if url is not None and not is_url(url):
        msg = f"Unexpected `{url}`. Expected a URL, or a command after `--`."
        raise click.UsageError(msg)
    take_url(options, [url] if url else [])
    how = {"num_ctx": num_ctx, "think": None if think is None else THINK[think]}
    open_session(options, model=model, transcript=transcript, price=price, how=how)


def open_session(
    options: Options,
    *,
    model: str | None = None,
    transcript: str | None = None,
    price: str | None = None,
    how: Mapping[str, Any] | None = None,
) -> None:
    """Open the session, at a terminal or in a pipe; `how` has options for `open_provider`."""
    from dragoman.cli.discover import find_servers

    costs = None if price is None else _read_price(price)
    find_servers(options)
    if not run(_chat(options, model, transcript, costs, how or {})):
        raise click.exceptions.Exit(1)
    offer_to_keep(options)


def _read_price(text: str) -> Price:
    from dragoman.agent.messages import Price

    try:
        input_price, output_price = (float(number) for number in text.split(","))
    except ValueError:
        msg = f"Invalid --price `{text}`. Expected prices per million input and output tokens, e.g. 0.25,2"
        raise click.UsageError(msg) from None
    return Price(input=input_price, output=output_price)


async def _chat(
    options: Options,
    model: str | None,
    transcript: str | None,
    price: Price | None,
    how: Mapping[str, Any],
) -> bool:
    from dragoman.cli.session.line_editor import TerminalAsker
    from dragoman.cli.session.log import NAME, Warnings, logbook
    from dragoman.cli.session.screen import Screen
    from dragoman.cli.tables import in_session

    screen = Screen()
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    asker = TerminalAsker(screen) if is_terminal else None
    warnings = Warnings(lambda text: screen.print_line(in_session(text)))
    with logbook(state_folder() / NAME, warnings, debug=options.debug):
        talk = {"transcript": transcript, "price": price, "how": how}
        return await _open(options, screen, asker, warnings, model=model, talk=talk)


async def _open(
    options: Options,
    screen: Screen,
    asker: TerminalAsker | None,
    warnings: Warnings,
    *,
    model: str | None,
    talk: Mapping[str, Any],
) -> bool:
    from dragoman.cli.session.conversation import Conversation
    from dragoman.cli.session.questions import AbandonedError, Consent, approve_project, ask_inputs
    from dragoman.config.rules import rules_file
    from dragoman.manager.manager import McpManager
    from dragoman.observe.otlp import exporting

    provider, why = await choose_model(model, os.environ, talk["how"])
    if asker is not None:
        settings = options.load()
        try:
            await approve_project(asker, settings)
            settings = options.load()
            await ask_inputs(asker, settings, settings.servers)
        except AbandonedError:
            raise click.Abort from None
    talks: list[Conversation] = []

    def rule_file(server: str) -> Target | None:
        is_named = options.server is None
        return rules_file(mcp.settings, server, config=options.config) if is_named else None

    consent = Consent(asker, rule_file) if asker is not None else None
    setup: dict[str, Any] = {
        "handlers": _handlers(consent, lambda: talks[0].provider, has_model=provider is not None),
        "call_log": options.load().call_log is not False,
        # In a pipe no one watches: a call that no rule allows is denied at once.
        "approvals": "inbox" if consent is not None else None,
        "default_trust": "ask" if consent is not None else "warn",
    }
    if options.server is not None:
        mcp = McpManager(options.load(), **setup)
    else:
        mcp = McpManager.from_config(options.with_hosts(), config=options.config, **setup)
    async with exporting("dragoman-chat"), mcp:
        # Events during the start are not reported to the model.
        await _watch_start(mcp, screen)
        if consent is not None:
            await consent.review(mcp)
        warnings.release(known=[status.last_error or "" for status in mcp.status().values()])
        async with Conversation(mcp, provider, **talk) as conversation:
            talks.append(conversation)
            return await _converse(mcp, screen, conversation, asker, consent, why=why)


def _handlers(consent: Consent | None, model: Callable[[], Provider], *, has_model: bool) -> Handlers | None:
    """Return the handlers for questions of servers; None in a pipe, where nothing can be asked."""
    from dragoman.agent.handlers import make_handlers

    if consent is None:
        return None
    answering = make_handlers(
        model, approve=consent.approve_sampling if has_model else None, ask=consent.answer
    )
    return answering.replace(approval=consent.approve_call)


async def _watch_start(mcp: McpManager, screen: Screen) -> None:
    """Show the servers while they start, then their states."""
    from dragoman.cli.tables import servers_view

    async with screen.working(lambda: servers_view(mcp.status().values(), {}, mcp.settings)):
        await mcp.wait_ready(timeout=START_WAIT)
    if screen.is_live:
        screen.print(servers_view(mcp.status().values(), {}, mcp.settings))


async def _converse(
    mcp: McpManager,
    screen: Screen,
    conversation: Conversation,
    asker: TerminalAsker | None,
    consent: Consent | None,
    *,
    why: str,
) -> bool:
    """Run the session.

    Args:
        mcp: The servers.
        screen: The terminal.
        conversation: The conversation, with or without a model.
        asker: Asks the user; None in a pipe.
        consent: Asks about changed tools.
        why: Why the model of the environment cannot be used.
    """
    from rich.text import Text

    from dragoman.cli.session.session import TerminalSession, lines_of_stdin

    session = TerminalSession(mcp, screen, conversation=conversation, asker=asker, consent=consent)
    if asker is None:
        if why:
            warn(why)
        return await session.run_plain(lines_of_stdin())
    if conversation.is_open:
        intro = Text.assemble(("Model: ", "dim"), one_line(conversation.model), (". ", "dim"))
    elif why:
        screen.print()
        screen.complain(why)
        intro = Text("You can still call tools. ", style="dim")
    else:
        intro = Text(
            "No model configured: set OPENAI_API_KEY, DEEPSEEK_API_KEY …, start Ollama, or use /model."
            " You can still call tools. ",
            style="dim",
        )
    if not why:
        screen.print()
    screen.print(Text.assemble(intro, "/help", (" lists commands, ", "dim"), "Tab", (" completes.", "dim")))
    await session.run()
    return True


async def choose_model(
    name: str | None, env: Mapping[str, str], how: Mapping[str, Any] | None = None
) -> tuple[Provider | None, str]:
    """Open the named model, the default model of an API key, or a local model.

    Returns:
        The model, and why a model that the environment sets cannot be used; the session opens without it.

    Raises:
        ProviderError: The model that `--model` names cannot be used.
    """
    from dragoman.agent.providers import open_provider
    from dragoman.agent.providers.local import find_local
    from dragoman.agent.providers.request import ProviderError

    options = dict(how or {})
    if name is not None:
        return await open_provider(name, env=env, **options), ""
    by_variable = [(MODEL_VARIABLE, env[MODEL_VARIABLE])] if env.get(MODEL_VARIABLE) else []
    why = ""
    for variable, usual in by_variable or [pair for pair in _KEYS if env.get(pair[0])]:
        try:
            return await open_provider(usual, env=env, **options), ""
        except ProviderError as error:
            why = why or f"{variable} is set, but {error}"
    if why:
        return None, why
    found = await find_local()
    if found is None or not found.models:
        return None, ""
    try:
        return await open_provider("local", env=env, **options), ""
    except ProviderError as error:
        return None, f"A model server runs at {found.base_url}, but {error}"
