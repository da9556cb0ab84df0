"""Ignores the end of its input and SIGTERM: only a kill ends it."""

import signal
import time

from jsonrpc import serve, text, tool

signal.signal(signal.SIGTERM, signal.SIG_IGN)
serve({"tools/list": lambda _: {"tools": [tool("echo")]}, "tools/call": lambda *_: text("ok")})
while True:
    time.sleep(60)
