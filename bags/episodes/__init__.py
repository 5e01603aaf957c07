"""Episodes: datapoints that are written item by item, while they happen, and kept after a kill."""
