"""Checks of the headers of media: sizes, rates, durations and frames."""
