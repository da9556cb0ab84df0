"""Benchmarks. Compare the ratios within one run: absolute figures depend on the machine."""
