"""`ManifestOptions`: which columns of a manifest have paths of files, and which folders these may be in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bags.links.files import bucket_of
from bags.links.permission import PermittedPaths, TrustedPaths, permitted_paths
from bags.storage import plain_path

FORMATS_OF_TABLES = ('parquet', 'arrow', 'csv', 'jsonl')
"""Formats whose columns may have paths of files, if the user says so."""
FORMATS_OF_MANIFESTS = ('nemo', 'lhotse')


class ManifestOptions(NamedTuple):
    """What the user says about the files that a manifest lists; see `bags.convert`."""

    files: Mapping[str, str] = {}
    """The field for the files of each column with paths."""
    root: str | None = None
    trust_links: TrustedPaths = ()

    def check_format(self, format: str) -> None:
        """Raises ValueError for an option that sources of a format do not take."""
        if self.files and format not in FORMATS_OF_TABLES:
            raise ValueError(
                f'file: expected none for the format {format!r}: CSV, JSONL, Parquet and Arrow take them'
            )
        if not self.files and format not in FORMATS_OF_MANIFESTS:
            for name, value in (('root', self.root), ('trust_links', self.trust_links)):
                if value:
                    raise ValueError(
                        f'{name}: expected none for the format {format!r}: manifests take it, which are '
                        'tables with file=, and the formats nemo and lhotse'
                    )

    def options_by_bucket(
        self, manifests: Iterable[str], storage_options: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """Returns storage options of the buckets of manifests and of the root only.

        Options without a prefix would be sent to every host that a manifest names.
        """
        if not storage_options or all('://' in name for name in storage_options):
            return storage_options
        paths = [path for path in (*manifests, self.root or '') if '://' in path]
        return {f'{bucket_of(path)}/': storage_options for path in paths}


NO_FILES = ManifestOptions()


def manifest_options(
    file: Mapping[str, str] | None,
    root: str | os.PathLike[str] | None,
    trust_links: PermittedPaths,
) -> ManifestOptions:
    """Checks the options of `bags.convert` for manifests.

    Raises:
        TypeError: An option has another type.
        ValueError: Two columns have the same field.
    """
    pairs: object = {} if file is None else file
    if not isinstance(pairs, Mapping) or not all(map(_is_name, (*pairs, *pairs.values()))):
        raise TypeError(f'file: expected a mapping of columns to fields, got {pairs!r:.80}')
    files = dict(pairs)
    if len({*files.values()}) < len(files):
        raise ValueError(f'file: expected another field for each column, got {dict(files)!r:.200}')
    root = plain_path(root)
    if not isinstance(root, str | os.PathLike | None) or root == '':
        raise TypeError(f'root: expected the path of a folder, got {root!r:.80}')
    trusted = permitted_paths('trust_links', trust_links)
    return ManifestOptions(files, None if root is None else os.fspath(root), trusted)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ''
