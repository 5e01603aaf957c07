"""Keys: the index of a field, to look up the datapoints of a key."""
