"""Takes a call and is lost in it: it neither answers nor listens, and SIGTERM does not end it."""

import signal
import time

from jsonrpc import serve, tool

signal.signal(signal.SIGTERM, signal.SIG_IGN)
serve({"tools/list": lambda _: {"tools": [tool("slow")]}, "tools/call": lambda *_: time.sleep(600)})
