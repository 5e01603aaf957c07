"""Runs: what functions over whole datasets share: a log, a result, progress, and advice on options."""
