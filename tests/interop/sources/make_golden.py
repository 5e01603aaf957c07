"""Writes the samples in `golden`, each with the library of its format.

    python tests/interop/sources/make_golden.py hdf5 zarr npz

Without arguments it writes all of them.
"""

import io
import shutil
import sys
from pathlib import Path

import numpy as np
from PIL import Image

GOLDEN = Path(__file__).parent / 'golden'


def jpeg(seed, width=8):
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (8, width, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(file, 'JPEG')
    return file.getvalue()


def padded_rows(items):
    rows = np.zeros((len(items), max(map(len, items)) + 5), np.uint8)
    for row, item in zip(rows, items, strict=True):
        row[: len(item)] = np.frombuffer(item, np.uint8)
    return rows


def make_hdf5():
    """ALOHA has a file an episode, its pictures as JPEG; robomimic a group an episode."""
    import h5py

    rng = np.random.default_rng(0)
    (GOLDEN / 'aloha').mkdir()
    for episode, count in ((0, 3), (2, 4), (10, 3)):
        with h5py.File(GOLDEN / f'aloha/episode_{episode}.hdf5', 'w') as file:
            file.attrs['sim'] = True
            file['action'] = rng.normal(size=(count, 2)).astype('f4')
            file['observations/qpos'] = rng.normal(size=(count, 3)).astype('>f8')
            pictures = [jpeg(10 * episode + number, 8 + number) for number in range(count)]
            file.create_dataset('observations/images/cam_high', data=padded_rows(pictures), chunks=True)
            file['compress_len'] = np.array([[len(picture) for picture in pictures]])
    with h5py.File(GOLDEN / 'robomimic.hdf5', 'w') as file:
        data = file.create_group('data')
        data.attrs['env_args'] = '{"env_name": "Lift"}'
        for demo, count in ((0, 2), (1, 3), (10, 2)):
            group = data.create_group(f'demo_{demo}')
            group.attrs['num_samples'] = count
            group.attrs['model_file'] = f'<mujoco model="{demo}"/>'
            group['actions'] = rng.normal(size=(count, 2))
            group['dones'] = np.arange(count) == count - 1
            group['obs/eye image'] = rng.integers(0, 256, (count, 2, 3, 3)).astype(np.uint8)
            group['obs/depth'] = rng.integers(0, 65536, (count, 2, 3)).astype(np.uint16)
            group['words'] = ['pick', 'ä']
        file['mask/train'] = np.array([b'demo_0', b'demo_10'])


def make_zarr():
    """A replay buffer of diffusion policy, in both versions of the format."""
    import zarr

    rng = np.random.default_rng(1)
    images, states = rng.integers(0, 256, (9, 2, 2, 3)).astype('f4'), rng.normal(size=(9, 2)).astype('f4')
    depth = rng.integers(0, 65536, (9, 2, 2)).astype(np.uint16)
    for version in (2, 3):
        with zarr.storage.ZipStore(GOLDEN / f'replay_v{version}.zarr.zip', mode='w') as store:
            root = zarr.open_group(store, mode='w', zarr_format=version, attributes={'robot': 'ur5'})
            root.create_array('meta/episode_ends', data=np.array([3, 5, 9]))
            root.create_array('data/img', data=images, chunks=(2, 2, 2, 3))
            root.create_array('data/state', data=states)
            root.create_array('data/depth', data=depth)
            root.create_array('data/reward', data=np.arange(9.0))


def make_npz():
    rng = np.random.default_rng(2)
    (GOLDEN / 'npz').mkdir()
    for number, count in enumerate((2, 3, 3)):
        np.savez_compressed(
            GOLDEN / f'npz/{number}.npz',
            obs=rng.normal(size=(count, 2)),
            depth=rng.integers(0, 65536, (count, 2, 3)).astype(np.uint16),
            image=rng.integers(0, 256, (2, 2, 3)).astype(np.uint8),
            task='pick',
            **({'score': np.float32(0.5)} if number else {}),
        )


FORMATS = {
    'hdf5': (make_hdf5, 'aloha', 'robomimic.hdf5'),
    'zarr': (make_zarr, 'replay_v2.zarr.zip', 'replay_v3.zarr.zip'),
    'npz': (make_npz, 'npz'),
}
"""What makes each format, and which files."""


def main(names):
    for name in names or FORMATS:
        make, *files = FORMATS[name]
        for file in files:
            path = GOLDEN / file
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        make()


if __name__ == '__main__':
    main(sys.argv[1:])
