"""Makes batches for training, from any dataset."""
