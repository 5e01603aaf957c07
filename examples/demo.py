"""A tour of bags: writes a small dataset of real media, reads it back in every way, and draws what it read.

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

# What a datapoint consists of. Every field becomes one file per shard, and can be read without the others.
SPEC = {
    'name': 'utf8',
    'caption': 'utf8',
    'words': 'utf8[]',  # [] makes a sequence: any number of items, each readable by itself
    'image': 'jpeg(92)',  # arguments go to the encoder, here the quality
    'colours': 'array(float32,3,16)',  # of a fixed shape, so that a batch of them is one array
    'clips': 'mp4(25)[]',  # a film as clips of one second, so that a slice of it is a few clips
    'audio': 'flac?',  # ? makes a field optional: None where there is nothing to hear
    'credits': 'json',
}


def datapoints() -> Iterator[dict[str, Any]]:
    """Makes a datapoint of each captioned photograph, film and recording in the folder."""
    credits = json.loads((DATA / 'credits.json').read_text(encoding='utf-8'))
    for name in sorted(credits):
        photo, film, sound = (DATA / f'{name}{suffix}' for suffix in ('.jpg', '.mp4', '.flac'))
        caption = (DATA / f'{name}.txt').read_text(encoding='utf-8').strip()
        clips: Any = []
        if photo.exists():
            image: Any = photo  # A path goes in as the JPEG it is, byte for byte. Bytes would, too.
            pixels = bags.decoders['jpeg'](photo.read_bytes())
        elif film.exists():
            frames = bags.decoders['mp4'](film.read_bytes())  # uint8, shape (time, height, width, 3)
            clips = (frames[start : start + 25] for start in range(0, len(frames), 25))  # a generator will do
            image = pixels = frames[0]  # An array is encoded, as the spec says.
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
    """Writes the dataset, five datapoints to a shard; a large one would say `shard_size` instead."""
    with bags.ShardedDatasetWriter(folder, SPEC, shard_length=5) as writer:
        for datapoint in datapoints():
            writer.append(datapoint)


def describe(reader: Any, folder: Path) -> None:
    """Prints what was written, a line a field."""
    counts = f'{len(reader)} datapoints, {reader.shards} shards, {len(reader.spec)} fields'
    print(f'{folder}: {counts}, {reader.size / 1e6:.1f} MB\n')
    print(f'{"field":10}{"type":22}{"records":>8}{"bytes":>12}   kept in')
    for field, type in reader.spec.items():
        files = sorted(folder.glob(f'*/{field}.bag'))
        records = sum(
            len(bags.bag.Reader(file)) for file in files
        )  # Every field is a file of records by itself.
        size = sum(file.stat().st_size for file in files)
        print(f'{field:10}{type:22}{records:8}{size:12,}   {folder}/*/{files[0].name}')


def read(reader: Any) -> None:
    """Reads in all the ways there are; no more of the files is touched than what is asked for."""
    film = [*reader.field('name')].index(b'bunny')  # All records of one field, as they are stored.
    show('a datapoint', f'reader[{film}]', reader[film])
    show('some of its fields', f"reader[{film}, ('name', 'audio')]", reader[film, ('name', 'audio')])
    show(
        'some items of its sequences',
        f"reader[{film}, {{'clips': range(1, 3), 'words': slice(2, 5)}}]",
        reader[film, {'clips': range(1, 3), 'words': slice(2, 5)}],
    )
    show(
        'a batch, as columns',
        "reader.batch([0, 7, 4], ('name', 'colours', 'image', 'words'))",
        reader.batch([0, 7, 4], ('name', 'colours', 'image', 'words')),
    )
    show(
        'a batch of a slice, which is a dataset too',
        "reader[8:].batch(range(5), 'name')",
        reader[8:].batch(range(5), 'name'),
    )


def show(what: str, code: str, values: dict[str, Any]) -> None:
    """Prints what was asked and what came back."""
    print(f'\n{what}: {code}')
    for field, value in values.items():
        print(f'    {field:10}{summary(value)}')


def summary(value: Any) -> str:
    """Says in a line what a value is: arrays by their shape, and no more than four items of a list."""
    if isinstance(value, np.ndarray):
        return f'{value.dtype} {value.shape}'
    if isinstance(value, tuple):
        return f'({", ".join(map(summary, value))})'
    if isinstance(value, list):
        items = [summary(item) for item in value]
        return f'[{", ".join(items if len(items) < 5 else [*items[:3], "…", items[-1]])}]'
    return repr(value)


def main(folder: Path) -> None:
    """Writes, reads, draws."""
    shutil.rmtree(folder, ignore_errors=True)  # A writer never overwrites: what is there has to go first.
    write(folder)
    with bags.open(folder) as reader:
        describe(reader, folder)
        read(reader)
        sheet = folder.parent / 'contact-sheet.png'
        drawing.contact_sheet(reader).save(sheet)
    print(f'\ndrawn from what was read: {sheet}')


if __name__ == '__main__':
    main(Path(*sys.argv[1:] or ['out/demo']))
