"""A local cache of remote files."""

__all__: list[str] = []
