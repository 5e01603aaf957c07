"""Label files of YOLO: a line for each box, with its class and the fractions cx, cy, width and height.

A line of more numbers has a polygon after the class, whose bounds become the box, or keypoints, a confidence
or a track after the box. The label files are stored too, so that nothing of them is lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from bags.errors import SourceError
from bags.interop.file_extensions import split_name

MAX_NAMES_BYTES = 1 << 20
SAMPLED_FILES = 8
"""Number of label files that are read to tell them from other texts."""
MAX_NAMES = 1 << 16
MAX_CLASSES = 1 << 31
"""Maximum number of classes in label files: labels are stored as int(4)."""
TOLERANCE = 0.01
"""How far fractions may be outside of 0 to 1, from rounding."""
_NAMES = ('classes.txt', 'obj.names', '_darknet.labels')
_KEY = re.compile(r'(["\']?)names\1\s*:\s*(.*)', re.DOTALL)
_ENTRY = re.compile(r'(?:-\s*|["\']?[0-9]+["\']?\s*:\s*)(.*)')
_NUMBER = re.compile(r'["\']?([0-9]{1,9})["\']?\s*:')
_KEYPOINTS = re.compile(r'^kpt_shape\s*:\s*\[\s*(\d+)\s*,\s*(\d+)\s*\]', re.MULTILINE)

Head = Callable[[str, int | None], bytes]
"""Returns the first bytes of a file; all if the number is None."""


class Classes(NamedTuple):
    """What the files of names say about the labels."""

    names: list[str]
    """The name of each class; empty if unknown."""
    files: list[str]
    """The files with the names."""
    keypoint_numbers: int = 0
    """The numbers of the keypoints that follow a box in a line."""


def read_classes(names: Iterable[str], head: Head) -> Classes:
    """Reads the names of the classes, from YAML with `names` or from a text with a name in each line."""
    files = sorted(names, key=lambda name: (name.count('/'), name))
    for name in files:
        if split_name(name)[1] in ('yaml', 'yml'):
            text = str(head(name, MAX_NAMES_BYTES), 'utf-8-sig', 'replace')
            if classes := _names_of_yaml(text):
                keypoints = _KEYPOINTS.search(text)
                return Classes(classes, [name], int(keypoints[1]) * int(keypoints[2]) if keypoints else 0)
    for name in files:
        if name.rpartition('/')[2] in _NAMES:
            text = str(head(name, MAX_NAMES_BYTES), 'utf-8-sig', 'replace')
            own = [each for each in files if each.rpartition('/')[2] == name.rpartition('/')[2]]
            return Classes([line.strip() for line in text.splitlines() if line.strip()], own)
    return Classes([], [])


def _names_of_yaml(text: str) -> list[str]:
    """Returns the names of the classes in a YAML file: a list or a mapping, in brackets or in lines."""
    lines = [_without_comment(line).rstrip() for line in text.splitlines()]
    start, found = next(
        ((number, match) for number, line in enumerate(lines) if (match := _KEY.fullmatch(line))), (0, None)
    )
    if found is None:
        return []
    if found[2][:1] in ('[', '{'):
        inside = ' '.join([found[2], *lines[start + 1 :]])[1:]
        entries = _split_flow(inside, ']' if found[2][0] == '[' else '}')
        keyed = found[2][0] == '{'
    else:
        entries = []
        for line in lines[start + 1 :]:
            if line.strip() and (match := _ENTRY.fullmatch(line.strip())) is None:
                break
            entries += [line.strip()] if line.strip() else []
        keyed = bool(entries) and not entries[0].startswith('-')
        entries = entries if keyed else [entry[1:].strip() for entry in entries]
    if not keyed:
        return [_scalar(entry) for entry in entries]
    numbers: dict[int, str] = {}
    for entry in entries:
        if (match := _NUMBER.match(entry)) is None:
            return []
        numbers[int(match[1])] = _scalar(entry[match.end() :])
    if not numbers or max(numbers) > MAX_NAMES:
        return []
    return [numbers.get(number, str(number)) for number in range(max(numbers) + 1)]


def _without_comment(line: str) -> str:
    quote = ''
    for place, letter in enumerate(line):
        if quote:
            quote = '' if letter == quote else quote
        elif letter in '"\'' and line[:place].rstrip()[-1:] in ('', ',', '[', '{', ':', '-'):
            quote = letter
        elif letter == '#' and (not place or line[place - 1].isspace()):
            return line[:place]
    return line


def _split_flow(text: str, end: str) -> list[str]:
    """Splits the text after an opening bracket at its commas, up to the closing bracket."""
    entries, entry, quote = list[str](), '', ''
    for letter in text:
        if quote:
            quote = '' if letter == quote else quote
        elif letter in '"\'' and entry.rpartition(':')[2].strip() == '':
            quote = letter
        elif letter in (',', end):
            entries += [entry.strip()] if entry.strip() else []
            entry = ''
            if letter == end:
                break
            continue
        entry += letter
    return entries


def _scalar(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def may_be_of_yolo(name: str) -> bool:
    """Returns whether a file is in a folder of labels, or may have the names of classes."""
    name = name.lower()
    in_labels = name.startswith('labels/') or '/labels/' in name
    return in_labels or name.endswith(('.yaml', '.yml', *_NAMES))


def are_labels(files: Collection[str], head: Head) -> bool:
    """Returns whether texts are label files, from the first lines of a few; empty texts are."""
    if not files:
        return False
    checked = [
        str(head(name, 1 << 12), 'utf-8', 'replace').partition('\n')[0] for name in [*files][:SAMPLED_FILES]
    ]
    wrong = 0
    for line in checked:
        try:
            parse_line(line, Classes([], []))
        except ValueError:
            wrong += bool(line.strip())
    return 2 * wrong <= len([line for line in checked if line.strip()])


def parse_labels(where: str, data: bytes, classes: Classes) -> tuple[list[list[float]], list[int]]:
    """Returns the boxes and classes of a label file.

    Raises:
        SourceError: A line is not of the format; the error names the file and the line.
    """
    boxes, labels = [], []
    try:
        text = str(data, 'utf-8-sig')
    except UnicodeDecodeError as exc:
        raise SourceError(where, f'expected lines of numbers: {exc}') from exc
    for number, line in enumerate(text.split('\n'), 1):
        if line.strip():
            try:
                label, box = parse_line(line, classes)
            except ValueError as exc:
                raise SourceError(f'{where}, line {number}', str(exc)) from exc
            boxes.append(box)
            labels.append(label)
    return boxes, labels


def parse_line(line: str, classes: Classes) -> tuple[int, list[float]]:
    """Returns the class and the box of a line: cx, cy, width and height.

    Raises:
        ValueError: The line is not of the format.
    """
    words = line.split()
    try:
        label, numbers = float(words[0]), [*map(float, words[1:])]
    except (ValueError, IndexError):
        label, numbers = -1, []
    if not (0 <= label < MAX_CLASSES and label == int(label)) or len(numbers) < 4:
        raise ValueError(
            f'expected a class and cx, cy, width and height of its box, got {line.strip()!r:.200}'
        )
    if classes.names and label >= len(classes.names):
        raise ValueError(f'expected a class from 0 to {len(classes.names) - 1}, got {int(label)}')
    is_polygon = len(numbers) >= 6 and len(numbers) % 2 == 0 and len(numbers) != 4 + classes.keypoint_numbers
    checked = numbers if is_polygon else numbers[:4]
    if not all(-TOLERANCE <= each <= 1 + TOLERANCE for each in checked):
        raise ValueError(f'expected fractions of the photo from 0 to 1, got {line.strip()!r:.200}')
    if is_polygon:
        left, right = min(numbers[::2]), max(numbers[::2])
        top, bottom = min(numbers[1::2]), max(numbers[1::2])
        return int(label), [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
    return int(label), numbers[:4]
