"""The names in the Beam module of Säckli: `from bags.beam import sacklio`."""

from bags.beam.records import ReadFromBag as ReadFromSackli
from bags.beam.records import WriteToBag as WriteToSackli

__all__ = ['ReadFromSackli', 'WriteToSackli']
