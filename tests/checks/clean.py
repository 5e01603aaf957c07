"""Datasets without mistakes, as people have them: a check finds no error in them, and at most one warning.

They were written before the bounds of the checks were set. Real photographs, videos and speech come from
examples/data; robots, sensors and tokens are computed.
"""

import json
import zlib
from pathlib import Path

import numpy as np

import bags

DATA = Path(__file__).parent.parent.parent / 'examples' / 'data'
PHOTOS = sorted(DATA.glob('*.jpg'))
SPEECH = sorted(DATA.glob('austen-*.flac'))
WORDS = (DATA / 'austen-1.txt').read_text(encoding='utf-8').split()
TASKS = ('pick the cube', 'open the drawer', 'push the button')

CLEAN = {}
"""Function that writes each dataset into a folder, by name."""


def clean(function):
    CLEAN[function.__name__] = function
    return function


def write(path, spec, rows, metadata=None, **options):
    fields = {'fields': metadata} if metadata and 'fields' not in metadata else metadata
    with bags.DatasetWriter(path, spec, metadata=fields, **options) as writer:
        for row in rows:
            writer.append(row)


def generator(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def path_between(rng, length, joints, speed=0.03):
    """Returns a smooth path of joints, float32 (length, joints): it starts and ends at rest."""
    goals = rng.uniform(-1.5, 1.5, (2 + length // 60, joints))
    positions = np.linspace(0, len(goals) - 1, length)
    before = positions.astype(int).clip(0, len(goals) - 2)
    phase = (positions - before)[:, None]
    smooth = phase**2 * (3 - 2 * phase)
    path = goals[before] * (1 - smooth) + goals[before + 1] * smooth
    return (path + rng.normal(0, speed / 100, path.shape)).astype(np.float32)


def grip(rng, length):
    """Returns an opening and closing gripper, float32 (length,): 0 or 1."""
    closed, opened = sorted(rng.integers(length // 5, length, 2).tolist())
    gripper = np.zeros(length, np.float32)
    gripper[closed:opened] = 1
    return gripper


def robot(
    name, path, count=24, hertz=30, joints=6, gripper='binary', idle=0, jitter=0.02, unused=(), tasks=TASKS,
    lag=2, length=(90, 200), timed=True, **facts
):  # fmt: skip
    """Writes episodes of an arm with a state and an action that leads it."""
    rng = generator(name)
    spec = {'id': 'int(8)', 'task': 'utf8', 'success': 'bool'}
    dimensions = joints + (gripper is not None)
    spec |= {'state': f'array(float32,{dimensions})[]', 'action': f'array(float32,{dimensions})[]'}
    metadata = {'state': {'rate': hertz, **facts}, 'action': {'rate': hertz}}
    if timed:
        spec['time'] = 'float(8)[]'
        metadata = {'state': {'times': 'time', **facts}, 'action': {'times': 'time'}, 'time': {'unit': 's'}}

    def rows():
        for number in range(count):
            steps = int(rng.integers(*length))
            path = path_between(rng, steps + lag, joints)
            path[:, list(unused)] = 0.25
            path[: min(idle, steps // 2)] = path[min(idle, steps // 2)]
            if gripper == 'binary':
                path = np.concatenate([path, grip(rng, steps + lag)[:, None]], 1)
            elif gripper == 'continuous':
                smooth = np.convolve(grip(rng, steps + lag), np.ones(9) / 9, 'same')
                path = np.concatenate([path, (0.08 * smooth).astype(np.float32)[:, None]], 1)
            row = {
                'id': number, 'task': tasks[number % len(tasks)], 'success': True,
                'state': path[:steps], 'action': path[lag:],
            }  # fmt: skip
            if timed:
                noise = rng.normal(0, jitter / hertz, steps)
                row['time'] = 100.0 * number + np.sort(np.arange(steps) / hertz + noise)
            yield row

    write(path, spec, rows(), metadata)


# Robots.


@clean
def arm_with_binary_gripper(path):
    robot('arm', path)


@clean
def arm_with_continuous_gripper(path):
    robot('continuous', path, gripper='continuous')


@clean
def arm_without_gripper(path):
    robot('bare', path, gripper=None)


@clean
def arm_with_unused_joint(path):
    robot('unused', path, joints=7, unused=[3])


@clean
def arm_with_idle_start(path):
    robot('idle', path, idle=45)


@clean
def arm_with_one_task(path):
    robot('task', path, tasks=['pick the cube and put it into the box'])


@clean
def arm_with_rate_only(path):
    robot('rate', path, timed=False)


@clean
def arm_at_200_hertz(path):
    robot('fast', path, hertz=200, count=12, length=(700, 1200))


@clean
def arm_with_usb_jitter(path):
    robot('usb', path, jitter=0.12)


@clean
def arm_with_two_arms(path):
    robot('two', path, joints=14, names=[f'joint {number}' for number in range(15)])


@clean
def arm_without_lag(path):
    robot('mirror', path, lag=0)


@clean
def few_episodes(path):
    robot('few', path, count=3)


@clean
def one_episode(path):
    robot('one', path, count=1)


@clean
def episodes_of_very_different_length(path):
    robot('lengths', path, count=40, length=(40, 900), joints=3)


@clean
def delta_actions(path):
    """Actions are differences, most of them near zero, clipped to [-1, 1] at some steps."""
    rng = generator('delta')
    spec = {'task': 'utf8', 'state': 'array(float32,7)[]', 'action': 'array(float32,7)[]'}

    def rows():
        for _ in range(30):
            states = path_between(rng, 121, 7)
            deltas = np.clip(np.diff(states, axis=0) * 40, -1, 1)
            deltas[:, 6] = np.where(rng.random(120) < 0.5, -1, 1)
            yield {'task': TASKS[0], 'state': states[:-1], 'action': deltas}

    write(path, spec, rows(), {'state': {'rate': 10}, 'action': {'rate': 10}})


@clean
def mobile_base(path):
    """A base that stands still for most of the time, with velocities that are exactly zero."""
    rng = generator('base')

    def rows():
        for _ in range(20):
            steps = int(rng.integers(200, 300))
            velocity = np.zeros((steps, 2), np.float32)
            start = int(rng.integers(20, 100))
            velocity[start : start + 60] = rng.normal(0.5, 0.1, (60, 2))
            pose = np.cumsum(velocity, 0).astype(np.float32) / 20
            yield {'pose': pose, 'velocity': velocity, 'bumper': rng.random(steps) < 0.02}

    spec = {'pose': 'array(float32,2)[]', 'velocity': 'array(float32,2)[]', 'bumper': 'bool[]'}
    write(path, spec, rows(), {name: {'rate': 20} for name in spec})


@clean
def rewards_at_the_end(path):
    """Reinforcement learning: the reward is zero except at the last step; done is a flag."""
    rng = generator('reward')

    def rows():
        for _ in range(50):
            steps = int(rng.integers(30, 200))
            reward = np.zeros(steps)
            reward[-1] = 1
            done = np.zeros(steps, bool)
            done[-1] = True
            observation = rng.normal(0, 1, (steps, 4)).cumsum(0).astype(np.float32)
            yield {
                'observation': observation, 'action': rng.integers(0, 2, steps), 'reward': reward,
                'done': done,
            }  # fmt: skip

    spec = {
        'observation': 'array(float32,4)[]',
        'action': 'int(8)[]',
        'reward': 'float(8)[]',
        'done': 'bool[]',
    }
    write(path, spec, rows())


@clean
def robot_with_cameras(path):
    """Frames as PNG beside states at another rate; each with its times."""
    rng = generator('cameras')
    spec = {
        'task': 'utf8', 'front': 'png[]', 'front_time': 'float(8)[]', 'state': 'array(float32,3)[]',
        'state_time': 'float(8)[]',
    }  # fmt: skip

    def rows():
        for _ in range(6):
            count = int(rng.integers(20, 40))
            frames = rng.integers(0, 255, (count, 12, 16, 3), np.uint8)
            yield {
                'task': TASKS[1],
                'front': list(frames),
                'front_time': np.arange(count) / 10 + rng.uniform(0, 0.01),
                'state': path_between(rng, 10 * count, 3),
                'state_time': np.arange(10 * count) / 100 + rng.uniform(0, 0.005),
            }

    facts = {
        'front': {'times': 'front_time'}, 'state': {'times': 'state_time'}, 'front_time': {'unit': 's'},
        'state_time': {'unit': 's'},
    }  # fmt: skip
    write(path, spec, rows(), facts, checksum=True)


@clean
def robot_with_video_clips(path):
    """Episodes that were recorded item by item: a video in clips and joints, with events."""
    rng = generator('clips')
    spec = {
        'front': 'mp4(30)[]', 'state': 'array(float32,7)[]', 'events': 'utf8[]', 'event_time': 'float(8)[]',
    }  # fmt: skip
    facts = {'front': {'rate': 30}, 'state': {'rate': 100}, 'events': {'times': 'event_time'}}

    def rows():
        for _ in range(4):
            y, x = np.mgrid[:48, :64]
            frames = np.stack(
                [np.stack([(x * 3 + 4 * t) % 256, (y * 4) % 256, (x + y + t) % 256], -1) for t in range(60)]
            ).astype(np.uint8)
            yield {
                'front': [frames[:30], frames[30:]], 'state': path_between(rng, 200, 7),
                'events': ['reach', 'grasp', 'lift'], 'event_time': [0.2, 0.9, 1.4 + 0.3 * rng.random()],
            }  # fmt: skip

    write(path, spec, rows(), {'fields': facts})


@clean
def calibration_in_every_episode(path):
    """A camera matrix that is the same in all episodes, a serial number, a constant frame rate."""
    rng = generator('calibration')
    matrix = np.array([[600, 0, 320], [0, 600, 240], [0, 0, 1]], np.float64)
    spec = {
        'matrix': 'array(float64,3,3)', 'serial': 'utf8', 'fps': 'float(8)', 'state': 'array(float32,2)[]',
    }  # fmt: skip
    rows = (
        {'matrix': matrix, 'serial': 'CAM-0017', 'fps': 30.0, 'state': path_between(rng, 80, 2)}
        for _ in range(25)
    )
    write(path, spec, rows, {'state': {'rate': 30}})


@clean
def tactile_sensor(path):
    """Taxels of which most are zero, integers of a converter, of which a few reach the full scale."""
    rng = generator('tactile')

    def rows():
        for _ in range(20):
            press = np.zeros((100, 16), np.uint16)
            touched = rng.integers(0, 16, 4)
            curve = 900 * np.sin(np.linspace(0, np.pi, 60)) ** 2
            press[20:80, touched] = np.clip(curve[:, None] * rng.uniform(0.5, 1.3, 4), 0, 1023)
            yield {'taxels': press}

    write(path, {'taxels': 'array(uint16,16)[]'}, rows(), {'taxels': {'rate': 50}})


@clean
def imu(path):
    """An inertial sensor: noise around gravity."""
    rng = generator('imu')
    rows = (
        {
            'acceleration': (rng.normal(0, 0.05, (400, 3)) + np.array([0, 0, 9.81])).astype(np.float32),
            'time': np.arange(400) * 5_000_000 + 1_700_000_000_000_000_000 + 10**10 * number,
        }
        for number in range(15)
    )
    facts = {'acceleration': {'times': 'time'}, 'time': {'unit': 'ns'}}
    write(path, {'acceleration': 'array(float32,3)[]', 'time': 'int(8)[]'}, rows, facts)


@clean
def force_with_contacts(path):
    """Forces that are near zero until contact, then rise within a few steps."""
    rng = generator('force')

    def rows():
        for _ in range(25):
            force = rng.normal(0, 0.02, (300, 3))
            start, stop = sorted(rng.integers(60, 280, 2).tolist())
            force[start:stop, 2] += 12 * (1 - np.exp(-np.arange(stop - start) / 6))
            yield {'force': force.astype(np.float32)}

    write(path, {'force': 'array(float32,3)[]'}, rows(), {'force': {'rate': 100}})


@clean
def wheel_angle(path):
    """A continuous joint whose angle wraps from π to -π."""
    rng = generator('wheel')

    def rows():
        for _ in range(20):
            angle = np.cumsum(rng.normal(0.1, 0.02, 400))
            yield {'wheel': ((angle + np.pi) % (2 * np.pi) - np.pi).astype(np.float32)}

    write(path, {'wheel': 'float(4)[]'}, rows(), {'wheel': {'rate': 50}})


@clean
def arm_with_steps_of_an_encoder(path):
    """Angles in degrees in 4,096 steps a turn, which stay the same while the arm is slow."""
    rng = generator('encoder')

    def rows():
        for _ in range(40):
            steps = int(rng.integers(200, 500))
            angles = np.round(path_between(rng, steps + 3, 6) * 2048 / np.pi) * 360 / 4096
            yield {'action': angles[3:].astype(np.float32), 'state': angles[:-3].astype(np.float32)}

    spec = {'action': 'array(float32,6)[]', 'state': 'array(float32,6)[]'}
    write(path, spec, rows(), {'action': {'rate': 30}, 'state': {'rate': 30}})


@clean
def simulation_with_pauses(path):
    """A simulated robot without noise, which waits during each episode."""
    rng = generator('simulation')

    def rows():
        for _ in range(30):
            qpos = path_between(rng, 401, 14, speed=0)
            start = int(rng.integers(100, 200))
            qpos[start : start + 40] = qpos[start]
            qpos[start + 40 :] += qpos[start] - qpos[start + 40]
            yield {'qpos': qpos[:-1], 'action': qpos[1:]}

    spec = {'qpos': 'array(float32,14)[]', 'action': 'array(float32,14)[]'}
    write(path, spec, rows(), {'qpos': {'rate': 50}, 'action': {'rate': 50}})


@clean
def actions_of_a_keyboard(path):
    """Commands of three values, each held for several steps."""
    rng = generator('keyboard')

    def rows():
        for _ in range(40):
            steps = int(rng.integers(60, 200))
            action = 0.05 * rng.integers(-1, 2, (steps // 8 + 1, 3)).repeat(8, 0)[:steps]
            state = np.cumsum(action, 0) + rng.normal(0, 0.001, (steps, 3))
            yield {'state': state.astype(np.float32), 'action': action.astype(np.float32)}

    spec = {'state': 'array(float32,3)[]', 'action': 'array(float32,3)[]'}
    write(path, spec, rows(), {'state': {'rate': 20}, 'action': {'rate': 20}})


# Photographs, with and without labels.


@clean
def photographs(path):
    rows = ({'image': photo, 'caption': photo.with_suffix('.txt').read_text().strip()} for photo in PHOTOS)
    write(path, {'image': 'jpeg', 'caption': 'utf8'}, rows, checksum=True)


@clean
def photographs_without_checksums(path):
    write(path, {'name': 'utf8', 'image': 'jpeg'}, ({'name': p.stem, 'image': p} for p in PHOTOS))


@clean
def labels_in_order(path):
    """A folder of classes: all images of a class after one another, some classes larger than others."""
    rng = generator('classes')
    classes = ['cat', 'dog', 'owl', 'fox']
    counts = [60, 40, 30, 8]

    def rows():
        for label, count in enumerate(counts):
            for number in range(count):
                image = rng.integers(0, 255, (16, 16, 3), np.uint8)
                yield {'image': image, 'label': label, 'name': f'{classes[label]}/{number:04}.png'}

    spec = {'image': 'png', 'label': 'int(8)', 'name': 'utf8'}
    write(path, spec, rows(), {'label': {'classes': classes}}, checksum=True)


@clean
def photographs_in_splits(path):
    rng = generator('splits')
    rows = (
        {
            'image': rng.integers(0, 255, (12, 12, 3), np.uint8),
            'label': int(rng.integers(0, 10)),
            'split': 'val' if number % 10 == 0 else 'train',
        }
        for number in range(120)
    )
    write(path, {'image': 'png', 'label': 'int(8)', 'split': 'utf8'}, rows, checksum=True)


@clean
def boxes(path):
    """Detection: a varying number of boxes, none in some images."""
    rng = generator('boxes')

    def rows():
        for number in range(60):
            count = 0 if number % 7 == 0 else int(rng.integers(1, 9))
            corners = np.sort(rng.uniform(0, 64, (count, 2, 2)), 1)
            yield {
                'photo': rng.integers(0, 255, (64, 64, 3), np.uint8),
                'boxes': corners.reshape(count, 4).astype(np.float32),
                'labels': rng.integers(0, 3, count),
            }

    spec = {'photo': 'png', 'boxes': 'array(float32,4)[]', 'labels': 'int(8)[]'}
    facts = {
        'boxes': {'over': 'photo', 'format': 'xyxy', 'labels': 'labels'},
        'labels': {'classes': ['car', 'bus', 'van']},
    }
    write(path, spec, rows(), facts)


@clean
def depth(path):
    """Depth maps with NaN where there is no echo, beside pictures."""
    rng = generator('depth')

    def rows():
        for _ in range(20):
            depth = rng.uniform(0.4, 3, (24, 32)).astype(np.float32)
            depth[rng.random((24, 32)) < 0.1] = np.nan
            yield {'picture': rng.integers(0, 255, (24, 32, 3), np.uint8), 'depth': depth}

    write(path, {'picture': 'png', 'depth': 'array(float32,24,32)'}, rows())


@clean
def embeddings(path):
    rng = generator('embeddings')

    def rows():
        for number in range(300):
            vector = rng.normal(0, 1, 64)
            yield {'key': f'{number:08x}', 'vector': (vector / np.linalg.norm(vector)).astype(np.float16)}

    write(path, {'key': 'utf8', 'vector': 'array(float16,64)'}, rows())


# Speech and sound.


@clean
def speech(path):
    rows = (
        {'speaker': 'austen', 'sound': sound, 'text': sound.with_suffix('.txt').read_text().strip()}
        for sound in SPEECH
    )
    write(path, {'speaker': 'utf8', 'sound': 'flac', 'text': 'utf8'}, rows, checksum=True)


@clean
def speech_with_words(path):
    """Words with times in utterances of very different lengths, a few of one word."""
    rng = generator('words')

    def rows():
        for number in range(80):
            words = WORDS[number : number + max(1, int(rng.lognormal(2, 0.8)))] or WORDS[:2]
            starts = np.cumsum(rng.lognormal(-1.3, 0.5, len(words)))
            yield {'words': words, 'start': starts, 'speaker': f'speaker {number % 5}'}

    spec = {'words': 'utf8[]', 'start': 'float(8)[]', 'speaker': 'utf8'}
    write(path, spec, rows(), {'words': {'times': 'start'}})


@clean
def sound_in_blocks(path):
    def rows():
        for sound in SPEECH:
            samples, rate = bags.decoders['flac'](sound.read_bytes())
            yield {'mic': [(samples[start : start + 4000], rate) for start in range(0, 40_000, 4000)]}

    write(path, {'mic': 'flac[]'}, rows(), {'mic': {'rate': 16000}} if rate_of(SPEECH[0]) == 16000 else None)


def rate_of(path):
    return bags.decoders['flac'](path.read_bytes())[1]


# Texts, tokens, tables.


@clean
def tokens(path):
    """Documents as tokens: lengths vary by a factor of a hundred, with a padding token and an end token."""
    rng = generator('tokens')

    def rows():
        for number in range(200):
            count = int(rng.lognormal(5, 1)) + 1
            yield {
                'tokens': np.append(rng.zipf(1.3, count).clip(2, 31_999), 1),
                'source': f'book {number % 3}',
            }

    write(path, {'tokens': 'uint(2)[]', 'source': 'utf8'}, rows(), {'tokens': {'vocabulary': 32_000}})


@clean
def chat(path):
    """Conversations as JSON, with names, repeated system prompts and texts of other languages."""
    texts = ['Hello, how are you?', 'Grüße aus Köln – schön!', '你好,世界', 'Olá, tudo bem? 😀', 'Привет']
    rows = (
        {
            'id': f'chat-{number}', 'system': 'You are a helpful assistant.', 'prompt': texts[number % 5],
            'turns': [{'role': 'user', 'text': texts[number % 5]}],
            'rating': None if number % 3 else number % 5,
        }
        for number in range(100)
    )  # fmt: skip
    write(
        path, {'id': 'utf8', 'system': 'utf8', 'prompt': 'utf8', 'turns': 'json', 'rating': 'int(8)?'}, rows
    )


@clean
def captions(path):
    """Texts with quotation marks and dots after capitals with accents, and of several alphabets."""
    texts = [
        'UN CAFÉ… À EMPORTER', '“FIANCÉ”', 'naïve façade', '¿Qué?', 'Ünïcödé', '日本語', 'смотри', 'a\tb',
        '100 °C ± 2', '£5 – €6',
    ]  # fmt: skip
    rows = ({'key': f'{number}', 'text': f'{texts[number % 10]} {number // 20}'} for number in range(200))
    write(path, {'key': 'utf8', 'text': 'utf8'}, rows)


@clean
def table(path):
    """A table with skewed numbers, missing values and a constant column."""
    rng = generator('table')
    rows = (
        {
            'key': number, 'price': float(rng.lognormal(3, 1.5)), 'count': int(rng.poisson(0.3)),
            'note': None if rng.random() < 0.6 else 'checked', 'version': 3,
            'height': float(rng.normal(170, 9)),
        }
        for number in range(500)
    )  # fmt: skip
    spec = {
        'key': 'int(8)', 'price': 'float(8)', 'count': 'int(8)', 'note': 'utf8?', 'version': 'int(4)',
        'height': 'float(8)',
    }  # fmt: skip
    write(path, spec, rows)


@clean
def arrays_of_any_shape(path):
    """Point clouds and masks whose sizes differ, as `array`; the dtype is always the same."""
    rng = generator('shapes')

    def rows():
        for _ in range(30):
            points = rng.normal(0, 1, (int(rng.integers(50, 400)), 3)).astype(np.float32)
            yield {'points': points, 'mask': rng.integers(0, 2, (int(rng.integers(8, 32)), 16), np.uint8)}

    write(path, {'points': 'array(float32,?,3)', 'mask': 'array'}, rows())


@clean
def weather_station(path):
    """A slow sensor with one value a minute, and a day and night cycle."""
    rng = generator('weather')
    minutes = np.arange(1440)

    def rows():
        for day in range(14):
            celsius = 15 + 8 * np.sin((minutes - 480) * 2 * np.pi / 1440) + rng.normal(0, 0.3, 1440) + day % 5
            yield {'celsius': celsius, 'time': 60.0 * (minutes + 1440 * day)}

    facts = {'celsius': {'times': 'time'}, 'time': {'unit': 's'}}
    write(path, {'celsius': 'float(8)[]', 'time': 'float(8)[]'}, rows(), facts)


@clean
def camera_that_moves(path):
    """A hand camera: pictures cut from photographs along a path, with the noise of a sensor."""
    rng = generator('hand')
    photos = [bags.decoders['jpeg'](photo.read_bytes()) for photo in PHOTOS]
    photos = [photo for photo in photos if min(photo.shape[:2]) > 200 and photo.ndim == 3]

    def rows():
        for number in range(12):
            photo = photos[number % 3]
            top, left = rng.integers(0, 40, 2)
            frames = [photo[top + 2 * k : top + 2 * k + 96, left + k : left + k + 128] for k in range(40)]
            noise = rng.normal(0, 3, (40, 96, 128, 1))
            yield {
                'hand': list((np.stack(frames) + noise).clip(0, 255).astype(np.uint8)),
                'mic': (rng.normal(0, 0.05, 16000).clip(-1, 1).astype(np.float32) * 32767).astype(np.int16),
                'state': path_between(rng, 40, 3),
            }

    def with_rate(row):
        return {**row, 'mic': (row['mic'], 12000)}

    spec = {'hand': 'jpeg(90)[]', 'mic': 'flac', 'state': 'array(float32,3)[]'}
    facts = {'hand': {'rate': 30}, 'state': {'rate': 30}}
    write(path, spec, map(with_rate, rows()), facts)


@clean
def video_that_moves(path):
    """The same as a video of its own in each datapoint, beside a state for each frame."""
    rng = generator('film')
    photos = [bags.decoders['jpeg'](photo.read_bytes()) for photo in PHOTOS]
    photos = [photo for photo in photos if min(photo.shape[:2]) > 200 and photo.ndim == 3]

    def rows():
        for number in range(10):
            count = int(rng.integers(45, 60))
            top, left = rng.integers(0, 20, 2)
            frames = [
                photos[number % 3][top + k : top + k + 96, left + k : left + k + 128] for k in range(count)
            ]
            noise = rng.normal(0, 3, (count, 96, 128, 1))
            frames = (np.stack(frames) + noise).clip(0, 255).astype(np.uint8)
            yield {'front': frames, 'state': path_between(rng, count, 3)}

    facts = {'front': {'rate': 30}, 'state': {'rate': 30}}
    write(path, {'front': 'mp4(30)', 'state': 'array(float32,3)[]'}, rows(), facts)


def scene_of_fixed_camera(arm, shift=0):
    """A smooth scene behind a dark arm, from a camera that may have moved by some pixels."""
    rng = np.random.default_rng(11)  # The scene is the same in all datapoints.
    blobs = [(*rng.uniform(0, 1, 2), rng.uniform(0.04, 0.12), *rng.uniform(-90, 90, 3)) for _ in range(60)]
    y, x = np.mgrid[:72, : 96 + 32] / 96
    picture = np.full((72, 128, 3), 120.0)
    for top, left, size, *color in blobs:
        shape = np.exp(-((y - top) ** 2 + (x - 1.33 * left) ** 2) / (2 * size**2))
        picture += shape[:, :, None] * color
    picture = picture[:, shift : shift + 96]
    picture[int(30 * (1 - arm)) + 20 :, int(70 * arm) : int(70 * arm) + 16] = 30
    return picture


@clean
def fixed_camera(path):
    """A camera that the metadata calls fixed: an arm moves, the light changes, the sensor has noise."""
    rng = generator('fixed camera')

    def rows():
        for number in range(20):
            frames = []
            for step in range(8):
                picture = scene_of_fixed_camera((step + number % 5) / 12) * (0.8 + 0.02 * number)
                frames.append((picture + rng.normal(0, 2, picture.shape)).clip(0, 255).astype(np.uint8))
            yield {'front': frames}

    write(path, {'front': 'jpeg(85)[]'}, rows(), {'front': {'rate': 10, 'fixed': True}})


@clean
def empty(path):
    write(path, {'id': 'int(8)', 'state': 'array(float32,2)[]'}, [])


@clean
def demo(path):
    """The media of the demo: photographs, a video in clips, sound; with credits."""
    credits = json.loads((DATA / 'credits.json').read_text(encoding='utf-8'))

    def rows():
        for name in sorted(credits):
            caption = (DATA / f'{name}.txt').read_text(encoding='utf-8').strip()
            photo, video, sound = (DATA / f'{name}{suffix}' for suffix in ('.jpg', '.mp4', '.flac'))
            clips = [] if not video.exists() else list(bags.cut_clips(video, frames=25))
            yield {
                'name': name, 'caption': caption, 'words': caption.split(), 'credits': credits[name],
                'image': photo if photo.exists() else None, 'clips': clips,
                'audio': sound if sound.exists() else None,
            }  # fmt: skip

    spec = {
        'name': 'utf8', 'caption': 'utf8', 'words': 'utf8[]', 'image': 'jpeg?', 'clips': 'mp4(25)[]',
        'audio': 'flac?', 'credits': 'json',
    }  # fmt: skip
    write(path, spec, rows())


def write_all(folder):
    """Writes all datasets below a folder, and returns their paths by name."""
    paths = {}
    for name, function in CLEAN.items():
        paths[name] = Path(folder) / name
        function(paths[name])
    return paths
