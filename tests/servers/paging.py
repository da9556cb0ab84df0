"""Lists its tools in pages: `paging.py 3` gives three, `repeat` and `endless` never come to an end."""

import sys

from jsonrpc import serve, text, tool

mode = sys.argv[1]


def listing(params):
    page = int(params.get("cursor") or 0)
    if mode == "repeat":
        return {"tools": [tool(f"t{page}")], "nextCursor": "1"}
    if mode == "endless" or page + 1 < int(mode):
        return {"tools": [tool(f"t{page}")], "nextCursor": str(page + 1)}
    return {"tools": [tool(f"t{page}")]}


serve({"tools/list": listing, "tools/call": lambda *_: text("ok")})
