"""Former names raise one line with the new name, from one table."""

import re

import numpy as np
import pytest

import bags
from bags.media.frames import Elements
from bags.other_names import OTHER_NAMES, option_advice
from bags.validation import with_advice

SPEC = {'id': 'int(8)', 'text': 'utf8'}
FORMER = [
    (lambda d: bags.open(d, links=True), 'links', 'trust_links'),
    (lambda d: bags.DatasetReader(d, links=True), 'links', 'trust_links'),
    (lambda d: bags.ShardedDatasetReader(d, links=True), 'links', 'trust_links'),
    (lambda d: bags.verify(d, links=True), 'links', 'trust_links'),
    (lambda d: bags.statistics(d, links=True), 'links', 'trust_links'),
    (lambda d: bags.create_index(d, 'x', links=True), 'links', 'trust_links'),
    (lambda d: bags.view(d, links=True), 'links', 'trust_links'),
    (lambda d: bags.lerobot.dataset(d, links=True), 'links', 'trust_links'),
    (lambda d: bags.DatasetWriter(d, SPEC, links=['text']), 'links', 'linked_fields'),
    (lambda d: bags.ShardedDatasetWriter(d, SPEC, links=['text']), 'links', 'linked_fields'),
    (lambda d: bags.write([], d, SPEC, links=['text']), 'links', 'linked_fields'),
    (lambda d: bags.from_numpy({}, d, links=['text']), 'links', 'linked_fields of bags.write'),
    (lambda d: bags.copy(d, d, links=['text']), 'links', 'dataset.save(path, link=(FIELD, …))'),
    (lambda d: bags.copy(d, d, link=True), 'link', 'dataset.save(path, link=…, relink=…)'),
    (lambda d: bags.copy(d, d, relink={'a': 'b'}), 'relink', 'dataset.save(path, link=…, relink=…)'),
    (lambda d: bags.open(d, replace=True), 'replace', 'bags.join([…], replace=…)'),
    (lambda d: bags.convert(d, d, links=['text']), 'links', 'link=(FIELD, …)'),
    (lambda d: bags.statistics(d, again=True), 'again', 'recompute'),
    (lambda d: bags.recover(d, values={'text': ''}), 'values', 'partial_values'),
    (lambda d: bags.card(dataset=d), 'dataset', 'path'),
    (lambda d: bags.lerobot.dataset(path=d), 'path', 'dataset'),
]


@pytest.mark.parametrize(('call', 'option', 'new'), FORMER)
def test_former_options_raise_with_the_new_name(tmp_path, call, option, new):
    with pytest.raises(TypeError, match=f"^unexpected option '{option}': use {re.escape(new)}$"):
        call(tmp_path / 'd')
    assert not (tmp_path / 'd').exists()


def test_advice_goes_by_the_function():
    for (owner, option), advice in OTHER_NAMES.items():
        assert OTHER_NAMES.get((owner, advice)) is None, f'the advice on {owner}: {option} is a former name'
    assert option_advice('open', 'links') == 'trust_links'
    assert option_advice('write', 'links') == 'linked_fields'
    assert option_advice('export', 'links') is None
    assert option_advice('export', 'num_workers') == 'workers'

    @with_advice
    def function(links, *, columns=None):
        return links, columns

    assert function(links=1, columns=2) == (1, 2)  # Names that this function has.
    with pytest.raises(TypeError, match=r'^unexpected option .num_workers.: use workers$'):
        function(1, num_workers=3)


def test_names_of_granular(tmp_path):
    bags.write([{'n': 1}], tmp_path / 'd', {'n': 'int'})
    with pytest.raises(TypeError, match=r"'parallel': use max_parallelism for concurrent requests"):
        bags.open(tmp_path / 'd', parallel=True)
    with (
        bags.open(tmp_path / 'd') as dataset,
        pytest.raises(AttributeError, match=r'dataset\.spec for the fields, or dataset\.lengths\(field\)'),
    ):
        dataset.available(0)


OLD_ATTRIBUTES = [
    (lambda: bags.Video(b''), 'timestamps', 'times'),
    (lambda: bags.Video(b''), 'fps', 'rate'),
    (lambda: bags.Video(b''), 'streams', 'tracks'),
    (lambda: bags.Audio(b''), 'streams', 'tracks'),
    (lambda: bags.Audio(b''), 'sample_rate', 'rate'),
    (lambda: Elements(np.empty(0), np.empty(0)), 'pixels', 'values'),
    (lambda: Elements(np.empty(0), np.empty(0)), 'timestamps', 'times'),
    (lambda: bags, 'ClipSequence', 'dataset.stream(index, field)'),
    (lambda: bags, 'AudioSequence', 'dataset.stream(index, field)'),
]


@pytest.mark.parametrize(('make', 'name', 'new'), OLD_ATTRIBUTES)
def test_former_attributes_raise_with_the_new_name(make, name, new):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; did you mean {re.escape(new)}\?$"):
        getattr(make(), name)


def test_former_options_of_media():
    for call in (lambda: bags.Video(b'', stream=1), lambda: bags.Audio(b'', stream=1)):
        with pytest.raises(TypeError, match=r"^unexpected option 'stream': use track$"):
            call()
    for value in (bags.Video(b''), bags.Audio(b'')):
        with pytest.raises(TypeError, match=r"'stream': use bags\.Video\(source, track=…\)"):
            value.options(stream=1)
    with pytest.raises(AttributeError, match=r"^'Video' object has no attribute 'nothing'$"):
        _ = bags.Video(b'').nothing
