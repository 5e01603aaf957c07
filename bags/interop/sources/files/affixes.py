"""Prefixes and suffixes of file names that tell the fields of a datapoint: `1.jpg`, `1_mask.png`. No I/O.

An affix is the text before the first separators of a name, or after the last ones: `mask_`, `_gtFine_color`.
It is taken for a field if most files of this affix complete others:

- Files without the affix: `1.jpg` for `1_mask.png`. Unless the affix is a word for what files contain, most
  of the files without it have one with it.
- Files with another affix: `1_rgb.png` and `1_depth.png`. Both are such words, or the types of the files
  differ, or one is such a word and the extensions differ: `1_training.tif` and `1_manual1.gif`.
- Files with another suffix after the name of their folder: `case/case_pre.nii.gz`, `case/case_post.nii.gz`.

`img_1`, `img_2` have numbers, and `a_b`, `a_c` no files in common. The only numbers that are affixes are the
channels of nnU-Net: `1_0000.nii.gz` and `1_0001.nii.gz` for `1.nii.gz`.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping

from bags.interop.file_extensions import media_type
from bags.interop.sources.files.words import is_suffix, is_word

MIN_SHARE, MIN_SHARE_BESIDE = 0.1, 0.5
"""Share of the files of the larger of two groups that must be in both, if only types make them fields; and
the same for files with and without an affix, and for files and a folder beside them."""
MIN_BASED = 0.9
"""Share of the files with an affix for which there must be files without it, if it is any text."""
MIN_FILES = 3
"""Number of files that must have an affix that is any text."""
MIN_FREQUENCY = 0.02
"""Share of the names that such affixes have, at least."""
SAMPLED_NAMES = 20_000
"""Number of names in which affixes are looked for."""
MAX_CANDIDATES, MAX_AFFIXES = 64, 24
MAX_SERIES = 8
"""Number of affixes that may differ in a number: `_mic1` to `_mic8`; more are items."""
MAX_SUFFIX_PARTS, MAX_PREFIX_PARTS = 3, 2
"""Parts between separators of the longest suffix and prefix."""
_SEPARATOR = re.compile(r'[_.-]')
_LETTER, _LETTER_OR_ORDINAL = re.compile('[A-Za-z]'), re.compile('[A-Za-z]|[0-9]+(?:st|nd|rd|th)')
_DIGIT, _DIGITS = re.compile('[0-9]'), re.compile('[0-9]+')
_CHANNEL = re.compile('_0[0-9]{3}')
_FIRST_CHANNEL = '_0000'
_NUMBER = re.compile('[_.-][0-9]+(?=[_.-]|$)')
"""A number between separators: of an item, rather than a part of the name of a field."""

_Extensions = Collection[str]


def split_affixes(stem: str) -> Iterator[tuple[str, str]]:
    """Yields each affix of a path without extension, long ones first, after the rest of the path."""
    start = stem.rfind('/') + 1
    places = [match.start() for match in _SEPARATOR.finditer(stem, start)]
    for place in places[-MAX_SUFFIX_PARTS:]:
        if place > start and _LETTER_OR_ORDINAL.match(stem, place + 1):
            yield stem[:place], stem[place:]
    if places and places[-1] > start and stem[-5:-3] == '_0' and _CHANNEL.fullmatch(stem, places[-1]):
        yield stem[: places[-1]], stem[places[-1] :]
    for place in places[MAX_PREFIX_PARTS - 1 :: -1]:
        rest, affix = stem[place + 1 :], stem[start : place + 1]
        if _DIGIT.search(rest) and _LETTER.match(affix) and not _DIGIT.search(affix):
            yield stem[:start] + rest, affix


def frequent_affixes(stems: Collection[str]) -> tuple[list[str], set[str]]:
    """Returns affixes that may tell fields, from some of the names, and those that are words.

    Args:
        stems: Paths without extensions.
    """
    count = len(stems)
    if count > SAMPLED_NAMES:
        places = set(random.Random(0).sample(range(count), SAMPLED_NAMES))  # noqa: S311
        stems = [stem for place, stem in enumerate(stems) if place in places]
    counts = Counter(affix for stem in stems for _, affix in split_affixes(stem))
    counts = Counter({affix: count for affix, count in counts.items() if not _CHANNEL.fullmatch(affix)})
    least = max(MIN_FILES, MIN_FREQUENCY * len(stems))
    words = {affix for affix in counts if is_word(affix)}
    some = [affix for affix in counts if counts[affix] >= least or affix in words]
    return sorted(some, key=lambda affix: (-counts[affix], -len(affix), affix))[:MAX_CANDIDATES], words


def may_have_affixes(stems: Collection[str]) -> bool:
    """Returns whether some of the names may have affixes, given paths without extensions."""
    return bool(frequent_affixes(stems)[0]) or any(stem.endswith(_FIRST_CHANNEL) for stem in stems)


def find_affixes(extensions: Mapping[str, _Extensions]) -> frozenset[str]:
    """Finds the affixes that tell fields.

    Args:
        extensions: The extensions of the files of each path without extension.
    """
    some, words = frequent_affixes(extensions)
    channels = _channels(extensions)
    if not some:
        return frozenset(channels)
    with_affix: dict[str, dict[str, _Extensions]] = {affix: {} for affix in some}
    for stem, own in extensions.items():
        for rest, affix in split_affixes(stem):
            if affix in with_affix:
                with_affix[affix][rest] = own
    found = _with_bases(extensions, with_affix, words) | _after_folders(with_affix)
    for one, other in itertools.combinations(with_affix, 2):
        if is_suffix(one) != is_suffix(other) or _NUMBER.search(one) or _NUMBER.search(other):
            continue
        if _complete(with_affix[one], with_affix[other], (one in words) + (other in words)):
            found |= {one, other}
    series = Counter(_DIGITS.sub('', affix) for affix in found)
    found = {affix for affix in found if series[_DIGITS.sub('', affix)] <= MAX_SERIES}
    found = {affix for affix in found if not _has_better(affix, found, with_affix)}
    return frozenset(found | channels) if len(found) <= MAX_AFFIXES else frozenset(channels)


def _channels(extensions: Mapping[str, _Extensions]) -> set[str]:
    """Returns the numbers of the channels of nnU-Net: most files with one have a file without, in its format.

    Folders without such a file do not count: the labels of a test split are often unpublished.
    """
    if not any(stem.endswith(_FIRST_CHANNEL) for stem in extensions):
        return set()
    channels: dict[str, list[str]] = defaultdict(list)
    for stem in extensions:
        rest, affix = stem[: -len(_FIRST_CHANNEL)], stem[-len(_FIRST_CHANNEL) :]
        if _CHANNEL.fullmatch(affix) and rest.rpartition('/')[2]:
            channels[affix].append(rest)
    based = {rest for rest in channels[_FIRST_CHANNEL] if rest in extensions}
    folders = {rest.rpartition('/')[0] for rest in based}
    rests = {rest for rest in channels[_FIRST_CHANNEL] if rest.rpartition('/')[0] in folders}
    own = {rest + affix for affix, each in channels.items() for rest in each}
    bases = {stem for stem in extensions.keys() - own if stem.rpartition('/')[0] in folders}
    fits = all(set(extensions[rest]) == set(extensions[rest + _FIRST_CHANNEL]) for rest in based)
    is_common = len(based) >= max(MIN_FILES, MIN_BASED * len(rests), MIN_SHARE_BESIDE * len(bases))
    return set(channels) if fits and is_common and len(channels) <= MAX_SERIES else set()


def is_after_folder(stem: str) -> bool:
    """Returns whether a file is called after its folder: `case/case`."""
    folder, _, base = stem.rpartition('/')
    return folder.rpartition('/')[2] == base and base != ''


def _after_folders(with_affix: Mapping[str, Mapping[str, _Extensions]]) -> set[str]:
    """Returns the suffixes of files that have the names of their folders, and that most of these have."""
    rests = {
        affix: each
        for affix, each in with_affix.items()
        if is_suffix(affix) and not _NUMBER.search(affix) and all(map(is_after_folder, each))
    }
    count = len(set[str]().union(*rests.values()))
    found = {affix for affix, each in rests.items() if len(each) >= max(MIN_FILES, MIN_SHARE_BESIDE * count)}
    return found if len(found) > 1 else set()


def _with_bases(
    extensions: Mapping[str, _Extensions],
    with_affix: Mapping[str, Mapping[str, _Extensions]],
    words: Collection[str],
) -> set[str]:
    """Returns the affixes of files beside others without the affix."""
    found, others = set[str](), dict[str, list[str]]()
    for affix, rests in with_affix.items():
        bases = [rest for rest in rests if rest in extensions]
        if affix in words and bases and len(bases) >= MIN_SHARE_BESIDE * len(rests):
            # A rare word may be a part of a name: `wine_label.jpg` beside `wine.jpg`.
            differ = all(set(extensions[rest]).isdisjoint(rests[rest]) for rest in bases)
            if differ or len(bases) >= MIN_SHARE * (len(extensions) - len(rests)):
                found.add(affix)
        elif len(rests) >= MIN_FILES and len(bases) >= MIN_BASED * len(rests) and is_suffix(affix):
            others[affix] = bases
    added = {rest + affix for affix in [*found, *others] for rest in with_affix[affix]}
    for affix, bases in others.items():
        differ = all(_differ(extensions[rest], with_affix[affix][rest]) for rest in bases)
        if len(bases) >= (MIN_SHARE if differ else MIN_SHARE_BESIDE) * (len(extensions) - len(added)):
            found.add(affix)
    return found


def _complete(one: Mapping[str, _Extensions], other: Mapping[str, _Extensions], words: int) -> bool:
    """Returns whether files with two affixes complete each other.

    Args:
        one, other: The extensions of the files with each affix, by the rest of their paths.
        words: The number of the affixes that are words for what files contain.
    """
    shared = one.keys() & other.keys()
    smaller, larger = sorted((len(one), len(other)))
    if words == 2:
        return bool(shared) and 2 * len(shared) >= smaller
    if words and shared:
        differ = all(set(one[rest]).isdisjoint(other[rest]) for rest in shared)
    else:
        differ = all(_differ(one[rest], other[rest]) for rest in shared)
    return differ and len(shared) >= max(MIN_FILES, MIN_SHARE_BESIDE * larger)


def _differ(one: _Extensions, other: _Extensions) -> bool:
    """Returns whether files have different types."""
    return {*map(media_type, one)}.isdisjoint(map(media_type, other))


def _has_better(affix: str, others: Collection[str], with_affix: Mapping[str, Collection[str]]) -> bool:
    """Returns whether files with an affix all have one longer affix, or have a shorter one as others do.

    E.g. `_color` in `_gtFine_color`, and `_01_mask` in `_mask`.
    """
    count = len(with_affix[affix])
    for other in others:
        longer, shorter = (other, affix) if len(other) > len(affix) else (affix, other)
        is_part = longer.endswith(shorter) if is_suffix(affix) else longer.startswith(shorter)
        more = len(with_affix[other]) - count
        if other != affix and is_part and (more == 0 if longer == other else more > 0):
            return True
    return False


def split_stems(stems: Collection[str], affixes: Collection[str]) -> dict[str, tuple[str, str]]:
    """Returns the key and the affixes of each path without extension.

    Affixes are removed only where another file has the key.
    """
    known = set(stems)
    counts: Counter[str] = Counter()
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for stem in known if affixes else ():
        for rest, affix in split_affixes(stem):
            if affix in affixes:
                counts[rest] += 1
                found[stem].append((rest, affix))
    parts: dict[str, tuple[str, str]] = {}
    for stem in stems:
        key, label = stem, ''
        while True:
            each = next(
                (each for each in found.get(key, ()) if each[0] in known or counts[each[0]] > 1), None
            )
            if each is None:
                break
            key = each[0]
            label = each[1] + label if is_suffix(each[1]) else label + each[1]
        parts[stem] = key, label
    return parts
