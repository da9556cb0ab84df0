"""Write the bill of materials of a release as CycloneDX JSON: what the lock file installs, with its hashes.

Usage: python scripts/sbom.py FILE
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from environment import complete

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "run.txt"
_PACKAGE = re.compile(r"^([a-z0-9._-]+)==([^ ;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(lock: str) -> list[dict[str, object]]:
    """Return every package of a lock file with its version and the hashes of its files."""
    found: list[dict[str, object]] = []
    hashes: list[dict[str, str]] = []
    for line in lock.splitlines():
        if package := _PACKAGE.match(line):
            name, version = package.groups()
            hashes = []
            found.append(
                {
                    "type": "library",
                    "name": name,
                    "version": version,
                    "purl": f"pkg:pypi/{name}@{version}",
                    "hashes": hashes,
                }
            )
        hashes += [{"alg": "SHA-256", "content": digest} for digest in _HASH.findall(line)]
    return found


def main(target: str) -> None:
    """Write the file."""
    version = re.search(r'VERSION = "([^"]+)"', (ROOT / "src/dragoman/version.py").read_text("utf-8"))
    if version is None:
        sys.exit("src/dragoman/version.py names no version")
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "dragoman", "version": version[1]}},
        "components": components(complete(LOCK)),
    }
    Path(target).write_text(json.dumps(bill, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
