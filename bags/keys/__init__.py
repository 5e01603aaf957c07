"""Keys: the index of a field, which finds the datapoints of a key."""
