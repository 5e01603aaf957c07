"""Apache Beam: bags and datasets as sources and sinks of pipelines that outgrow one machine.

records     `ReadFromBag`, `WriteToBag`: records of bags (also as `ReadFromBagz`, `WriteToBagz`)
datasets    `ReadDataset`, `WriteDataset`: datapoints
bagzio, sacklio  the module names of bagz and Säckli, for pipelines written for them
bundles     base classes: sources are split into bundles of about equal bytes, sinks join the outputs
"""

from bags.errors import MissingDependencyError

try:
    import apache_beam  # noqa: F401
except ImportError as exc:
    raise MissingDependencyError('apache-beam', 'beam') from exc

from bags.beam import bagzio, sacklio
from bags.beam.datasets import ReadDataset, WriteDataset
from bags.beam.records import ReadFromBag, ReadFromBagz, WriteToBag, WriteToBagz

__all__ = [
    'ReadDataset',
    'ReadFromBag',
    'ReadFromBagz',
    'WriteDataset',
    'WriteToBag',
    'WriteToBagz',
    'bagzio',
    'sacklio',
]
