"""Columns of a batch as single arrays: padded, stacked or packed, with masks. No I/O."""
