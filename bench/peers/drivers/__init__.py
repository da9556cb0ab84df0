"""One script for each peer: started by path, in the peer's own environment, and driven over its pipes."""
