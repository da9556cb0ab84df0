"""One question to the agent, shown as it is worked on: each call as it ends, then the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markdown import Markdown
from rich.text import Text

from dragoman.agent.messages import Retrying
from dragoman.agent.steps import Noticed, StepStarted, ToolFinished, ToolProgressed, ToolStarted
from dragoman.cli.output import safe

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from dragoman.agent.engine import AgentEngine
    from dragoman.agent.steps import AgentEvent

SHOWN = 60
"""Characters of a call's arguments, and of the first line of its result."""


async def talk(agent: AgentEngine, question: str, console: Console) -> RenderableType:
    """Ask, show what happens meanwhile, and return the answer to be printed."""
    with console.status("thinking") as waiting:

        def show(event: AgentEvent) -> None:
            match event:
                case StepStarted():
                    waiting.update("thinking")
                case ToolStarted(tool=name, call=call):
                    waiting.update(Text(f"{safe(name)}({_short(call.raw)})"))
                case ToolProgressed(progress=progress, total=total):
                    share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
                    waiting.update(Text(share))
                case ToolFinished(tool=name, call=call, result=result):
                    mark = ("✓ ", "green") if result.success else ("✗ ", "red")
                    called = (f"{safe(name)}({_short(call.raw)})", "cyan")
                    told = f"  {_short(result.text)}  {result.duration:.1f} s"
                    console.print(Text.assemble(mark, called, (told, "dim")))
                case Noticed(text=text):
                    console.print(Text(f"! {safe(text)}", style="yellow"))
                case Retrying(reason=reason, pause=pause):
                    console.print(Text(f"! {safe(reason)}; again in {pause:.0f} s", style="yellow"))
                case _:
                    pass

        answer = await agent.run(question, on_event=show)
    return Markdown(safe(answer.text))


def _short(text: str) -> str:
    line = safe(" ".join(text.split()))
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
