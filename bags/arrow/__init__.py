"""Arrow: datasets as record batches and as pyarrow datasets, and the types of both."""
