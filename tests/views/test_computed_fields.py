"""New fields of a copy: media that a function returns unchanged keep their bytes."""

import numpy as np
import pytest

import bags

SPEC = {
    'id': 'int(8)', 'jpg': 'jpeg', 'frames': 'jpeg[]?', 'sound': 'flac', 'clip': 'mp4', 'film': 'video',
    'compact': 'opus',
}  # fmt: skip


@pytest.fixture(scope='module')
def source(tmp_path_factory):
    pytest.importorskip('av')
    path = tmp_path_factory.mktemp('computed') / 'source'
    chance = np.random.default_rng(0)
    with bags.DatasetWriter(path, SPEC) as writer:
        for index in range(6):
            frames = chance.integers(0, 255, (4, 32, 48, 3), np.uint8)
            sound = chance.integers(-3000, 3000, (960, 1)).astype(np.int16)
            writer.append(
                {
                    'id': index,
                    'jpg': frames[0],
                    'frames': None if index == 2 else [*frames],
                    'sound': (sound, 8000),
                    'clip': frames,
                    'film': frames,
                    'compact': (sound, 48000),
                }
            )
    with bags.open(path) as source:
        yield source


def same(column, name):
    return lambda batch: column(batch[name])


@pytest.mark.parametrize('form', [list, lambda column: column])
@pytest.mark.parametrize(
    ('name', 'field_type'),
    [(name, text) for name, text in SPEC.items() if name != 'id'] + [('jpg', 'jpg'), ('jpg', 'jpeg')],
)
def test_a_moved_field_keeps_its_bytes(source, tmp_path, name, field_type, form):
    bags.copy(source, tmp_path / 'copy', fields=['id'], add={'new': (field_type, same(form, name))})
    with bags.open(tmp_path / 'copy', raw=True) as copy, bags.open(source.path, raw=True) as raw:
        assert copy.column('new') == raw.column(name)


def changed(batch):
    """Returns images of which one is another, one was changed in place, and two were exchanged."""
    images = list(batch['jpg'])
    images[1] = 255 - images[1]
    images[2][:] = 0
    images[3], images[4] = images[4], images[3]
    return images


def test_what_a_function_changes_is_encoded(source, tmp_path):
    bags.copy(source, tmp_path / 'copy', add={'new': ('jpeg', changed)})
    with bags.open(tmp_path / 'copy') as copy:
        records, expected = list(copy.records('new')), list(source.records('jpg'))
        assert [record in expected for record in records] == [True, False, False, False, False, True]
        assert copy[2]['new'].max() < 9
        assert abs(copy[1]['new'].astype(int) + source[1]['jpg'] - 255).mean() < 40


def test_other_qualities_decoders_and_encoders_encode(source, tmp_path):
    add = {'new': ('jpeg(10)', lambda batch: batch['jpg'])}
    bags.copy(source, tmp_path / 'low', add=add)
    half = {**bags.decoders, 'jpeg': lambda record, *args: bags.decoders['jpeg'](record, *args)[::2, ::2]}
    add = {'new': ('jpeg', lambda batch: batch['jpg'])}
    with bags.open(source.path, decoders=half) as smaller:
        bags.copy(smaller, tmp_path / 'half', add=add)
    own = {**bags.encoders, 'jpeg': lambda image, *args: bags.encoders['jpeg'](image[:8], *args)}
    bags.copy(source, tmp_path / 'own', add=add, encoders=own)
    with (
        bags.open(tmp_path / 'low') as low,
        bags.open(tmp_path / 'half') as halves,
        bags.open(tmp_path / 'own') as owns,
    ):
        assert len(low.records('new')[0]) < len(source.records('jpg')[0]) / 2
        assert halves[0]['new'].shape == (16, 24, 3)
        assert owns[0]['new'].shape == (8, 48, 3)
