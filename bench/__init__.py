"""Measurements, each a ratio within one run: machines differ and are noisy, ratios travel."""
