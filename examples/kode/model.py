"""The model: a script that needs no network, or the real model that `DRAGOMAN_MODEL` names."""

import os
import re
import sys

from dragoman import DragomanError
from dragoman.agent import ModelRequest, Provider, Say, ScriptedProvider, open_provider


async def model() -> Provider:
    """Return the model that `DRAGOMAN_MODEL` names, such as `openai:gpt-5-mini`; without it, the script."""
    name = os.environ.get("DRAGOMAN_MODEL", "").strip()
    if not name:
        return ScriptedProvider(script)
    try:
        return await open_provider(name)
    except DragomanError as error:
        print(f"DRAGOMAN_MODEL={name}: {error}", file=sys.stderr)
        sys.exit(2)


def script(request: ModelRequest) -> Say:
    """Call the tool that reads files, by its alias; then answer with the content."""
    last = request.messages[-1]
    if last.role != "tool":
        offered = [tool["function"]["name"] for tool in request.tools]
        reads = next((name for name in offered if name.endswith("read_text_file")), "read_text_file")
        return Say(calls=[(reads, {"path": "notes.md"})])
    if last.is_error:
        return Say(text=f"I cannot go on: {last.text}")
    found = re.search(r"port (\d+)", last.text)
    return Say(text=f"On {found[0]}." if found else "It does not say.")
