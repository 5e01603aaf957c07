"""Measures bags beside its peers: `python -m benchmarks`."""
