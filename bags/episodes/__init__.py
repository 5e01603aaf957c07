"""Episodes: datapoints that are written item by item as they are recorded, and survive a kill."""
