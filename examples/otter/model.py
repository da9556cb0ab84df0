"""The model: a real one where its key is set, else one that follows a script and needs no network."""

import json
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
    """Say the next thing, by the results that there are."""
    results = [message.text for message in request.messages if message.role == "tool"]
    last = request.messages[-1]
    if last.is_error:
        return Say(text=f"I cannot go on: {last.text}")
    match last.role, results:
        case "user", []:
            zones = {"source_timezone": "Asia/Shanghai", "target_timezone": "Africa/Nairobi"}
            return Say(calls=[("mcp_clock_convert_time", {**zones, "time": "09:00"})])
        case "tool", [converted]:
            return Say(text=f"It is {clock(json.loads(converted)['target']['datetime'])}.")
        case "user", _:
            return Say(calls=[("mcp_files_read_text_file", {"path": "notes.md"})])
        case _, [converted, notes, *_]:
            here = clock(json.loads(converted)["target"]["datetime"])
            return Say(text=f"At {clock(notes)} in Shanghai, which is {here} in Nairobi.")
        case _:
            return Say(text="I have nothing to say.")


def clock(text: str) -> str:
    """Find the first time of day."""
    found = re.search(r"\d\d:\d\d", text)
    return found[0] if found else "no time"
