"""Errors of linked records name the linked file, and its member of a tar or zip or its record of a bag."""

import io
import shutil
import tarfile
import zipfile

import numpy as np
import pytest

import bags
from bags.formats.images import encode_jpeg

LONG = 'no short name of a folder/' * 6


def photos():
    """Returns photos by name, of which the last one is truncated."""
    photo = bytes(encode_jpeg(np.arange(48 * 48 * 3, dtype=np.uint8).reshape(48, 48, 3)))
    return {'cats/000.jpg': photo, 'cats/001.jpg': photo, f'{LONG}é.jpg': photo[: len(photo) // 2]}


def write_tar(path, format):
    with tarfile.open(path, 'w', format=format) as tar:
        for name, data in photos().items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize('format', [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_members_of_tars(tmp_path, format):
    write_tar(tmp_path / 'photos.tar', format)
    bags.convert(tmp_path / 'photos.tar', tmp_path / 'd', link=True)
    expect_error(tmp_path / 'd', f'{tmp_path / "photos.tar"}, member {LONG}é.jpg, field ')


def test_members_of_zips(tmp_path):
    with zipfile.ZipFile(tmp_path / 'photos.zip', 'w') as file:
        for name, data in photos().items():
            file.writestr(name, data)
    bags.convert(tmp_path / 'photos.zip', tmp_path / 'd', link=True)
    expect_error(tmp_path / 'd', f'{tmp_path / "photos.zip"}, member {LONG}é.jpg, field ')


def test_files(tmp_path):
    for number, data in enumerate(photos().values()):
        (tmp_path / 'photos').mkdir(exist_ok=True)
        (tmp_path / 'photos' / f'{number}.jpg').write_bytes(data)
    bags.convert(tmp_path / 'photos', tmp_path / 'd', link=True)
    expect_error(tmp_path / 'd', f'{tmp_path / "photos" / "2.jpg"}, field ')
    with bags.open(tmp_path / 'd', trust_links=True) as dataset:
        dataset.select([2, 1]).save(tmp_path / 'edit')
    expect_error(tmp_path / 'edit', f'{tmp_path / "photos" / "2.jpg"}, field ', 0)


def expect_error(path, beginning, row=None):
    with bags.open(path, trust_links=True) as dataset:
        row = len(dataset) - 1 if row is None else row
        for read in (
            lambda: dataset[row],
            lambda: dataset.batch([0, 1, row], 'jpg'),
            lambda: dataset[row, 'jpg'],
        ):
            with pytest.raises(bags.DecodeError) as caught:
                read()
            assert str(caught.value).startswith(beginning)
        (found,) = bags.verify(path, decode=True, trust_links=True)
        assert found.detail.startswith(beginning.removesuffix(', field '))


@pytest.fixture
def edit(tmp_path):
    spec = {'id': 'int(8)', 'text': 'utf8', 'packed': 'bytes'}
    with bags.ShardedDatasetWriter(tmp_path / 'base', spec, shard_length=20, checksum=True) as writer:
        for index in range(50):
            writer.append({'id': index, 'text': f'{index} ' * 500, 'packed': b'x' * 5000})
    with bags.open(tmp_path / 'base') as base:
        base.select([41, 7, 3]).save(tmp_path / 'edit')
    return tmp_path / 'edit'


def test_damaged_records_of_another_dataset(edit, tmp_path):
    bag = tmp_path / 'base' / '000000' / 'text.bag'
    data = bag.read_bytes()
    at = data.index(b'7 7 7 7 ') + 100
    bag.write_bytes(data[:at] + b'\xff' + data[at + 1 :])
    with bags.open(edit) as dataset:
        with pytest.raises(bags.DecodeError) as caught:
            dataset[1]
        assert str(caught.value).startswith(f'{bag}, record 7, field ')
        assert dataset[2]['id'] == 3


def test_a_copied_edit(edit, tmp_path):
    copied = tmp_path / 'elsewhere' / 'copy'
    shutil.copytree(edit, copied)
    with bags.open(copied) as dataset, pytest.raises(bags.LinkError) as caught:
        dataset[1]
    message, missing = str(caught.value), tmp_path / 'elsewhere' / 'base'
    assert message.startswith(
        f"{copied / '000000'}, field 'text': link to {missing / '000000' / 'text.bag'}: expected"
    )
    assert f'the records are in the dataset {missing}: ' in message
    assert f'`bags edit {copied} NEW --relink {missing}=FOLDER`' in message
    assert '`bags copy`' in message
    assert '.links' not in message
    assert (caught.value.path, caught.value.record) == (str(copied / '000000' / 'text.links'), 1)
    with bags.open(copied) as dataset:
        dataset.save(tmp_path / 'new', relink={str(missing): str(tmp_path / 'base')})
    with bags.open(tmp_path / 'new') as dataset, bags.open(tmp_path / 'base') as base:
        assert dataset[1] == base[7]


def test_info_names_what_is_needed(edit, tmp_path):
    needs = [str(tmp_path / 'base')]
    assert bags.info(edit).needs == needs
    assert f'needs {needs[0]}' in str(bags.info(edit))
    assert bags.info(tmp_path / 'base').needs == []
    shutil.copytree(edit, tmp_path / 'elsewhere' / 'copy')
    assert bags.info(tmp_path / 'elsewhere' / 'copy').needs == [str(tmp_path / 'elsewhere' / 'base')]
