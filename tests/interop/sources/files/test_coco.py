"""Photos with JSON of COCO: boxes, labels, captions and the annotations as they are."""

import copy
import json
import zipfile

import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source
from tests.interop.sources.files.test_folders import CAT, make

CATEGORIES = [{'id': 18, 'name': 'dog', 'supercategory': 'animal'}, {'id': 1, 'name': 'person'}]
SEGMENTATION = [[10.5, 20.25, 30, 20, 30, 60]]
ANNOTATIONS = [
    {'id': 7, 'image_id': 100, 'category_id': 18, 'bbox': [10.5, 20.25, 30, 40], 'area': 600, 'iscrowd': 0,
     'segmentation': SEGMENTATION},
    {'id': 8, 'image_id': 100, 'category_id': 1, 'bbox': [0, 0, 5, 5], 'iscrowd': 1,
     'segmentation': {'counts': [1, 2], 'size': [5, 5]}},
    {'id': 9, 'image_id': 101, 'category_id': 1, 'bbox': [1, 2, 3, 4], 'iscrowd': 0},
]  # fmt: skip


def coco(names=('0.jpg', '1.jpg', '2.jpg'), annotations=ANNOTATIONS, **others):
    images = [
        {'id': 100 + index, 'file_name': name, 'width': 60, 'height': 40} for index, name in enumerate(names)
    ]
    content = {'info': {'year': 2017}, 'images': images, 'annotations': annotations, 'categories': CATEGORIES}
    return json.dumps(content | others).encode()


FORMS = {
    'images and annotations': ('images/{}.jpg', 'annotations/instances_all.json', '{}.jpg'),
    'of COCO': ('val2017/{}.jpg', 'annotations/instances_val2017.json', '{}.jpg'),
    'paths in the JSON': ('images/a/{}.jpg', 'labels.json', 'images/a/{}.jpg'),
    'paths with a folder before': ('images/a/{}.jpg', 'labels.json', '/home/me/a/{}.jpg'),
    'beside the photos': ('x/{}.jpg', 'x/_annotations.coco.json', '{}.jpg'),
    'in one folder': ('{}.jpg', 'annotations.json', '{}.jpg'),
}


def files_of(form, **others):
    photo, name, listed = FORMS[form]
    content = coco([listed.format(number) for number in range(3)], **others)
    return {photo.format(number): CAT for number in range(3)} | {name: content}


def check(dataset, form):
    assert dataset.spec == {
        '__key__': 'utf8', 'jpg': 'jpeg', 'annotations': 'json', 'boxes': 'array(float32,4)[]',
        'labels': 'int(4)[]',
    }  # fmt: skip
    assert dataset.column('__key__') == [FORMS[form][0].format(number)[:-4] for number in range(3)]
    assert [row['labels'].tolist() for row in dataset] == [[1, 0], [0], []]
    boxes = np.array([[10.5, 20.25, 30, 40], [0, 0, 5, 5]], np.float32)
    np.testing.assert_array_equal(dataset[0]['boxes'], boxes)
    assert dataset[2]['boxes'].shape == (0, 4)
    assert dataset.column('annotations') == [ANNOTATIONS[:2], ANNOTATIONS[2:], []]
    about = {'over': 'jpg', 'format': 'xywh', 'labels': 'labels'}
    classes = {'classes': ['person', 'dog'], 'category_ids': [1, 18]}
    assert dataset.metadata == {'fields': {'boxes': about, 'labels': classes}}


@pytest.mark.parametrize('form', FORMS)
def test_boxes_labels_and_annotations(form, tmp_path):
    source = make(tmp_path / 'in', files_of(form))
    done = bags.convert(source, tmp_path / 'out')
    assert done.notes == ['read as coco: 3 datapoints, photos with boxes of COCO']
    with bags.open(tmp_path / 'out') as dataset:
        check(dataset, form)
    bags.convert(source, tmp_path / 'linked', link=True)
    with bags.open(tmp_path / 'linked', trust_links=source) as dataset:
        check(dataset, form)
    with zipfile.ZipFile(tmp_path / 'in.zip', 'w') as file:
        for name, data in files_of(form).items():
            file.writestr(name, data)
    bags.convert(tmp_path / 'in.zip', tmp_path / 'zip')
    with bags.open(tmp_path / 'zip') as dataset:
        check(dataset, form)
        bags.export(dataset, tmp_path / 'tars')
    bags.convert(tmp_path / 'tars', tmp_path / 'again')
    with bags.open(tmp_path / 'again') as dataset:
        assert dataset[0]['labels'].tolist() == [1, 0]
        assert dataset.metadata['fields']['boxes']['over'] == 'jpg'


def test_several_json_files_of_one_dataset(tmp_path):
    keypoints = [{**ANNOTATIONS[1], 'keypoints': [1, 2, 2], 'num_keypoints': 1}]
    captions = [{'id': 7, 'image_id': 101, 'caption': 'a “dog”'}, {'id': 8, 'image_id': 101, 'caption': 'a'}]
    files = {f'{split}2017/{number}.jpg': CAT for split in ('train', 'val') for number in range(3)}
    files |= {
        'annotations/instances_train2017.json': coco(),
        'annotations/instances_val2017.json': coco(annotations=ANNOTATIONS[:1]),
        'annotations/person_keypoints_train2017.json': coco(annotations=keypoints),
        'annotations/captions_val2017.json': coco(annotations=captions, categories=[]),
    }
    done = bags.convert(make(tmp_path / 'in', files), tmp_path / 'out')
    assert done.spec['captions'] == 'utf8[]'
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.column('__key__')[:2] == ['train2017/0', 'train2017/1']
        assert [row['labels'].tolist() for row in dataset] == [[1, 0], [0], [], [1], [], []]
        assert dataset[0]['annotations'] == [ANNOTATIONS[0], keypoints[0]]
        assert dataset.column('captions') == [[], [], [], [], ['a “dog”', 'a'], []]
        assert dataset.metadata['fields']['labels']['classes'] == ['person', 'dog']


def test_photos_and_images_without_each_other_are_said(tmp_path):
    files = files_of('in one folder') | {'3.jpg': CAT, 'readme.pdf': b'x'}
    files['annotations.json'] = coco(['0.jpg', '1.jpg', '2.jpg', 'gone.jpg'])
    source = open_source(make(tmp_path / 'in', files))
    assert source.count == 4
    assert source.notes == [
        "read as coco: 4 datapoints, photos with boxes of COCO; 1 left out: 'readme.pdf'",
        f"{tmp_path}/in: images of the JSON without a file: 'gone.jpg'",
        f"{tmp_path}/in: photos that no JSON lists have no boxes: '3.jpg'",
    ]


def changed(**values):
    annotations = copy.deepcopy(ANNOTATIONS)
    annotations[1].update(values)
    return annotations


@pytest.mark.parametrize(
    ('annotations', 'expected'),
    [
        (changed(image_id=5), 'annotation 8: expected the id of one of its images as image_id, got 5'),
        (changed(bbox=[1, 2, 3]), r'annotation 8: expected x, y, width and height as bbox, got \[1, 2, 3\]'),
        (changed(bbox=[1, 2, 3, None]), 'annotation 8: expected x, y, width and height as bbox'),
        (changed(bbox=[1, 2, 3, float('nan')]), 'annotation 8: expected x, y, width and height as bbox'),
        (changed(bbox={'x': 1}), 'annotation 8: expected x, y, width and height as bbox'),
        (
            changed(category_id=2),
            'annotation 8: expected the id of one of its categories as category_id, got 2',
        ),
        (changed(category_id=[1]), 'annotation 8: expected the id of one of its categories'),
        ([5], 'annotations: expected a list of objects'),
        ({'a': 5}, 'annotations: expected a list of objects'),
    ],
)
def test_damaged_annotations_are_named(annotations, expected, tmp_path):
    source = make(tmp_path / 'in', files_of('of COCO', annotations=annotations))
    with pytest.raises(bags.SourceError, match=f'instances_val2017.json(, |: ){expected}'):
        bags.convert(source, tmp_path / 'out')
    with pytest.raises(bags.SourceError, match=r'instances_val2017\.json: cannot be read as JSON'):
        bags.convert(
            make(tmp_path / 'cut', {'0.jpg': CAT, 'instances_val2017.json': coco()[:-9]}), tmp_path / 'out'
        )


def test_one_name_in_several_folders(tmp_path):
    files = {'a/0.jpg': CAT, 'b/0.jpg': CAT, 'annotations.json': coco(['0.jpg'], [])}
    with pytest.raises(
        bags.SourceError, match=r"image '0.jpg': expected one file of this name, got 'a/0.jpg', 'b/0.jpg'"
    ):
        open_source(make(tmp_path / 'in', files))


@pytest.mark.parametrize(
    'content',
    [
        b'{"images": ["0.jpg"], "annotations": []}',
        b'{"images": [{"path": "0.jpg"}], "annotations": ["a"]}',
        b'{"images": {"0.jpg": 5}}',
        b'{"type": "FeatureCollection", "features": []}',
    ],
)
def test_other_json_about_photos_stays_a_file(content, tmp_path):
    found = open_source(make(tmp_path / 'in', {'0.jpg': CAT, 'index.txt.json': content}))
    assert (found.layout, found.count) == ('stems', 2)


def test_damaged_annotations_leave_other_layouts(tmp_path):
    source = make(tmp_path / 'in', {'0.jpg': CAT, 'coco.json': coco(['0.jpg'], [{'image_id': 5}])})
    with pytest.raises(bags.SourceError, match=r"as image_id, got 5; layout='stems' imports the JSON as a f"):
        open_source(source)
    found = open_source(source, layout='stems')
    assert found.count == 2
    assert [layout for layout, _ in found.readings()] == ['files', 'stems']


def annotation(image, category, x, number=0):
    return {'id': number, 'image_id': image, 'category_id': category, 'bbox': [x, 0, 2, 2]}


def test_annotations_of_one_id_are_all_kept(tmp_path):
    """Scripts write the id 0 for all annotations, and files of several people begin at 1 each."""
    files = {
        'one.json': coco(['0.jpg'], [annotation(100, 1, x) for x in (1, 2, 2)]),
        'other.json': coco(['0.jpg'], [annotation(100, 1, 5), annotation(100, 18, 1)]),
    }
    assert bags.convert(make(tmp_path / 'in', {'0.jpg': CAT, **files}), tmp_path / 'out').datapoints == 1
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[0]['boxes'][:, 0].tolist() == [1, 2, 2, 5, 1]
        assert len(dataset[0]['annotations']) == 5
        classes = dataset.metadata['fields']['labels']['category_ids']
        assert [classes[label] for label in dataset[0]['labels']] == [1, 1, 1, 1, 18]


def test_a_name_is_one_class_in_several_files(tmp_path):
    files = {}
    for folder, ids in (('train', {0: 'cat', 1: 'dog'}), ('valid', {0: 'dog', 1: 'cat', 2: 'cow'})):
        categories = [{'id': number, 'name': name} for number, name in ids.items()]
        annotations = [annotation(100, number, number, number) for number in ids]
        files |= {f'{folder}/0.jpg': CAT}
        files[f'{folder}/_annotations.coco.json'] = coco(['0.jpg'], annotations, categories=categories)
    bags.convert(make(tmp_path / 'in', files), tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        names = dataset.metadata['fields']['labels']['classes']
        assert names == ['cat', 'dog', 'cow']
        assert [[names[label] for label in row] for row in dataset.column('labels')] == [
            ['cat', 'dog'],
            ['dog', 'cat', 'cow'],
        ]


def test_the_folder_of_a_split_is_found_below_a_folder_of_the_same_words(tmp_path):
    files = {
        'coco/val/0.jpg': CAT,
        'coco/train/0.jpg': CAT,
        'coco/annotations/instances_train.json': coco(['0.jpg'], [annotation(100, 1, 7)]),
    }
    bags.convert(make(tmp_path / 'in', files), tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        boxes = dict(zip(dataset.column('__key__'), dataset.column('boxes'), strict=True))
        assert {key: len(each) for key, each in boxes.items()} == {'coco/train/0': 1, 'coco/val/0': 0}


@pytest.mark.parametrize(
    ('changes', 'expected'),
    [
        ({'categories': [{'id': [3], 'name': 'cat'}]}, "expected a number or a text as 'id'"),
        (
            {'images': [{'id': 1, 'file_name': f'{x}.jpg'} for x in (0, 1)]},
            "expected another 'id' for '1.jpg'",
        ),
    ],
)
def test_damaged_lists_are_named(changes, expected, tmp_path):
    content = {**json.loads(coco(['0.jpg'], [annotation(100, 1, 1)])), **changes}
    files = {'0.jpg': CAT, '1.jpg': CAT, 'coco.json': json.dumps(content).encode()}
    with pytest.raises(bags.SourceError, match=rf'in/coco\.json: .*: {expected}'):
        open_source(make(tmp_path / 'in', files))


def test_a_json_of_other_photos_is_a_file(tmp_path):
    files = {'a/0.jpg': CAT, 'annotations.json': coco(['other.jpg'], [])}
    found = open_source(make(tmp_path / 'in', files))
    assert (found.layout, found.count) == ('stems', 2)
    assert found.notes[1] == f"{tmp_path}/in: 'annotations.json': no annotations of photos that are there"
    other = open_source(
        make(tmp_path / 'other', {'0.jpg': CAT, 'config.json': b'{"images": 5}', 'x.json': b'[]'})
    )
    assert (other.layout, other.count) == ('stems', 3)
    with pytest.raises(bags.SourceError, match='expected photos, and JSON of COCO with their boxes'):
        open_source(tmp_path / 'other', layout='coco')


def test_renamed_fields(tmp_path):
    source = make(tmp_path / 'in', files_of('of COCO'))
    names = {'jpg': 'photo', 'labels': 'box_labels'}
    bags.convert(source, tmp_path / 'out', rename=names, spec={'annotations': None})
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.metadata['fields']['boxes'] == {
            'over': 'photo',
            'format': 'xywh',
            'labels': 'box_labels',
        }
        renamed = dataset.rename({'photo': 'image'})
        assert renamed.metadata['fields']['boxes']['over'] == 'image'


def test_annotations_and_a_metadata_table(tmp_path):
    files = files_of('of COCO') | {'val2017/metadata.csv': b'file_name,license\n0.jpg,CC0\n'}
    done = bags.convert(make(tmp_path / 'in', files), tmp_path / 'out')
    assert done.spec['license'] == 'utf8?'
    files['val2017/metadata.csv'] = b'file_name,labels\n0.jpg,CC0\n'
    with pytest.raises(bags.SourceError, match=r"metadata\.csv: column 'labels' is also one of"):
        bags.convert(make(tmp_path / 'twice', files), tmp_path / 'out2')


def test_coco_and_yolo_in_one_folder(tmp_path):
    files = files_of('images and annotations') | {
        f'labels/{number}.txt': b'0 0.5 0.5 0.1 0.1' for number in range(3)
    }
    source = make(tmp_path / 'in', files)
    with pytest.raises(
        bags.SourceError, match=r"several ways.* layout='coco': 3 datapoints.* layout='yolo': 3 dat"
    ):
        bags.convert(source, tmp_path / 'out')
    for layout in ('coco', 'yolo'):
        assert bags.convert(source, tmp_path / layout, layout=layout).datapoints == 3


def test_a_resume_keeps_annotations(tmp_path):
    source = make(tmp_path / 'in', files_of('of COCO') | {'val2017/1.jpg': b'bad'})
    with pytest.raises(bags.SourceError, match=r'val2017/1\.jpg'):
        bags.convert(source, tmp_path / 'out')
    (source / 'val2017/1.jpg').write_bytes(CAT)
    assert bags.convert(source, tmp_path / 'out', resume=True).datapoints == 3
    with bags.open(tmp_path / 'out') as dataset:
        check(dataset, 'of COCO')
    make(source, files_of('of COCO', annotations=changed(bbox=[1, 1, 1, 1])))
    with pytest.raises(ValueError, match=r"val2017/0, field '.*', datapoint 0 of the dataset"):
        bags.convert(source, tmp_path / 'out', resume=True)
