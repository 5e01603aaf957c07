"""Windows over sequences, by steps or by time."""
