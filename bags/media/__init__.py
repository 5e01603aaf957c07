"""Video and audio read by range: lazy values, decoders, clips."""

__all__: list[str] = []
