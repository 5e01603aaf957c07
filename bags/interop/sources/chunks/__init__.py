"""Chunks of samples: MDS and LitData."""
