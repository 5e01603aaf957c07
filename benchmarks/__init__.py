"""How fast bags is beside its peers: `python -m benchmarks`."""
