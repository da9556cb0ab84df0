"""Install the real MCP servers that the tests use, and the type checker, in `.cache/`.

Each PyPI server has its own environment from `requirements/servers/NAME.txt`; `npm ci` installs the npm
packages from lock files. Files that a server would create at its first call are created here, so that no test
waits for them. Uses only the standard library. Existing installations are kept if they are up to date.

Usage: python scripts/install_servers.py [NAME …]   (without a name, all that `make test` needs)
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

from environment import (
    ROOT,
    InstallError,
    fingerprint,
    install_each,
    install_locked,
    is_current,
    python_in,
    run_quietly,
    write_stamp,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CACHE = ROOT / ".cache"
NPM_FOLDERS = {
    "npm-servers": ROOT / "tests/real/npm",
    "conformance": ROOT / "tests/real/conformance",
    "pyright": ROOT / "requirements/pyright",
    "foreign-clients": ROOT / "tests/prove/clients",
    "axe": ROOT / "tests/prove/axe",
}
BY_NAME = {"axe", "foreign-clients", "fastmcp-tasks"}
"""Only for proofs, which install them: not part of all."""
PREPARATIONS = {
    # Without an index in its data folder, the server builds one in the temporary folder at the first call.
    # That takes 10 to 25 seconds, longer than the time-out of a call.
    "china-law-mcp": (
        "from china_law_mcp import retrieval;"
        "retrieval.build_index(out_path=retrieval.PKG_DIR / 'data' / 'bm25.pkl')"
    ),
}
"""Python code to run in a server's environment after the installation."""


def install_python_server(lock: Path) -> bool:
    """Install one PyPI server; return whether there was anything to do."""
    environment = CACHE / "servers" / lock.stem
    installs = install_locked(environment, lock)
    return prepare(environment, fingerprint(lock)) or installs


def prepare(environment: Path, stamp: str) -> bool:
    """Run the preparation of a server, if it has one; return whether there was anything to do."""
    preparation = PREPARATIONS.get(environment.name)
    if preparation is None or is_current(environment, "prepared", f"{stamp} {preparation}"):
        return False
    print(f"  {environment.name}: preparing …", flush=True)
    # The server's libraries leave files in the temporary folder: give them one that is removed.
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python_in(environment)), "-c", preparation]
        run_quietly(command, env=os.environ | {"TMPDIR": folder})
    write_stamp(environment, "prepared", f"{stamp} {preparation}")
    return True


def install_npm_folder(name: str, source: Path) -> bool:
    """Install one npm lock file; return whether there was anything to do."""
    target = CACHE / name
    stamp = fingerprint(source / "package.json", source / "package-lock.json")
    stamp_file = target / ".lock-stamp"
    if stamp_file.is_file() and stamp_file.read_text("utf-8") == stamp:
        return False
    npm = shutil.which("npm")
    if npm is None:
        msg = "`npm` is not on PATH: install Node.js (with npm), which the tests need for real servers"
        raise InstallError(msg)
    print(f"  {name}: installing …", flush=True)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("node_modules"))
    run_quietly([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=target)
    write_stamp(target, "lock", stamp)
    return True


def steps() -> dict[str, Callable[[], bool]]:
    """Return every installation by its name."""
    locks = sorted((ROOT / "requirements" / "servers").glob("*.txt"))
    python = {lock.stem: lambda lock=lock: install_python_server(lock) for lock in locks}
    npm = {name: lambda name=name, at=at: install_npm_folder(name, at) for name, at in NPM_FOLDERS.items()}
    return npm | python


def main(names: list[str]) -> int:
    """Install the named servers, or all that the tests need, and print progress."""
    known = steps()
    return install_each(known, names or [name for name in known if name not in BY_NAME])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
