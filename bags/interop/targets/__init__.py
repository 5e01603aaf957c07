"""Export: WebDataset tars, folders of files, Parquet files, and LeRobot datasets."""
