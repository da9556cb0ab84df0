"""The model: a script that needs no network, or the real model that `DRAGOMAN_MODEL` names."""

import os
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
    """Read the file, try to write it, and report the outcome."""
    results = [message for message in request.messages if message.role == "tool"]
    match results:
        case []:
            return Say(calls=[("mcp_files_read_text_file", {"path": "notes.md"})])
        case [read] if read.is_error:
            return Say(text=f"I cannot go on: {read.text}")
        case [read]:
            changed = read.text.replace("Mondays", "Tuesdays")
            return Say(calls=[("mcp_files_write_file", {"path": "notes.md", "content": changed})])
        case [read, wrote, *_]:
            done = "I may not change it." if wrote.is_error else "It is changed."
            return Say(text=f"{read.text.strip()} {done}")
        case _:
            return Say(text="I have nothing to say.")
