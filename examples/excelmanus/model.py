"""The model: a script that needs no network, or the real model that `DRAGOMAN_MODEL` names."""

import json
import os
import sys

from dragoman import DragomanError
from dragoman.agent import ModelRequest, Provider, Say, ScriptedProvider, open_provider

BOOK = {"path": "sales.xlsx", "sheet": "Sheet1"}
ROWS = [["Month", "Sales"], ["January", 1200], ["February", 950], ["March", 1430], ["Total", "=SUM(B2:B4)"]]


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
    match results:
        case []:
            return Say(calls=[("mcp_excel_create_workbook", {"path": BOOK["path"]})])
        case [_]:
            return Say(calls=[("mcp_excel_write_range", {**BOOK, "at": "A1", "rows": ROWS})])
        case [_, _]:
            return Say(calls=[("mcp_excel_read_range", {**BOOK, "range": "B5"})])
        case [_, _, read]:
            return Say(calls=[("share", {"part": 1430, "total": total(read)})])
        case [*_, read, share]:
            return Say(text=f"The formula in B5 gives {total(read)}. March's share of it is {share}.")
        case _:
            return Say(text="I have nothing to say.")


def total(read: str) -> int:
    """Return the total in the server's result."""
    try:
        return int(json.loads(read)["values"][0][0])
    except (ValueError, LookupError, TypeError):
        msg = f"the script finds no total in the answer of the server: {read}"
        raise DragomanError(msg) from None
