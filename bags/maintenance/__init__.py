"""Checking, repairing and describing datasets."""

__all__: list[str] = []
