"""Formats: plain pairs of functions that turn values into records and records into values.

`encode_x(value, *args)` returns a record: bytes, a buffer, or an open file. `decode_x(data, *args)` accepts
bytes or a memoryview and returns a value that owns its memory. Both raise ValueError for damaged data or a
value out of range, and TypeError for a value of the wrong type. `bags.dataset.registry` lists them.
"""
