"""Batches for training, from any dataset."""
