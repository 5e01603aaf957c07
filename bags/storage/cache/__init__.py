"""A local cache of remote files."""
