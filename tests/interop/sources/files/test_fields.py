"""Files of a datapoint in folders, and with prefixes and suffixes: published datasets, and other names."""

import pytest

import bags
from bags.interop.open_source import open_source
from bags.interop.sources.files.fields import find_fields
from tests.interop.sources.files.test_folders import make
from tests.interop.sources.files.test_readings import PNG, named, pack

PAIRS = {
    'masks': (named('{}.jpg', '{}_mask.png'), {'jpg': 'jpeg', 'mask': 'png'}),
    'masks of a few': (
        named('{}.jpg', count=20) | named('{}_mask.png', count=1),
        {'jpg': 'jpeg', 'mask': 'png?'},
    ),
    'masks of classes': (
        named('cat/{}.jpg', 'cat/{}_mask.png', 'dog/{}.jpg', 'dog/{}_mask.png'),
        {'jpg': 'jpeg', 'label': 'utf8', 'mask': 'png'},
    ),
    'any suffix that most have': (named('{}.jpg', '{}_lowres.jpg'), {'jpg': 'jpeg', 'lowres': 'jpeg'}),
    'a dot': (
        named('{}.jpg', '{}.seg.png', '{}.json', content=b'1'),
        {'jpg': 'jpeg', 'json': 'json', 'seg': 'png'},
    ),
    'subtitles': (named('{}.flac', '{}.en.srt', '{}.de.srt'), {'de': 'utf8', 'en': 'utf8', 'flac': 'audio'}),
    'sidecars': (named('IMG_{}.jpg', 'IMG_{}.jpg.json', content=b'1'), {'jpg': 'jpeg', 'json': 'json'}),
    'transcripts': (named('{}.flac', '{}.flac.txt'), {'flac': 'audio', 'txt': 'utf8'}),
    'stereo': (named('{}_L.png', '{}_R.png'), {'L': 'png', 'R': 'png'}),
    'prefixes': (named('image_{}.jpg', 'mask_{}.png'), {'image': 'jpeg', 'mask': 'png'}),
    'masks beside': (named('{}.jpg', 'masks/{}.png'), {'jpg': 'jpeg', 'masks': 'png'}),
    'of Cityscapes': (
        named('leftImg8bit/train/ulm/ulm_{}_leftImg8bit.png', 'gtFine/train/ulm/ulm_{}_gtFine_labelIds.png'),
        {'gtFine': 'png', 'leftImg8bit': 'png'},
    ),
    'all of Cityscapes': (
        named(
            'leftImg8bit/val/ulm/ulm_{}_019_leftImg8bit.png', 'gtFine/val/ulm/ulm_{}_019_gtFine_labelIds.png',
            'gtFine/val/ulm/ulm_{}_019_gtFine_color.png', 'gtFine/val/ulm/ulm_{}_019_gtFine_polygons.json',
            content=b'{}',
        ),
        {'gtFine_color': 'png', 'gtFine_labelIds': 'png', 'gtFine_polygons': 'json', 'leftImg8bit': 'png'},
    ),
    'of VCTK': (
        named('wav48/p225/p225_00{}_mic1.flac', 'wav48/p225/p225_00{}_mic2.flac', 'txt/p225/p225_00{}.txt'),
        {'mic1': 'audio', 'mic2': 'audio', 'txt': 'utf8'},
    ),
    'of VCTK, without the second microphone of one': (
        named('wav48/p225/p225_00{}_mic1.flac', 'txt/p225/p225_00{}.txt')
        | named('wav48/p225/p225_00{}_mic2.flac', count=2),
        {'mic1': 'audio', 'mic2': 'audio?', 'txt': 'utf8'},
    ),
    'of CamVid': (
        named('701_StillsRaw_full/0001TP_{}.png', 'LabeledApproved_full/0001TP_{}_L.png'),
        {'LabeledApproved_full': 'png', '_701_StillsRaw_full': 'png'},
    ),
    'of CamVid for SegNet': (
        named(
            'train/1TP_{}.png', 'trainannot/1TP_{}.png', 'val/16E5_{}.png', 'valannot/16E5_{}.png'
        ),
        {'annot': 'png', 'label': 'utf8', 'png': 'png'},
    ),
    'of Carvana': (
        named('train/ab_0{}.jpg', 'train_masks/ab_0{}_mask.png'),
        {'jpg': 'jpeg', 'mask': 'png'},
    ),
    'of Oxford Pets': (
        named('images/pug_{}.jpg', 'annotations/trimaps/pug_{}.png', 'annotations/xmls/pug_{}.xml'),
        {'images': 'jpeg', 'trimaps': 'png', 'xmls': 'utf8'},
    ),
    'of NYU': (
        named('office_1a/rgb_{}.jpg', 'office_1a/sync_depth_{}.png'),
        {'rgb': 'jpeg', 'sync_depth': 'png'},
    ),
    'of ADE20K': (
        named('ADE_{}.jpg', 'ADE_{}_seg.png', 'ADE_{}_parts_1.png', 'ADE_{}_atr.txt'),
        {'atr': 'utf8', 'jpg': 'jpeg', 'parts_1': 'png', 'seg': 'png'},
    ),
    'of ISIC': (named('in/ISIC_{}.jpg', 'truth/ISIC_{}_segmentation.png'), {'in': 'jpeg', 'truth': 'png'}),
    'of KITTI 2015': (
        named('image_2/{}_10.png', 'image_2/{}_11.png', 'disp_occ_0/{}_10.png'),
        {'disp_occ_0': 'png?', 'image_2': 'png'},
    ),
    'of Sintel': (
        named('clean/alley_1/frame_{}.png', 'final/alley_1/frame_{}.png', 'flow/alley_1/frame_{}.flo'),
        {'clean': 'png', 'final': 'png', 'flow': 'bytes'},
    ),
    'of MSRC': (named('1_{}_s.png', '1_{}_s_GT.png'), {'GT': 'png', 'png': 'png'}),
    'of nnU-Net': (
        named('imagesTr/la_00{}_0000.nii.gz', 'labelsTr/la_00{}.nii.gz'),
        {'images': 'bytes', 'labels': 'bytes'},
    ),
    'channels and a test split of nnU-Net': (
        named(
            'Dataset001_X/imagesTr/la_00{}_0000.nii.gz', 'Dataset001_X/imagesTr/la_00{}_0001.nii.gz',
            'Dataset001_X/labelsTr/la_00{}.nii.gz', 'Dataset001_X/imagesTs/la_01{}_0000.nii.gz',
            'Dataset001_X/imagesTs/la_01{}_0001.nii.gz',
        ),
        {'images_0000': 'bytes', 'images_0001': 'bytes', 'labels': 'bytes?'},
    ),
    'of the Medical Segmentation Decathlon': (
        named('imagesTr/la_00{}.nii.gz', 'labelsTr/la_00{}.nii.gz') | named('imagesTs/la_01{}.nii.gz'),
        {'images': 'bytes', 'labels': 'bytes?'},
    ),
    'of BraTS 2019': (
        named(*(
            f'{grade}/BraTS19_{grade[0]}{{0}}_1/BraTS19_{grade[0]}{{0}}_1_{scan}.nii.gz'
            for grade in ('HGG', 'LGG')
            for scan in ('flair', 't1', 't1ce', 't2', 'seg')
        )),
        {'flair': 'bytes', 'label': 'utf8', 'seg': 'bytes', 't1': 'bytes', 't1ce': 'bytes', 't2': 'bytes'},
    ),
    'of BraTS 2023': (
        named(*(
            f'BraTS-GLI-{{0}}-000/BraTS-GLI-{{0}}-000-{scan}.nii.gz' for scan in ('t1c', 't1n', 't2f', 'seg')
        )),
        {'seg': 'bytes', 't1c': 'bytes', 't1n': 'bytes', 't2f': 'bytes'},
    ),
    'suffixes after the names of folders': (
        named('case{0}/case{0}_pre.png', 'case{0}/case{0}_post.png'),
        {'post': 'png', 'pre': 'png'},
    ),
    'of LOL': (
        {
            f'{split}/{folder}/{n}.png': PNG
            for split, numbers in (('our485', (2, 5, 6, 9)), ('eval15', (1, 22)))
            for folder in ('low', 'high')
            for n in numbers
        },
        {'high': 'png', 'low': 'png'},
    ),
    'of GoPro': (
        named(
            'train/G_1/blur/00{}.png', 'train/G_1/sharp/00{}.png',
            'test/G_2/blur/00{}.png', 'test/G_2/sharp/00{}.png',
        ),
        {'blur': 'png', 'sharp': 'png'},
    ),
    'folders with the same names of files': (
        {f'{folder}/{n * n}.png': PNG for folder in ('phone', 'dslr') for n in range(9)},
        {'dslr': 'png', 'phone': 'png'},
    ),
    'of DRIVE': (
        named(
            'training/images/2{}_training.tif', 'training/1st_manual/2{}_manual1.gif',
            'training/mask/2{}_training_mask.gif',
            'test/images/0{}_test.tif', 'test/1st_manual/0{}_manual1.gif',
            'test/2nd_manual/0{}_manual2.gif', 'test/mask/0{}_test_mask.gif',
        ),
        {'_1st_manual': 'image', '_2nd_manual': 'image?', 'images': 'image', 'mask': 'image'},
    ),
    'of DRIVE, in one folder': (
        named('2{}_training.tif', '2{}_manual1.gif'),
        {'manual1': 'image', 'training': 'image'},
    ),
    'of CHASE': (
        named('Image_0{}L.jpg', 'Image_0{}L_1stHO.png', 'Image_0{}L_2ndHO.png'),
        {'_1stHO': 'png', '_2ndHO': 'png', 'jpg': 'jpeg'},
    ),
    'splits in the names of folders': (
        named('images_train/1{}.jpg', 'masks_train/1{}.png', 'images_val/2{}.jpg', 'masks_val/2{}.png'),
        {'images': 'jpeg', 'masks': 'png'},
    ),
}  # fmt: skip


@pytest.mark.parametrize('name', PAIRS)
def test_files_that_would_be_rows_in_halves(name, tmp_path):
    files, fields = PAIRS[name]
    source = make(tmp_path / 'in', files)
    match = r"several ways.*: layout='fields': (\d+) datapoints?, a folder, prefix or suffix .*; layout='"
    with pytest.raises(bags.SourceError, match=match):
        open_source(source)
    found = open_source(source, layout='fields')
    assert found.spec == {'__key__': 'utf8', **fields}
    assert found.notes[0].startswith(f'read as fields: {found.count} datapoint')
    assert 'left out' not in found.notes[0]
    assert sum(len(entry.files) for entry in found.entries()) == len(files)
    assert found.readings()[1][1] > found.count


NO_PAIRS = {
    'numbered frames': named('cam-frame{:04}.png', count=4),
    'numbers': [f'img_{n}.jpg' for n in range(9)],
    'numbers after a name': [f'{a}{n}.jpg' for a in ('cat', 'dog', 'hen') for n in ('', '_1', '_2')],
    'names': ['a_b.jpg', 'red-car.jpg', 'car.jpg', 'blue_sky.jpg', 'sky.jpg', 'cat.jpg', 'cat_sleeps.jpg'],
    'a word in one name': ['wine.jpg', 'wine_label.jpg', *(f'{a}.jpg' for a in 'abcdefghijklmn')],
    'a word without the other name': ['gas_mask.jpg', 'face_mask.jpg', 'cat.jpg', 'dog.jpg'],
    'captions of a few': [*(f'{n}.jpg' for n in range(9)), '3.txt'],
    'labels in names': [f'{n}_{["cat", "dog", "hen"][n % 3]}.jpg' for n in range(9)],
    'classes in names': [f'{a}/{n}_{a}.jpg' for a in ('cat', 'dog') for n in range(5)],
    'dates': [f'2020-0{month}-1{day}_park.jpg' for month in range(1, 5) for day in range(3)],
    'items': [
        f'scene{s}{end}' for s in range(4) for end in ('.json', *(f'_frame_{n}.png' for n in range(9)))
    ],
    'of Pets': [f'{a}_{n}.jpg' for a in ('Abyssinian', 'american_bulldog', 'pug') for n in range(4)],
    'of UCF101': [
        f'v_{a}_g0{g}_c0{c}.mp4' for a in ('Archery', 'Diving') for g in range(3) for c in range(3)
    ],
    'of AVSpeech': ['-0d3Kbs_0.000000_3.1.mp4', 'aB_9_1.2_4.2.mp4', 'x1_2.4_9.9.mp4'],
    'of Kodak': [f'kodim{n:02}.png' for n in range(1, 25)],
    'of LJSpeech': [f'wavs/LJ001-{n:04}.wav' for n in range(6)],
    'of LibriSpeech': [
        *(f'84/{c}/84-{c}-{n:04}.flac' for c in (121123, 121550) for n in range(3)),
        *(f'84/{c}/84-{c}.trans.txt' for c in (121123, 121550)),
    ],
    'of RAVDESS': [
        f'03-01-0{e}-01-01-0{r}-{a:02}.wav' for e in range(4) for r in (1, 2) for a in range(1, 4)
    ],
    'of CREMA-D': [
        f'{a}_{s}_{e}_XX.wav' for a in range(4) for s in ('DFA', 'IEO') for e in ('ANG', 'SAD', 'HAP')
    ],
    'of TESS': [
        f'{a}_{w}_{e}.wav' for a in ('OAF', 'YAF') for w in ('back', 'bar') for e in ('angry', 'happy')
    ],
    'of SAVEE': [f'{a}_{e}{n:02}.wav' for a in ('DC', 'JE', 'KL') for e in ('a', 'sa') for n in range(1, 4)],
    'of Speech Commands': [
        f'{w}/{h}_nohash_{n}.wav' for w in ('bed', 'yes') for h in ('0a7c', 'b3b4') for n in '01'
    ],
    'of ImageNet': [f'{w}/{w}_{n}.JPEG' for w in ('n01440764', 'n01443537') for n in (10026, 10027, 293)],
    'of LFW': [f'{a}/{a}_000{n}.jpg' for a in ('Aaron_Eckhart', 'Abel_Pacheco') for n in range(1, 4)],
    'of Flickr8k': ['Images/1000268201_693b08cb0e.jpg', 'Images/1001773457_577c3a7d70.jpg', 'captions.txt'],
    'classes of risk': [f'{a}/{n}.jpg' for a in ('low', 'medium', 'high') for n in range(9)],
    'two classes, numbered in the same way': [f'{a}/img_{n}.jpg' for a in ('cat', 'dog') for n in range(40)],
    'cameras of recordings': [
        f'{a}/{n}.mp4' for a in ('mon', 'tue', 'fri') for n in ('left', 'front', 'right')
    ],
    'splits with the same names': [f'{a}/{n * n}.png' for a in ('train', 'val') for n in range(20)],
    'a word in all names of a class': [f'{a}/{n * n}_{a}.png' for a in ('cat', 'dog') for n in range(20)],
    'of TESS in folders': [
        f'OAF_{a}/OAF_{w}_{a}.wav' for a in ('angry', 'happy') for w in ('back', 'bar', 'base', 'bath')
    ],
    'frames of a video': [f'{a}_000{n}.png' for a in ('x', 'y') for n in range(6)],
    'UUIDs': [f'{n * 7919:08x}-4a{n}c-4b{n * n}a.jpg' for n in range(9)],
}


@pytest.mark.parametrize('name', NO_PAIRS)
def test_names_that_tell_no_fields(name):
    assert find_fields(NO_PAIRS[name]) is None


def test_a_rare_word_among_many_names():
    """Affixes are looked for in some of the names."""
    names = [f'{n}.jpg' for n in range(30_000)]
    assert find_fields([*names, *(f'{n}_mask.png' for n in range(0, 30_000, 10))]).datapoints == 30_000
    assert find_fields(names) is None


@pytest.mark.parametrize('form', ['zip', 'tar', 'tar.gz'])
@pytest.mark.parametrize(
    'name', ['of nnU-Net', 'of BraTS 2023', 'of LOL', 'folders with the same names of files', 'of DRIVE']
)
def test_archives_of_published_datasets(name, form, tmp_path):
    files, fields = PAIRS[name]
    source = pack(make(tmp_path / 'in', files), tmp_path / f'out/in.{form}')
    with pytest.raises(bags.SourceError, match="layout='fields'"):
        open_source(source)
    assert open_source(source, layout='fields').spec == {'__key__': 'utf8', **fields}


@pytest.mark.parametrize('form', ['zip', 'tar', 'tar.gz'])
def test_archives(form, tmp_path):
    source = pack(make(tmp_path / 'in', named('{}.png', '{}_mask.png')), tmp_path / f'out/in.{form}')
    with pytest.raises(
        bags.SourceError, match=r"layout='fields': 3 datapoints.*layout='(stems|webdataset)': 6"
    ):
        open_source(source)
    done = bags.convert(source, tmp_path / 'd', layout='fields')
    assert (done.datapoints, done.spec) == (3, {'__key__': 'utf8', 'mask': 'png', 'png': 'png'})
    assert bags.convert(source, tmp_path / 'd', resume=True).datapoints == 3


def test_an_update_keeps_the_suffixes(tmp_path):
    source = make(tmp_path / 'in', named('{}.jpg', '{}_mask.png'))
    spec = bags.convert(source, tmp_path / 'out', layout='fields', link=True).spec
    make(source, named('{}.jpg', '{}_mask.png', count=5))
    done = bags.convert(source, tmp_path / 'out', link=True, update=True)
    assert (done.datapoints, done.spec) == (5, spec)
    stems = bags.convert(source, tmp_path / 'stems', layout='stems', link=True)
    make(source, named('{}.jpg', '{}_mask.png', count=6))
    again = bags.convert(source, tmp_path / 'stems', link=True, update=True)
    assert (again.datapoints, again.spec) == (12, stems.spec)


def test_tables_and_boxes_of_photos_with_masks(tmp_path):
    files = named('{}.jpg', '{}_mask.png')
    table = make(tmp_path / 'table', files | {'labels.csv': b'file,x\n0.jpg,1\n1.jpg,2\n2.jpg,3\n'})
    with pytest.raises(bags.SourceError, match=r"layout='tables': 6 .*layout='fields': 4 "):
        open_source(table)
    labels = {f'labels/{n}.txt': b'0 0.5 0.5 0.2 0.4\n' for n in range(3)}
    yolo = make(tmp_path / 'yolo', named('images/{}.jpg', 'images/{}_mask.png') | labels)
    with pytest.raises(bags.SourceError, match=r"layout='yolo': 6 .*layout='fields': "):
        open_source(yolo)


def test_two_files_of_one_field_are_no_reading(tmp_path):
    source = make(tmp_path / 'in', named('{}.jpg', '{}_mask.png', '{}-mask.png'))
    found = open_source(source)
    assert (found.layout, found.count) == ('stems', 9)
    with pytest.raises(bags.SourceError, match="expected one file for field 'mask'"):
        open_source(source, layout='fields')
