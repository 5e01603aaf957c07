"""The package by itself: every name that `dir` lists is there, also without optional packages."""

import subprocess
import sys

import pytest

import bags

LOOK_AROUND = """
import importlib.abc, inspect, pydoc, rlcompleter, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in 'apache_beam av grain jax obstore PIL pyarrow ray torch'.split():
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)

sys.meta_path.insert(0, Missing())
import bags

members = dict(inspect.getmembers(bags))
assert members.keys() == set(dir(bags)), members.keys() ^ set(dir(bags))
assert members.keys() >= {*bags.__all__, 'grain', 'torch', 'types'}
assert dict(inspect.getmembers(bags.types)).keys() >= {*bags.types.__all__}
assert 'Damage' in pydoc.render_doc(bags.types)
assert 'bags.open(' in rlcompleter.Completer({'bags': bags}).attr_matches('bags.op')
assert 'Opens a dataset' in pydoc.render_doc(bags)
"""


def test_looking_around_without_optional_packages():
    subprocess.run([sys.executable, '-c', LOOK_AROUND], check=True)


@pytest.mark.parametrize(
    ('name', 'advice'),
    [
        ('load', 'bags.open'),
        ('Reader', 'bags.DatasetReader'),
        ('DataLoader', 'bags.Loader'),
        ('filter', 'dataset.filter'),
        ('Dataloader', 'bags.Loader'),
    ],
)
def test_names_of_other_libraries(name, advice):
    with pytest.raises(AttributeError, match=f'no attribute {name!r}; did you mean {advice}'):
        getattr(bags, name)
    assert not hasattr(bags, 'something_else_entirely')
