"""Runs: what the functions that write whole datasets share: a log, a result, and advice on options."""
