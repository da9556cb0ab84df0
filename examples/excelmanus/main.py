"""ExcelManus: an agent with a built-in tool and an MCP server edits a workbook."""

import asyncio
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path

from model import model

from dragoman import DragomanError, McpManager, ToolRegistry, tool
from dragoman.agent import AgentEngine, AgentEvent, Noticed, ToolFinished

QUESTION = """\
Put the sales of January (1200), February (950) and March (1430) into a new
sales.xlsx, let a formula add them up, and tell me the total and March's share."""


@tool
def share(part: float, total: float) -> str:
    """Work out which share of a total a part is, in per cent.

    Args:
        part: The part.
        total: What it is a part of.
    """
    return f"{part / total:.1%}"


async def main() -> bool:
    """Ask one question, print the calls and the answer, and return whether every call succeeded."""
    chosen = await model()
    registry = ToolRegistry()
    registry.register(share)
    with tempfile.TemporaryDirectory() as folder:
        project = shutil.copytree(Path(__file__).parent / "project", Path(folder), dirs_exist_ok=True)
        # Reads EXCELMANUS_MCP_CONFIG, else the project's mcp.json, else ~/.excelmanus/mcp.json.
        # The folder is temporary, so a cache would be useless.
        mcp = McpManager.from_config(
            "excelmanus", root=project, trust_project=True, registry=registry, cache=False
        )
        async with AgentEngine(chosen, mcp, start_wait=60) as agent:
            built_in = [tool.name for tool in registry if tool.source == "builtin"]
            print(f"{len(mcp.tools())} tools of {', '.join(mcp.status())}; built in: {', '.join(built_in)}")
            print(f"\n{QUESTION}\n")
            answer = await agent.run(QUESTION, on_event=show)
            print(f"\n{answer.text}")
        print(f"\nIn the project: {', '.join(contents(project))}")
    return not any(message.is_error for message in answer.messages)


def contents(folder: Path) -> list[str]:
    """Return the names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


def show(event: AgentEvent) -> None:
    """Print a finished call, or a notice to the model."""
    match event:
        case ToolFinished(tool=name, result=result):
            line = " ".join(f"{'✓' if result.success else '✗'} {name}  {result.text}".splitlines())
            print(f"  {line}" if len(line) < 78 else f"  {line[:76]}…")
        case Noticed(text=text):
            print(textwrap.fill(f"  ! {text}", 79, subsequent_indent="    "))
        case _:
            pass


if __name__ == "__main__":
    try:
        sys.exit(0 if asyncio.run(main()) else 1)
    except DragomanError as error:
        sys.exit(f"{error}")
