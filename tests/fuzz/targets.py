"""The parsers of untrusted bytes: for each a function of bytes, with examples of valid input.

A parser returns, or raises an error of those named. Anything else, such as a TypeError, is a defect. Where a
parser has an inverse, the function also checks that what was parsed survives it.
"""

import contextlib
import io
import json
import struct
import tempfile
from pathlib import Path

import msgpack
import numpy as np
import pyarrow as pa
import zstandard
from pyarrow import parquet as pq

import bags
from bags.bag.bag_file import BagFile
from bags.bag.compression import Zstd, check_dictionary
from bags.bag.open import parse_tail
from bags.bag.options import CompressionZstd
from bags.dataset.format.metadata import dump_metadata, load_metadata
from bags.dataset.format.refs import RefsFormat
from bags.dataset.format.registry import decoders, encoders
from bags.dataset.format.shard_index import load_index
from bags.dataset.format.spec import dump_spec, load_spec, parse_spec
from bags.formats.audio import find_samples
from bags.formats.signatures import check_end, check_whole, identify
from bags.interop.sources.manifests.lhotse_lines import (
    keys_of,
    kind_of,
    parse_cut,
    parse_line,
    parse_recording,
    parse_supervision,
)
from bags.interop.sources.tables.parquet_footer import read_row_groups
from bags.interop.sources.tokens.megatron import MegatronFile
from bags.interop.sources.tokens.plain_files import PlainFile
from bags.interop.sources.tokens.token_file import TokenOptions
from bags.interop.targets.megatron_index import HEADER, MAGIC, VERSION
from bags.keys.index import KeyIndex
from bags.media.headers import parse_header
from bags.media.mp4 import UnusualTrackError, find_moov, find_track
from bags.storage.memory_file import MemoryFile
from bags.storage.range_file import BufferFile

MAX_SIZE = 1 << 20
TYPES = parse_spec({'a': 'utf8', 'b': 'int(8)[]', 'c': 'jpeg?'})
REFS = RefsFormat(TYPES)
ZSTD = Zstd(CompressionZstd(), MAX_SIZE)
ROW = np.array([[3, 5, 2, 7]])
ARRAY = np.arange(6, dtype='<f4').reshape(2, 3)


def tail_of(records, starts=False):
    ends = np.cumsum([0, *map(len, records)])
    return b''.join(records) + ends[0 if starts else 1 :].astype('<u8').tobytes()


def read_bag(data, codec=None, starts=False):
    file = MemoryFile('x.bag', data)
    end, count = parse_tail(file, starts)
    bag = BagFile('x.bag', file, file, file.size - 8 * count, count, end, codec, False)
    for index in (0, count // 2, count - 1):
        if 0 <= index < count:
            bag.record(index)
    if count <= 64:
        indices = np.arange(count)
        assert sum(map(len, bag.read(indices))) <= (len(data) if codec is None else MAX_SIZE * count)


def read_bagz(data):
    read_bag(data, ZSTD)


def read_old_bag(data):
    read_bag(data, starts=True)


def read_frames(data):
    frames = [data[start : start + 40] for start in range(0, len(data), 40)]
    ZSTD.decode_many(frames)
    ZSTD.decode_many(frames * 64)


def read_refs(data):
    row = REFS.unpack(data)
    packed = REFS.pack(np.array([row]))
    assert REFS.unpack(packed) == row


def read_spec(data):
    schema = load_spec(data, 'spec.json')
    assert load_spec(dump_spec(schema), 'spec.json') == schema


def read_shard_index(data):
    load_index(data, 'shards.json')


def read_metadata(data):
    load_metadata(data, 'metadata.json')


def read_key_index(data):
    KeyIndex(MemoryFile('a.index', data)).check()


def value_of(format, *args):
    """Returns a target that decodes a value, and encodes it again."""
    encode, decode = encoders[format], decoders[format]

    def read(data):
        value = decode(data, *args) if format in ('int', 'uint', 'float') else decode(data, *args, **limits)
        again = decode(bytes(encode(value, *args)), *args)
        assert repr(again) == repr(value)

    limits = {'max_size': MAX_SIZE} if format in ('msgpack', 'json', 'tree', 'wav') else {}
    return read


def read_wav(data):
    decoders['wav'](data, max_size=MAX_SIZE)
    find_samples(BufferFile(data))


def read_signature(data):
    name = identify(data)
    check_end(data, name)
    check_whole(data, name)


def read_mp4(data):
    moov = find_moov(io.BytesIO(data))
    for handler in (b'vide', b'soun'):
        track = find_track(moov, handler)
        if track is not None:
            assert len(track.table.sizes) == len(track.table.times)


def read_header(data):
    for media_type in ('video', 'audio'):
        parser, head = parse_header(data[:100], len(data), media_type), None
        with contextlib.suppress(StopIteration):
            while True:
                start, stop = parser.send(head)
                assert 0 <= start < stop <= len(data)
                head = data[start:stop]


def ranges_of(tokens):
    """Reads where the documents of a file of tokens are, which must be inside the file."""
    count = min(tokens.count, 1000)
    starts, stops = tokens.ranges(0, count)
    assert len(starts) == len(stops) == count
    assert bool(((starts >= 0) & (starts <= stops) & (stops <= tokens.file.size)).all())
    for values in tokens.values(0, count).values():
        assert len(values.data) == values.sizes.sum()


def read_megatron_index(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, 'tokens.bin')
        path.write_bytes(bytes(14))
        path.with_suffix('.idx').write_bytes(data)
        for by in ('sequence', 'document'):
            ranges_of(MegatronFile(str(path), None, by))


def read_tokens(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, 'tokens')
        path.write_bytes(data)
        for options in (TokenOptions(length=3), TokenOptions()):  # Rows have their length from the header.
            with contextlib.suppress(bags.SourceError):
                ranges_of(PlainFile(str(path), None, options))


def example_index():
    """Returns an index of three sequences in two documents."""
    lengths = np.array([2, 0, 5], '<i4').tobytes()
    pointers, documents = np.array([0, 4, 4], '<i8').tobytes(), np.array([0, 2, 3], '<i8').tobytes()
    return HEADER.pack(MAGIC, VERSION, 8, 3, 3) + lengths + pointers + documents


def example_tokens():
    """Returns a file of tokens of llm.c, and arrays of one and two dimensions."""
    file, rows = io.BytesIO(), io.BytesIO()
    np.save(file, np.arange(7, dtype=np.uint16))
    np.save(rows, np.arange(6, dtype=np.int32).reshape(2, 3))
    llm_c = struct.pack('<iii', 20240520, 1, 7).ljust(1024, b'\0') + bytes(14)
    return [llm_c, file.getvalue(), rows.getvalue()]


def read_lhotse(data):
    value = parse_line(data)
    kind = kind_of(value)
    if kind == 'supervisions':
        parse_supervision(value)
    else:
        keys_of(value)
        (parse_cut if kind == 'cuts' else parse_recording)(value)


def example_lines():
    """Returns lines of Lhotse: a cut, a recording and a supervision."""
    source = {'type': 'file', 'channels': [0], 'source': 'a.wav'}
    recording = {'id': 'a', 'sources': [source], 'sampling_rate': 8000, 'num_samples': 8000, 'duration': 1.0}
    supervision = {'id': 's', 'recording_id': 'a', 'start': 0.0, 'duration': 0.5, 'text': 'x', 'channel': 0}
    cut = {'id': 'c', 'type': 'MonoCut', 'start': 0.0, 'duration': 0.5, 'channel': 0}
    lines = [{**cut, 'supervisions': [supervision], 'recording': recording}, recording, supervision]
    return [json.dumps(line).encode() for line in lines]


def box(name, content):
    return struct.pack('>I4s', 8 + len(content), name) + content


def example_mp4():
    """Returns the header of an MP4 of three samples, without the samples."""
    header = box(b'mdhd', struct.pack('>IIIIII', 0, 0, 0, 600, 60, 0))
    handler = box(b'hdlr', struct.pack('>II4s12xx', 0, 0, b'vide'))
    entry = box(b'avc1', bytes(6) + struct.pack('>H16xHH50x', 1, 32, 24) + box(b'avcC', bytes(7)))
    table = [
        box(b'stsd', struct.pack('>II', 0, 1) + entry),
        box(b'stts', struct.pack('>IIII', 0, 1, 3, 20)),
        box(b'ctts', struct.pack('>IIII', 0, 1, 3, 20)),
        box(b'stsc', struct.pack('>IIIII', 0, 1, 1, 3, 1)),
        box(b'stsz', struct.pack('>IIIIII', 0, 0, 3, 10, 11, 12)),
        box(b'stco', struct.pack('>III', 0, 1, 2000)),
        box(b'stss', struct.pack('>III', 0, 1, 1)),
    ]
    edit = box(b'edts', box(b'elst', struct.pack('>IIIiI', 0, 1, 60, 20, 1 << 16)))
    media = box(b'mdia', header + handler + box(b'minf', box(b'stbl', b''.join(table))))
    movie = box(b'mvhd', struct.pack('>IIIII80x', 0, 0, 0, 1000, 100))
    moov = box(b'moov', movie + box(b'trak', box(b'tkhd', bytes(84)) + edit + media))
    return box(b'ftyp', b'isom\0\0\0\0isom') + moov + box(b'mdat', bytes(40))


def example_files():
    """Returns shards.json, an index of keys, and a dictionary, as the library writes them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, 'new')
        compression = {'text': ('dictionary', 3)}
        spec = {'id': 'int(2)', 'text': 'utf8'}
        with bags.ShardedDatasetWriter(path, spec, shard_length=150, compression=compression) as writer:
            for index in range(300):
                text = f'a text about the number {index * 7919 % 1000}, of some length: ' + str(index) * 9
                writer.append({'id': index % 250, 'text': text})
        bags.create_index(path, 'id')
        bags.consolidate(path)
        return [
            (path / name).read_bytes() for name in ('shards.json', '000000/id.index', '000000/text.zdict')
        ]


def footer_of(**columns):
    """Returns the end of a Parquet file."""
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=2)
    data = file.getvalue()
    return data[-8 - int.from_bytes(data[-8:-4], 'little') :]


def encoded(format, value, *args):
    return bytes(encoders[format](value, *args))


FORMAT_ERRORS = (ValueError,)
SHARDS, KEYS, DICTIONARY = example_files()
TARGETS = {
    'bag': (read_bag, (bags.CorruptError,), [tail_of([b'abc', b'', b'defg']), b'']),
    'bag-starts': (read_old_bag, (bags.CorruptError,), [tail_of([b'abc', b'defg'], starts=True)]),
    'bagz': (
        read_bagz,
        (bags.CorruptError,),
        [tail_of([zstandard.compress(b'abc' * 30), b'', zstandard.compress(b'x')])],
    ),
    'frames': (read_frames, (bags.CorruptError, ValueError), [zstandard.compress(b'abc' * 9)]),
    'dictionary': (
        lambda data: check_dictionary(data, 'a.zdict'),
        (bags.CorruptError,),
        [DICTIONARY],
    ),
    'refs': (
        read_refs,
        (ValueError,),
        [REFS.pack(ROW), msgpack.packb([1, [2, 3], None]), msgpack.packb([1, [], 3])],
    ),
    'spec': (read_spec, (bags.SpecError,), [dump_spec(TYPES), b'{"x": "array(float32,?,3)[]?"}']),
    'shards': (read_shard_index, (bags.CorruptError, bags.SpecError), [SHARDS]),
    'metadata': (
        read_metadata,
        (bags.CorruptError,),
        [dump_metadata({'a': [1, None, {'b': 2.5}], 'fields': {'a': {'rate': 3}}}, TYPES)],
    ),
    'key-index': (read_key_index, (bags.CorruptError,), [KEYS]),
    'int': (value_of('int', '3'), FORMAT_ERRORS, [b'\1\2\3']),
    'float': (value_of('float', '2'), FORMAT_ERRORS, [b'\1\2']),
    'utf8': (value_of('utf8'), FORMAT_ERRORS, ['héllo'.encode()]),
    'json': (value_of('json'), FORMAT_ERRORS, [json.dumps({'a': [1, 2.5, None, 'x']}).encode()]),
    'msgpack': (
        value_of('msgpack'),
        FORMAT_ERRORS,
        [msgpack.packb({'a': [1, 2.5, None, b'x', {'b': True}]})],
    ),
    'array': (value_of('array'), FORMAT_ERRORS, [encoded('array', ARRAY)]),
    'array-fixed': (value_of('array', 'float32', '?', '3'), FORMAT_ERRORS, [ARRAY.tobytes()]),
    'tree': (value_of('tree'), FORMAT_ERRORS, [encoded('tree', {'a': ARRAY, 'b': [1, (2,)]})]),
    'wav': (
        read_wav,
        FORMAT_ERRORS,
        [
            encoded('wav', (np.arange(8, dtype=np.int16), 8000)),
            encoded('wav', (np.zeros((4, 2), np.float32), 8000)),
        ],
    ),
    'signature': (
        read_signature,
        FORMAT_ERRORS,
        [
            encoded('png', np.zeros((4, 5, 3), np.uint8)),
            encoded('jpeg', np.zeros((8, 8, 3), np.uint8)),
            encoded('webp', np.zeros((4, 4, 3), np.uint8)),
            encoded('flac', (np.arange(8, dtype=np.int16), 8000)),
            encoded('opus', (np.arange(960, dtype=np.int16), 48_000)),
            b'\x1a\x45\xdf\xa3\x84\x42\x82\x81w\x18\x53\x80\x67\x80',
            example_mp4(),
        ],
    ),
    'parquet': (
        lambda data: read_row_groups(io.BytesIO(data)),
        FORMAT_ERRORS,
        [footer_of(a=[1, None, 3], b=[[True], [], None])],
    ),
    'megatron-index': (
        read_megatron_index,
        (bags.SourceError,),
        [example_index(), example_index() + bytes(3)],
    ),
    'tokens': (read_tokens, (), example_tokens()),
    'lhotse': (read_lhotse, FORMAT_ERRORS, example_lines()),
    'header': (
        read_header,
        (),
        [
            encoded('flac', (np.arange(8, dtype=np.int16), 8000)),
            encoded('wav', (np.arange(8, dtype=np.int16), 8000)),
            encoded('wav', (np.zeros((4, 2), np.float32), 8000)),
            encoded('opus', (np.arange(960, dtype=np.int16), 48_000)),
            b'ID3\4\0\0\0\0\0\3abc\xff\xfb\x90\x64' + bytes(32) + b'Info\0\0\0\x0f\0\0\0\7' + bytes(300),
            example_mp4(),
        ],
    ),
    'mp4': (
        read_mp4,
        (ValueError, UnusualTrackError),
        [
            example_mp4(),
            # A size of 64 bits that is cut off.
            box(b'moov', box(b'free', b'') + struct.pack('>I4s', 1, b'trak')),
        ],
    ),
}
"""By name: the function, the errors it may raise, and examples."""


def run(name, data):
    """Runs a target on bytes; raises AssertionError for an error that it must not raise."""
    function, errors, _ = TARGETS[name]
    try:
        function(data)
    except errors:
        pass
    except Exception as exc:
        raise AssertionError(f'{name}: {type(exc).__name__}: {exc} for {data!r}') from exc
