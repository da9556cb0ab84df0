"""`python -m bench [NAME …]`: run the measurements, all of them unless some are named."""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = ("startup", "calls", "fleet", "tools", "agent")


def main(arguments: list[str]) -> int:
    """Run what the arguments name."""
    unknown = [name for name in arguments if name not in NAMES]
    if unknown:
        print(f"no such measurement: {', '.join(unknown)}; there are: {', '.join(NAMES)}")
        return 2
    for name in arguments or NAMES:
        print(f"\n── {name}")
        import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
