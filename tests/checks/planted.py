"""Mistakes planted in the clean datasets: each kind at several severities, with what has to be found."""

import copy
import dataclasses
from collections.abc import Callable

import numpy as np

import bags
from bags.dataset.open import open_with_known_decoders
from bags.display.values import UNDECODED
from tests.checks.clean import scene_of_fixed_camera

PLANTED = []


@dataclasses.dataclass
class Planted:
    """A kind of mistake: a function that plants it in the rows of a dataset, and what is to be found."""

    name: str
    dataset: str
    check: str
    field: str | None
    severities: tuple
    plant: Callable
    """Takes a dict of the rows, the spec and the metadata, which it changes, and a severity; returns the
    datapoints with the mistake, or None if it is one of the whole field."""
    options: dict

    def write(self, clean, path, severity):
        """Writes a clean dataset with the mistake into a folder, and returns the wrong datapoints."""
        with open_with_known_decoders(clean, UNDECODED) as dataset:
            rows = [copy.deepcopy(dict(row)) for row in dataset]
            spec, metadata = dict(dataset.spec), copy.deepcopy(dataset.metadata)
            checksum = bool(list(clean.rglob('*.xxh3')))
        data = {'rows': rows, 'spec': spec, 'metadata': metadata}
        wrong = self.plant(data, severity)
        with bags.DatasetWriter(path, spec, metadata=metadata, checksum=checksum) as writer:
            for row in rows:
                writer.append(row)
        return wrong


def planted(dataset, check, field, *severities, **options):
    def add(function):
        PLANTED.append(
            Planted(function.__name__, dataset, check, field, severities or (None,), function, options)
        )
        return function

    return add


def middle(row, field, before=0):
    return len(row[field]) // 2 - before


# Clocks and lengths.


@planted('arm_with_binary_gripper', 'falling_items', 'state', 0.001, 0.1, 5.0)
def falling_clock(data, seconds):
    times = data['rows'][5]['time']
    at = len(times) // 3
    times[at] = times[at - 1] - seconds
    return [5]


@planted('arm_with_binary_gripper', 'repeated_time_items', 'state', 1, 10)
def repeated_times(data, count):
    times = data['rows'][6]['time']
    for at in range(21, 21 + count):
        times[at] = times[20]
    return [6]


@planted('arm_with_binary_gripper', 'gap_seconds', 'state', 0.3, 1.0, 10.0)
def gap(data, seconds):
    for number in (3, 11):
        times = data['rows'][number]['time']
        times[len(times) // 2 :] += seconds
    return [3, 11]


@planted('arm_with_binary_gripper', 'dropped_share', 'state', 0.05, 0.2)
def dropped_items(data, share):
    row = data['rows'][7]
    count = len(row['time'])
    kept = np.ones(count, bool)
    kept[5 : count - 5 : round(1 / share)] = False
    for name in ('time', 'state', 'action'):
        row[name] = row[name][kept]
    return [7]


@planted('arm_with_binary_gripper', 'jitter_share', 'state', 0.45, 1.5)
def jitter(data, spread):
    times = data['rows'][9]['time']
    rng = np.random.default_rng(0)
    data['rows'][9]['time'] = np.sort(times + rng.uniform(-spread, spread, len(times)) / 30)
    return [9]


@planted('arm_with_binary_gripper', 'rate_share', 'state', 0.95, 1.04, 2.0)
def clock_that_drifts(data, factor):
    times = data['rows'][2]['time']
    data['rows'][2]['time'] = times[0] + (times - times[0]) * factor
    return [2]


@planted('arm_with_binary_gripper', 'stated_rate_share', 'state', 25, 60)
def rate_beside_metadata(data, rate):
    data['metadata']['fields']['state']['rate'] = rate
    return range(len(data['rows']))


@planted('robot_with_cameras', 'stream_drift_seconds', 'state', 0.5, 2.0)
def streams_that_drift(data, seconds):
    times = data['rows'][3]['state_time']
    data['rows'][3]['state_time'] = times * (1 + seconds / (times[-1] - times[0]))
    return [3]


@planted('robot_with_cameras', 'stream_drift_seconds', 'state', 30, 100)
def stream_that_stops_early(data, count):
    for name in ('state', 'state_time'):
        data['rows'][4][name] = data['rows'][4][name][:-count]
    return [4]


@planted('arm_with_rate_only', 'unequal_items', 'action', 1, 20)
def frames_unlike_states(data, count):
    data['rows'][8]['action'] = data['rows'][8]['action'][:-count]
    return [8]


@planted('arm_with_binary_gripper', 'untimed_items', 'state', 1, 30)
def states_unlike_times(data, count):
    data['rows'][8]['state'] = data['rows'][8]['state'][count:]
    return [8]


@planted('boxes', 'unequal_items', 'labels', 1, 5)
def labels_unlike_boxes(data, count):
    data['rows'][5]['labels'] = np.append(data['rows'][5]['labels'], np.zeros(count, np.int64))
    return [5]


@planted('arm_with_rate_only', 'length_deviations', 'state', 2, 5, 3000)
def episode_of_another_length(data, count):
    row = data['rows'][4]
    for name in ('state', 'action'):
        row[name] = np.resize(row[name], (count, 7)) if count > len(row[name]) else row[name][:count]
    return [4]


@planted('arm_with_rate_only', 'window_missing_items', 'state', 99, 50, window=100)
def episode_shorter_than_a_window(data, count):
    for row in data['rows']:
        row['state'], row['action'] = np.tile(row['state'], (2, 1)), np.tile(row['action'], (2, 1))
    for name in ('state', 'action'):
        data['rows'][6][name] = data['rows'][6][name][:count]
    return [6]


@planted('arm_with_rate_only', 'empty_sequences', 'state', 1, 2)
def episode_without_items(data, count):
    for row in data['rows'][10 : 10 + count]:
        row['state'] = row['state'][:0]
    return list(range(10, 10 + count))


# Numbers.


@planted('arm_with_binary_gripper', 'nan_values', 'state', 1, 50)
def nan(data, count):
    row = data['rows'][5]
    row['state'][10 : 10 + count, 2] = np.nan
    return [5]


@planted('arm_with_binary_gripper', 'nan_values', 'action', -np.inf, np.inf)
def inf(data, value):
    data['rows'][13]['action'][4, 0] = value
    return [13]


@planted('embeddings', 'nan_values', 'vector', 1, 64)
def nan_in_an_embedding(data, count):
    data['rows'][200]['vector'][:count] = np.nan
    return [200]


@planted('table', 'nan_numbers', 'height', 1, 20)
def nan_in_a_number(data, count):
    for row in data['rows'][40 : 40 + count]:
        row['height'] = float('nan')
    return list(range(40, 40 + count))


@planted('arm_with_binary_gripper', 'outlier_ranges', 'state', 30.0, 1e6)
def outlier(data, value):
    data['rows'][5]['state'][17, 1] = value
    return [5]


@planted('imu', 'outlier_ranges', 'acceleration', 30.0, -1e4)
def outlier_of_a_sensor(data, value):
    data['rows'][5]['acceleration'][17, 1] = value
    return [5]


@planted('arm_with_binary_gripper', 'jump_steps', 'state', 1.5, 3.0)
def jump(data, size):
    data['rows'][5]['state'][40:, 1] += size
    return [5]


@planted('arm_with_binary_gripper', 'stuck_seconds', 'state', 0.8, 2.0)
def frozen_state(data, seconds):
    row = data['rows'][12]
    count = round(seconds * 30)
    row['state'][15 : 15 + count] = row['state'][15]
    return [12]


@planted('arm_with_rate_only', 'stuck_seconds', 'state', 0.8, 2.0)
def frozen_state_at_a_rate(data, seconds):
    row = data['rows'][12]
    row['state'][15 : 15 + round(seconds * 30)] = row['state'][15]
    return [12]


@planted('rewards_at_the_end', 'stuck_items', 'observation', 20, 25)
def frozen_observation(data, count):
    long = next(number for number, row in enumerate(data['rows']) if len(row['observation']) > 60)
    row = data['rows'][long]
    row['observation'][15 : 15 + count] = row['observation'][15]
    return [long]


@planted('arm_with_continuous_gripper', 'still_dimensions', 'action', 1, 2)
def gripper_that_never_moved(data, count):
    for row in data['rows'][5 : 5 + count]:
        row['action'][:, 6] = row['state'][:, 6] = 0
    return list(range(5, 5 + count))


@planted('arm_with_binary_gripper', 'still_dimensions', 'state', 0, 4)
def dead_joint(data, joint):
    data['rows'][5]['state'][:, joint] = 0.3
    return [5]


@planted('arm_with_binary_gripper', 'constant_dimensions', 'state', 0, 6)
def unused_joint(data, joint):
    for row in data['rows']:
        row['state'][:, joint] = 0.3


@planted('arm_with_binary_gripper', 'saturated_share', 'state', 0.2, 0.6)
def saturated_sensor(data, share):
    limit = np.quantile(np.concatenate([row['state'][:, 2] for row in data['rows']]), 1 - share)
    for row in data['rows']:
        row['state'][:, 2] = row['state'][:, 2].clip(None, limit)


@planted('arm_with_binary_gripper', 'stuck_seconds', 'state', 0.7, 2.0)
def stuck_joint(data, seconds):
    row = data['rows'][12]
    count = round(seconds * 30)
    row['state'][15 : 15 + count, 3] = row['state'][15, 3]
    return [12]


@planted('arm_with_binary_gripper', 'stuck_seconds', 'state', 0.3, 0.6)
def saturated_joint_of_an_episode(data, share):
    joint = data['rows'][12]['state'][:, 3]
    joint[:] = joint.clip(None, np.quantile(joint, 1 - share))
    return [12]


@planted('arm_with_binary_gripper', 'idle_start_share', 'state', 0.3, 0.6)
def idle_start(data, share):
    row = data['rows'][5]
    count = round(share * len(row['state']))
    row['state'][:count] = row['state'][count]
    return [5]


@planted('arm_with_binary_gripper', 'idle_end_share', 'state', 0.3, 0.6)
def idle_end(data, share):
    row = data['rows'][5]
    count = round(share * len(row['state']))
    row['state'][-count:] = row['state'][-count]
    return [5]


@planted('arm_with_binary_gripper', 'action_lag_items', 'action', 6, 9)
def action_that_lags(data, count):
    row = data['rows'][5]
    row['action'] = np.concatenate([row['action'][:1].repeat(count, 0), row['action'][:-count]])
    return [5]


@planted('arm_with_binary_gripper', 'unmoved_dimensions', 'action', 1, 6)
def actions_that_move_nothing(data, count):
    data['rows'][5]['state'][:, :count] = 0.1
    return [5]


@planted('arm_with_binary_gripper', 'action_outside_share', 'action', 57.3, 1000)
def actions_in_another_unit(data, factor):
    for row in data['rows']:
        row['action'] = row['action'] * factor


@planted('arm_with_binary_gripper', 'outside_values', 'state', 1, 5)
def values_outside_the_range(data, count):
    data['metadata']['fields']['state']['range'] = [-4, 4]
    data['rows'][5]['state'][7 : 7 + count, 1] = 4.5
    return [5]


@planted('arm_with_binary_gripper', 'shift_deviations', 'state', 5.0, 20.0)
def sensor_that_drifts(data, shift):
    for number, row in enumerate(data['rows']):
        row['state'][:, 3] += shift * number / len(data['rows'])


# Labels, tokens, texts, identifiers.


@planted('labels_in_order', 'unknown_labels', 'label', 4, -1)
def label_without_a_class(data, label):
    data['rows'][70]['label'] = label
    return [70]


@planted('boxes', 'unknown_labels', 'labels', 3, 99)
def box_without_a_class(data, label):
    data['rows'][5]['labels'][0] = label
    return [5]


@planted('tokens', 'unknown_tokens', 'tokens', 32_000, 65_535)
def token_outside_the_vocabulary(data, token):
    data['rows'][150]['tokens'][0] = token
    return [150]


@planted('photographs', 'blank_texts', 'caption', '', '  \n')
def blank_caption(data, text):
    data['rows'][4]['caption'] = text
    return [4]


@planted('chat', 'misdecoded_texts', 'prompt', 'utf8', 'cp1252', 'replaced', 'russian')
def misdecoded_text(data, how):
    text = 'Grüße aus Köln – „schön“'
    wrong = {
        'utf8': text.encode().decode('latin-1'),
        'cp1252': 'déjà vu'.encode().decode('cp1252'),
        'russian': 'привет'.encode().decode('cp1252', 'replace'),
        'replaced': text.encode('latin-1', 'replace').decode('utf-8', 'replace'),
    }[how]
    data['rows'][31]['prompt'] = wrong
    return [31]


@planted('table', 'repeated_keys', 'key', 1, 20)
def repeated_key(data, count):
    for row in data['rows'][300 : 300 + count]:
        row['key'] = 7
    return list(range(300, 300 + count))


@planted('chat', 'repeated_keys', 'id', 1, 3)
def repeated_identifier(data, count):
    for row in data['rows'][50 : 50 + count]:
        row['id'] = 'chat-2'
    return list(range(50, 50 + count))


@planted('table', 'missing_values', 'extra', 1, 10)
def missing_value(data, count):
    data['spec']['extra'] = 'float(8)?'
    for number, row in enumerate(data['rows']):
        row['extra'] = None if 100 <= number < 100 + count else float(number)
    return list(range(100, 100 + count))


@planted('table', 'absent_fields', 'extra')
def absent_field(data, _):
    data['spec']['extra'] = 'float(8)?'


@planted('arrays_of_any_shape', 'other_shapes', 'mask', 'dtype', 'shape')
def other_array(data, what):
    mask = data['rows'][9]['mask']
    data['rows'][9]['mask'] = mask.astype(np.int64) if what == 'dtype' else mask[:, :8]
    return [9]


# Equal records.


@planted('photographs', 'equal_records', 'image')
def equal_photograph(data, _):
    data['rows'][6]['image'] = data['rows'][2]['image']
    return [6]


@planted('photographs_without_checksums', 'equal_records', 'image')
def equal_photograph_without_checksums(data, _):
    data['rows'][6]['image'] = data['rows'][2]['image']
    return [6]


@planted('photographs_in_splits', 'shared_records', 'image', 1, 9)
def photograph_in_two_splits(data, count):
    rows = data['rows']
    for number in range(1, 1 + count):
        rows[10 * number]['image'] = rows[10 * number + 1]['image']
    return [10 * number + 1 for number in range(1, 1 + count)]


@planted('arm_with_binary_gripper', 'equal_records', 'state')
def equal_episode(data, _):
    data['rows'][20]['state'] = data['rows'][3]['state']
    data['rows'][20]['action'] = data['rows'][3]['action']
    data['rows'][20]['time'] = data['rows'][3]['time'] + 1000
    return [20]


@planted('tokens', 'equal_records', 'tokens')
def equal_document(data, _):
    long = [number for number, row in enumerate(data['rows']) if len(set(row['tokens'].tolist())) > 40]
    data['rows'][long[5]]['tokens'] = data['rows'][long[0]]['tokens']
    return [long[5]]


@planted('speech', 'equal_records', 'sound')
def equal_recording(data, _):
    data['rows'][2]['sound'] = data['rows'][0]['sound']
    return [2]


# Headers of media, and decoded media.


def decoded(image):
    return bags.decoders['jpeg'](image).copy()


def encoded(image):
    return bytes(bags.encoders['jpeg'](image, '90'))


@planted('camera_that_moves', 'other_sizes', 'hand', 1, 40, headers=True)
def frame_of_another_size(data, count):
    row = data['rows'][5]
    row['hand'] = [encoded(decoded(image)[::2, ::2]) for image in row['hand'][:count]] + row['hand'][count:]
    return [5]


@planted('camera_that_moves', 'other_modes', 'hand', 1, 40, headers=True)
def grey_frame(data, count):
    row = data['rows'][5]
    row['hand'] = [encoded(decoded(image)[:, :, :1]) for image in row['hand'][:count]] + row['hand'][count:]
    return [5]


@planted('camera_that_moves', 'aspect_ratio', 'hand', 8, headers=True)
def strip(data, factor):
    row = data['rows'][5]
    row['hand'][3] = encoded(np.zeros((16, 16 * factor, 3), np.uint8))
    return [5]


@planted('camera_that_moves', 'other_recordings', 'mic', 8000, 48000, headers=True)
def recording_at_another_rate(data, rate):
    samples, _ = bags.decoders['flac'](data['rows'][7]['mic'])
    data['rows'][7]['mic'] = samples, rate
    return [7]


@planted('camera_that_moves', 'duration_deviations', 'mic', 0.1, 0.5, headers=True)
def recording_that_was_cut(data, seconds):
    samples, rate = bags.decoders['flac'](data['rows'][7]['mic'])
    data['rows'][7]['mic'] = samples[: round(seconds * rate)], rate
    return [7]


@planted('video_that_moves', 'unequal_frames', 'front', 1, 20, headers=True)
def video_unlike_states(data, count):
    data['rows'][4]['state'] = data['rows'][4]['state'][:-count]
    return [4]


@planted('video_that_moves', 'frame_rate_share', 'front', 25, 60, headers=True)
def video_beside_another_rate(data, rate):
    data['metadata']['fields']['front']['rate'] = rate
    return range(len(data['rows']))


def change_frames(data, number, change):
    """Decodes a video, changes its frames, and encodes it again."""
    row = data['rows'][number]
    row['front'] = change(bags.decoders['mp4'](row['front']).copy())


@planted('video_that_moves', 'frozen_seconds', 'front', 1.2, 1.4, decode=True)
def frozen_camera(data, seconds):
    def freeze(frames):
        frames[3 : 4 + round(seconds * 30)] = frames[3]
        return frames

    change_frames(data, 6, freeze)
    return [6]


@planted('camera_that_moves', 'frozen_seconds', 'hand', 1.1, 1.2, decode=True)
def frozen_hand(data, seconds):
    row = data['rows'][2]
    count = round(seconds * 30)
    row['hand'][2 : 2 + count + 1] = [row['hand'][2]] * (count + 1)
    return [2]


@planted('video_that_moves', 'repeated_share', 'front', 2, 5, decode=True)
def frames_that_repeat(data, every):
    def repeat(frames):
        frames[1::every] = frames[: len(frames) - 1 : every][: len(frames[1::every])]
        return frames

    change_frames(data, 3, repeat)
    return [3]


@planted('fixed_camera', 'moved_share', 'front', 8, 20, decode=True)
def fixed_camera_that_moved(data, shift):
    for number in (17, 18, 19):
        # The camera was pushed in the middle of 17.
        for step in range(4 if number == 17 else 0, 8):
            picture = scene_of_fixed_camera((step + number % 5) / 12, shift)
            data['rows'][number]['front'][step] = picture.clip(0, 255).astype(np.uint8)
    return [17, 18, 19]


@planted('video_that_moves', 'black_share', 'front', 0.1, 1.0, decode=True)
def covered_lens(data, share):
    def cover(frames):
        frames[: round(share * len(frames))] = 0
        return frames

    change_frames(data, 3, cover)
    return [3]


@planted('camera_that_moves', 'white_share', 'hand', 0.1, 1.0, decode=True)
def overexposed_camera(data, share):
    images = data['rows'][3]['hand']
    white = encoded(np.full((96, 128, 3), 255, np.uint8))
    data['rows'][3]['hand'] = [white if k < share * len(images) else image for k, image in enumerate(images)]
    return [3]


@planted('camera_that_moves', 'blur_deviations', 'hand', 11, 25, decode=True)
def blurred_camera(data, size):
    kernel = np.ones(size) / size

    def blur(image):
        for axis in (0, 1):
            image = np.apply_along_axis(np.convolve, axis, image, kernel, 'same')
        return image.astype(np.uint8)

    data['rows'][3]['hand'] = [encoded(blur(decoded(image))) for image in data['rows'][3]['hand']]
    return [3]


@planted('camera_that_moves', 'clipped_share', 'mic', 30, 100, decode=True)
def clipped_sound(data, gain):
    samples, rate = bags.decoders['flac'](data['rows'][3]['mic'])
    loud = (samples.astype(np.int64) * gain).clip(-32768, 32767).astype(np.int16)
    data['rows'][3]['mic'] = loud, rate
    return [3]


@planted('camera_that_moves', 'silent_share', 'mic', 0, 5, decode=True)
def silent_sound(data, level):
    samples, rate = bags.decoders['flac'](data['rows'][3]['mic'])
    data['rows'][3]['mic'] = np.full_like(samples, level), rate
    return [3]


@planted('photographs', 'similar_images', 'image', 95, 50, decode=True)
def photograph_encoded_again(data, quality):
    image = bags.decoders['jpeg'](data['rows'][2]['image'])
    data['rows'][6]['image'] = bytes(bags.encoders['jpeg'](image[::2, ::2], str(quality)))
    return [6]
