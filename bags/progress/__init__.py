"""Progress of functions over whole datasets: messages, a log to resume from, and the result."""
