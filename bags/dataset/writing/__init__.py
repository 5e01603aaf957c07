"""Writing datasets: encoding, field writers, folders and shards, resuming."""
