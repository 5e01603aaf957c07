"""Label files of YOLO beside photos: boxes, labels and names of classes."""

import itertools
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source
from bags.interop.sources.files.yolo import Classes, parse_line, read_classes
from tests.interop.sources.files.test_folders import CAT, make
from tests.interop.sources.files.test_readings import named

LABELS = b'0 0.5 0.5 0.2 0.4\n1 0.1 0.2 0.25 0.125\n'
BOXES = [[0.5, 0.5, 0.2, 0.4], [0.1, 0.2, 0.25, 0.125]]
YAML = b'path: ../x\ntrain: images\n\nnc: 2\nnames:\n  0: cat  # tabby\n  1: "big dog"\n'
FORMS = {
    'images and labels': ('images/{}.jpg', 'labels/{}.txt', '{}'),
    'of Ultralytics': ('images/train/{}.jpg', 'labels/train/{}.txt', 'train/{}'),
    'of Roboflow': ('train/images/{}.jpg', 'train/labels/{}.txt', 'train/{}'),
    'in a folder': ('x/images/{}.jpg', 'x/labels/{}.txt', 'x/{}'),
    'in capitals': ('Images/{}.jpg', 'Labels/{}.txt', '{}'),
    'in other capitals': ('data/IMAGES/a/{}.jpg', 'data/labels/a/{}.txt', 'data/a/{}'),
    'of Darknet and VOC': ('JPEGImages/{}.jpg', 'labels/{}.txt', '{}'),
    'of Darknet': ('obj/{}.jpg', 'obj/{}.txt', 'obj/{}'),
    'in one folder': ('{}.jpg', '{}.txt', '{}'),
}


def files_of(form, names='data.yaml', content=YAML):
    photo, label, _ = FORMS[form]
    files = {photo.format(number): CAT for number in range(4)} | {names: content}
    return files | {label.format(0): LABELS, label.format(1): b'', label.format(2): b'0 1 0 0.5 0.5'}


def check(dataset, form):
    assert dataset.spec == {
        '__key__': 'utf8', 'jpg': 'jpeg', 'txt': 'utf8?', 'boxes': 'array(float32,4)[]', 'labels': 'int(4)[]'
    }  # fmt: skip
    assert dataset.column('__key__') == [FORMS[form][2].format(number) for number in range(4)]
    assert [row['labels'].tolist() for row in dataset] == [[0, 1], [], [0], []]
    np.testing.assert_array_equal(dataset[0]['boxes'], np.array(BOXES, np.float32))
    assert dataset[1]['boxes'].shape == dataset[3]['boxes'].shape == (0, 4)
    assert dataset.column('txt') == [LABELS.decode(), '', '0 1 0 0.5 0.5', None]
    about = {'over': 'jpg', 'format': 'cxcywh', 'normalized': True, 'labels': 'labels'}
    assert dataset.metadata == {'fields': {'boxes': about, 'labels': {'classes': ['cat', 'big dog']}}}


@pytest.mark.parametrize('form', FORMS)
def test_boxes_labels_and_classes(form, tmp_path):
    source = make(tmp_path / 'in', files_of(form))
    done = bags.convert(source, tmp_path / 'out')
    assert done.notes == ['read as yolo: 4 datapoints, photos with boxes of YOLO']
    with bags.open(tmp_path / 'out') as dataset:
        check(dataset, form)
    bags.convert(source, tmp_path / 'linked', link=True)
    with bags.open(tmp_path / 'linked', trust_links=source) as dataset:
        check(dataset, form)


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('archive', ['zip', 'tar', 'tar.gz'])
def test_archives(form, archive, tmp_path):
    files = files_of(form)
    path = tmp_path / f'in.{archive}'
    if archive == 'zip':
        with zipfile.ZipFile(path, 'w') as file:
            for name, data in files.items():
                file.writestr(name, data)
    else:
        make(tmp_path / 'in', files)
        with tarfile.open(path, 'w:gz' if archive == 'tar.gz' else 'w') as file:
            for name in sorted(files, key=lambda name: (Path(name).suffix, name)):
                file.add(tmp_path / 'in' / name, name)
        with pytest.raises(
            bags.SourceError, match=r"in\.tar.* layout='yolo': 4 datapoints.* layout='webdataset'"
        ):
            bags.convert(path, tmp_path / 'out')
    for link in (False, archive != 'tar.gz'):
        layout = None if archive == 'zip' else 'yolo'
        bags.convert(path, tmp_path / f'out-{link}', layout=layout, link=link, mode='overwrite')
        with bags.open(tmp_path / f'out-{link}', trust_links=tmp_path) as dataset:
            check(dataset, form)


@pytest.mark.parametrize(
    ('line', 'expected'),
    [
        ('0 0.1 0.2', 'expected a class and cx, cy, width and height of its box, got'),
        ('0 0.1 0.2 0.3 x', 'expected a class and cx'),
        ('cat 0.1 0.2 0.3 0.4', 'expected a class and cx'),
        ('-1 0.1 0.2 0.3 0.4', 'expected a class and cx'),
        ('0.5 0.1 0.2 0.3 0.4', 'expected a class and cx'),
        ('inf 0.1 0.2 0.3 0.4', 'expected a class and cx'),
        ('2147483648 0.1 0.2 0.3 0.4', 'expected a class and cx'),
        ('0 0.1 nan 0.3 0.4', 'expected fractions of the photo from 0 to 1'),
        ('0 10 20 30 40', 'expected fractions of the photo from 0 to 1'),
        ('2 0.1 0.2 0.3 0.4', 'expected a class from 0 to 1, got 2'),
        ('\xff', "'utf-8' codec can't decode"),
    ],
)
def test_malformed_lines_are_named(line, expected, tmp_path):
    files = files_of('images and labels') | {'labels/1.txt': b'\n' + LABELS + line.encode('latin-1')}
    source = make(tmp_path / 'in', files)
    with pytest.raises(bags.SourceError, match=rf'labels/1\.txt(, line 4)?: .*({expected})'):
        bags.convert(source, tmp_path / 'out')
    done = bags.convert(source, tmp_path / 'skipped', on_error='skip')
    assert done.datapoints == 3
    assert len(done.skipped) == 1


def test_lines_with_polygons_keypoints_and_confidences():
    none, of_pose = Classes([], []), Classes([], [], 3 * 2)
    assert parse_line('3 0.1 0.2 0.5 0.2 0.5 0.6 0.1 0.4', none) == (3, pytest.approx([0.3, 0.4, 0.4, 0.4]))
    assert parse_line('3 0.1 0.2 0.5 0.2 0.9', none) == (3, [0.1, 0.2, 0.5, 0.2])
    assert parse_line('3 0.1 0.2 0.5 0.2 7 8 2 7 8 2', of_pose) == (3, [0.1, 0.2, 0.5, 0.2])


NAMES_OF_CLASSES = {
    'names: [cat, "big, dog", \'a "b" it\'\'s\']': ['cat', 'big, dog', 'a "b" it\'s'],
    'nc: 3\nnames: [\n  cat,  # one\n  dog,\n  a#b]\nother: 1': ['cat', 'dog', 'a#b'],
    'names:\n- cat\n- "dog: x"\n-  bird  \ntrain: x': ['cat', 'dog: x', 'bird'],
    'names:\n  - cat\n\n  # none\n  - dog': ['cat', 'dog'],
    'names:\n  0: cat\n  2: dog\ntrain: 5': ['cat', '1', 'dog'],
    "names: {0: cat, 1: 'dog, x'}": ['cat', 'dog, x'],
    '"names": ["cat", "dog"]': ['cat', 'dog'],
    'train: x\nval: y': [],
    'names: x': [],
    'names:\n  a: cat': [],
    'names:\n  99999999999: cat': [],
}


@pytest.mark.parametrize('text', NAMES_OF_CLASSES)
def test_names_in_yaml(text):
    assert read_classes(['data.yaml'], lambda *_: text.encode()).names == NAMES_OF_CLASSES[text]


def test_names_in_texts(tmp_path):
    for name, form in itertools.product(('classes.txt', 'obj.names'), FORMS):
        files = files_of(form, name, b'cat\nbig dog\n')
        bags.convert(make(tmp_path / f'{form} {name}', files), tmp_path / f'out {form} {name}')
        with bags.open(tmp_path / f'out {form} {name}') as dataset:
            check(dataset, form)


def test_photos_with_captions_are_not_yolo(tmp_path):
    files = {f'{number}.jpg': CAT for number in range(3)} | {'1.txt': b'0 dogs', '2.txt': b'5 cats in 4 bags'}
    found = open_source(make(tmp_path / 'in', files))
    assert (found.layout, found.count) == ('stems', 3)
    apart = {
        f'images/{name}' if name.endswith('jpg') else f'labels/{name}': data for name, data in files.items()
    }
    with pytest.raises(
        bags.SourceError, match=r"layout='fields': 3 datapoints, .* layout='classes': 5 datapoints"
    ):
        open_source(make(tmp_path / 'apart', apart))


@pytest.mark.parametrize('masks', ['masks/{}.png', 'train/masks/{}.png'])
def test_masks_of_photos_with_boxes(masks, tmp_path):
    """A mask belongs to its photo: it is no datapoint without boxes."""
    photos = masks.replace('masks', 'images').replace('png', 'jpg')
    files = named(masks, photos, photos.replace('images', 'labels').replace('jpg', 'txt'), content=LABELS)
    source = make(tmp_path / 'in', files)
    with pytest.raises(
        bags.SourceError, match=r"layout='yolo': 6 datapoints.* layout='fields': 3 datapoints"
    ):
        bags.convert(source, tmp_path / 'out')
    assert bags.convert(source, tmp_path / 'fields', layout='fields').datapoints == 3
    assert bags.convert(source, tmp_path / 'yolo', layout='yolo').datapoints == 6


def test_cameras_with_labels_each(tmp_path):
    files = named('images/left/{}.jpg', 'images/right/{}.jpg', 'labels/left/{}.txt', content=LABELS)
    files |= {'labels/right/1.txt': LABELS}
    found = open_source(make(tmp_path / 'in', files))
    assert (found.layout, found.count) == ('yolo', 6)


def test_what_is_left_out_is_said(tmp_path):
    files = files_of('of Roboflow') | {
        'README.dataset.txt': b'x',
        'train/labels.cache': b'x',
        'train/labels/9.txt': b'',
    }
    (note,) = open_source(make(tmp_path / 'in', files)).notes
    assert note.endswith("; 3 left out: 'README.dataset.txt', 'train/labels.cache', 'train/labels/9.txt'")


def test_a_resume_compares_label_files(tmp_path):
    source = make(tmp_path / 'in', files_of('images and labels') | {'labels/3.txt': b'bad'})
    with pytest.raises(bags.SourceError, match=r'labels/3\.txt, line 1'):
        bags.convert(source, tmp_path / 'out')
    (source / 'labels/3.txt').write_bytes(b'0 0.5 0.5 0.5 0.5')
    assert bags.convert(source, tmp_path / 'out', resume=True).datapoints == 4
    (source / 'labels/0.txt').write_bytes(LABELS.replace(b'1', b'0'))
    with pytest.raises(ValueError, match='has changed since the earlier run'):
        bags.convert(source, tmp_path / 'out', resume=True)
