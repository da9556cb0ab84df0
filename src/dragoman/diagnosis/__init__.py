"""Diagnose servers: stages, hints, packages, and reviews of what they offer."""
