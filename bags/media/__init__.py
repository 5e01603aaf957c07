"""Video and audio that are read by range: lazy values, decoders, clips."""
