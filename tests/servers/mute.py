"""Starts, and never answers anything."""

import sys

for _ in sys.stdin:
    pass
