"""Files of other kinds in and out: folders of media and WebDataset tars, their bytes untouched.

extensions   which type the files of an extension have
grouping     which files of a folder are one datapoint
folders      a folder of files as a source of datapoints
tars         WebDataset tars as a source of datapoints
sources      what a source is, and the spec that is inferred from it
converting   `bags.convert`: from a source to a dataset
exporting    `bags.export`: from a dataset to tars or files
targets      the tars and the folder of files that are written
"""

from bags.intake.converting import Converted, convert
from bags.intake.exporting import export
from bags.intake.sources import Source, open_source

__all__ = ['Converted', 'Source', 'convert', 'export', 'open_source']
