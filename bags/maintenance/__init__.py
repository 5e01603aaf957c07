"""Checks, repairs and describes datasets; normalizes values by their statistics."""
