"""Windows over sequences, by steps or by time, and the clips of a datapoint as one video."""
