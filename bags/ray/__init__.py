"""Ray Data: datasets as sources and sinks of Ray pipelines.

reading     `read`: a dataset as a `ray.data.Dataset`, read in blocks of about equal bytes
writing     `write`: a datasink, whose tasks each write shards
columns     conversion of values to the Arrow columns of Ray's blocks, and of rows to datapoints
"""

from bags.errors import MissingDependencyError

try:
    import ray.data  # noqa: F401
except ImportError as exc:
    raise MissingDependencyError('ray[data]', 'ray') from exc

from bags.ray.reading import read
from bags.ray.writing import write

__all__ = ['read', 'write']
