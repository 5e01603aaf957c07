"""How values become records and records values: a plain pair of functions for each format.

`encode_x(value, *args)` returns a record: bytes, a buffer, or an open file. `decode_x(data, *args)` takes
bytes or a memoryview and returns a value that owns its memory. Both raise ValueError for damaged data or a
value outside the format's range, and TypeError for a value of the wrong type. `bags.dataset.registry` lists
them.
"""

__all__: list[str] = []
