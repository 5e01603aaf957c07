"""The worker pool of the library: runs tasks in threads or processes, and returns their results.

pool        `WorkerPool`: submits tasks, and yields results in order
outcome     a task with its result or error
processes   worker processes: their start, tasks, and replacement when they die
signals     Ctrl-C while workers start and end
"""
