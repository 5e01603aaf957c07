"""Plans a push that appends the shards of a dataset to the dataset of a repository."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
import posixpath
from collections.abc import Mapping
from typing import NamedTuple

from bags.authoring.append import check_metadata, check_spec
from bags.bag.checksums import checksums_name, digest_function, table_of
from bags.bag.options import ReaderOptions
from bags.dataset.format.file_names import BAG_SUFFIXES, DERIVED
from bags.dataset.format.folder import Folder
from bags.dataset.format.metadata import MAX_METADATA_BYTES, METADATA, Metadata, load_metadata, without_order
from bags.dataset.format.shard_index import INDEX, MAX_INDEX_BYTES, Shard, dump_index, load_index
from bags.dataset.format.spec import Schema
from bags.interop.hub.repository import HubRepository, git_digest, is_git_digest
from bags.maintenance.consolidate import describe_folder
from bags.maintenance.info import DatasetInfo, bytes_of_bags, bytes_of_field
from bags.maintenance.location import Location


class NewShards(NamedTuple):
    """The shards of a local dataset."""

    schema: Schema
    metadata: Metadata
    shards: list[Shard]
    files: list[dict[str, str]]
    """The local files of each shard, by name."""
    checksum: bool
    """Whether JSON files have checksums."""


class AppendPlan(NamedTuple):
    """The files of a commit that appends shards."""

    uploads: dict[str, str | bytes]
    """Local paths or contents, by their paths in the repository."""
    removed: list[str]
    """Paths of files that are computed from the datapoints before the commit."""
    shards: list[Shard]
    """All shards after the commit."""


def new_shards(location: Location, files: Mapping[str, str]) -> NewShards:
    """Describes the shards of a local dataset; a dataset of one folder is one shard.

    Args:
        location: The dataset.
        files: Its local files, by their names in its folder.

    Raises:
        ValueError, SpecError, CorruptError: As `bags.consolidate`.
    """
    by_folder: dict[str, dict[str, str]] = {}
    for name, file in files.items():
        folder, _, base = name.rpartition('/')
        if bool(folder) == (location.type == 'shards') and not DERIVED.fullmatch(base):
            by_folder.setdefault(folder, {})[base] = file
    contents = list(by_folder.values())
    schema: Schema = {}
    shards = []
    for folder, found in by_folder.items():
        sizes = {name: os.path.getsize(file) for name, file in found.items()}
        path = location.store.join(location.path, folder) if folder else location.path
        schema, shard = describe_folder(location.store, path, ReaderOptions(), Shard(folder, sizes))
        shards.append(shard)
    first = Folder(location.store, location.parts[0], ReaderOptions())
    checksum = checksums_name('refs.bag') in contents[0]
    return NewShards(first.in_order(schema), first.metadata, shards, contents, checksum)


def plan_append(
    new: NewShards, repository: HubRepository, folder: str, commit: str, existing: Mapping[str, str]
) -> AppendPlan:
    """Plans a commit after `commit`. Shards that the repository has already are left out.

    Args:
        new: The shards to append.
        repository: The repository.
        folder: The path of its dataset.
        commit: The last commit of the branch.
        existing: The digest of each file at this commit.

    Raises:
        ValueError: The dataset of the repository has no shards.json, or other metadata.
        SpecError: It has other fields or types.
        CorruptError: A JSON file of the repository is damaged.
    """
    index = posixpath.join(folder, INDEX)
    where = repository.url_of(index, commit)
    shards: list[Shard] = []
    schema = new.schema
    if index in existing:
        schema, shards = load_index(repository.read(index, commit, MAX_INDEX_BYTES), where)
        check_spec(new.schema, schema, where)
        first = posixpath.join(folder, shards[0].name, METADATA)
        found = repository.read(first, commit, MAX_METADATA_BYTES) if first in existing else b'{}'
        url = repository.url_of(first, commit)
        check_metadata(new.metadata, without_order(load_metadata(found, url)), url)
    else:
        _expect_no_dataset(folder, existing, where)
    uploads: dict[str, str | bytes] = {}
    merged = list(shards)
    for shard, files in zip(new.shards, new.files, strict=True):
        if any(_are_equal(shard, files, other, folder, existing) for other in shards):
            continue
        width = len(merged[-1].name) if merged else 6
        name = f'{int(merged[-1].name) + 1 if merged else 0:0{width}}'
        merged.append(shard._replace(name=name))
        uploads.update((posixpath.join(folder, name, base), file) for base, file in files.items())
    if len(merged) == len(shards):
        return AppendPlan({}, [], shards)
    data = uploads[index] = dump_index(schema, merged)
    if new.checksum or checksums_name(index) in existing:
        uploads[checksums_name(index)] = table_of([digest_function()(data)])
    folders = {posixpath.join(folder, shard.name) for shard in shards}
    removed = [
        name
        for name in existing
        if posixpath.dirname(name) in folders and DERIVED.fullmatch(posixpath.basename(name))
    ]
    return AppendPlan(uploads, removed, merged)


def info_after(plan: AppendPlan, new_info: DatasetInfo) -> DatasetInfo:
    """Describes the whole dataset after an append, for its card.

    The counts come from the descriptions of all shards; distributions would need their records.
    """
    totals = collections.Counter[str]()
    for shard in plan.shards:
        totals.update(shard.sizes)
    fields = {
        name: dataclasses.replace(
            field,
            bytes=bytes_of_field(totals, name),
            linked_bytes=0,
            record_bytes=None,
            items=None,
            seconds=None,
        )
        for name, field in new_info.fields.items()
    }
    return dataclasses.replace(
        new_info,
        datapoints=sum(shard.length or 0 for shard in plan.shards),
        shards=len(plan.shards),
        bytes=bytes_of_bags(totals),
        fields=fields,
    )


def _are_equal(
    shard: Shard, files: Mapping[str, str], other: Shard, folder: str, existing: Mapping[str, str]
) -> bool:
    """Returns whether the repository has a shard under the name of another one.

    Shards of versions that wrote no ids are compared by the digests of their bags.
    """
    if shard.length != other.length or shard.counts != other.counts:
        return False
    if shard.id is not None and other.id is not None:
        return shard.id == other.id
    bags = [name for name in files if name.endswith(BAG_SUFFIXES)]
    if any(shard.sizes.get(name) != other.sizes.get(name) for name in bags):
        return False
    return all(
        _digest_like(existing.get(posixpath.join(folder, other.name, name), ''), files[name]) for name in bags
    )


def _digest_like(digest: str, file: str) -> bool:
    """Returns whether a local file has a digest of the hub: SHA-256, or the digest of git."""
    with open(file, 'rb') as opened:
        if is_git_digest(digest):
            return git_digest(opened.read()) == digest
        return hashlib.file_digest(opened, 'sha256').hexdigest() == digest


def _expect_no_dataset(folder: str, existing: Mapping[str, str], where: str) -> None:
    """Raises ValueError if the folder of a repository has a dataset without shards.json."""
    if posixpath.join(folder, 'spec.json') in existing:
        raise ValueError(
            f'{posixpath.dirname(where)}: expected shards to append to, got a dataset of one folder: '
            'bags.copy makes shards, and bags.push replaces the dataset with them'
        )
    if any(posixpath.basename(name) == 'spec.json' and _is_shard(name, folder) for name in existing):
        raise ValueError(
            f'{where}: expected a list of the shards: bags.push of the whole dataset writes it, or '
            'bags.consolidate before an upload by other means'
        )


def _is_shard(name: str, folder: str) -> bool:
    shard = posixpath.dirname(name)
    return posixpath.dirname(shard) == folder and posixpath.basename(shard).isdigit()
