"""Write `tools/search/intents.int8`, the vectors of `intents.txt`; a test fails until it was run.

    .venv/bin/python scripts/encode_intents.py

Each row is a vector in 8 bits, scaled to its largest number: first those of the intents, then those of all
sentences, in the order of the file.
"""

from __future__ import annotations

import numpy as np

from dragoman.tools.search import intents, vectors

SLICE = 32


def encoded() -> bytes:
    """Return the content of the file."""
    pairs = intents.read()
    texts = [means for means, _ in pairs] + [one for _, said in pairs for one in said]
    # Similar lengths in one slice waste the least.
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    rows = np.zeros((len(texts), vectors.SIZE), np.float32)
    for at in range(0, len(order), SLICE):
        some = order[at : at + SLICE]
        rows[some] = vectors.encoder().encode([texts[one] for one in some])
    return np.rint(rows / abs(rows).max(1, keepdims=True) * 127).astype(np.int8).tobytes()


if __name__ == "__main__":
    intents.VECTORS.write_bytes(encoded())
