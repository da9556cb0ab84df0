"""Dies at once, with something to say."""

import sys

print("license file missing", file=sys.stderr)
sys.exit(3)
