"""Checks: scores of the datapoints of a dataset, and findings where a score is above its bound."""
