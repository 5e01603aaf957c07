from __future__ import annotations

import functools
import io
import math
import pickle
import random
import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

import bags
from bags import Audio
from bags.formats.audio import encode_wav
from bags.media.demux import open_packets
from tests.media.samples import Source, box, boxes, film, with_edits

DATA = Path(__file__).parents[2] / 'examples/data'


@functools.cache
def sound(rate, seconds=2.3):
    """A rising tone on the left, one with a rhythm and noise on the right; float32, (time, 2)."""
    time = np.arange(int(rate * seconds)) / rate
    noise = np.random.default_rng(0).standard_normal(len(time))
    left = 0.5 * np.sin(2 * np.pi * (200 + 300 * time) * time)
    right = (0.3 * np.sin(2 * np.pi * 440 * time) + 0.1 * noise) * (np.sin(8 * np.pi * time) > 0)
    return np.stack([left, right], axis=1).astype(np.float32)


def write(codec, format, rate=44_100, seconds=2.3, bit_rate=None, options=None, layout='stereo'):
    file = io.BytesIO()
    # With this delay, a packet of MPEG-TS holds several packets of audio.
    with av.open(file, 'w', format=format, options={'max_delay': '700000'}) as container:
        stream = container.add_stream(codec, rate=rate, layout=layout, options=options or {})
        if bit_rate:
            stream.bit_rate = bit_rate
        samples = sound(rate, seconds)
        for start in range(0, len(samples), 4096):
            block = np.ascontiguousarray(samples[start : start + 4096].T)
            frame = av.AudioFrame.from_ndarray(block, format='fltp', layout='stereo')
            frame.sample_rate, frame.pts = rate, start
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


def write_speech(format, seconds=2.3, frame_duration='20', bit_rate=8000):
    """Opus whose decoder returns 24 samples of each packet with the next one."""
    options = {'application': 'voip', 'frame_duration': frame_duration}
    return write('libopus', format, 8000, seconds, bit_rate, options, 'mono')


def write_changing_opus(format):
    """Opus whose packets change in length, and in whether the decoder delays them."""
    music = {'application': 'lowdelay', 'frame_duration': '2.5'}
    sources = [
        (write_speech('ogg', frame_duration='60'), 2880),
        (write('libopus', 'ogg', 48_000, options=music, layout='mono'), 120),
        (write_speech('ogg'), 960),
    ]
    packets = []
    for data, duration in sources:
        with av.open(io.BytesIO(data)) as container:
            packets.append([(bytes(packet), duration) for packet in container.demux(audio=0) if packet.size])
    file, time = io.BytesIO(), 0
    with av.open(io.BytesIO(sources[0][0])) as template, av.open(file, 'w', format=format) as container:
        stream = container.add_stream_from_template(template.streams.audio[0])
        for number, start in [(0, 0), (1, 0), (2, 9), (1, 50), (0, 9), (2, 50), (1, 90), (2, 80)]:
            for data, duration in packets[number][start : start + 20]:
                packet = av.Packet(data)
                packet.stream, packet.pts, packet.dts, packet.duration = stream, time, time, duration
                packet.time_base = Fraction(1, 48_000)
                time += duration
                container.mux(packet)
    return file.getvalue()


KINDS = {
    'WAV': lambda: write('pcm_s16le', 'wav'),
    'WAV of 24 bits': lambda: write('pcm_s24le', 'wav'),
    'WAV of 8 bits': lambda: write('pcm_u8', 'wav'),
    'WAV of floats': lambda: write('pcm_f32le', 'wav'),
    'WAV of 32 bits': lambda: write('pcm_s32le', 'wav'),
    'WAV of doubles': lambda: write('pcm_f64le', 'wav'),
    'WAV of A-law': lambda: write('pcm_alaw', 'wav'),
    'WAV, compressed': lambda: write('adpcm_ms', 'wav'),
    'AIFF': lambda: write('pcm_s16be', 'aiff'),
    'AIFF of 24 bits': lambda: write('pcm_s24be', 'aiff'),
    'AU': lambda: write('pcm_s16be', 'au'),
    'AU of mu-law': lambda: write('pcm_mulaw', 'au'),
    'WMA': lambda: write('wmav2', 'asf', bit_rate=128_000),
    'AAC in FLV': lambda: write('aac', 'flv', bit_rate=128_000),
    'MP2 in MPEG-PS': lambda: write('mp2', 'mpeg', bit_rate=128_000),
    'PCM in QuickTime': lambda: write('pcm_s16be', 'mov'),
    'PCM of 24 bits in QuickTime': lambda: write('pcm_s24be', 'mov'),
    'PCM of 32 bits in QuickTime': lambda: write('pcm_s32be', 'mov'),
    'PCM of 8 bits in QuickTime': lambda: write('pcm_s8', 'mov'),
    'PCM of floats in QuickTime': lambda: write('pcm_f32be', 'mov'),
    'PCM in MP4': lambda: write('pcm_s24le', 'mp4'),
    'PCM in Matroska': lambda: write('pcm_s16le', 'matroska'),
    'PCM in AVI': lambda: write('pcm_s32le', 'avi'),
    'FLAC': lambda: write('flac', 'flac'),
    'FLAC in Ogg': lambda: write('flac', 'ogg'),
    'FLAC in MP4': lambda: write('flac', 'mp4'),
    'FLAC in Matroska': lambda: write('flac', 'matroska'),
    'ALAC': lambda: write('alac', 'ipod'),
    'ALAC in Matroska': lambda: write('alac', 'matroska'),
    'Vorbis': lambda: write('vorbis', 'ogg', options={'strict': '-2'}),
    'Vorbis in WebM': lambda: write('vorbis', 'webm', options={'strict': '-2'}),
    'MP2 in Matroska': lambda: write('mp2', 'matroska'),
    'MP2 in MPEG-TS': lambda: write('mp2', 'mpegts', seconds=5.3),
    'AC-3 in MP4': lambda: write('ac3', 'mp4'),
    'AC-3 in MPEG-TS': lambda: write('ac3', 'mpegts', seconds=5.3),
    'E-AC-3 in Matroska': lambda: write('eac3', 'matroska'),
    'G.722 in WAV': lambda: write('g722', 'wav', rate=16_000, layout='mono'),
    'ADPCM in QuickTime': lambda: write('adpcm_ima_qt', 'mov'),
    'ADPCM of Yamaha': lambda: write('adpcm_yamaha', 'wav'),
    'WavPack in Matroska': lambda: write('wavpack', 'matroska'),
    'MP3': lambda: write('libmp3lame', 'mp3'),
    'MP3 of few bits': lambda: write('libmp3lame', 'mp3', bit_rate=32_000),
    'MP3 in MP4': lambda: write('libmp3lame', 'mp4'),
    'MP3 in MPEG-TS': lambda: write('libmp3lame', 'mpegts', seconds=5.3),
    'MP3 in Matroska': lambda: write('libmp3lame', 'matroska'),
    'AAC': lambda: write('aac', 'ipod'),
    'AAC without noise': lambda: write('aac', 'ipod', options={'aac_pns': '0'}),
    'AAC in Matroska': lambda: write('aac', 'matroska'),
    'AAC by itself': lambda: write('aac', 'adts'),
    'AAC in MPEG-TS': lambda: write('aac', 'mpegts', seconds=5.3),
    'AAC in fragments': lambda: write('aac', 'ismv'),
    'Opus': lambda: write('libopus', 'ogg', rate=48_000, seconds=5.3),
    'Opus in WebM': lambda: write('libopus', 'webm', rate=48_000),
    'Opus in MP4': lambda: write('libopus', 'mp4', rate=48_000),
    'Opus of narrow-band speech': lambda: write_speech('ogg'),
    'Opus of narrow-band speech in WebM': lambda: write_speech('webm'),
    'Opus of narrow-band speech in MP4': lambda: write_speech('mp4'),
    'Opus of speech and music': lambda: write_changing_opus('ogg'),
    'Opus of speech and music in WebM': lambda: write_changing_opus('webm'),
    'Opus of speech and music in MP4 without edits': lambda: write_changing_opus('mp4'),
    'Opus of one packet': lambda: write_speech('ogg', seconds=0.02),
    'audio beside video': lambda: film(audio=True, count=40),
    'audio beside video, in Matroska': lambda: film(audio=True, count=40, format='matroska'),
    'the demo': (DATA / 'austen-1.flac').read_bytes,
    'the film of the demo': (DATA / 'bunny.mp4').read_bytes,
}


def as_float(block):
    if block.dtype == np.uint8:
        return (block.astype(np.float32) - 128) / 128
    return block.astype(np.float32) / (
        1 if block.dtype.kind == 'f' else np.float32(2.0 ** (8 * block.itemsize - 1))
    )


@functools.cache
def example(kind):
    data = KINDS[kind]()
    blocks = []
    with av.open(io.BytesIO(data)) as container:
        for frame in container.decode(audio=0):
            block = frame.to_ndarray()
            blocks.append(block.T if frame.format.is_planar else block.reshape(-1, frame.layout.nb_channels))
    return data, as_float(np.concatenate(blocks)), frame.sample_rate


SLICES_WITH_NOISE = {kind for kind in KINDS if 'AAC' in kind and kind != 'AAC without noise'} | {
    'the film of the demo',
    'MP2 in Matroska',
    'MP2 in MPEG-TS',
    'MP2 in MPEG-PS',
}
"""The decoder makes up noise for these, or dithers: by default, slices differ in it from the whole."""
SPEECH_IN_OPUS = [kind for kind in KINDS if kind.startswith('Opus of')]
"""The decoder predicts speech for a long time: by default, slices differ from the whole, within 3e-5."""


@pytest.mark.parametrize('kind', KINDS)
def test_samples_are_those_of_decoding_everything(kind):
    data, samples, rate = example(kind)
    audio, chance = Audio(data, exact=True), random.Random(kind)
    assert (audio.shape, audio.rate, audio.channels) == (samples.shape, rate, samples.shape[1])
    assert len(audio) == len(samples)
    assert audio.duration == len(samples) / rate
    for _ in range(25):
        start = chance.randrange(-100, len(samples))
        stop = start + chance.choice([0, 1, 10, 3000])
        found = audio[start:stop]
        assert (type(found), found.dtype) == (np.ndarray, np.float32)
        assert np.array_equal(found, samples[start:stop]), (start, stop)
    assert np.array_equal(audio[1000:20:-7], samples[1000:20:-7])
    assert np.array_equal(audio[-1], samples[-1])
    assert np.array_equal(np.asarray(audio), samples)
    assert np.array_equal(np.concatenate(list(audio.blocks(10_000))), samples)


@pytest.mark.parametrize(
    'kind', [kind for kind in KINDS if kind not in (*SLICES_WITH_NOISE, *SPEECH_IN_OPUS)]
)
def test_slices_are_those_of_decoding_everything_by_default(kind):
    data, samples, _ = example(kind)
    audio, chance = Audio(data), random.Random(kind)
    for _ in range(25):
        start = chance.randrange(len(samples))
        stop = start + chance.choice([1, 10, 3000])
        assert np.array_equal(audio[start:stop], samples[start:stop]), (start, stop)


@pytest.mark.parametrize('kind', KINDS)
def test_slices_are_the_same_each_time(kind):
    data, samples, _ = example(kind)
    used = Audio(data)
    np.asarray(used)
    for start in (0, 700, len(samples) // 2):
        assert np.array_equal(used[start : start + 1000], Audio(data)[start : start + 1000])


@pytest.mark.slow
@pytest.mark.parametrize('kind', KINDS)
def test_500_slices(kind):
    data, samples, _ = example(kind)
    audio, chance = Audio(data, exact=True), random.Random(kind)
    for _ in range(500):
        start = chance.randrange(len(samples))
        stop = start + chance.choice([1, 100, 5000])
        assert np.array_equal(audio[start:stop], samples[start:stop])


def test_speech_in_opus_is_as_good_as_equal():
    data = write('libopus', 'ogg', rate=48_000, seconds=8, bit_rate=16_000, options={'application': 'voip'})
    audio = Audio(data)
    whole = audio[:]
    for start in (150_000, 222_222, 333_333):
        assert np.abs(audio[start : start + 5000] - whole[start : start + 5000]).max() < 3e-5


@pytest.mark.parametrize('kind', SPEECH_IN_OPUS)
def test_slices_of_speech_in_opus_are_as_good_as_equal(kind):
    data, samples, _ = example(kind)
    audio, chance = Audio(data), random.Random(kind)
    for _ in range(25):
        start = chance.randrange(len(samples))
        stop = start + chance.choice([1, 10, 3000])
        found = audio[start:stop]
        assert found.shape == samples[start:stop].shape
        assert np.abs(found - samples[start:stop]).max() < 3e-5, (start, stop)


def test_priming_is_cut_away():
    for kind, rate in (('AAC', 44_100), ('MP3', 44_100), ('Opus', 48_000)):
        audio = Audio(example(kind)[0])
        expected = sound(rate, 5.3 if kind == 'Opus' else 2.3)[:20_000, 0]
        found = audio[:20_000,][:, 0] if False else audio[:20_000][:, 0]
        shifts = [
            np.abs(found[100 + shift : 15_000 + shift] - expected[100:15_000]).mean()
            for shift in range(-9, 10)
        ]
        assert np.argmin(shifts) == 9, kind


def test_seconds():
    data, samples, rate = example('AAC')
    audio = Audio(data, exact=True)
    assert np.array_equal(audio.between(0.5, 1), samples[rate // 2 : rate])
    assert np.array_equal(audio.between(-1, 0.1), samples[:4410])
    assert audio.between(99, 100).shape == audio.between(1, 0).shape == (0, 2)
    assert audio.start == 0
    for times in ((math.nan, 1), (0, math.nan)):
        with pytest.raises(ValueError, match=r'^expected times in seconds, got .*nan'):
            audio.between(*times)


def band(samples, rate, low, high):
    """Returns the energy in each quarter of a second between two frequencies."""
    blocks = samples[: len(samples) // (rate // 4) * (rate // 4)].reshape(-1, rate // 4, samples.shape[1])
    spectrum = np.abs(np.fft.rfft(blocks, axis=1)) ** 2
    return spectrum[:, low // 4 : high // 4].sum(axis=1)


@pytest.mark.parametrize('kind', ['AAC', 'AAC in Matroska', 'AAC by itself'])
def test_noise_that_the_decoder_makes_up(kind):
    data, samples, rate = example(kind)
    audio = Audio(data)
    found = audio[60_000:82_050]
    expected = samples[60_000:82_050]
    assert not np.array_equal(found, expected)
    assert np.allclose(band(found, rate, 100, 2000), band(expected, rate, 100, 2000), rtol=0.05)
    assert np.allclose(band(found, rate, 4000, 16_000), band(expected, rate, 4000, 16_000), rtol=0.3)
    _ = audio[:100], audio[90_000:95_000]
    assert np.array_equal(audio[60_000:82_050], found)
    assert np.array_equal(Audio(data)[60_000:82_050], found)


@pytest.mark.slow
def test_a_slice_of_aac_reads_a_few_packets():
    source = Source(write('aac', 'ipod', seconds=60))
    audio = Audio(source)
    assert len(audio)
    before = source.count
    audio.between(50, 50.5)
    assert source.count - before < len(source.data) / 60
    exact = audio.options(exact=True)
    assert np.array_equal(exact.between(50, 50.5), exact[:][50 * 44_100 : 50 * 44_100 + 22_050])


def test_exact_slices_in_any_order():
    data, samples, _ = example('AAC')
    audio, chance = Audio(data, exact=True), random.Random(0)
    readers = [audio.blocks(7000 + 1000 * number) for number in range(3)]
    found = [[], [], []]
    for _ in range(60):
        number = chance.randrange(3)
        found[number] += [block] if (block := next(readers[number], None)) is not None else []
        start = chance.randrange(len(samples))
        assert np.array_equal(audio[start : start + 500], samples[start : start + 500])
    for blocks in found:
        joined = np.concatenate(blocks)
        assert np.array_equal(joined, samples[: len(joined)])


def test_exact_as_an_argument_of_the_type(tmp_path):
    data, samples, _ = example('AAC')
    with bags.DatasetWriter(tmp_path / 'it', {'one': 'audio(exact)', 'other': 'audio'}) as writer:
        writer.append({'one': data, 'other': data})
    row = bags.open(tmp_path / 'it')[0]
    assert np.array_equal(row['one'][60_000:64_000], samples[60_000:64_000])
    assert not np.array_equal(row['other'][60_000:64_000], samples[60_000:64_000])
    with pytest.raises(bags.SpecError, match=r'expected audio\(rate'):
        bags.DatasetWriter(tmp_path / 'wrong', {'one': 'audio(approximate)'})


FREEDESKTOP = sorted(Path('/usr/share/sounds/freedesktop/stereo').glob('*.oga'))


@pytest.mark.skipif(
    not FREEDESKTOP, reason='Debian has files of libvorbis, which PyAV lacks: sound-theme-freedesktop'
)
@pytest.mark.parametrize('path', FREEDESKTOP, ids=lambda path: path.stem)
def test_vorbis_of_block_sizes_that_vary(path):
    with av.open(str(path)) as container:
        samples = np.concatenate([frame.to_ndarray() for frame in container.decode(audio=0)], axis=1).T
    audio, chance = Audio(path), random.Random(path.stem)
    assert audio.shape == samples.shape
    for _ in range(100):
        start = chance.randrange(len(samples))
        stop = start + chance.choice([1, 100, 5000])
        assert np.array_equal(audio[start:stop], samples[start:stop]), (start, stop)


def test_lists_of_times():
    data, samples, rate = example('FLAC')
    audio = Audio(data)
    found = audio.between([0, 0.5], np.array([0.1, 2]))
    assert [block.tobytes() for block in found] == [
        samples[: rate // 10].tobytes(),
        samples[rate // 2 : 2 * rate].tobytes(),
    ]
    assert audio.between([], []) == []
    with pytest.raises(ValueError, match='expected a stop for each of 2 starts, got 1'):
        audio.between([0, 1], [1])
    with pytest.raises(TypeError, match='expected a time in seconds'):
        audio.between([0, 1], 2)


def test_repr(tmp_path):
    path = tmp_path / 'it.flac'
    path.write_bytes(example('FLAC')[0])
    assert (
        repr(Audio(path))
        == f"bags.Audio('{path}', {len(Audio(path))} samples, 2 channels, 44100 Hz, 2.29998 s)"
    )
    assert repr(Audio(example('the demo')[0])).split(', ')[2] == '1 channel'
    assert (
        repr(Audio(tmp_path / 'none'))
        == f"bags.Audio('{tmp_path / 'none'}', cannot be read: FileNotFoundError)"
    )
    assert 'cannot be read: ValueError' in repr(Audio(b'hello'))
    remote = Source(example('FLAC')[0])
    remote.is_remote = True
    audio = Audio(remote)
    assert repr(audio) == "bags.Audio('a film')"
    assert not remote.files
    assert len(audio) == 101_429
    assert '101429 samples' in repr(audio)


def test_a_wav_reads_what_is_asked_for():
    source = Source(example('WAV')[0])
    audio = Audio(source)
    assert not source.files
    assert audio[50_000:50_100].shape == (100, 2)
    assert source.count < 1500
    for kind in ('AAC without noise', 'ALAC', 'FLAC in MP4'):
        source = Source(example(kind)[0])
        audio = Audio(source)
        assert len(audio)
        before = source.count
        _ = audio[50_000:50_100]
        assert source.count - before < len(source.data) / 4


def test_handles_of_a_dataset(tmp_path):
    data, samples, rate = example('MP3')
    whole = (sound(8000) * 2**15).astype(np.int16)
    with bags.DatasetWriter(
        tmp_path / 'it', {'one': 'audio', 'few': 'audio[]'}, compression=['few']
    ) as writer:
        writer.append({'one': data, 'few': [(whole, 8000), (sound(8000), 8000), DATA / 'austen-1.flac']})
    with bags.open(tmp_path / 'it') as reader:
        row = reader[0]
        assert bytes(reader.records('one')[0]) == data
    assert np.array_equal(row['one'][100:5000], samples[100:5000])
    assert np.array_equal(pickle.loads(pickle.dumps(row['one']))[100:5000], samples[100:5000])
    exact, floats, spoken = row['few']
    assert np.array_equal(exact[:] * 2**15, whole)
    assert np.array_equal(floats[:], sound(8000))
    assert (spoken.rate, spoken.channels, floats.rate, rate) == (16_000, 1, 8000, 44_100)
    with pytest.raises(
        IndexError, match=r"one\.bag, field 'one' of type audio, record 0: sample .* out of range"
    ):
        row['one'][10**9]


def test_what_is_no_audio(tmp_path):
    for data, found in ((b'hello', 'bytes that begin'), ((DATA / 'cat.jpg').read_bytes(), 'JPEG')):
        with pytest.raises(ValueError, match=f'got {found}'):
            len(Audio(data))
        with pytest.raises(ValueError, match=f'got {found}'):
            bags.encoders['audio'](data)
    with pytest.raises(ValueError, match='expected audio, got tracks: 0 video'):
        len(Audio(film(count=3)))
    with pytest.raises(TypeError):
        iter(Audio(example('WAV')[0]))
    for wrong in ('x', 1.5, None):
        with pytest.raises(
            TypeError, match='expected a sample number, a slice or a list of sample numbers, got'
        ):
            Audio(example('WAV')[0])[wrong]
    for wrong in ([1.5], [[1, 2]], ['x']):
        with pytest.raises(TypeError, match='expected a list of integer sample numbers, got'):
            Audio(example('WAV')[0])[wrong]
    with pytest.raises(TypeError, match='expected a time in seconds'):
        Audio(example('WAV')[0]).between('x', 1)
    assert len(Audio(example('WAV')[0]).between(0, float('inf'))) == len(Audio(example('WAV')[0]))


SPEECH_TO_CUT = ['Opus of narrow-band speech', 'Opus of narrow-band speech in WebM']


@pytest.mark.parametrize('kind', ['WAV', 'FLAC', 'AAC', 'MP3', 'Opus', 'Opus in WebM', *SPEECH_TO_CUT])
def test_what_is_cut_off(kind):
    data, samples, _ = example(kind)
    start = max(data.find(b'mdat'), 0) if kind == 'AAC' else 0
    short = data[: start + (len(data) - start) * 2 // 3]
    audio = Audio(short)
    try:
        found = audio[:]
    except ValueError:
        with pytest.raises(ValueError, match=r'cut off|damaged'):
            audio.between(0, 1000)
        if kind.startswith('Opus'):
            count = len(audio)
            assert np.allclose(audio[:count], samples[:count], atol=3e-5)
            assert np.allclose(audio.between(0, 0.1), samples[:4800], atol=3e-5)
        return
    assert kind in ('MP3', 'FLAC')  # A part of an MP3 is a valid MP3.
    assert np.array_equal(found[:-3000], samples[: len(found)][:-3000])


@pytest.mark.parametrize('place', [20_000, 30_000, 90_000])
@pytest.mark.parametrize('count', [1, 300, 20_000])
def test_damage_to_a_flac_is_never_other_samples(place, count):
    data, samples, _ = example('the demo')
    hurt = bytearray(data)
    for index in range(place, place + count):
        hurt[index] ^= 0x15
    for part in (slice(None), slice(0, 2000), slice(50_000, 52_000), slice(-2000, None)):
        try:
            found = Audio(bytes(hurt))[part]
        except ValueError:
            continue
        assert part != slice(None)
        assert np.array_equal(found, samples[part])


def with_durations(data, *rows):
    """Returns an MP4 whose header is at its end, with other durations: counts and ticks."""

    def change(kind, content):
        if kind == b'stts':
            return box(
                kind, struct.pack('>II', 0, len(rows)) + b''.join(struct.pack('>II', *row) for row in rows)
            )
        if kind in (b'moov', b'trak', b'mdia', b'minf', b'stbl'):
            content = b''.join(change(*part) for part in boxes(content))
        return box(kind, content)

    return b''.join(change(kind, content) for kind, content in boxes(data))


@pytest.mark.parametrize('kind', ['FLAC in MP4', 'ALAC'])
def test_a_packet_with_a_wrong_duration(kind):
    data, samples, _ = example(kind)
    table = open_packets(io.BytesIO(data), 'audio').table
    length, count = int(table.durations[0]), len(table.durations)

    def wrong(ticks):
        rows = (5, length), (1, ticks), (count - 6, length)
        return Audio(with_durations(with_edits(data), *rows))

    assert np.array_equal(wrong((1 << 31) - 1)[:], samples)  # No memory is allocated for hours.
    with pytest.raises(ValueError, match=f'packet 5 is damaged: expected 100000 samples, got {length}'):
        wrong(100_000)[:]
    assert np.array_equal(wrong(100_000)[: 5 * length], samples[: 5 * length])


def test_a_flac_that_ends_early_between_two_packets():
    data = example('the demo')[0]
    packets = open_packets(io.BytesIO(data), 'audio')
    with pytest.raises(ValueError, match='cut off'):
        Audio(data[: int(packets.table.offsets[20])])[:]


def test_a_flac_whose_samples_look_like_the_header_of_a_frame():
    array = np.zeros((4, 5), np.int32)
    array[0, 0], array[0, 2], array[3, 1] = -512, 1280, -256
    audio = Audio(bags.encoders['flac']((array, 48_000)))
    assert np.array_equal(audio[:], array.astype(np.float32) / 2**31)
    assert np.array_equal(audio[1:3], audio[:][1:3])


@functools.cache
def resampled(kind, rate, layout):
    """The whole recording, decoded and resampled by PyAV."""
    with av.open(io.BytesIO(example(kind)[0])) as container:
        frames = list(container.decode(audio=0))
    resampler = av.AudioResampler('flt', layout, rate)
    out = [done for frame in [*frames, None] for done in resampler.resample(frame)]
    return np.concatenate([done.to_ndarray().reshape(-1, done.layout.nb_channels) for done in out])


@pytest.mark.parametrize('rate', [16_000, 48_000])
@pytest.mark.parametrize(
    'kind', [kind for kind in KINDS if kind not in (*SLICES_WITH_NOISE, *SPEECH_IN_OPUS)]
)
def test_resampled_slices_are_those_of_resampling_everything(kind, rate):
    # PyAV resamples doubles as doubles.
    same = functools.partial(np.allclose, atol=1e-6) if kind == 'WAV of doubles' else np.array_equal
    whole, chance = resampled(kind, rate, 'mono'), random.Random(kind)
    audio = Audio(example(kind)[0], exact=True).options(rate=rate, channels=1)
    assert (audio.rate, audio.channels, audio.shape) == (rate, 1, whole.shape)
    for _ in range(10):
        start = chance.randrange(-100, len(whole))
        stop = start + chance.choice([0, 1, 10, 3000])
        assert same(audio[start:stop], whole[start:stop]), (start, stop)
    assert same(audio[:], whole)
    assert same(audio[-1], whole[-1])
    seconds = audio.start + 0.5
    assert same(audio.between(seconds, seconds + 0.25), whole[rate // 2 : rate // 2 + rate // 4])


@pytest.mark.slow
@pytest.mark.parametrize(
    'rates', [(44_100, 15_999), (8000, 44_100), (192_000, 8000), (44_099, 16_000), (7, 5)]
)
@pytest.mark.parametrize('count', [3, 30, 700, 30_011])
def test_lengths_and_slices_of_any_two_rates(rates, count):
    before, after = rates
    samples = np.random.default_rng(count).standard_normal((count, 2)).astype(np.float32)
    frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), 'flt', 'stereo')
    frame.sample_rate = before
    resampler = av.AudioResampler('flt', 'stereo', after)
    done = resampler.resample(frame) + resampler.resample(None)
    whole = np.concatenate([np.empty((0, 2)), *(part.to_ndarray().reshape(-1, 2) for part in done)])
    audio = Audio(encode_wav((samples, before)), rate=after)
    assert np.array_equal(audio[:], whole)
    for start in range(0, len(whole), max(1, len(whole) // 20)):
        assert np.array_equal(audio[start : start + 50], whole[start : start + 50])


def test_recordings_of_several_rates_are_one_array(tmp_path):
    kinds = ['WAV', 'FLAC', 'MP3', 'Opus']
    assert len({example(kind)[2] for kind in kinds}) > 1
    with bags.DatasetWriter(tmp_path / 'it', {'sound': 'audio(rate=16000,channels=1)'}) as writer:
        for kind in kinds:
            writer.append({'sound': example(kind)[0]})
    dataset = bags.open(tmp_path / 'it')
    assert [len(audio) for audio in dataset.batch(range(4))['sound']] == [
        len(resampled(kind, 16_000, 'mono')) for kind in kinds
    ]
    windows = dataset.windows(every=0.5, sound=bags.between(0.0, 1.0), padding='drop')
    found = windows.batch(range(len(windows)))['sound']
    assert (found.dtype, found.shape) == (np.float32, (len(windows), 16_000, 1))
    assert np.array_equal(found[0], resampled('WAV', 16_000, 'mono')[:16_000])
    assert np.array_equal(bytes(dataset.records('sound')[1]), example('FLAC')[0])


def test_a_recording_that_is_cut_off_ends_before_samples_that_depend_on_missing_ones():
    data, whole = example('Opus')[0], resampled('Opus', 16_000, 'mono')
    short = Audio(data[: len(data) * 2 // 3], rate=16_000, channels=1)
    count = len(short)
    assert 0 < count < len(whole)
    assert np.allclose(short[:count], whole[:count], atol=1e-4)
    with pytest.raises(ValueError, match='cut off'):
        short[:]


def test_options_that_no_resampler_has(tmp_path):
    data = example('WAV')[0]
    for wrong in ({'rate': 0}, {'rate': 1 << 25}, {'rate': 16e3}, {'channels': 3}, {'channels': True}):
        with pytest.raises(ValueError, match=r'expected (rate|channels) from 1 to'):
            Audio(data, **wrong)
    with pytest.raises(ValueError, match='more than 1000 times'):
        len(Audio(data, rate=2))
    with pytest.raises(bags.SpecError, match='expected a rate'):
        bags.DatasetWriter(tmp_path / 'wrong', {'one': 'audio(rate=fast)'})
    with bags.DatasetWriter(tmp_path / 'it', {'sound': 'audio'}) as writer:
        with pytest.raises(bags.EncodeError):
            writer.append({'sound': Audio(data, rate=16_000)})
        writer.append({'sound': Audio(data)})


@pytest.mark.parametrize('options', [{}, {'rate': 7000, 'channels': 1}])
def test_samples_at_times_and_by_number(options):
    audio = Audio(example('WAV')[0], **options)
    everything, times = audio[:], audio.times
    assert np.array_equal(times, audio.start + np.arange(len(audio)) / audio.rate)
    chance = np.random.default_rng(0)
    for numbers in (chance.integers(-len(audio), len(audio), 40), [], [5], range(3, 9), [2, 2, 0]):
        assert np.array_equal(audio[numbers], everything[np.asarray(numbers, int)])
        found = audio.read(numbers)
        assert np.array_equal(found.values, everything[np.asarray(numbers, int)])
        assert np.array_equal(found.times, times[np.asarray(numbers, int)])
    assert audio.read(slice(-7, None, 2)).times.tolist() == times[-7::2].tolist()
    assert audio.read(-1).times == times[-1]
    for number in chance.integers(0, len(audio), 40).tolist():
        assert np.array_equal(audio.at(times[number]), everything[number])
        assert np.array_equal(audio.at(times[number] + 0.9 / audio.rate), everything[number])
    order = chance.integers(0, len(audio), 20)
    assert np.array_equal(audio.at(times[order]), everything[order])
    end = audio.start + audio.duration
    for wrong in (audio.start - 1e-3, end, float('nan'), [0.0, end + 1], float('inf')):
        with pytest.raises(IndexError, match=r'no sample at .* s; the recording lasts from'):
            audio.at(wrong)
    for wrong in ('x', None, [[0.0]]):
        with pytest.raises(TypeError, match='expected a time'):
            audio.at(wrong)
    for wrong in (len(audio), -len(audio) - 1):
        with pytest.raises(IndexError, match=f'sample {wrong} out of range'):
            audio[[0, wrong]]


def test_many_samples_far_apart_are_read_in_parts():
    """A list over a long recording does not decode the whole recording into one array."""
    samples = np.arange(3_000_000, dtype=np.int16)
    audio = Audio(encode_wav((samples, 8000)))
    numbers = np.arange(0, len(samples), 1000)
    peak = 0
    decoder = audio.decoder.get()
    original = decoder.read

    def read(start, stop, exact=False):
        nonlocal peak
        peak = max(peak, stop - start)
        return original(start, stop, exact)

    decoder.read = read
    assert np.array_equal(audio[numbers][:, 0], samples[numbers] / np.float32(32768))
    assert peak <= 1 << 20
