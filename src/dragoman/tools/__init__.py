"""What an agent sees of its servers: tools under stable names, and results as text, data and sources."""
