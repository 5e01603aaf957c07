"""Checks of numbers, texts, refs and checksums: no file of media is read."""
