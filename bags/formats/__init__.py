"""Formats: pairs of plain functions that encode values to records, and decode records to values.

`encode_x(value, *args)` returns a record: bytes, a buffer, or an open file. `decode_x(data, *args)` accepts
bytes or a memoryview, and returns a value that owns its memory. Both raise ValueError for damaged data or a
value out of range, and TypeError for a value of the wrong type. `bags.dataset.format.registry` lists them.
"""
