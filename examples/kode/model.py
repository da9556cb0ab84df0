"""The model: a real one where its key is set, else one that follows a script and needs no network."""

import os
import re

from dragoman.agent import ModelRequest, Provider, Say, ScriptedProvider


def model() -> Provider | str:
    """Return what AgentEngine asks; `DRAGOMAN_MODEL` names another model of the same API."""
    for api, usual in (("openai", "gpt-5-mini"), ("anthropic", "claude-sonnet-4-5")):
        if os.environ.get(f"{api.upper()}_API_KEY"):
            return f"{api}:{os.environ.get('DRAGOMAN_MODEL', usual)}"
    return ScriptedProvider(script)


def script(request: ModelRequest) -> Say:
    """Call the tool that reads files by the name it is offered under; then answer with what it read."""
    last = request.messages[-1]
    if last.role != "tool":
        offered = [tool["function"]["name"] for tool in request.tools]
        reads = next(name for name in offered if name.endswith("read_text_file"))
        return Say(calls=[(reads, {"path": "notes.md"})])
    found = re.search(r"port (\d+)", last.text)
    return Say(text=f"On {found[0]}." if found else f"I cannot say: {last.text}")
