"""Leaves a child behind when its input ends, as wrappers such as npx do."""

import subprocess
import sys

from jsonrpc import serve, text, tool

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
serve({"tools/list": lambda _: {"tools": [tool("child")]}, "tools/call": lambda *_: text(str(child.pid))})
