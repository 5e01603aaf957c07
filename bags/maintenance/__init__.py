"""Checking, repairing and describing datasets."""
