"""From a dataset to batches.

loader             `bags.Loader`: an order that three numbers tell, divided over hosts, read ahead
permutation        a shuffled order that takes no memory (the orders are in `bags.samplers`)
steps              how an order is dealt out to hosts
recipe             how a batch is made
collate            sequences and arrays of different sizes as single arrays
pace               how many batches are made at a time
worker_threads     batches made ahead by threads,
worker_processes   or by processes
turns              or by the workers of other libraries
"""

__all__: list[str] = []
