"""Converts a folder of images with captions, NAME.jpg and NAME.txt, into a dataset.

Run it with `python examples/from_folder.py [IMAGES] [FOLDER]`.
"""

import shutil
import sys
from pathlib import Path

import bags

SPEC = {'name': 'utf8', 'image': 'jpeg', 'caption': 'utf8?'}


def main(images: Path, folder: Path) -> None:
    """Writes the dataset, then compares it with the files."""
    shutil.rmtree(folder, ignore_errors=True)
    paths = sorted(images.glob('*.jpg'))
    with bags.ShardedDatasetWriter(folder, SPEC, shard_size=1 << 30) as writer:
        for path in paths:
            text = path.with_suffix('.txt')
            caption = text.read_text(encoding='utf-8').strip() if text.exists() else None
            # The file is stored byte for byte, without decoding it.
            writer.append({'name': path.stem, 'image': path, 'caption': caption})

    with bags.open(folder) as reader:
        for index, caption in enumerate(reader.batch(range(len(reader)), 'caption')['caption']):
            # A row has the decoded image; the stored record is the file.
            height, width = reader[index, 'image']['image'].shape[:2]
            assert reader.file(index, 'image').read() == paths[index].read_bytes()
            print(f'{paths[index].name:18}{width:5} × {height:<5}{caption}')
        print(f'{len(reader)} captioned images, {reader.size:,} bytes, in {folder}')


if __name__ == '__main__':
    defaults = [str(Path(__file__).parent / 'data'), 'out/from_folder']
    main(*map(Path, (sys.argv[1:] + defaults[len(sys.argv) - 1 :])[:2]))
