"""RRClaw: `connect_all`, `tools`, `shutdown`, with `allowed_tools` and a policy."""

import asyncio
import logging
import shutil
import tempfile
import textwrap
from pathlib import Path

from model import model

from dragoman import McpManager
from dragoman.agent import AgentEngine, AgentEvent, Noticed, ToolFinished

POLICY = {
    "default": "deny",
    "rules": [
        {
            "action": "allow",
            "server": "files",
            "tool": "write_file",
            "arguments": {"path": {"path": "drafts/**"}},
        },
        {"action": "deny", "tool": "write_*", "reason": "only drafts may be written"},
        {"action": "allow", "server": "files"},
        {"action": "allow", "server": "clock"},
    ],
}
"""What RRClaw's own `SecurityPolicy` says, for every call, whatever the configuration lets through."""
QUESTION = "When are claws sharpened? See notes.md; then change it to Tuesdays."


async def main() -> None:
    """Connect, ask one question, and leave nothing behind."""
    # What the log says in long lines, the status and the results say too.
    logging.getLogger("dragoman").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder:
        project = shutil.copytree(Path(__file__).parent / "project", Path(folder), dirs_exist_ok=True)
        settings = McpManager.from_config("rrclaw", root=project, trust_project=True).settings
        mcp = await McpManager.connect_all(settings, cache=False, trust_project=True, policy=POLICY)
        try:
            await work(mcp)
        finally:
            await mcp.shutdown()
    print("\nAfter shutdown: " + ", ".join(f"{name} {one.state}" for name, one in mcp.status().items()))


async def work(mcp: McpManager) -> None:
    """Show what is there, and ask; a server that cannot be reached holds nobody up."""
    for status in mcp.status().values():
        say(f"{status.name:<6} {status.last_error or f'{status.state}, {status.tools} tools'}")
    print("\n" + "\n".join(f"  {tool.name}" for tool in mcp.tools()))
    async with AgentEngine(model(), mcp) as agent:
        print(f"\n{QUESTION}")
        answer = await agent.run(QUESTION, on_event=show)
        say(answer.text)


def show(event: AgentEvent) -> None:
    """Show a call that has ended, and what the model is told besides."""
    match event:
        case ToolFinished(tool=name, result=result):
            say(f"  {'✓' if result.success else '✗'} {name}  {result.error or ''}".rstrip())
        case Noticed(text=text):
            say(f"  ! {text}")
        case _:
            pass


def say(text: str) -> None:
    """Print in lines of a terminal's width."""
    print(textwrap.fill(text, 79, subsequent_indent="    "))


if __name__ == "__main__":
    asyncio.run(main())
