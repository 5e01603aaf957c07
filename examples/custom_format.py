"""Adds a custom type: masks, with one bit for each pixel, compressed with zstd.

Run it with `python examples/custom_format.py [FOLDER]`.
"""

import shutil
import sys
from pathlib import Path

import numpy as np

import bags


# A format is a pair of functions. They get the arguments of the type, mask(480,640), as strings.
def encode_mask(value: np.ndarray, height: str, width: str) -> bytes:
    """Packs a boolean array of shape (height, width) into bits."""
    if value.shape != (int(height), int(width)):
        raise ValueError(f'expected a mask of shape ({height}, {width}), got {value.shape}')
    return np.packbits(value).tobytes()


def decode_mask(data: bytes, height: str, width: str) -> np.ndarray:
    """Unpacks the bits of `encode_mask`."""
    shape = int(height), int(width)
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=shape[0] * shape[1])
    return bits.astype(bool).reshape(shape)


# These mappings replace the built-in types, so they include them.
ENCODERS = {**bags.encoders, 'mask': encode_mask}
DECODERS = {**bags.decoders, 'mask': decode_mask}

SPEC = {'name': 'utf8', 'masks': 'mask(480,640)[]'}


def discs(count: int) -> np.ndarray:
    """Makes masks: bool, shape (count, 480, 640), with a disc in each."""
    y, x = np.ogrid[:480, :640]
    return np.stack([(x - 60 * k - 80) ** 2 + (y - 240) ** 2 < (20 + 15 * k) ** 2 for k in range(count)])


def main(folder: Path) -> None:
    """Writes masks and reads some of them back."""
    shutil.rmtree(folder, ignore_errors=True)
    with bags.DatasetWriter(folder, SPEC, ENCODERS, compression={'masks': 9}) as writer:
        for count in (3, 8):
            writer.append({'name': f'{count} discs', 'masks': discs(count)})
        try:
            writer.append({'name': 'too small', 'masks': [np.zeros((2, 2), bool)]})
        except bags.EncodeError as error:
            # The datapoint is not written, not even its other fields.
            print(f'rejected: {error}')

    with bags.open(folder, decoders=DECODERS) as reader:
        assert np.array_equal(reader[1]['masks'], discs(8))
        one = reader[1, {'masks': [5]}]['masks'][0]
        print(
            f'{len(reader)} datapoints; mask 5 of the last: {one.dtype} {one.shape}, {one.sum():,} pixels set'
        )
        pixels = one.size * reader.lengths('masks').sum()
        print(f'{pixels:,} pixels in {(folder / "masks.bagz").stat().st_size:,} bytes')


if __name__ == '__main__':
    main(Path(*sys.argv[1:] or ['out/custom_format']))
