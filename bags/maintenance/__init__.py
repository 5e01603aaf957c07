"""Checking, repairing and describing datasets; scaling values by what was found."""
