"""Parquet, Arrow, CSV and JSONL files."""
