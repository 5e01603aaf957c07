"""Fixtures: a sharded dataset, and a remote store for paths that begin with `far:`."""

from tests.dataset.remote_dataset import dataset, far

__all__ = ['dataset', 'far']
