"""Answers `tools/list` badly.

`refuse`: with an error; `malformed`: with one broken entry; `bare`: without schemas; `none`: not at all; `later`:
well at first and with errors after a call of `change`, until the file in the second argument exists.
"""

import sys
from pathlib import Path

from jsonrpc import RefusalError, initialize, notify, serve, text, tool

calls = []


def listing(_):
    if sys.argv[1] == "malformed":
        return {"tools": [tool("good"), {"name": "broken", "inputSchema": "not an object"}]}
    if sys.argv[1] == "bare":
        return {"tools": [{"name": "bare"}, {"name": "null", "inputSchema": None}]}
    if sys.argv[1] == "later" and (not calls or Path(sys.argv[2]).exists()):
        return {"tools": [tool("change")]}
    raise RefusalError(-32603, "the index is locked")


def call(_params, _id):
    calls.append(_params)
    notify("notifications/tools/list_changed")
    return text("changed")


def announcing(params):
    return initialize(params) | {"capabilities": {"tools": {"listChanged": True}}}


if sys.argv[1] == "later":
    serve({"initialize": announcing, "tools/list": listing, "tools/call": call})
serve({"tools/list": listing} if sys.argv[1] != "none" else {})
