"""Conditions on datapoints as text, which `Dataset.filter` takes."""
