"""RRClaw: `connect_all`, `tools`, `shutdown`, with `allowed_tools` and a policy."""

import asyncio
import logging
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path

from model import model

from dragoman import CallDeniedError, DragomanError, McpManager
from dragoman.agent import AgentEngine, AgentEvent, Noticed, Provider, ToolFinished

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
"""The rules of RRClaw's own `SecurityPolicy`; they apply to every call, in addition to the configuration."""
QUESTION = "When are claws sharpened? See notes.md; then change it to Tuesdays."


async def main() -> bool:
    """Connect, ask one question, shut down, and return whether every allowed call succeeded."""
    chosen = await model()
    # Hide the log: the status and the results contain the same information.
    logging.getLogger("dragoman").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder:
        project = shutil.copytree(Path(__file__).parent / "project", Path(folder), dirs_exist_ok=True)
        settings = McpManager.from_config("rrclaw", root=project, trust_project=True).settings
        mcp = await McpManager.connect_all(settings, cache=False, trust_project=True, policy=POLICY)
        try:
            went_well = await work(mcp, chosen)
        finally:
            await mcp.shutdown()
    print("\nAfter shutdown: " + ", ".join(f"{name} {one.state}" for name, one in mcp.status().items()))
    return went_well


async def work(mcp: McpManager, chosen: Provider) -> bool:
    """Print the servers and tools, and ask; an unreachable server does not affect the others."""
    failed: list[str] = []

    def show(event: AgentEvent) -> None:
        match event:
            case ToolFinished(tool=name, result=result):
                say(f"  {'✓' if result.success else '✗'} {name}  {result.error or ''}".rstrip())
                # What the policy denies is as it should be.
                if not result.success and not isinstance(result.exception, CallDeniedError):
                    failed.append(name)
            case Noticed(text=text):
                say(f"  ! {text}")
            case _:
                pass

    for status in mcp.status().values():
        say(f"{status.name:<6} {status.last_error or f'{status.state}, {status.tools} tools'}")
    print("\n" + "\n".join(f"  {tool.name}" for tool in mcp.tools()))
    async with AgentEngine(chosen, mcp) as agent:
        print(f"\n{QUESTION}")
        answer = await agent.run(QUESTION, on_event=show)
        say(answer.text)
    return not failed


def say(text: str) -> None:
    """Print text, wrapped to a narrow terminal; Chinese characters take two columns."""
    print(textwrap.fill(text, 75, subsequent_indent="    "))


if __name__ == "__main__":
    try:
        sys.exit(0 if asyncio.run(main()) else 1)
    except DragomanError as error:
        sys.exit(f"{error}")
