"""Stands for `python`: `tests/warm.py` makes a program of it, which has a warm process run what it is told.

It hands its streams over, ends as that process does, and takes it with it. It imports next to nothing.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress

folder, name = os.path.split(sys.argv[0])
if name == "python" and sys.argv[1].startswith("-") and sys.argv[1] not in {"-m", "-c", "-W", "-P"}:
    # A start without all that `site` brings is no work that could be saved.
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
connection.connect(f"{folder}/socket")
order = {
    "words": sys.argv[1:],
    "environment": dict(os.environ),
    "folder": os.getcwd(),  # noqa: PTH109 -- pathlib takes longer than all the rest
    "kind": "python" if name == "python" else "program",
    "interpreter": f"{folder}/python",
    "terminal": False,
}
passed_on = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
socket.send_fds(connection, [json.dumps(order).encode()], (0, 1, 2))
# The other ends of the streams are to see when the program closes them.
for number in range(3):
    os.close(number)
pid = int(connection.recv(32))


def pass_on(number: int, _: object) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


for sign in passed_on:
    if signal.getsignal(sign) != signal.SIG_IGN:
        signal.signal(sign, pass_on)
signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
status = os.waitstatus_to_exitcode(int(connection.recv(32) or b"9"))
if status < 0:
    if -status in passed_on:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
