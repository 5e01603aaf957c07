"""Writing datasets: from inputs with many workers, from other datasets, from arrays."""
