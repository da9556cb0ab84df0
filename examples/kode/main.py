"""kode: a global and a project file, merged, and tools named `server:tool`."""

import asyncio
import sys
import textwrap
from pathlib import Path

from model import model

from dragoman import DragomanError, McpManager
from dragoman.agent import AgentEngine, AgentEvent, Noticed, ToolFinished
from dragoman.config.load import load

HERE = Path(__file__).parent
FILES = {"user": "~/.kode.json", "project": "./.kode.json"}
QUESTION = "Which port does kode listen on? See notes.md."


async def main() -> bool:
    """Print the merged servers and the tools, ask one question; return whether its calls succeeded."""
    chosen = await model()
    # The example has its own home folder; an application uses `McpManager.from_config("kode")`.
    settings = load("kode", root=HERE / "project", home=HERE / "home")
    for spec in settings.servers:
        hidden = "".join(f", hides {FILES[one.scope]}" for one in spec.shadowed)
        print(f"{spec.name:<6} from {FILES[spec.origin.scope]}{hidden}")
    mcp = McpManager(settings, trust_project=True)
    async with AgentEngine(chosen, mcp, start_wait=60) as agent:
        await mcp.wait_ready(timeout=60)
        names(mcp)
        print(f"\n{QUESTION}")
        answer = await agent.run(QUESTION, on_event=show)
        print(answer.text)
        return not any(message.is_error for message in answer.messages)


def names(mcp: McpManager) -> None:
    """Print each tool's name and its aliases in two APIs."""
    openai, gemini = mcp.registry.export("openai"), mcp.registry.export("gemini")
    print(f"\n{'people':<26}{'OpenAI':<26}Gemini")
    for tool in mcp.tools():
        print(f"{tool.name:<26}{openai.aliases[tool.name]:<26}{gemini.aliases[tool.name]}")


def show(event: AgentEvent) -> None:
    """Print a finished call with its name and its alias, or a notice to the model."""
    match event:
        case ToolFinished(tool=name, call=call, result=result):
            print(f"  {'✓' if result.success else '✗'} {name}, which the model calls {call.name}")
            if result.error:
                print(textwrap.indent(result.error, "    "))
        case Noticed(text=text):
            print(textwrap.fill(f"  ! {text}", 79, subsequent_indent="    "))
        case _:
            pass


if __name__ == "__main__":
    try:
        sys.exit(0 if asyncio.run(main()) else 1)
    except DragomanError as error:
        sys.exit(f"{error}")
