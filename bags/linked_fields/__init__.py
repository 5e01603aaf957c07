"""Linked fields: opens the links of a field of a dataset folder, and writes them."""
