"""Datasets and values as text, and as HTML in notebooks."""
