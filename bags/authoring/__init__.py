"""Datasets from inputs, from other datasets and from arrays.

writing       `bags.write`: many workers transform and encode, one process writes
inputs        what they are handed, and what is done
crew          the workers
rewrite       `bags.copy`: a view made real
chunking      how a copy is divided
copying       what is copied at a time
moving        records as runs, as they are held or made over
adding        fields from functions over batches
from_arrays   `bags.from_numpy`
provenance    what a dataset is made from, so that making it can be gone on with
"""

__all__: list[str] = []
