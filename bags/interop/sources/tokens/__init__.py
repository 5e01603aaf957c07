"""Tokens of language models: one file of all documents, one after the other."""
