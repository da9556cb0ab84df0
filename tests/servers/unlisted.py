"""Answers `tools/list` badly.

`refuse`: with an error; `malformed`: with one broken entry; `bare`: without schemas; `none`: not at all.
"""

import sys

from jsonrpc import RefusalError, serve, tool


def listing(_):
    if sys.argv[1] == "malformed":
        return {"tools": [tool("good"), {"name": "broken", "inputSchema": "not an object"}]}
    if sys.argv[1] == "bare":
        return {"tools": [{"name": "bare"}, {"name": "null", "inputSchema": None}]}
    raise RefusalError(-32603, "the index is locked")


serve({"tools/list": listing} if sys.argv[1] != "none" else {})
