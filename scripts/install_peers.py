"""Install the libraries that `python -m bench peers` compares, under `.cache/peers/`.

Each has its own environment from `requirements/peers/NAME.txt`, since their requirements conflict. dragoman
has one too, from `requirements/run.txt`, without the development tools. Uses only the standard library.
Existing environments are kept if they are up to date.

Usage: python scripts/install_peers.py [NAME …]   (all of them without a name)
"""

from __future__ import annotations

import sys
from functools import partial

from environment import (
    ROOT,
    create,
    fingerprint,
    install_each,
    install_lock,
    is_current,
    pip_install,
    write_stamp,
)

OURS = "dragoman"
LOCKS = {
    OURS: ROOT / "requirements" / "run.txt",
    **{lock.stem: lock for lock in sorted((ROOT / "requirements" / "peers").glob("*.txt"))},
}
TARGET = ROOT / ".cache" / "peers"


def install(name: str) -> bool:
    """Install one peer; return whether there was anything to do.

    Raises:
        InstallError: A step failed.
    """
    lock, environment = LOCKS[name], TARGET / name
    stamp = fingerprint(lock, *([ROOT / "pyproject.toml"] if name == OURS else []))
    if is_current(environment, "lock", stamp):
        return False
    create(environment)
    install_lock(environment, lock)
    if name == OURS:
        pip_install(environment, "--no-build-isolation", "--no-deps", "--no-index", "--editable", str(ROOT))
    write_stamp(environment, "lock", stamp)
    return True


def main(names: list[str]) -> int:
    """Install the named peers, or all, and print progress."""
    return install_each({name: partial(install, name) for name in LOCKS}, names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
