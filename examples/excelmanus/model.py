"""The model: a real one where its key is set, else one that follows a script and needs no network."""

import json
import os

from dragoman.agent import ModelRequest, Provider, Say, ScriptedProvider

BOOK = {"path": "sales.xlsx", "sheet": "Sheet1"}
ROWS = [["Month", "Sales"], ["January", 1200], ["February", 950], ["March", 1430], ["Total", "=SUM(B2:B4)"]]


def model() -> Provider | str:
    """Return what AgentEngine asks; `DRAGOMAN_MODEL` names another model of the same API."""
    for api, usual in (("openai", "gpt-5-mini"), ("anthropic", "claude-sonnet-4-5")):
        if os.environ.get(f"{api.upper()}_API_KEY"):
            return f"{api}:{os.environ.get('DRAGOMAN_MODEL', usual)}"
    return ScriptedProvider(script)


def script(request: ModelRequest) -> Say:
    """Say the next thing, by the results that there are."""
    results = [message.text for message in request.messages if message.role == "tool"]
    if request.messages[-1].is_error:
        return Say(text=f"I cannot go on: {results[-1]}")
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
    """Take the value out of what the server read."""
    return json.loads(read)["values"][0][0]
