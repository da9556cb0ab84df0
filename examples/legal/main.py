"""The legal assistant: servers from LEGAL_MCP_* variables, sources under every answer, and fallbacks."""

import asyncio
import logging
import os
import signal
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from model import model
from office import kept_article
from words import LANGUAGE, WORDS

from dragoman import DragomanError, McpManager
from dragoman.agent import AgentEngine, AgentEvent, Noticed, ToolFinished
from dragoman.events import StateChanged

# Chinese characters take two columns each, and few of them are in one line.
WIDTH = 70


async def main() -> bool:
    """Ask five questions, two of them during an outage; return whether every call succeeded."""
    chosen = await model()
    # Hide the log: the notices to the model contain the same information.
    logging.getLogger("dragoman").addHandler(logging.NullHandler())
    found = McpManager.from_config("legal", trust_project=True).settings
    mcp = McpManager(found.replace(language=LANGUAGE), trust_project=True)
    mcp.registry.register(kept_article)
    print(WORDS.starting.format(*(one.name for one in found.servers)), flush=True)
    async with AgentEngine(chosen, mcp, start_wait=60) as agent:
        await get_ready(mcp)
        for question in WORDS.questions[:3]:
            await ask(agent, question)
        async with outage(mcp, "legal"):
            for question in WORDS.questions[3:]:
                await ask(agent, question)
        print("\n" + WORDS.back.format(mcp.status()["legal"].state))
        return not any(message.is_error for message in agent.messages)


async def get_ready(mcp: McpManager) -> None:
    """Wait for the servers, and for the laws that `legal` loads at its first call."""
    ready = await mcp.wait_ready(timeout=60)
    for status in mcp.status().values():
        how = status.last_error or f"{status.server_name}, {WORDS.tools.format(status.tools)}"
        say(f"{status.name}: {status.state}, {how}")
    if not ready:
        msg = "a server did not start"
        raise DragomanError(msg, hint="`make example NAME=legal` installs what is missing")
    print(WORDS.loading, flush=True)
    # After a plain `pip install`, the server has no search index and builds one now.
    law = {"law": "民法典", "article_no": "1"}
    (await mcp.call("mcp_legal_get_article", law, timeout=180)).raise_for_error()


async def ask(agent: AgentEngine, question: str) -> None:
    """Print the answer to a question and its sources, even if the model does not name them."""
    sources: dict[str, None] = {}

    def show(event: AgentEvent) -> None:
        match event:
            case ToolFinished(tool=name, result=result):
                answered = result.text.partition("\n")[0] if "dragoman/fallback" in result.meta else ""
                say(f"  {'✓' if result.success else '✗'} {name}  {result.error or answered}".rstrip())
                for one in result.provenance.sources if result.provenance else ():
                    dated = WORDS.updated.format(one.updated) if one.updated else WORDS.undated
                    sources[f"{one.title} {one.locator}".strip() + dated] = None
            case Noticed(text=text):
                say(f"  ! {text}")
            case _:
                pass

    print(f"\n{question}")
    answer = await agent.run(question, on_event=show)
    for line in answer.text.splitlines():
        print(textwrap.fill(line, WIDTH))
    for source in sources:
        say(f"  {WORDS.source.format(source)}")


def say(text: str) -> None:
    """Print text, wrapped to the width of a terminal."""
    print(textwrap.fill(text, WIDTH, subsequent_indent="    "))


@asynccontextmanager
async def outage(mcp: McpManager, server: str) -> AsyncGenerator[None]:
    """Kill a server, and prevent its restart until the end by hiding its program."""
    pid = mcp.status()[server].pid
    if pid is None:
        msg = f"the server `{server}` is not running, so it cannot be killed"
        raise DragomanError(msg)
    print(f"\n{WORDS.killed.format(server)}")
    events, path = mcp.events(), os.environ["PATH"]
    os.environ["PATH"] = os.curdir
    os.kill(pid, signal.SIGKILL)
    async for event in events:
        if isinstance(event, StateChanged) and event.server == server:
            break
    try:
        yield
    finally:
        os.environ["PATH"] = path
        await mcp.restart(server)


if __name__ == "__main__":
    try:
        sys.exit(0 if asyncio.run(main()) else 1)
    except DragomanError as error:
        sys.exit(f"{error}")
