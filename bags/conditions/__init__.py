"""Conditions on datapoints as text, for `Dataset.filter`."""
