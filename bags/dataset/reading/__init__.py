"""Reading rows: what to read, which records a row has, and columns of values."""
