"""The names in the Beam module of bagz: `from bags.beam import bagzio`."""

from bags.beam.records import ReadFromBag as ReadFromBagz
from bags.beam.records import WriteToBag as WriteToBagz

__all__ = ['ReadFromBagz', 'WriteToBagz']
