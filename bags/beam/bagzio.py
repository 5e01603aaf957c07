"""The names of bagz's module for Beam: `from bags.beam import bagzio`."""

from bags.beam.records import ReadFromBag as ReadFromBagz
from bags.beam.records import WriteToBag as WriteToBagz

__all__ = ['ReadFromBagz', 'WriteToBagz']
