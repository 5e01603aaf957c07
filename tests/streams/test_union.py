"""Windows of several forms of a stream form one dataset."""

import numpy as np
import pytest

import bags
from tests.streams.forms import PICTURES, Recording, number_of, value_of

pytest.importorskip('av')


def windows_of(path, form, count):
    with bags.DatasetWriter(path, {'x': form}, metadata={'fields': {'x': {'rate': 30}}}) as writer:
        writer.append({'x': value_of(form, Recording(count, 30.0))})
    return bags.open(path).windows(every='x', x=bags.times(-1 / 30, 0.0))


@pytest.mark.parametrize('form', PICTURES[1:])
def test_windows_of_a_video_and_of_another_form(tmp_path, form):
    both = bags.concat(
        [windows_of(tmp_path / 'a', 'video', 9), windows_of(tmp_path / 'b', form, 5)], fields='union'
    )
    wanted = [[max(number - 1, 0), number] for number in [*range(9), *range(5)]]
    assert number_of(both.column('x')) == wanted
    assert number_of(both.batch([12, 3, 0])['x']) == [wanted[place] for place in (12, 3, 0)]
    assert number_of(both[10]['x']) == wanted[10]
    assert both.column('x_is_pad')[9].tolist() == [True, False]
    assert both.spec['x'] == 'array'
    batches = list(bags.Loader(both, 7, shuffle=False))
    assert [batch['x'].shape for batch in batches] == [(7, 2, 32, 48, 3)] * 2
    bags.copy(both, tmp_path / 'copy')
    assert number_of(np.stack(list(bags.open(tmp_path / 'copy').column('x')))) == wanted
