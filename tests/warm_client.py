"""Stands for a test server that a warm process runs: `python -S warm_client.py ADDRESS SCRIPT ARGUMENT…`.

It hands its streams over, ends as the script does, and takes the script with it. It imports next to nothing.
"""

import json
import os
import socket
import sys

address, *words = sys.argv[1:]
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
connection.connect(address)
order = {
    "words": words,
    "environment": dict(os.environ),
    "folder": os.getcwd(),  # noqa: PTH109 -- pathlib takes longer than all the rest
    "kind": "script",
    "terminal": False,
}
socket.send_fds(connection, [json.dumps(order).encode()], (0, 1, 2))
# The other ends of the streams are to see when the script closes them.
for number in range(3):
    os.close(number)
connection.recv(32)
status = os.waitstatus_to_exitcode(int(connection.recv(32) or b"9"))
if status < 0:
    os.kill(os.getpid(), -status)
os._exit(status)
