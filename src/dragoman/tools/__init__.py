"""The tools of all servers under stable names, and their results as text, data and sources."""
