"""The pool of workers of the library: tasks in, results out, done by threads or processes.

pool        `WorkerPool`: submits tasks, and yields results in order or as they are done
outcome     a task with its result or error
processes   workers that are processes: how they start, get tasks, die and are replaced
signals     Ctrl-C while workers start and end
"""
