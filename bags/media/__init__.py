"""Video and audio read by range: lazy values, decoders, clips."""
