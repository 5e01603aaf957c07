"""A tour of bags: writes a small dataset of real media, reads it in several ways, and draws the result.

Run it with `make demo`, or with `python examples/demo.py [FOLDER]`. The media and their authors are listed in
examples/data/README.md.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drawing
import numpy as np

import bags

DATA = Path(__file__).parent / 'data'

# The fields of a datapoint. Each field is one file for each shard, and can be read without the others.
SPEC = {
    'name': 'utf8',
    'caption': 'utf8',
    'words': 'utf8[]',  # [] makes a sequence: any number of items, each of which can be read by itself
    'image': 'jpeg(92)',  # arguments are passed to the encoder: here, the quality
    'colours': 'array(float32,3,16)',  # a fixed shape, so that a batch is one array
    'clips': 'mp4(25)[]',  # a video as clips of one second, so that a slice reads a few clips
    'audio': 'flac?',  # ? makes a field optional: None where there is no audio
    'credits': 'json',
}


def datapoints() -> Iterator[dict[str, Any]]:
    """Makes a datapoint of each captioned photograph, video and recording in the folder."""
    credits = json.loads((DATA / 'credits.json').read_text(encoding='utf-8'))
    for name in sorted(credits):
        photo, video, sound = (DATA / f'{name}{suffix}' for suffix in ('.jpg', '.mp4', '.flac'))
        caption = (DATA / f'{name}.txt').read_text(encoding='utf-8').strip()
        clips: Any = []
        if photo.exists():
            image: Any = photo  # The path of a JPEG, which is stored byte for byte. Its bytes work too.
            pixels = bags.decoders['jpeg'](photo.read_bytes())
        elif video.exists():
            frames = bags.decoders['mp4'](video.read_bytes())  # uint8, shape (time, height, width, 3)
            clips = (frames[start : start + 25] for start in range(0, len(frames), 25))  # any iterable
            image = pixels = frames[0]  # An array is encoded as the spec says.
        else:
            image = pixels = drawing.spectrogram(*bags.decoders['flac'](sound.read_bytes()))
        yield {
            'name': name,
            'caption': caption,
            'words': caption.split(),
            'image': image,
            'colours': drawing.histogram(pixels),
            'clips': clips,
            'audio': sound if sound.exists() else None,
            'credits': credits[name],
        }


def write(folder: Path) -> None:
    """Writes the dataset with five datapoints in each shard; use `shard_size` for a large one."""
    with bags.ShardedDatasetWriter(folder, SPEC, shard_length=5) as writer:
        for datapoint in datapoints():
            writer.append(datapoint)


def describe(reader: Any, folder: Path) -> None:
    """Prints a line for each field."""
    counts = f'{len(reader)} datapoints, {reader.shards} shards, {len(reader.spec)} fields'
    print(f'{folder}: {counts}, {reader.size / 1e6:.1f} MB\n')
    print(f'{"field":10}{"type":22}{"records":>8}{"bytes":>12}   files')
    for field, type in reader.spec.items():
        files = sorted(folder.glob(f'*/{field}.bag'))
        records = sum(len(bags.bag.Reader(file)) for file in files)  # Each file is a bag of records.
        size = sum(file.stat().st_size for file in files)
        print(f'{field:10}{type:22}{records:8}{size:12,}   {folder}/*/{files[0].name}')


def read(reader: Any) -> None:
    """Reads rows, fields, items and batches, and nothing else of the files."""
    video = [*reader.records('name')].index(b'bunny')  # The stored records of one field.
    show('a datapoint', f'reader[{video}]', reader[video])
    show('some of its fields', f"reader[{video}, ('name', 'audio')]", reader[video, ('name', 'audio')])
    show(
        'some items of its sequences',
        f"reader[{video}, {{'clips': range(1, 3), 'words': slice(2, 5)}}]",
        reader[video, {'clips': range(1, 3), 'words': slice(2, 5)}],
    )
    show(
        'a batch, as columns',
        "reader.batch([0, 7, 4], ('name', 'colours', 'image', 'words'))",
        reader.batch([0, 7, 4], ('name', 'colours', 'image', 'words')),
    )
    show(
        'a batch of a slice, which is a dataset itself',
        "reader[8:].batch(range(5), 'name')",
        reader[8:].batch(range(5), 'name'),
    )


def show(what: str, code: str, values: dict[str, Any]) -> None:
    """Prints an expression and the shapes of its values."""
    print(f'\n{what}: {code}')
    for field, value in values.items():
        print(f'    {field:10}{summary(value)}')


def summary(value: Any) -> str:
    """Summarizes a value in one line: arrays by their shape, and at most four items of a list."""
    if isinstance(value, np.ndarray):
        return f'{value.dtype} {value.shape}'
    if isinstance(value, tuple):
        return f'({", ".join(map(summary, value))})'
    if isinstance(value, list):
        items = [summary(item) for item in value]
        return f'[{", ".join(items if len(items) < 5 else [*items[:3], "…", items[-1]])}]'
    return repr(value)


def main(folder: Path) -> None:
    """Writes, reads and draws."""
    shutil.rmtree(folder, ignore_errors=True)  # Writers never overwrite a dataset.
    write(folder)
    with bags.open(folder) as reader:
        describe(reader, folder)
        read(reader)
        sheet = folder.parent / 'contact-sheet.png'
        drawing.contact_sheet(reader).save(sheet)
    print(f'\ncontact sheet: {sheet}')


if __name__ == '__main__':
    main(Path(*sys.argv[1:] or ['out/demo']))
