"""Ray Data: datasets as sources and sinks of its pipelines.

reading     `read`: a dataset as a `ray.data.Dataset`, read in blocks of about equal bytes
writing     `write`: a datasink, whose tasks each write shards
columns     Arrow columns, which make up Ray's blocks, and the values of a row
"""

from bags.errors import MissingDependencyError

try:
    import ray.data  # noqa: F401
except ImportError as exc:
    raise MissingDependencyError('ray[data]', 'ray') from exc

from bags.ray.reading import read
from bags.ray.writing import write

__all__ = ['read', 'write']
