"""Turn a server's answer into a result: rendered, within a budget, with its provenance."""
