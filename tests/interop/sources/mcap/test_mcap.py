"""Recordings of ROS: every value equals that of the MCAP library's reader."""

import contextlib
import io
import itertools
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from mcap.writer import CompressionType, IndexType
from mcap.writer import Writer as McapWriter
from PIL import Image
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

import bags
from bags.interop.open_source import open_source

GOLDEN = Path(__file__).parents[1] / 'golden' / 'recording.mcap'
EXPECTED = json.loads(GOLDEN.with_suffix('.json').read_text())
STORE = get_typestore(Stores.ROS2_HUMBLE)
FLOAT = STORE.types['std_msgs/msg/Float64']


def test_every_value(tmp_path):
    source = open_source(GOLDEN)
    assert {field: kind for field, kind in source.spec.items() if 'header' not in field} == {
        'arm.joints.name': 'msgpack[]', 'arm.joints.position': 'array(float64,?)[]',
        'arm.joints_time': 'int(8)[]',
        'camera.data': 'jpeg[]', 'camera.format': 'utf8[]', 'camera_time': 'int(8)[]',
        'depth.data': 'array[]', 'depth.encoding': 'utf8[]', 'depth.height': 'uint(4)[]',
        'depth.is_bigendian': 'uint(1)[]', 'depth.step': 'uint(4)[]', 'depth.width': 'uint(4)[]',
        'depth_time': 'int(8)[]', 'poses.points': 'msgpack[]', 'poses.size': 'array(float32,3)[]',
        'poses_time': 'int(8)[]', 'speed.data': 'float(8)[]', 'speed_time': 'int(8)[]',
    }  # fmt: skip
    bags.convert(GOLDEN, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        (found,) = dataset
        stored = list(dataset.records('camera.data'))
        assert dataset.metadata['topics']['/arm/joints'] == 'sensor_msgs/msg/JointState'
    for topic, messages in EXPECTED.items():
        name = topic.strip('/').replace('/', '.')
        assert found[f'{name}_time'].tolist() == [time for time, _ in messages]
        for number, (_, message) in enumerate(messages):
            header = message.get('header')
            if header:
                assert found[f'{name}.header.stamp.nanosec'][number] == header['stamp']['nanosec']
                assert found[f'{name}.header.frame_id'][number] == header['frame_id']
            for key in ('position', 'name', 'points', 'format', 'width', 'size'):
                if key in message:
                    value = found[f'{name}.{key}'][number]
                    assert (value.tolist() if hasattr(value, 'tolist') else value) == message[key]
    assert found['speed.data'].tolist() == [message['data'] for _, message in EXPECTED['/speed']]
    pictures = [bytes(message['data']) for _, message in EXPECTED['/camera']]
    assert stored == pictures
    assert Image.open(io.BytesIO(pictures[0])).size == (8, 8)
    for value, (_, message) in zip(found['depth.data'], EXPECTED['/depth'], strict=True):
        rows = np.array(message['data'], np.uint8).reshape(2, 8)[:, :6]
        assert value.dtype == np.uint16
        assert np.array_equal(value, np.ascontiguousarray(rows).view('<u2'))


def test_times_make_windows(tmp_path):
    bags.convert(GOLDEN, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        windows = dataset.windows({'poses.size': bags.times(-0.1, 0)}, every='speed.data')
        assert len(windows) == 4
        assert windows[2]['poses.size'].shape == (2, 3)


def record(path, values, topic='/value', plugin=StoragePlugin.SQLITE3):
    with Writer(path, version=9, storage_plugin=plugin) as writer:
        connection = writer.add_connection(topic, FLOAT.__msgtype__, typestore=STORE)
        for number, value in enumerate(values):
            data = STORE.serialize_cdr(FLOAT(data=value), FLOAT.__msgtype__)
            writer.write(connection, 100 * number, data)


@pytest.mark.parametrize('plugin', StoragePlugin)
def test_folders_of_rosbag2(tmp_path, plugin):
    for number in (0, 2, 10):
        record(tmp_path / f'in/run_{number}', np.arange(number + 1.0), plugin=plugin)
    record(tmp_path / 'in/run_11', [7.0], '/other', plugin)
    source = open_source(tmp_path / 'in')
    assert source.spec == {
        'other.data': 'float(8)[]?', 'other_time': 'int(8)[]?',
        'value.data': 'float(8)[]?', 'value_time': 'int(8)[]?',
    }  # fmt: skip
    bags.convert(source, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert [None if row['value.data'] is None else len(row['value.data']) for row in dataset] == [
            1,
            3,
            11,
            None,
        ]
        assert dataset[1]['value_time'].tolist() == [0, 100, 200]
        assert dataset[3]['other.data'].tolist() == [7.0]


def test_a_bag_of_ros1(tmp_path):
    store = get_typestore(Stores.ROS1_NOETIC)
    message = store.types['std_msgs/msg/Float64']
    with Writer1(tmp_path / 'a.bag') as writer:
        connection = writer.add_connection('/value', message.__msgtype__, typestore=store)
        for number in range(3):
            data = store.serialize_ros1(message(data=number / 2), message.__msgtype__)
            writer.write(connection, number, data)
    bags.convert(tmp_path / 'a.bag', tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[0]['value.data'].tolist() == [0, 0.5, 1]


def test_damage_is_named_skipped_and_resumed_after(tmp_path):
    (tmp_path / 'in').mkdir()
    whole = GOLDEN.read_bytes()
    place = len(whole) // 3
    for number in range(3):
        (tmp_path / f'in/{number}.mcap').write_bytes(whole)
    middle = tmp_path / 'in/1.mcap'
    middle.write_bytes(whole[:place] + bytes(200) + whole[place + 200 :])
    with pytest.raises(bags.SourceError, match=r'1.mcap: '):
        bags.convert(tmp_path / 'in', tmp_path / 'out')
    assert bags.convert(tmp_path / 'in', tmp_path / 'some', on_error='skip').datapoints == 2
    middle.write_bytes(whole)
    assert bags.convert(tmp_path / 'in', tmp_path / 'out', resume=(tmp_path / 'out').exists()).datapoints == 3


def test_not_a_recording(tmp_path):
    (tmp_path / 'a.mcap').write_bytes(b'nothing')
    with pytest.raises(bags.SourceError, match=r'a.mcap: cannot be read as messages of ROS: File magic'):
        open_source(tmp_path / 'a.mcap')


def test_code_in_names_and_definitions_is_not_run(tmp_path):
    """rosbags generates Python code from the types that a recording defines, and runs it."""
    ran = tmp_path / 'ran'
    code = f'open({str(ran)!r}, "w")'
    names = [f'a/msg/B:\n  x={code}\nclass C', f"a/msg/B'+{code}+'", f'a/msg/B"""\n{code}\n"""', 'a/msg/B']
    definitions = [
        f'float64 x={code}', f'string X={code}', f'string X=\'"+{code}+"', f'float64[{code}] x',
        f'float64 x:\n{code}', f'float64 x\n{"=" * 80}\nMSG: a/C:\n x={code}\nfloat64 y',
    ]  # fmt: skip
    for number, (name, definition) in enumerate(itertools.product(names, definitions)):
        path = tmp_path / f'{number}.bag'
        with Writer1(path) as writer:
            connection = writer.add_connection('/value', name, msgdef=definition, md5sum='0' * 32)
            writer.write(connection, 1, bytes(8))
        with contextlib.suppress(bags.SourceError):
            bags.convert(path, tmp_path / f'out {number}')
        assert not ran.exists(), (name, definition)


def write_mcap(path, values=range(100), *, others=(), profile='ros2', library='tests', **options):
    """Writes a recording of floats, a message each 10 ns, in chunks of some messages.

    Args:
        path: The file.
        values: The floats.
        others: Name, language and text of a definition, encoding, and message, each of another topic; or of
            the topic that follows.
        profile, library: Texts in the header.
        options: Of the writer.
    """
    writer = McapWriter(str(path), **{'chunk_size': 300, **options})
    writer.start(profile, library)
    schema = writer.register_schema('std_msgs/msg/Float64', 'ros2msg', b'float64 data\n')
    channel = writer.register_channel('/x', 'cdr', schema)
    for number, (name, language, definition, encoding, message, *topic) in enumerate(others):
        other = writer.register_channel(
            *(topic or [f'/other{number}']), encoding, writer.register_schema(name, language, definition)
        )
        writer.add_message(other, 0, message, 0)
    for number, value in enumerate(values):
        writer.add_message(channel, 10 * number, b'\0\1\0\0' + struct.pack('<d', value), 10 * number)
    writer.add_metadata('m', {'a': 'b'})
    writer.add_attachment(1, 1, 'a.txt', 'text/plain', b'attached')
    writer.finish()
    return path


def values_of(target):
    with bags.open(target) as dataset:
        return dataset[0]['x.data'].tolist(), dataset[0]['x_time'].tolist()


NO_INDEX = {'index_types': IndexType.NONE, 'use_summary_offsets': False}


@pytest.mark.parametrize(
    'options',
    [{'compression': each} for each in CompressionType]
    + [{'use_chunking': False}, NO_INDEX, {**NO_INDEX, 'use_statistics': False}, {'use_statistics': False},
       {**NO_INDEX, 'use_statistics': False, 'repeat_channels': False, 'repeat_schemas': False},
       {'index_types': IndexType.CHUNK}, {'enable_data_crcs': True}],
)  # fmt: skip
def test_every_message_is_read_whatever_the_end_lists(options, tmp_path):
    done = bags.convert(write_mcap(tmp_path / 'a.mcap', **options), tmp_path / 'out')
    assert values_of(tmp_path / 'out') == (list(range(100)), list(range(0, 1000, 10)))
    assert any(note.endswith("a.mcap: attachments are left out: 'a.txt'") for note in done.notes)


@pytest.mark.parametrize('options', [{}, {'use_chunking': False}, {'compression': CompressionType.NONE}])
def test_a_recording_without_its_end(options, tmp_path):
    whole = write_mcap(tmp_path / 'whole.mcap', **options).read_bytes()
    found = set()
    for number, stop in enumerate(range(len(whole) // 5, len(whole), len(whole) // 9)):
        path = tmp_path / f'{number}.mcap'
        path.write_bytes(whole[:stop] + bytes(4096) * (number % 2))  # A file system may leave zeros.
        source = open_source(path, on_error='skip')
        done = bags.convert(path, tmp_path / f'{number} out', on_error='skip')
        values, _ = values_of(tmp_path / f'{number} out')
        assert values == list(range(len(values)))
        found.add(len(values))
        if source.damaged:
            assert f"on_error='skip' reads the {len(values)} messages" in done.skipped[0].error
            with pytest.raises(bags.SourceError, match='has no end: '):
                bags.convert(path, tmp_path / f'{number} raised')
        else:
            assert any('all messages are read' in each for each in source.notes)
            assert len(values) == 100
    assert max(found) == 100
    assert len(found) > 3


def test_a_folder_of_rosbag2_whose_file_has_no_end(tmp_path):
    record(tmp_path / 'run', np.arange(6e4), plugin=StoragePlugin.MCAP)
    path = tmp_path / 'run/run.mcap'
    path.write_bytes(path.read_bytes()[: 9 * path.stat().st_size // 10])
    with pytest.raises(bags.SourceError, match=r'run.mcap: has no end'):
        bags.convert(tmp_path / 'run', tmp_path / 'out')
    bags.convert(tmp_path / 'run', tmp_path / 'out', on_error='skip')
    with bags.open(tmp_path / 'out') as dataset:
        values = dataset[0]['value.data']
        assert 1e4 < len(values) < 6e4
        assert np.array_equal(values, np.arange(len(values)))


def test_nothing_whole_is_left_out(tmp_path):
    path = write_mcap(tmp_path / 'a.mcap')
    write_mcap(tmp_path / 'b.mcap')
    path.write_bytes(path.read_bytes()[:200])
    done = bags.convert(tmp_path, tmp_path / 'out', on_error='skip')
    assert done.datapoints == 1
    assert 'has no end' in done.skipped[0].error


@pytest.mark.parametrize('part', ['chunk', 'data', 'attachment', 'statistics'])
def test_checksums_are_compared(part, tmp_path):
    path = write_mcap(tmp_path / 'a.mcap', compression=CompressionType.NONE, enable_data_crcs=True)
    data = bytearray(path.read_bytes())
    texts = {'chunk': struct.pack('<d', 50), 'data': b'\x01\0\0\0b', 'attachment': b'attached'}
    data[data.index(texts.get(part, b'')) + 3] ^= 1
    if part == 'statistics':  # The damaged index is not used.
        data = bytearray(path.read_bytes())
        data[-60] ^= 1
        path.write_bytes(data)
        assert open_source(path).notes[-1].endswith('its index is missing or damaged; all messages are read')
        return
    path.write_bytes(data)
    with pytest.raises(bags.SourceError, match=r'(?i)expected.* CRC|checksum'):
        bags.convert(path, tmp_path / 'out')


@pytest.mark.parametrize('code', [7, 0x13, 0x80])
def test_a_chunk_that_is_not_one_is_an_error(code, tmp_path):
    path = write_mcap(tmp_path / 'a.mcap')
    data = bytearray(path.read_bytes())
    place = data.index(b'lz4') if b'lz4' in data else data.index(b'zstd')
    start = place - 4 - 28 - 9  # The code of the chunk, before its length and its header.
    assert data[start] == 6
    data[start] = code
    path.write_bytes(data)
    with pytest.raises(bags.SourceError, match=rf'expected a (chunk|record) at byte {start}'):
        bags.convert(path, tmp_path / 'out')


@pytest.mark.parametrize('options', [{}, {'use_chunking': False}, NO_INDEX])
@pytest.mark.parametrize(
    ('profile', 'library'), [('', ''), ('', 'a'), ('x', ''), ('ros1', 'x'), ('x-mine', '')]
)
def test_recordings_of_any_profile_are_read(profile, library, options, tmp_path):
    others = [('std_msgs/Float64', 'ros1msg', b'float64 data', 'ros1', bytes(8))]
    path = write_mcap(tmp_path / 'a.mcap', profile=profile, library=library, others=others, **options)
    done = bags.convert(path, tmp_path / 'out')
    assert values_of(tmp_path / 'out') == (list(range(100)), list(range(0, 1000, 10)))
    assert any("without messages of ROS 2 are left out: '/other0 (ros1)'" in note for note in done.notes)
    path.write_bytes(path.read_bytes()[:-40])
    bags.convert(path, tmp_path / 'cut', on_error='skip')
    assert values_of(tmp_path / 'cut')[0] == list(range(100))


def test_a_recording_without_messages_of_ros2_says_what_it_has(tmp_path):
    writer = McapWriter(str(tmp_path / 'a.mcap'))
    writer.start('ros1', 'tests')
    schema = writer.register_schema('std_msgs/Float64', 'ros1msg', b'float64 data')
    writer.add_message(writer.register_channel('/a', 'ros1', schema), 1, bytes(8), 1)
    writer.finish()
    detail = r"a.mcap: expected messages, found none; .*without messages of ROS 2 are left out: '/a \(ros1\)'"
    with pytest.raises(bags.SourceError, match=detail):
        open_source(tmp_path / 'a.mcap')
    write_mcap(tmp_path / 'b.mcap')
    assert bags.convert(tmp_path, tmp_path / 'out').datapoints == 2


STRING = ('std_msgs/msg/String', 'ros2msg', b'string data\n', 'cdr', b'\0\1\0\0\2\0\0\0x\0')


@pytest.mark.parametrize('options', [{}, {'use_chunking': False}])
def test_other_types_in_a_topic_are_left_out_with_a_note(options, tmp_path):
    path = write_mcap(tmp_path / 'a.mcap', others=[(*STRING, '/x')], **options)
    done = bags.convert(path, tmp_path / 'out')
    assert values_of(tmp_path / 'out')[0] == list(range(100))
    note = "topic '/x': 1 messages of std_msgs/msg/String are left out, as others are of std_msgs/msg/Float64"
    assert note in done.notes


@pytest.mark.parametrize('plugin', StoragePlugin)
def test_two_types_in_a_topic_of_rosbag2(plugin, tmp_path):
    message = STORE.types['std_msgs/msg/Int8']
    with Writer(tmp_path / 'run', version=9, storage_plugin=plugin) as writer:
        other = writer.add_connection('/value', message.__msgtype__, typestore=STORE)
        connection = writer.add_connection('/value', FLOAT.__msgtype__, typestore=STORE)
        writer.write(other, 1, STORE.serialize_cdr(message(data=3), message.__msgtype__))
        for number in range(2):
            writer.write(connection, 2, STORE.serialize_cdr(FLOAT(data=number / 2), FLOAT.__msgtype__))
    done = bags.convert(tmp_path / 'run', tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[0]['value.data'].tolist() == [0, 0.5]
    assert len(done.notes) == 1
    assert 'of std_msgs/msg/Int8 are left out' in done.notes[0]


def test_a_topic_that_changes_between_recordings_is_left_out_there(tmp_path):
    (tmp_path / 'in').mkdir()
    write_mcap(tmp_path / 'in/0.mcap', range(5), others=[STRING])
    record(tmp_path / 'in/1', [1.0, 2.0], '/other0', StoragePlugin.MCAP)
    done = bags.convert(tmp_path / 'in', tmp_path / 'out', format='mcap')
    with bags.open(tmp_path / 'out') as dataset:
        assert [row['other0.data'] for row in dataset] == [['x'], None]
        assert [row['x.data'] is None for row in dataset] == [False, True]
    note = '2 messages of std_msgs/msg/Float64 are left out, as others are of std_msgs/msg/String'
    assert any(f"1': topic '/other0': {note}" in each for each in done.notes)


def test_definitions_that_differ_between_topics_are_left_out_with_a_note(tmp_path):
    nested = b'my/N n\n' + b'=' * 80 + b'\nMSG: my/N\n'
    others = [
        ('my/msg/A', 'ros2msg', nested + b'float32 v\n', 'cdr', b'\0\1\0\0' + struct.pack('<f', 1.5)),
        ('my/msg/A', 'ros2msg', nested + b'int32 v\n', 'cdr', b'\0\1\0\0' + struct.pack('<i', 7)),
    ]
    done = bags.convert(write_mcap(tmp_path / 'a.mcap', others=others), tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[0]['x.data'].tolist() == list(range(100))
        assert dataset[0]['other1.n.v'].tolist() == [7]
    assert 'other0.n.v' not in done.spec
    detail = 'its definition of my/msg/N differs from other topics'
    assert f"topic '/other0' is left out: {detail}" in done.notes


def test_a_type_that_changes_between_recordings_is_left_out_there(tmp_path):
    (tmp_path / 'in').mkdir()
    for number, definition in enumerate((b'int32 v\n', b'int32 v\nint32 w\n')):
        message = b'\0\1\0\0' + struct.pack('<ii', 7, 8)[: 4 + 4 * number]
        others = [('my/msg/A', 'ros2msg', definition, 'cdr', message)]
        write_mcap(tmp_path / f'in/{number}.mcap', range(5), others=others)
    done = bags.convert(tmp_path / 'in', tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        values = [row['other0.v'] for row in dataset]
        assert (values[0].tolist(), values[1]) == ([7], None)
    detail = 'my/msg/A has other fields than in earlier recordings'
    assert any(f"1.mcap': topic '/other0' is left out: {detail}" in note for note in done.notes)


WIDE = b'wstring w\nint32 n'


def test_topics_that_cannot_be_read_are_left_out_with_a_note(tmp_path):
    nested = b'my/W[] list\n' + b'=' * 80 + b'\nMSG: my/W\n' + WIDE
    others = [
        ('my/msg/W', 'ros2msg', WIDE, 'cdr', b'\0\1\0\0' + bytes(8)),
        ('my/msg/V', 'ros2msg', nested, 'cdr', b'\0\1\0\0' + bytes(4)),
        ('my.Thing', 'jsonschema', b'{}', 'json', b'{}'),
        ('my.Other', 'protobuf', b'xyz', 'protobuf', b'abc'),
    ]
    done = bags.convert(write_mcap(tmp_path / 'a.mcap', others=others), tmp_path / 'out')
    assert values_of(tmp_path / 'out')[0] == list(range(100))
    assert set(done.spec) == {'x.data', 'x_time'}
    notes = '; '.join(done.notes)
    assert "topic '/other0' is left out: w: my/msg/wstring is not known" in notes
    assert "topic '/other1' is left out: list: w: my/msg/wstring is not known" in notes
    assert "topics without messages of ROS 2 are left out: '/other2 (json)', '/other3 (protobuf)'" in notes


@pytest.mark.parametrize('plugin', StoragePlugin)
def test_a_topic_of_wide_texts_in_a_folder_of_rosbag2(plugin, tmp_path):
    with Writer(tmp_path / 'run', version=9, storage_plugin=plugin) as writer:
        wide = writer.add_connection('/wide', 'my/msg/W', msgdef=WIDE.decode(), rihs01='RIHS01_' + '0' * 64)
        connection = writer.add_connection('/value', FLOAT.__msgtype__, typestore=STORE)
        writer.write(wide, 1, b'\0\1\0\0' + bytes(8))
        writer.write(connection, 2, STORE.serialize_cdr(FLOAT(data=1.5), FLOAT.__msgtype__))
    done = bags.convert(tmp_path / 'run', tmp_path / 'out')
    assert set(done.spec) == {'value.data', 'value_time'}
    assert done.notes == ["topic '/wide' is left out: w: my/msg/wstring is not known"]
    with pytest.raises(bags.SourceError, match=r'found none; topic .*/wide. is left out'):
        bags.convert(write_only_wide(tmp_path / 'only'), tmp_path / 'none')


def write_only_wide(path):
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        writer.add_connection('/wide', 'my/msg/W', msgdef=WIDE.decode(), rihs01='RIHS01_' + '0' * 64)
    return path
