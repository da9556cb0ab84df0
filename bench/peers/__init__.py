"""Compare dragoman with other clients: the same work, alternately in one run, each in its own environment.

`python -m bench peers` measures everything and writes `docs/performance.md` with its picture. A partial run
only prints figures: `--quick` is a smoke test, `--only PEER,…` and `--rows KIND,…` select peers and rows.
`--record FILE` saves the result, and `--page FILE` writes the page from a saved one.
"""

from __future__ import annotations


def main(arguments: list[str] | None = None) -> int:
    """Run with the command-line options."""
    from bench.peers.run import main as run

    return run(arguments or [])
