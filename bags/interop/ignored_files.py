"""Files that belong to no datapoint, by name: of operating systems and editors, documents, and checksums."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Collection, Iterable

from bags.interop.file_extensions import IMAGE_TYPES, split_name, type_of

METADATA_TABLES = ('metadata.csv', 'metadata.jsonl')
"""Tables beside media files, whose column `file_name` names the files."""
_JUNK = ('__macosx', 'thumbs.db', 'ehthumbs.db', 'desktop.ini', '$recycle.bin', 'system volume information',
         'lost+found', '@eadir', '__pycache__')  # fmt: skip
"""Files and folders of operating systems, in lower case."""
_ENDS_OF_EDITORS = ('~', '.swp', '.swo', '.swx')
"""Ends of the names of backups and temporary files of editors: `3.jpg~`, `3.txt.swp`."""
_ENDS_OF_BACKUPS = ('.bak', '.orig', '.rej')
"""Ends of backups of editors and of merges, after the extension of the file: `3.txt.bak`, `3.txt.orig`."""
_DOCUMENTS = ('readme', 'readme.*', 'license', 'license.*', 'licence', 'licence.*', 'license-*', 'copying',
              'copying.*', 'notice', 'notice.*', 'citation.*', 'changelog*', 'contributing.*', 'authors*',
              'dataset_info.json', 'dataset_infos.json', 'dataset_dict.json')  # fmt: skip
"""Files at the top of a folder that describe it."""
NO_DATA = ('*.md5', '*.sha1', '*.sha256', '*.sha512', '*.crc', '*.crc32', '*.xxh3', '*.sfv', '*.asc',
            '*.sig', 'md5sum*', 'sha*sum*', 'checksum*', 'manifest-md5.txt', 'manifest-sha*.txt', '_success',
            '_metadata', '_common_metadata', '_started_*', '_committed_*', '*.part', '*.partial', '*.tmp',
            '*.crdownload', '*.incomplete', '*.lock')  # fmt: skip
"""Checksums, marks of other libraries, and files whose transfer has not ended."""
_FIRST_LETTERS = {
    '',
    *'.#~',
    *(pattern[0] for pattern in (*_JUNK, *_DOCUMENTS, *NO_DATA, *METADATA_TABLES) if pattern[0] != '*'),
}
_WILDCARDS = frozenset('*?[')
MEDIA = (*IMAGE_TYPES, 'video', 'audio', 'array')
"""Types of files that are never documents."""


def is_hidden(name: str) -> bool:
    """Returns whether a file, by its path, is hidden, or one of an operating system or an editor."""
    folder, _, base = name.rpartition('/')
    return _is_hidden(base) or _is_of_editor(base) or _is_in_hidden(folder)


def _is_of_editor(base: str) -> bool:
    """Returns whether an editor left a file beside another one, also `#3.txt#` and `~$3.docx`."""
    if base.endswith(_ENDS_OF_EDITORS) or (base[:1] == '#' == base[-1:]) or base.startswith('~$'):
        return True
    return base.lower().endswith(_ENDS_OF_BACKUPS) and base.count('.', 1) > 1


def _is_hidden(base: str) -> bool:
    return (base.startswith('.') and base not in ('.', '..')) or base.lower() in _JUNK


@functools.lru_cache
def _is_in_hidden(folder: str) -> bool:
    return folder != '' and any(map(_is_hidden, folder.split('/')))


def is_beside(name: str) -> bool:
    """Returns whether a file, by its path in a folder, describes other files instead of being a datapoint."""
    if '/' not in name and matches(name, _DOCUMENTS) and type_of(split_name(name)[1]) not in MEDIA:
        return True
    return matches(name, NO_DATA)


def may_be_ignored(keys: Iterable[str], extensions: Collection[str]) -> bool:
    """Returns whether an import may take files of some keys, in a folder or a tar, for others than data.

    Args:
        keys: The keys, which are paths.
        extensions: The parts of the names of files after the key and a dot.
    """
    some = [
        key
        for key in keys
        if (key[-1:] == '~' and '' in extensions)
        or any(part[:1].lower() in _FIRST_LETTERS for part in key.split('/'))
    ]
    for key in ['0', '0.0', *some]:  # With other first and last letters, only the extensions count.
        folder, _, base = key.rpartition('/')
        names = [f'{base}.{extension}' for extension in extensions]
        if any(name.startswith('__') and name.endswith('__') for name in names):
            return True  # WebDataset's own metadata.
        if is_hidden(folder) or any(
            is_hidden(name) or is_beside(name) or name in METADATA_TABLES for name in [base, *names]
        ):
            return True
    return False


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Returns whether the last part of a path matches one of some patterns in lower case."""
    suffixes, others = _split(patterns)
    base = name.rpartition('/')[2].lower()
    return base.endswith(suffixes) or others.match(base) is not None


@functools.cache
def _split(patterns: tuple[str, ...]) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Returns the ends of names that some patterns are for, which are found faster, and the other ones."""
    ends = tuple(each[1:] for each in patterns if each[0] == '*' and _WILDCARDS.isdisjoint(each[1:]))
    return ends, pattern_of(tuple(each for each in patterns if each[1:] not in ends or each[0] != '*'))


@functools.cache
def pattern_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Returns one expression for all patterns, as a folder may have a million files."""
    return re.compile('|'.join(map(fnmatch.translate, patterns)) or '(?!)')
