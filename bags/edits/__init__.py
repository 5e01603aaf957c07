"""Edits of datasets as views: other names and values, splits, duplicates and differences."""
