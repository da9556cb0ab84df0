"""`dragoman chat`: a session with a model and the configured servers; without one, a console for tools."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from dragoman.cli.options import Options, common_options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dragoman.agent.messages import Provider

MODEL_VARIABLE = "DRAGOMAN_MODEL"
# The key that says which API is meant, and the model that is asked where none is named.
_KEYS = (("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-4-5"), ("OPENAI_API_KEY", "openai:gpt-5-mini"))


@click.command()
@common_options
@click.option("--model", metavar="NAME", help=f"Such as openai:gpt-5, anthropic:…, local ({MODEL_VARIABLE}).")
@click.option(
    "--transcript",
    type=click.Path(dir_okay=False),
    help="A file of JSON Lines that the conversation is kept in, and goes on from.",
)
@click.pass_obj
def chat(options: Options, model: str | None, transcript: str | None) -> None:
    """Talk to a model that can use the configured servers' tools; slash commands work beside it.

    Without --model: the API whose key is set, else a model server on this machine (Ollama, llama.cpp, LM
    Studio). If there is none, the session is a console for tools.
    """
    asyncio.run(_chat(options, model, transcript))


async def _chat(options: Options, model: str | None, transcript: str | Path | None) -> None:
    from rich.console import Console

    from dragoman.agent.engine import AgentEngine
    from dragoman.cli.session import Session
    from dragoman.cli.tables import status_table
    from dragoman.manager import McpManager

    options.quiet_logs()
    terminal = Console()
    provider = await choose_model(model, os.environ)
    async with McpManager(options.load()) as mcp:
        with terminal.status("connecting"):
            await mcp.wait_ready(timeout=10)
        terminal.print(status_table(mcp.status().values()))
        if provider is None:
            terminal.print(
                "\n[dim]No model: set OPENAI_API_KEY or ANTHROPIC_API_KEY, start Ollama, or name one with"
                " --model. Until then this is a console for tools:[/] /help [dim]lists the commands.[/]"
            )
            await Session(mcp, terminal).run()
            return
        terminal.print(f"\n[dim]Talking to[/] {provider.model}[dim];[/] /help [dim]lists the commands.[/]")
        async with AgentEngine(provider, mcp, transcript=transcript) as agent:
            await Session(mcp, terminal, agent).run()


async def choose_model(name: str | None, env: Mapping[str, str]) -> Provider | None:
    """Open the model that is named, or that the environment has a key for, or that runs on this machine.

    Raises:
        ProviderError: A model was named, and cannot be used.
    """
    from dragoman.agent.local import find_local
    from dragoman.agent.providers import open_provider

    name = name or env.get(MODEL_VARIABLE) or next((usual for key, usual in _KEYS if env.get(key)), None)
    if name is not None:
        return await open_provider(name, env=env)
    found = await find_local()
    return await open_provider("local", env=env) if found is not None and found.models else None
