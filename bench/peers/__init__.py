"""dragoman beside its peers: the same work, in one run, in turns, each in an environment of its own.

`python -m bench peers` measures everything and writes `docs/performance.md` with its picture. Less than a
whole run prints figures and writes no page: `--quick` is a smoke run, `--only PEER,…` and `--rows KIND,…`
leave the rest out. `--record FILE` keeps the result, and `--page FILE` writes the page from a kept one.
"""

from __future__ import annotations


def main(arguments: list[str] | None = None) -> int:
    """Run, with what comes after the name of the measurement."""
    from bench.peers.run import main as run

    return run(arguments or [])
