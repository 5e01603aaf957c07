"""Fields compressed with a trained dictionary."""

import json
import os
import pickle
import random
import subprocess
import sys

import pytest
import zstandard

import bags
from bags.bag.compression import train_dictionary

WORDS = [
    'a',
    'photo',
    'of',
    'the',
    'red',
    'house',
    'by',
    'river',
    'with',
    'two',
    'people',
    'and',
    'one',
    'dog',
    'at',
    'sunset',
    'in',
    'winter',
]


def texts(count, seed=0):
    rng = random.Random(seed)
    return [
        json.dumps(
            {
                'id': i,
                'caption': ' '.join(rng.choices(WORDS, k=14)),
                'url': f'https://example.com/{rng.randrange(10**9)}.jpg',
                'licence': rng.choice(['cc0', 'by']),
            }
        )
        for i in range(count)
    ]


def write(path, values, compression, **options):
    with bags.ShardedDatasetWriter(path, {'text': 'utf8'}, compression=compression, **options) as writer:
        for value in values:
            writer.append({'text': value})


def stored(path):
    """Returns the number of bytes of the frames, without limits."""
    total = 0
    for shard in sorted(path.iterdir()):
        reader = bags.bag.Reader(str(shard / 'text.bagz'), compression='none')
        total += sum(map(len, reader))
    return total


def test_small_records_take_less_than_half(tmp_path):
    values = texts(4000)
    write(tmp_path / 'plain', values, ['text'])
    write(tmp_path / 'trained', values, {'text': 'dictionary'})
    assert 2 * stored(tmp_path / 'trained') < stored(tmp_path / 'plain')
    reader = bags.open(tmp_path / 'trained')
    assert [row['text'] for row in reader] == values
    assert reader.batch([7, 3, -1])['text'] == [values[7], values[3], values[-1]]
    assert reader[2]['text'] == values[2]
    assert list(reader.records('text'))[:9] == [value.encode() for value in values[:9]]


def test_every_shard_has_the_one_dictionary(tmp_path):
    values = texts(1000)
    write(tmp_path / 'd', values, {'text': ('dictionary', 10)}, shard_length=300)
    found = {path.read_bytes() for path in (tmp_path / 'd').rglob('text.zdict')}
    assert len(list((tmp_path / 'd').rglob('text.zdict'))) == 4
    assert len(found) == 1
    write(tmp_path / 'd', texts(500, 1), {'text': 'dictionary'}, resume=True)
    assert {path.read_bytes() for path in (tmp_path / 'd').rglob('text.zdict')} == found
    assert [row['text'] for row in bags.open(tmp_path / 'd')] == values + texts(500, 1)


def test_too_few_records_have_no_dictionary(tmp_path):
    write(tmp_path / 'd', texts(20), {'text': 'dictionary'})
    assert not list((tmp_path / 'd').rglob('*.zdict'))
    assert [row['text'] for row in bags.open(tmp_path / 'd')] == texts(20)


def test_records_that_are_flushed_before_there_is_a_dictionary(tmp_path):
    """Flushed records are readable at once; later ones use the dictionary, beside frames without it."""
    values = texts(400)
    with bags.DatasetWriter(tmp_path / 'd', {'text': 'utf8'}, compression={'text': 'dictionary'}) as writer:
        early = bags.open(tmp_path / 'd')
        for index, value in enumerate(values):
            writer.append({'text': value}, flush=index < 100)
            if index == 10:
                early = bags.open(tmp_path / 'd')
        assert [row['text'] for row in early] == values[:11]
    frames = bags.bag.Reader(tmp_path / 'd' / 'text.bagz', compression='none')
    with_it = [bool(zstandard.get_frame_parameters(frame).dict_id) for frame in frames]
    assert not with_it[0]
    assert with_it[-1]
    reader = bags.open(tmp_path / 'd')
    assert [row['text'] for row in reader] == values
    assert reader.batch(range(400))['text'] == values
    assert [reader[i]['text'] for i in range(400)] == values


def test_frames_without_it_are_read_with_any_dictionary():
    """Also frames whose first match uses one of the initial offsets."""
    trained = train_dictionary([value.encode() for value in texts(500)])
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    decompressor = zstandard.ZstdDecompressor(dict_data=zstandard.ZstdCompressionDict(trained))
    rng = random.Random(1)
    for size in range(300):
        unit = rng.randbytes(rng.randrange(1, 9))
        record = rng.randbytes(rng.randrange(3)) + unit * rng.randrange(1, 60) + rng.randbytes(size % 20)
        assert decompressor.decompress(compressor.compress(record)) == record


def test_a_killed_writer_is_resumed(tmp_path):
    code = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import bags, test_dictionaries as t
options = {{'compression': {{'text': 'dictionary'}}, 'shard_length': 300}}
writer = bags.ShardedDatasetWriter({str(tmp_path / 'd')!r}, {{'text': 'utf8'}}, **options)
for value in t.texts(450):
    writer.append({{'text': value}})
writer.flush()
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, '-c', code], check=False)
    values = texts(450)
    assert [row['text'] for row in bags.open(tmp_path / 'd')] == values
    write(tmp_path / 'd', texts(700)[450:], {'text': 'dictionary'}, shard_length=300, resume=True)
    assert [row['text'] for row in bags.open(tmp_path / 'd')] == texts(700)
    assert len({path.read_bytes() for path in (tmp_path / 'd').rglob('text.zdict')}) == 1


@pytest.mark.parametrize('harm', ['missing', 'damaged', 'another', 'short'])
def test_a_wrong_dictionary_is_named(tmp_path, harm):
    write(tmp_path / 'd', texts(500), {'text': 'dictionary'})
    write(tmp_path / 'other', texts(300, 5)[::-1], {'text': 'dictionary'})
    path = tmp_path / 'd' / '000000' / 'text.zdict'
    data = path.read_bytes()
    path.unlink()
    if harm == 'damaged':
        path.write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    elif harm == 'another':
        path.write_bytes((tmp_path / 'other' / '000000' / 'text.zdict').read_bytes())
    elif harm == 'short':
        path.write_bytes(data[:2])
    reader = bags.open(tmp_path / 'd')
    for read in (lambda: reader[3], lambda: reader.batch([1, 2]), lambda: reader.batch(range(200))):
        with pytest.raises(bags.CorruptError, match=r'text\.zdict'):
            read()


def test_sequences_and_other_fields(tmp_path):
    values = texts(900)
    spec = {'words': 'utf8[]', 'id': 'int(4)', 'note': 'json?'}
    with bags.DatasetWriter(tmp_path / 'd', spec, compression={'words': 'dictionary', 'note': 7}) as writer:
        for i in range(300):
            writer.append({'words': values[3 * i : 3 * i + 3], 'id': i, 'note': None if i % 2 else [i]})
    reader = bags.open(tmp_path / 'd')
    assert reader[77] == {'words': values[231:234], 'id': 77, 'note': None}
    assert reader[299, {'words': [1]}] == {'words': [values[898]]}
    assert (tmp_path / 'd' / 'words.zdict').exists()


def test_invalid_compressions(tmp_path):
    for compression in ({'text': 'dict'}, {'text': ('dictionary', 3, 4)}, {'text': 99}, {'text': ()}):
        with pytest.raises(ValueError, match='text'):
            bags.DatasetWriter(tmp_path / 'd', {'text': 'utf8'}, compression=compression)
    with pytest.raises(bags.SpecError, match='no'):
        bags.DatasetWriter(tmp_path / 'd', {'text': 'utf8'}, compression={'no': 'dictionary'})
    assert not (tmp_path / 'd').exists()


def test_a_bag_takes_it_too(tmp_path):
    values = [value.encode() for value in texts(500)]
    zstd = bags.bag.CompressionZstd(dictionary=train_dictionary(values))
    with bags.bag.Writer(tmp_path / 'a.bagz', compression=zstd) as writer:
        for value in values:
            writer.write(value)
    assert bags.bag.Reader(tmp_path / 'a.bagz', compression=zstd).read() == values
    with pytest.raises(bags.CorruptError, match='needs dictionary'):
        bags.bag.Reader(tmp_path / 'a.bagz')[0]


def open_lazily(record, *args):
    """A decoder that returns the record itself, which is opened on use."""
    return record


open_lazily.lazy = True


def test_a_pickled_record_is_decompressed_with_the_dictionary(tmp_path):
    values = texts(300)
    write(tmp_path / 'd', values, {'text': 'dictionary'})
    with bags.open(tmp_path / 'd', {'utf8': open_lazily}) as reader:
        record = pickle.loads(pickle.dumps(reader[7]['text']))
    with record.open() as file:
        assert file.read().decode() == values[7]
