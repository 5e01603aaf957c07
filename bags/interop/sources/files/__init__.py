"""Files as datapoints: folders, WebDataset tars, zips, and tables of metadata beside them."""
