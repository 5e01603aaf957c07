"""Streams: the elements of a field along time, and when they happen, however the field stores them."""
