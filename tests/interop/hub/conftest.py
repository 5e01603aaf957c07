"""A Hugging Face hub on loopback, and pushes to it."""

import pytest

import bags
from tests.interop.hub.upload_hub import UploadHub

URL = 'hf://datasets/u/d'
TOKEN = {'token': 'hf_secret'}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, 'HF_HUB_DISABLE_XET', True)
    monkeypatch.setenv('HF_HOME', str(tmp_path / 'home'))
    for name in ('HF_TOKEN', 'HUGGING_FACE_HUB_TOKEN', 'HF_TOKEN_PATH'):
        monkeypatch.delenv(name, raising=False)
    with UploadHub(tmp_path / 'hub') as hub:
        hub.token = 'hf_secret'
        monkeypatch.setenv('HF_ENDPOINT', hub.url)
        monkeypatch.setattr(huggingface_hub.constants, 'ENDPOINT', hub.url)
        yield hub


@pytest.fixture
def push(hub):
    def push(path, target=URL, **options):
        return bags.push(path, target, storage_options={**TOKEN, 'retries': 9}, progress=False, **options)

    return push
