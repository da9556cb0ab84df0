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
    """Return the next message, depending on the results so far."""
    results = [message.text for message in request.messages if message.role == "tool"]
    for message in request.messages:
        if message.is_error:
            return Say(text=f"I cannot go on: {message.text}")
    match request.messages[-1].role, results:
        case "user", []:
            zones = {"source_timezone": "Asia/Shanghai", "target_timezone": "Africa/Nairobi"}
            return Say(calls=[("convert_time", {**zones, "time": "09:00"})])
        case "tool", [converted]:
            return Say(text=f"It is {there(converted)}.")
        case "user", _:
            return Say(calls=[("read_text_file", {"path": "notes.md"})])
        case _, [converted, notes, *_]:
            return Say(text=f"At {clock(notes)} in Shanghai, which is {there(converted)} in Nairobi.")
        case _:
            return Say(text="I have nothing to say.")


def there(converted: str) -> str:
    """Return the time in the target zone, which is the second one in the result."""
    return clock(converted.partition('"target"')[2] or converted)


def clock(text: str) -> str:
    """Return the first time of day in a text."""
    found = re.search(r"\d\d:\d\d", text)
    if found is None:
        msg = f"the script finds no time in an answer: {text}"
        raise DragomanError(msg)
    return found[0]
