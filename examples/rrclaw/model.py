"""The model: a real one where its key is set, else one that follows a script and needs no network."""

import os

from dragoman.agent import ModelRequest, Provider, Say, ScriptedProvider


def model() -> Provider | str:
    """Return what AgentEngine asks; `DRAGOMAN_MODEL` names another model of the same API."""
    for api, usual in (("openai", "gpt-5-mini"), ("anthropic", "claude-sonnet-4-5")):
        if os.environ.get(f"{api.upper()}_API_KEY"):
            return f"{api}:{os.environ.get('DRAGOMAN_MODEL', usual)}"
    return ScriptedProvider(script)


def script(request: ModelRequest) -> Say:
    """Read, try to write, and tell what came of it."""
    results = [message for message in request.messages if message.role == "tool"]
    match results:
        case []:
            return Say(calls=[("mcp_files_read_text_file", {"path": "notes.md"})])
        case [read]:
            changed = read.text.replace("Mondays", "Tuesdays")
            return Say(calls=[("mcp_files_write_file", {"path": "notes.md", "content": changed})])
        case [read, wrote, *_]:
            done = "I may not change it." if wrote.is_error else "It is changed."
            return Say(text=f"{read.text.strip()} {done}")
        case _:
            return Say(text="I have nothing to say.")
