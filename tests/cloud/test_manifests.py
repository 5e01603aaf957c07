"""Manifests in an object store: paths relative to the manifest, and URLs outside of its folder."""

import json
import uuid

import numpy as np
import pytest

import bags
from bags.storage import store_for
from tests.interop.sources.manifests.manifests import write_lines, write_sound


@pytest.mark.parametrize('link', [True, False])
def test_files_beside_a_manifest(s3_storage, tmp_path, link):
    root = f'{s3_storage.root}/manifests/{uuid.uuid4().hex}'
    samples = write_sound(tmp_path / 'a.wav')
    lines = [
        {'audio_filepath': 'wavs/a.wav'},
        {'audio_filepath': 'wavs/a.wav', 'offset': 0.5, 'duration': 0.25},
    ]
    write_lines(tmp_path / 'm.json', lines)
    for name, target in (('a.wav', 'wavs/a.wav'), ('m.json', 'm.json')):
        store, path = store_for(f'{root}/{target}', None, s3_storage.options)
        store.replace(path, (tmp_path / name).read_bytes())
    keywords = {'format': 'nemo', 'link': link, 'source_options': s3_storage.options}
    bags.convert(f'{root}/m.json', tmp_path / 'out', **keywords)
    options = {'s3://bucket/': s3_storage.options}
    with bags.open(tmp_path / 'out', trust_links=root, storage_options=options) as dataset:
        np.testing.assert_array_equal(dataset[0]['audio'][:], samples)
        np.testing.assert_array_equal(dataset[1]['audio'][:], samples[8000:12_000])
    for path, message in (
        ('../outside.wav', 'expected a path below'),
        (f'{root}/../outside.wav', 'expected a URL without dots'),
        (f'{s3_storage.root}/outside.wav', 'is not below'),
        (str(tmp_path / 'a.wav'), 'is not below'),
    ):
        store, target = store_for(f'{root}/m.json', None, s3_storage.options)
        store.replace(target, json.dumps({'audio_filepath': path}).encode())
        with pytest.raises(bags.SourceError, match=f"line 1, row 0: field 'audio': .*{message}"):
            bags.convert(f'{root}/m.json', tmp_path / 'out', **keywords, mode='overwrite')
