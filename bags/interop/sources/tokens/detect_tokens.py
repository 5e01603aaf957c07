"""Detects files of tokens by their first bytes: their names, such as `train.bin`, say little."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from bags.errors import SourceError
from bags.interop.ignored_files import is_beside, is_hidden
from bags.interop.sources.tokens.megatron import index_of
from bags.interop.sources.tokens.plain_files import NPY_MAGIC, WAYS, is_llm_c
from bags.interop.stores import find_store, is_one_file, open_in
from bags.interop.targets.megatron_index import DATA, INDEX, MAGIC

NPY = '.npy'


def detect_tokens(
    root: str, names: Collection[str], is_folder: bool, storage_options: Mapping[str, Any] | None
) -> Literal['megatron', 'tokens'] | None:
    """Returns the format of files of tokens, by the first bytes of the first one; None for other files.

    Args:
        root, names: A folder and the paths in it; or a single file, and none.
        is_folder: Whether the user gave the folder, instead of the files.
        storage_options: As in `open_source`.

    Raises:
        SourceError: A file has two formats, or one that the user has to name.
    """
    own = [f'{root}/{name}' if root else name for name in names if not is_hidden(name)]
    own = [path for path in own if not is_beside(path)] if names else [root]
    if not own or any(path.rpartition('/')[2] == 'index.json' for path in own):  # Of LitData.
        return None
    if all(path.endswith(NPY) for path in own) and not is_folder:
        return 'tokens' if _head(own[0], storage_options).startswith(NPY_MAGIC) else None
    if not all(path.endswith((DATA, INDEX)) for path in own):
        return None
    first = next((path for path in own if path.endswith(INDEX)), min(own))
    data = first.removesuffix(INDEX) + DATA if first.endswith(INDEX) else first
    has_index = _head(index_of(data), storage_options).startswith(MAGIC)
    is_of_llm_c = is_llm_c(_head(data, storage_options))
    if has_index and is_of_llm_c:
        detail = 'is both tokens of Megatron, by the index beside it, and of llm.c, by its first bytes'
        raise SourceError(data, f"{detail}: format='megatron' or 'tokens' (--format) chooses one")
    if has_index or is_of_llm_c:
        return 'megatron' if has_index else 'tokens'
    if not is_folder and is_one_file(data, storage_options):
        name = index_of(data).rpartition('/')[2]
        raise SourceError(
            data,
            f'expected the index {name} of Megatron beside it, or the header of llm.c, got neither: '
            f"format='tokens' (--format) with dtype='uint16' (--dtype) and {WAYS} reads tokens without them",
        )
    return None


def _head(path: str, storage_options: Mapping[str, Any] | None) -> bytes:
    """Returns the first bytes of a file; none if it does not exist."""
    if not is_one_file(path, storage_options):
        return b''
    store, path = find_store(path, storage_options)
    file = open_in(store, path, storage_options)
    return bytes(file.read(0, min(len(MAGIC), file.size)))
