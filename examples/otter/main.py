"""otter: one TOML file, the `/mcp` commands, and a server added while the program runs."""

import asyncio
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path

from model import model
from rich.console import Console

from dragoman import DragomanError, McpManager
from dragoman.agent import AgentEngine, AgentEvent, Noticed, ToolFinished
from dragoman.cli import slash
from dragoman.events import ConfigReloaded

FILES = """
[[mcp.servers]]
name = "files"
transport = "stdio"
command = "mcp-server-filesystem"
args = ["."]
allowed_tools = ["read_text_file"]
"""
console = Console(width=79, highlight=False)


async def main() -> bool:
    """Ask, change the configuration, ask again; return whether every call succeeded."""
    chosen = await model()
    with tempfile.TemporaryDirectory() as folder:
        project = shutil.copytree(Path(__file__).parent / "project", Path(folder), dirs_exist_ok=True)
        # The folder is temporary, so a cache would be useless.
        mcp = McpManager.from_config("otter", root=project, trust_project=True, cache=False)
        async with AgentEngine(chosen, mcp, start_wait=60) as agent:
            await command(mcp, "/mcp")
            await command(mcp, "/mcp tools")
            await ask(agent, "What is 09:00 in Shanghai here in Nairobi?")
            await change(mcp, project / "otter.toml", FILES)
            await command(mcp, "/mcp")
            await ask(agent, "And when does the meeting of notes.md begin?")
            await command(mcp, "/mcp reload")
            return not any(message.is_error for message in agent.messages)


async def command(mcp: McpManager, line: str) -> None:
    """Run a slash command and print its output."""
    print(f"\notter> {line}")
    console.print(await slash.run(mcp, line))


async def ask(agent: AgentEngine, question: str) -> None:
    """Print the calls for a question, and the answer."""
    print(f"\notter> {question}")
    answer = await agent.run(question, on_event=show)
    print(answer.text)


async def change(mcp: McpManager, file: Path, text: str) -> None:
    """Append text to the file, and wait until the change is in effect."""
    events = mcp.events()
    with file.open("a", encoding="utf-8") as end:
        end.write(text)
    print(f"\n({file.name} is changed.)")
    async for event in events:
        if isinstance(event, ConfigReloaded):
            return


def show(event: AgentEvent) -> None:
    """Print a finished call, or a notice to the model."""
    match event:
        case ToolFinished(tool=name, result=result):
            print(f"  {'✓' if result.success else '✗'} {name}  {result.error or ''}".rstrip())
        case Noticed(text=text):
            print(textwrap.fill(f"  ! {text}", 79, subsequent_indent="    "))
        case _:
            pass


if __name__ == "__main__":
    try:
        sys.exit(0 if asyncio.run(main()) else 1)
    except DragomanError as error:
        sys.exit(f"{error}")
