"""Lists its tools in pages: `paging.py 3` gives three, `repeat` and `endless` never come to an end.

With `empty` every second page, from the first on, has no tools.
"""

import sys

from jsonrpc import serve, text, tool

mode = sys.argv[1]


def listing(params):
    page = int(params.get("cursor") or 0)
    tools = [] if "empty" in sys.argv and page % 2 == 0 else [tool(f"t{page}")]
    if mode == "repeat":
        return {"tools": tools, "nextCursor": "1"}
    if mode == "endless" or page + 1 < int(mode):
        return {"tools": tools, "nextCursor": str(page + 1)}
    return {"tools": tools}


serve({"tools/list": listing, "tools/call": lambda *_: text("ok")})
