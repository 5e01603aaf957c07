"""Batches for training, from any dataset."""

__all__: list[str] = []
