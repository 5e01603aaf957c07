"""Random trees of files: each file is in one datapoint, or is named among the files that are left out."""

import io
import itertools
import json
import random
import re
import shutil
import wave
from collections import Counter

import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source

FOLDERS = [
    '', '', 'a', 'b', 'cats', 'dogs', 'images', 'labels', 'masks', 'audio', 'text', 'train', 'val', 'ep_0',
    'ep_1', '1', '2', 'train/images', 'train/labels', 'val/images', 'val/labels', 'images/train',
    'labels/train', 'ep_0/rgb', 'ep_1/rgb', 'ep_0/depth', 'data/a', 'data/b', 'speaker 1/x',
    'Annotations', 'JPEGImages',
]  # fmt: skip
ENDS = ['png', 'jpg', 'txt', 'json', 'bin', 'wav', 'cls', 'TextGrid', 'xml', 'seg.png', '']
STEMS = ['{}', '{:04}', 'frame_{}', 'x.{}', '{}-a', 'Ü {}']
STRAYS = [
    '.DS_Store', 'README.md', '3.png~', '0.txt.bak', '__MACOSX/._0.png', 'sha1sum.txt', 'LICENSE',
    '.git/config', 'classes.txt', 'notes.md', 'a/Thumbs.db',
]  # fmt: skip
COLUMN = 'score'


def content_of(path, number):
    """Returns content that no other file of a tree has, and that is valid for its name."""
    chance = np.random.default_rng(number)
    end = path.rpartition('/')[2].rpartition('.')[2]
    if end in ('png', 'jpg'):
        pixels = chance.integers(0, 255, (4, 4, 3), np.uint8)
        return bytes(bags.encoders['png' if end == 'png' else 'jpeg'](pixels))
    if end == 'json':
        return json.dumps({'number': number}).encode()
    if end == 'wav':
        file = io.BytesIO()
        with wave.open(file, 'wb') as sound:
            sound.setparams((1, 2, 8000, 0, 'NONE', ''))
            sound.writeframes(chance.integers(-999, 999, 20, np.int16).tobytes())
        return file.getvalue()
    if end == 'txt' and 'labels' in path:
        return f'0 0.5 0.5 0.2 {number / 1e6 + 0.1:.7f}\n'.encode()
    return f'file {number}'.encode() + b'.' * chance.choice([0, 300])  # Some are large enough for links.


def make_tree(chance, first=0):
    """Returns the contents of files by their paths; the numbers in their names begin at `first`."""
    paths = []
    stem, ends = chance.choice(STEMS), chance.sample(ENDS, chance.randint(1, 3))
    for folder in dict.fromkeys(chance.sample(FOLDERS, chance.randint(1, 4))):
        some = ends if chance.random() < 0.5 else chance.sample(ENDS, chance.randint(1, 2))
        own = stem if chance.random() < 0.8 else chance.choice(STEMS)
        if chance.random() < 0.1:
            own = f'{folder.replace("/", "-")}{own}'
        for number, end in itertools.product(range(first, first + chance.randint(1, 4)), some):
            if chance.random() < 0.9:
                paths.append(f'{folder}/{own.format(number)}{"." * bool(end)}{end}'.lstrip('/'))
    if not first:
        paths += chance.sample(STRAYS, chance.choice([0, 0, 1, 3]))
        paths += [f'.hidden{number}' for number in range(chance.choice([0, 0, 0, 9]))]
    folders = {path[:end] for path in paths for end, letter in enumerate(path) if letter == '/'}
    paths = {*paths, 'a/first.png' if not first else 'a/more.png'} - folders
    files = {path: content_of(path, 1000 * first + number) for number, path in enumerate(sorted(paths))}
    if chance.random() < 0.15 and not first:
        add_table(chance, files)
    if chance.random() < 0.1 and not first:
        add_coco(chance, files)
    return files


def add_table(chance, files):
    table = chance.choice(['metadata.csv', 'labels.csv', 'train.csv'])
    folder = chance.choice(['', *dict.fromkeys(path.rpartition('/')[0] for path in files)])
    prefix = f'{folder}/' if folder else ''
    names = [path.removeprefix(prefix) for path in files if path.startswith(prefix)]
    rows = [f'{name},{number}' for number, name in enumerate(names) if chance.random() < 0.9]
    files[prefix + table] = '\n'.join([f'file_name,{COLUMN}', *rows, '']).encode()


def add_coco(chance, files):
    photos = [path for path in sorted(files) if path.endswith(('.png', '.jpg')) and '~' not in path]
    images = [
        {'id': id, 'file_name': path.rpartition('/')[2], 'width': 4, 'height': 4}
        for id, path in enumerate(photos)
    ]
    notes = [
        {'id': id, 'image_id': id, 'category_id': 1, 'bbox': [0, 0, 1, 1]}
        for id in range(len(images))
        if chance.random() < 0.8
    ]
    coco = {'images': images, 'annotations': notes, 'categories': [{'id': 1, 'name': 'cat'}]}
    files[chance.choice(['instances.json', 'annotations/instances.json'])] = json.dumps(coco).encode()


def write_tree(root, files):
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def check_files(files, path, layout, done, root, kept=()):
    """Checks that each file is in one datapoint at most, and that the others are in the notes.

    Args:
        files, path, layout, done, root: The files, and how they were imported.
        kept: Keys of datapoints that stay as they are, also if they have more files now.
    """
    by_content = {data: name for name, data in files.items()}
    with bags.open(path, raw=True, trust_links=root) as dataset:
        assert len(dataset) == done.datapoints
        rows, spec = list(dataset), dataset.spec
    values = (
        bytes(item)
        for row in rows
        for value in row.values()
        if value is not None
        for item in (value if isinstance(value, list | tuple) else [value])
    )
    found = Counter(by_content[value] for value in values if value in by_content)
    assert set(found.values()) <= {1}, f'in several datapoints: {found.most_common(3)}'
    described = set()
    for name in files.keys() - found.keys():
        base = name.rpartition('/')[2]
        # Beside COCO, a table may have rows of files that are left out.
        is_table = base.endswith('.csv') and (COLUMN in spec or layout == 'coco')
        is_of_boxes = base == 'instances.json' and layout == 'coco'
        if is_table or is_of_boxes or (layout == 'yolo' and ('labels' in name or base == 'classes.txt')):
            described.add(name)
    missing = files.keys() - found.keys() - described
    notes = '\n'.join(done.notes)
    left_out = re.search(r'; ([\d,]+) left out: ', done.notes[0])
    more = sum(int(count.replace(',', '')) for count in re.findall(r' and ([\d,]+) more', notes))
    skipped = [str(each.datapoint) for each in done.skipped]
    missing = [name for name in missing if not any(may_be_of(key, name) for key in [*skipped, *kept])]
    unnamed = [name for name in missing if repr(name)[1:-1] not in notes]
    assert len(unnamed) <= more, f'neither read nor named: {unnamed}'
    if left_out:
        assert int(left_out[1].replace(',', '')) >= len(unnamed)
    stated = re.match(r'read as (\w+): ([\d,]+) datapoint', done.notes[0])
    assert stated[1] == layout
    assert int(stated[2].replace(',', '')) == done.datapoints + len(skipped), done.notes[0]
    return rows


def stem_of(name):
    return name.rpartition('/')[2].partition('.')[0]


def may_be_of(key, name):
    """Returns whether a file may be of the datapoint of a key.

    The key lacks the extension of the file, and may lack folders, and a prefix or suffix of the name.
    """
    parts = iter(name.split('/'))
    return all(any(own in part for part in parts) for own in key.split('/'))


def read_tree(tmp_path, chance, ended):
    """Imports a random tree in each of its readings, then resumes and updates it with more files."""
    shutil.rmtree(tmp_path, ignore_errors=True)
    root, options = tmp_path / 'raw', {'progress': False, 'durability': 'none'}
    files = make_tree(chance)
    write_tree(root, files)
    try:
        done = bags.convert(root, tmp_path / 'chosen', **options)
    except bags.SourceError as exc:
        readings = re.findall(r"layout='(\w+)': ([\d,]+) datapoint", str(exc))
        ended['raised' if readings else f'raised: {exc.detail[:40]}'] += 1
        if not readings:  # A file is damaged.
            return
        assert not (tmp_path / 'chosen').exists()
        readings = [(layout, int(count.replace(',', ''))) for layout, count in readings]
    else:
        ended['imported'] += 1
        readings = open_source(root).readings()
        assert readings[0][1] == done.datapoints
        check_files(files, tmp_path / 'chosen', readings[0][0], done, root)
    for layout, count in readings:
        is_chosen = (tmp_path / 'chosen').exists() and layout == readings[0][0]
        try:
            copied = bags.convert(root, tmp_path / layout, layout=layout, **options)
        except bags.SourceError as exc:  # Of a layout that fits the names, but not the content of all files.
            assert any(name in exc.name for name in files)  # noqa: PT017
            ended[f'{layout} raised'] += 1
            continue
        # `files` and `stems` have documents too if the user gives them.
        assert copied.datapoints == count or (is_chosen and layout in ('files', 'stems')), copied.notes[0]
        check_files(files, tmp_path / layout, layout, copied, root)
    layout, count = chance.choice(readings)
    given = {'layout': layout}
    more = make_tree(chance, 10) if chance.random() < 0.5 else grown(files)
    write_tree(root, more)
    for way in ({'resume': True, 'check_source': False}, {'link': True, 'update': True}):
        path = tmp_path / next(iter(way))
        shutil.rmtree(root)
        write_tree(root, files)
        try:
            before = bags.convert(root, path, **given, **options, **{**way, 'update': False, 'resume': False})
        except (bags.SourceError, ValueError) as exc:
            assert 'link' in str(exc) or ended[f'{layout} raised']  # noqa: PT017
            continue
        with bags.open(path, raw=True, trust_links=root) as dataset:
            rows = list(dataset)
        write_tree(root, more)
        try:
            done = bags.convert(root, path, **options, **way)
        except (bags.BagsError, ValueError) as exc:
            assert any(name in str(exc) for name in [str(tmp_path), *map(stem_of, [*files, *more])])  # noqa: PT017
            ended[f'{next(iter(way))} raised'] += 1
            with bags.open(path, raw=True, trust_links=root) as dataset:
                kept = [{name: row[name] for name in rows[0]} for row in dataset[: len(rows)]]
                assert kept == rows
            continue
        ended[f'{next(iter(way))} added' if done.datapoints > before.datapoints else 'nothing to add'] += 1
        kept = [str(row['__key__'], 'utf-8') for row in rows] if 'resume' in way else ()
        found = check_files({**files, **more}, path, layout, done, root, kept)
        assert [row['__key__'] for row in found[: len(rows)]] == [row['__key__'] for row in rows]
        try:
            count = open_source(root, layout=layout).count
        except bags.SourceError as exc:  # Files outside of folders are an error only in a first run.
            assert 'outside of any' in str(exc)  # noqa: PT017
        else:
            assert done.datapoints + len(done.skipped) == count


def grown(files):
    """Returns further files with the names of others, and another number."""
    more = {}
    for number, path in enumerate(sorted(files)):
        if match := re.search(r'\d(?=\D*$)', path.rpartition('/')[2]):
            start = len(path) - len(path.rpartition('/')[2]) + match.start()
            new = f'{path[:start]}7{path[start + 1 :]}'
            if new not in files and not path.endswith(('~', '.bak')):
                more[new] = content_of(new, 50_000 + number)
    return more


def test_random_trees(tmp_path):
    ended = Counter()
    for seed in range(12):
        read_tree(tmp_path / 'x', random.Random(seed), ended)
    assert ended['imported']


@pytest.mark.campaign
@pytest.mark.parametrize('part', range(10))
def test_many_random_trees(part, tmp_path, found):
    ended = Counter()
    for seed in range(1000 * part + 1000, 1000 * part + 1400):
        try:
            read_tree(tmp_path / 'x', random.Random(seed), ended)
        except BaseException as exc:
            exc.add_note(f'seed {seed}')
            raise
    found(f'400 trees: {dict(ended)}')
