"""`python -m bench [NAME …] [--OPTION …]`: run the named benchmarks, or all of them.

Only `peers` has options; its package documents them.
"""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = (
    *(
        "startup",
        "commands",
        "daemon",
        "gateway",
        "replicas",
        "calls",
        "transforms",
        "bulk",
        "fleet",
        "parts",
        "catalog",
        "tools",
        "agent",
        "context",
        "scale",
    ),
    "peers",
)


def main(arguments: list[str]) -> int:
    """Run the named benchmarks."""
    at = next((at for at, argument in enumerate(arguments) if argument.startswith("--")), len(arguments))
    names, options = arguments[:at], arguments[at:]
    unknown = [name for name in names if name not in NAMES]
    if unknown or (options and names != ["peers"]):
        named = f"unknown benchmark: {', '.join(unknown)}" if unknown else "only `peers` takes options"
        print(f"{named}; available: {', '.join(NAMES)}")
        return 2
    failed = 0
    for name in names or NAMES:
        print(f"\n── {name}")
        module = import_module(f"bench.{name}")
        failed |= (module.main(options) if name == "peers" else module.main()) or 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
