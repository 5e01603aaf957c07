"""Tests of the Hugging Face hub that need its package, which comes with datasets."""

from tests.interop.test_adopt_update import test_a_repository_of_a_hub_whose_branch_moves

__all__ = ['test_a_repository_of_a_hub_whose_branch_moves']
