"""Tools for agent frameworks. Each adapter needs its framework, so import only the one you use."""
