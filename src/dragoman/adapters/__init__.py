"""dragoman's tools for agent frameworks; each adapter needs its framework, and is imported by itself."""
