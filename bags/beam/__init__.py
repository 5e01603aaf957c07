"""Apache Beam: bags and datasets as sources and sinks of pipelines that outgrow one machine.

records     `ReadFromBag`, `WriteToBag`: records of bags (also as `ReadFromBagz`, `WriteToBagz`)
datasets    `ReadDataset`, `WriteDataset`: datapoints
source      base of both sources, which splits them into bundles of about equal bytes
finalize    end of both sinks, which renames the outputs of bundles to consecutive numbers
"""

from bags.errors import MissingDependencyError

try:
    import apache_beam  # noqa: F401
except ImportError as exc:
    raise MissingDependencyError('apache-beam', 'beam') from exc

from bags.beam.datasets import ReadDataset, WriteDataset
from bags.beam.records import ReadFromBag, ReadFromBagz, WriteToBag, WriteToBagz

__all__ = ['ReadDataset', 'ReadFromBag', 'ReadFromBagz', 'WriteDataset', 'WriteToBag', 'WriteToBagz']
