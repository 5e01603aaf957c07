"""Transcripts with times: TextGrid of Praat, CTM of NIST, and the subtitles SRT and WebVTT.

TextGrid: "TextGrid file formats" of the Praat manual, https://www.fon.hum.uva.nl/praat/manual/. In the
long and the short format, only numbers, texts in quotes and flags as `<exists>` count, with spaces or ends of
lines around them. CTM: "ctm" in infmts.htm of NIST's SCTK, https://github.com/usnistgov/SCTK.
WebVTT: section 6.1 of https://www.w3.org/TR/webvtt1/; SRT has no specification, and is what SubRip wrote.
"""

from __future__ import annotations

import codecs
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

OVERLAP = 1e-6
"""Seconds by which texts may overlap, because files have rounded times."""
_MARKS = {codecs.BOM_UTF8: 'utf-8-sig', codecs.BOM_UTF16_LE: 'utf-16', codecs.BOM_UTF16_BE: 'utf-16'}
_TOKEN = re.compile(r'"(?P<text>[^"]*(?:""[^"]*)*)"(?!\S)|(?P<comment>![^\n]*)|(?P<word>\S+)')
_NUMBER = re.compile(r'[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?')
_TIME = r'(?:(\d+):)?([0-5]?\d):([0-5]\d)[.,](\d{1,3})'
_TIMES = re.compile(rf'\s*{_TIME}\s*-->\s*{_TIME}(?:\s.*)?')
_WEBVTT_TIMES = re.compile(rf'\s*{_TIME}\s*-->\s*{_TIME}(?!\d).*')
_NO_CUES = re.compile(r'(NOTE|STYLE|REGION)(\s.*)?')


@dataclasses.dataclass
class Tier:
    """Texts and their times in seconds, in order."""

    texts: list[str] = dataclasses.field(default_factory=list)
    starts: list[float] = dataclasses.field(default_factory=list)
    stops: list[float] = dataclasses.field(default_factory=list)
    """The ends of the texts; empty in a tier of points."""
    confidence: list[float] = dataclasses.field(default_factory=list)
    """A confidence for each word of CTM; NaN for words without one."""
    has_stops: bool = True
    overlaps: list[int] = dataclasses.field(default_factory=list)
    """The lines of texts that begin before the end of the previous text."""

    def add(self, line: int, text: str, start: float, stop: float) -> None:
        """Adds a text.

        Raises:
            ValueError: The text ends before it begins, or begins before the previous text.
        """
        if stop < start:
            _fail(line, f'expected an end after the beginning, {start:g} s, got {stop:g} s')
        if self.starts and start < self.starts[-1]:
            _fail(line, f'expected increasing times, got {start:g} s after {self.starts[-1]:g} s')
        if self.stops and start < self.stops[-1] - OVERLAP:
            self.overlaps.append(line)
        self.texts.append(text)
        self.starts.append(start)
        if self.has_stops:
            self.stops.append(stop)


def decode(data: bytes) -> str:
    """Returns the text of a file, with line feeds at the ends of lines.

    Raises:
        ValueError: The file is neither UTF-8, nor UTF-16 with a byte order mark; names the line.
    """
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), 'utf-8')
    expected = 'expected UTF-8, or UTF-16 with a byte order mark'
    if encoding == 'utf-8' and (zero := data.find(b'\0')) >= 0:
        _fail(data.count(b'\n', 0, zero) + 1, f'{expected}, got a byte of zero')
    try:
        return _unified(data.decode(encoding))
    except UnicodeDecodeError as exc:
        before = data[: exc.start].decode(encoding, 'ignore')
        _fail(len(_unified(before).split('\n')), f'{expected}, got the byte {data[exc.start]:#04x}')


def parse_textgrid(data: bytes) -> dict[str, Tier]:
    """Returns the tiers of a TextGrid in the long or the short text format, by name.

    Raises:
        ValueError: Not a TextGrid, or intervals overlap or are out of order; names the line.
    """
    if data.startswith(b'ooBinaryFile'):
        raise ValueError('it is a binary TextGrid: Praat saves it as a text file')
    values = _Values(decode(data))
    if not (header := values.take('text', 'the header of a TextGrid')).startswith('ooTextFile'):
        values.fail('a TextGrid in the long or the short text format', header)
    if (found := values.take('text', 'the class of the object')) != 'TextGrid':
        values.fail('a TextGrid', found)
    values.take('number', 'the begin of the grid')
    values.take('number', 'the end of the grid')
    tiers: dict[str, Tier] = {}
    if values.take('flag', '<exists> or <absent>') != 'exists':
        return tiers
    for _ in range(values.count('tiers')):
        tier_class = values.take('text', 'the class of a tier')
        if tier_class not in ('IntervalTier', 'TextTier'):
            values.fail("'IntervalTier' or 'TextTier'", tier_class)
        name = values.take('text', 'the name of a tier')
        if name in tiers:
            values.fail('tiers of different names', name)
        values.take('number', 'the begin of the tier')
        values.take('number', 'the end of the tier')
        tiers[name] = tier = Tier(has_stops=tier_class == 'IntervalTier')
        for _ in range(values.count(f'items of tier {name!r}')):
            start = stop = float(values.take('number', 'a time'))
            line = values.line
            if tier.has_stops:
                stop = float(values.take('number', 'the end of an interval'))
            tier.add(line, values.take('text', 'a text'), start, stop)
            if tier.overlaps:
                _fail(line, f'tier {name!r}: expected intervals one after the other, got an overlap')
    return tiers


class _Values:
    """The numbers, texts and flags of a text file of Praat, in order."""

    def __init__(self, text: str) -> None:
        self.line = 1
        self._values = self._split(text)

    def _split(self, text: str) -> Iterator[tuple[str, str]]:
        end = 0
        for token in _TOKEN.finditer(text):
            self.line += text.count('\n', end, token.start())
            end = token.start()
            if token['text'] is not None:
                yield 'text', token['text'].replace('""', '"')
            elif (word := token['word']) is None:
                continue
            elif word.startswith('"'):
                _fail(self.line, f'expected a text in double quotes, got {text[end : end + 40]!r}')
            elif _NUMBER.fullmatch(word):
                yield 'number', word
            elif word.startswith('<') and word.endswith('>'):
                yield 'flag', word[1:-1]

    def take(self, type: str, what: str) -> str:
        """Returns the next value, which must have the type; errors name it `what`."""
        found, value = next(self._values, ('', ''))
        if not found:
            _fail(self.line, f'expected {what}, got the end of the file')
        if found != type:
            self.fail(what, value)
        return value

    def count(self, what: str) -> int:
        """Returns the number of values that follow; errors name them `what`."""
        value = self.take('number', f'the number of {what}')
        return int(value) if value.isdigit() else self.fail(f'the number of {what}', value)

    def fail(self, expected: str, found: str) -> NoReturn:
        """Raises ValueError for the line of the last value."""
        _fail(self.line, f'expected {expected}, got {found!r:.80}')


def parse_ctm(data: bytes) -> dict[tuple[str, str], Tier]:
    """Returns the words of each recording and channel of a CTM, in the order of their first lines.

    Raises:
        ValueError: A line has other columns, or times decrease; names the line.
    """
    channels: dict[tuple[str, str], Tier] = {}
    for line, text in enumerate(decode(data).split('\n'), 1):
        columns = text.split()
        if not columns or text.startswith(';;'):
            continue
        if len(columns) not in (5, 6):
            expected = 'recording, channel, begin, duration, word, and maybe a confidence'
            _fail(line, f'expected {expected}, got {len(columns)} columns')
        if columns[4].startswith('<ALT'):
            _fail(line, f'expected a word, got {columns[4]}: alternatives are not read')
        start, length, confidence = (_number(line, each) for each in (*columns[2:4], *columns[5:], 'nan')[:3])
        if length < 0:
            _fail(line, f'expected a duration of at least 0, got {length:g} s')
        tier = channels.setdefault((columns[0], columns[1]), Tier())
        tier.add(line, columns[4], start, start + length)
        tier.confidence.append(confidence)
    return channels


def parse_subtitles(data: bytes, *, is_webvtt: bool) -> Tier:
    """Returns the texts of SRT or WebVTT, with their markup, and with line feeds between lines.

    Raises:
        ValueError: A line is neither a text nor times, or times decrease; names the line.
    """
    lines = [*decode(data).split('\n'), '']
    tier = Tier()
    for number, end in _webvtt_cues(lines) if is_webvtt else _srt_blocks(lines):
        times = (_WEBVTT_TIMES if is_webvtt else _TIMES).fullmatch(lines[number])
        if times is None:
            _fail_times(lines, number)
        text = '\n'.join(lines[number + 1 : end])
        tier.add(number + 1, text, _seconds(*times.groups()[:4]), _seconds(*times.groups()[4:]))
    return tier


def _srt_blocks(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yields the number of the line with the times, and the end, of each block between blank lines."""
    number = 0
    while number < len(lines):
        if not lines[number].strip():
            number += 1
            continue
        number += '-->' not in lines[number] and '-->' in lines[number + 1]  # The number of a text.
        end = _end_of_block(lines, number)
        yield number, end
        number = end


def _webvtt_cues(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yields the number of the line with the times, and the end, of each cue.

    As in the parser of the standard, an empty line ends a block, but a line of spaces does not; and a line
    with an arrow begins a cue, also inside a comment or without an empty line before it.

    Raises:
        ValueError: The standard drops a text, because its block has no times; names the line.
    """
    if not re.fullmatch(r'WEBVTT([ \t].*)?', lines[0]):
        _fail(1, f'expected WEBVTT, got {lines[0]!r:.80}')
    number = _end_of_text(lines, 1)
    while number < len(lines):
        if not lines[number]:
            number += 1
            continue
        has_name = '-->' not in lines[number] and '-->' in lines[number + 1]
        end = _end_of_text(lines, number + 1 + has_name)
        if has_name or '-->' in lines[number]:
            yield number + has_name, end
        elif not _NO_CUES.fullmatch(lines[number]):
            _fail_times(lines, number)
        number = end


def _end_of_text(lines: list[str], number: int) -> int:
    """Returns the number of the next line that is empty or has an arrow; the last line is empty."""
    while lines[number] and '-->' not in lines[number]:
        number += 1
    return number


def _fail_times(lines: list[str], number: int) -> NoReturn:
    _fail(number + 1, f'expected times as 00:01:02,500 --> 00:01:04,000, got {lines[number]!r:.80}')


def _end_of_block(lines: list[str], number: int) -> int:
    """Returns the number of the next blank line; the last line is blank."""
    while lines[number].strip():
        number += 1
    return number


def _seconds(hours: str | None, minutes: str, seconds: str, fraction: str) -> float:
    whole = int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
    return (whole * 1000 + int(fraction.ljust(3, '0'))) / 1000


def _number(line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        _fail(line, f'expected a number, got {text!r:.80}')
    return value if math.isfinite(value) or text == 'nan' else _fail(line, f'expected a number, got {text!r}')


def _unified(text: str) -> str:
    return text.replace('\r\n', '\n').replace('\r', '\n')


def _fail(line: int, detail: Any) -> NoReturn:
    raise ValueError(f'line {line}: {detail}')
