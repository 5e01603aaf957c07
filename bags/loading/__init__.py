"""From a dataset to batches.

loader             `bags.Loader`: an order that three numbers tell, divided over hosts, read ahead
options            what it is told, checked
iterator           its batches, one after the other
state              where a run has come to, to go on from there
steps              how an order (they are in `bags.samplers`) is dealt out to hosts
recipe             how a batch is made
collate            sequences and arrays of different sizes as single arrays
pace               how many batches are made at a time
worker_threads     batches made ahead by threads,
worker_processes   or by processes,
worker_main        which do this,
handover           and give batches back by way of shared memory
interrupts         Ctrl-C while workers start and end
turns              batches for the workers of other libraries
"""

__all__: list[str] = []
