"""The names of Säckli's module for Beam: `from bags.beam import sacklio`."""

from bags.beam.records import ReadFromBag as ReadFromSackli
from bags.beam.records import WriteToBag as WriteToSackli

__all__ = ['ReadFromSackli', 'WriteToSackli']
