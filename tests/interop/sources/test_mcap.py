"""Recordings of ROS: every value equals that of the MCAP library's reader."""

import contextlib
import io
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

import bags
from bags.interop.open_source import open_source

GOLDEN = Path(__file__).parent / 'golden' / 'recording.mcap'
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
        stored = list(dataset.items('camera.data'))
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
        windows = bags.windows(dataset, {'poses.size': bags.times(-0.1, 0)}, every='speed.data')
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
