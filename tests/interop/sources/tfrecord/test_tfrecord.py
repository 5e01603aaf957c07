"""Import of TFRecord files, written and read by TensorFlow: see make_golden_streams.py."""

import gzip
import json
import signal
import struct
import subprocess
import sys

import google_crc32c
import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source
from tests.interop.sources.streams import GOLDEN, converted, expected, records

RECORDS = GOLDEN / 'tfrecord.tfrecord'


def record(data):
    def masked(part):
        value = google_crc32c.value(part)
        return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF

    head = struct.pack('<Q', len(data))
    return head + struct.pack('<I', masked(head)) + data + struct.pack('<I', masked(data))


@pytest.mark.parametrize('name', ['tfrecord.tfrecord', 'tfrecord-gz.tfrecord.gz'])
def test_values_are_those_that_tensorflow_reads(name, tmp_path):
    done, found = converted(GOLDEN / name, tmp_path / 'out')
    assert done.spec == {
        'box': 'array(float32,4)', 'image.encoded': 'jpeg', 'label': 'int(8)', 'raw': 'bytes',
        'score': 'float(4)?', 'tags': 'utf8[]', 'text': 'utf8', 'tokens': 'array(int64,?)',
    }  # fmt: skip
    wanted = expected('tfrecord')
    with bags.open(tmp_path / 'out') as dataset:
        images = list(dataset.records('image.encoded'))
    for index, (datapoint, sample) in enumerate(zip(found, wanted, strict=True)):
        assert [images[index]] == sample['image/encoded']
        assert [datapoint['text'].encode()] == sample['text']
        assert [datapoint['label']] == sample['label']
        assert [datapoint['raw']] == sample['raw']
        assert [tag.encode() for tag in datapoint['tags']] == sample['tags']
        np.testing.assert_array_equal(datapoint['box'], np.array(sample['box'], np.float32))
        np.testing.assert_array_equal(datapoint['tokens'], np.array(sample['tokens'], np.int64))
        assert ([] if datapoint['score'] is None else [datapoint['score']]) == sample.get('score', [])


def test_sequence_examples(tmp_path):
    done, found = converted(GOLDEN / 'tfrecord-sequence.tfrecord', tmp_path / 'out')
    assert done.spec == {'frame': 'jpeg[]', 'id': 'int(8)', 'speed': 'array(float32,2)[]'}
    np.testing.assert_array_equal(found[2]['speed'], [[0, 1], [0.5, 1], [1, 1]])
    assert [len(each['frame']) for each in found] == [1, 2, 3]


def test_a_checksum_that_differs_names_file_and_record(tmp_path):
    data = bytearray(RECORDS.read_bytes())
    start, length = records(data)[4]
    data[start + length // 2] ^= 1
    (tmp_path / 'a.tfrecord').write_bytes(data)
    with pytest.raises(bags.SourceError, match=r'a\.tfrecord, record 4: expected another checksum'):
        bags.convert(tmp_path / 'a.tfrecord', tmp_path / 'out')
    done = bags.convert(tmp_path / 'a.tfrecord', tmp_path / 'out2', on_error='skip')
    assert done.datapoints == 5
    assert [name for name, _ in done.skipped] == [f'{tmp_path}/a.tfrecord, record 4']
    (tmp_path / 'a.tfrecord').write_bytes(RECORDS.read_bytes())
    assert bags.convert(tmp_path / 'a.tfrecord', tmp_path / 'out', resume=True).datapoints == 6


def test_records_skipped_before_those_written_were_durable_are_read_again(tmp_path):
    data = bytearray(RECORDS.read_bytes())
    start, _ = records(data)[4]
    data[start] ^= 1
    (tmp_path / 'a.tfrecord').write_bytes(data)
    with pytest.raises(bags.SourceError, match='record 4'):
        bags.convert(tmp_path / 'a.tfrecord', tmp_path / 'out')
    log = tmp_path / 'out/progress.json'  # As after a crash that loses datapoints before the skipped one.
    log.write_text(json.dumps(json.loads(log.read_text()) | {'state': {'skipped': [[5, 'a', 'b', 1]]}}))
    (tmp_path / 'a.tfrecord').write_bytes(RECORDS.read_bytes())
    done = bags.convert(tmp_path / 'a.tfrecord', tmp_path / 'out', resume=True)
    assert (done.datapoints, done.skipped) == (6, [])
    assert json.loads(log.read_text())['state'] == {'skipped': []}


def test_a_file_cut_off_anywhere_or_with_a_damaged_length(tmp_path):
    whole = RECORDS.read_bytes()
    path = tmp_path / 'a.tfrecord'
    ends = {start + length + 4 for start, length in records(whole)} | {0}
    for size in set(range(1, len(whole), 211)) - ends:
        path.write_bytes(whole[:size])
        source = open_source(path, on_error='skip')
        count = sum(end <= size for end in ends) - 1
        assert source.count == count
        assert source.damaged[0][0] == f'{path}, record {count}'
    path.write_bytes(whole[:3] + b'\x7f' + whole[4:])
    with pytest.raises(bags.SourceError, match=r'record 0: expected a length and its checksum'):
        bags.convert(path, tmp_path / 'out')


def test_records_that_are_no_examples(tmp_path):
    path = tmp_path / 'a.tfrecord'
    path.write_bytes(b''.join(record(b'{"number": %d}' % number) for number in range(4)))
    assert open_source(path).spec == {'record': 'bytes'}
    _, found = converted(path, tmp_path / 'out', spec={'record': 'json'})
    assert found[3] == {'record': {'number': 3}}
    path.write_bytes(record(bytes(559_903)))  # Begins like a gzip file.
    assert open_source(path).count == 1


def test_records_of_another_schema_are_named(tmp_path):
    sequence = (GOLDEN / 'tfrecord-sequence.tfrecord').read_bytes()
    (tmp_path / 'a.tfrecord').write_bytes(RECORDS.read_bytes())
    (tmp_path / 'b.tfrecord').write_bytes(sequence)
    done = bags.convert(tmp_path / '*.tfrecord', tmp_path / 'out')
    assert done.datapoints == 9
    assert done.spec['frame'] == 'jpeg[]?'
    assert done.spec['text'] == 'utf8?'
    source = open_source(tmp_path / 'a.tfrecord')
    source.spec['score'] = 'float(4)'
    with pytest.raises(bags.SourceError, match=r"record 0: field 'score': expected a value, got none"):
        bags.convert(source, tmp_path / 'out2')


def test_values_of_another_kind_are_named(tmp_path):
    def message(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    def example(kind, packed):
        return record(
            message(1, message(1, message(1, b'a') + message(2, message(kind, message(1, packed)))))
        )

    integer, float_, text = example(3, b'\x07'), example(2, struct.pack('<f', 1.5)), example(1, b'x')
    for number, other in enumerate((float_, text)):
        path = tmp_path / f'{number}.tfrecord'
        path.write_bytes(integer * 1000 + other)
        assert open_source(path).spec == {'a': 'int(8)'}
        with pytest.raises(
            bags.SourceError, match=r"record 1000: field 'a': expected int, got (float|bytes)"
        ):
            bags.convert(path, tmp_path / 'out', mode='overwrite')
        path.write_bytes(integer + other)
        with pytest.raises(
            bags.SourceError, match=rf"{number}.tfrecord: feature 'a': expected values of one"
        ):
            open_source(path)


@pytest.mark.slow
def test_an_import_that_is_killed_resumes(tmp_path):
    source, target = tmp_path / 'a.tfrecord', tmp_path / 'out'
    source.write_bytes(RECORDS.read_bytes() * 1000)
    code = f"""
import os, signal, sys, bags

def kill(event, args):
    if event == 'os.mkdir' and str(args[0]).endswith('000020'):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
bags.convert({str(source)!r}, {str(target)!r}, shard_length=100, progress=False)
"""
    process = subprocess.run([sys.executable, '-c', code], check=False)
    assert process.returncode == -signal.SIGKILL
    done = bags.convert(source, target, shard_length=100, resume=True)
    assert done.datapoints == 6000
    with bags.open(target) as dataset:
        labels = dataset.batch(range(6000), 'label')['label']
    np.testing.assert_array_equal(labels, -np.tile(np.arange(6), 1000))


def test_sources_by_url(tmp_path):
    import fsspec

    memory = fsspec.filesystem('memory')
    for name in ('tfrecord.tfrecord', 'tfrecord-gz.tfrecord.gz'):
        memory.pipe_file(f'/streams/{name}', (GOLDEN / name).read_bytes())
    assert bags.convert('memory://streams/*.tfrecord*', tmp_path / 'out').datapoints == 12


def test_features_that_the_first_records_do_not_have_are_named(tmp_path):
    source = tmp_path / 'a.tfrecord'
    sequence = (GOLDEN / 'tfrecord-sequence.tfrecord').read_bytes()
    source.write_bytes(RECORDS.read_bytes() * 200 + sequence)
    assert any('1000 of 1203 records' in note for note in open_source(source).notes)
    with pytest.raises(bags.SourceError, match=r"record 1200: feature '(frame|speed|id)': expected only"):
        bags.convert(source, tmp_path / 'out')
    done = bags.convert(source, tmp_path / 'out2', on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (1200, 3)


def test_a_missing_package_names_the_extra():
    code = (
        'import sys; sys.modules["google_crc32c"] = None\n'
        'from bags.interop.open_source import open_source\n'
        f'open_source({str(RECORDS)!r})'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=False)
    assert "pip install 'bags[tfrecord]'" in done.stderr


def test_an_example_without_features_has_no_values(tmp_path):
    example = b'\n\x0c\n\n\n\x01x\x12\x05\x1a\x03\n\x01\x01'  # {'x': [1]}
    for number, empty in enumerate((b'', b'\n\0')):
        (tmp_path / 'a.tfrecord').write_bytes(b''.join(map(record, [example, empty, example])))
        bags.convert(tmp_path / 'a.tfrecord', tmp_path / f'{number}', progress=False)
        with bags.open(tmp_path / f'{number}') as dataset:
            assert [row['x'] for row in dataset] == [1, None, 1]


def test_a_gzip_file_that_is_empty_or_followed_by_other_bytes_is_an_error(tmp_path):
    whole, path = (GOLDEN / 'tfrecord-gz.tfrecord.gz').read_bytes(), tmp_path / 'a.tfrecord.gz'
    for data in (b'', whole[:-1], whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:], whole + b'x'):
        path.write_bytes(data)
        with pytest.raises(bags.SourceError, match=r'a\.tfrecord\.gz'):
            open_source(path)


def test_files_without_records(tmp_path):
    whole, sources = (GOLDEN / 'tfrecord-gz.tfrecord.gz').read_bytes(), tmp_path / 'in'
    sources.mkdir()
    (sources / '0.tfrecord').write_bytes(b'')
    assert bags.convert(sources, tmp_path / 'none').datapoints == 0
    (sources / '0.tfrecord').write_bytes(gzip.compress(b''))
    assert bags.convert(sources, tmp_path / 'compressed').datapoints == 0
    (sources / '1.tfrecord').write_bytes(whole)  # Its content is compressed, not its name.
    assert bags.convert(sources, tmp_path / 'some').datapoints == 6
    (sources / '0.tfrecord').write_bytes(b'')
    detail = r'0\.tfrecord: expected compressed records, got an empty file'
    with pytest.raises(bags.SourceError, match=detail):
        bags.convert(sources, tmp_path / 'out')
    done = bags.convert(sources, tmp_path / 'out', on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (6, 1)
    for name in ('a.tfrecord.gz', 'a.tfrecord-00000-of-00001.GZ', 'a.tfrecord.gzip'):
        (tmp_path / name).write_bytes(b'')
        with pytest.raises(bags.SourceError, match=rf'{name}: expected compressed records, got an empty'):
            bags.convert(tmp_path / name, tmp_path / 'other')
