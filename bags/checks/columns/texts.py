"""Texts that are blank, or were decoded with another encoding; and how often texts repeat."""

from __future__ import annotations

import re

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, FieldScores, Scores

NEVER = re.compile('[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffd\ufffe\uffff]')
"""Replacement and control characters, which no one writes."""
FOREIGN = re.compile(
    '[\x80-\xff\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]{2,}'
)
"""Characters of Windows-1252 beside one another: UTF-8 that was read with this encoding, as `Ã©` for `é`."""
LEADS = '\xc2\xc3'
"""The characters that begin a letter of Western Europe, in UTF-8 that was misread."""
MIN_TEXTS = 20


def _count(column: Column, are_wrong: list[bool]) -> Scores:
    _, owners = column.texts
    return Scores(np.bincount(owners[np.array(are_wrong, bool)], minlength=len(column)))


def _blank(column: Column) -> Scores:
    return _count(column, [not text or text.isspace() for text in column.texts[0]])


def _is_misdecoded(text: str) -> bool:
    if text.isascii() and '\0' not in text:
        return False
    if NEVER.search(text):
        return True
    misread = [part for match in FOREIGN.finditer(text) if (part := _as_utf8(match[0]))]
    # A single letter with a quotation mark may be meant, as in “CAFÉ”.
    return len(misread) > 1 or any(part[0] in LEADS or len(part) > 2 for part in misread)


def _as_utf8(run: str) -> str:
    """Returns characters that are UTF-8 if they are written in Windows-1252; empty if they are not."""
    try:
        run.encode('cp1252').decode()
    except UnicodeError:
        return ''
    return run


def _misdecoded(column: Column) -> Scores:
    return _count(column, list(map(_is_misdecoded, column.texts[0])))


def _repeated(field: Field) -> FieldScores:
    texts, _ = field.sample.texts
    if len(texts) < MIN_TEXTS:
        return FieldScores(np.array([np.nan]))
    return FieldScores(np.array([1 - len(set(texts)) / len(texts)]))


def _plain(field: Field) -> bool:
    return field.is_text and not field.type.sequence and field.name != field.split


CHECKS = (
    Check(
        name='blank_texts',
        severity='warning',
        bound=0,
        reason='A caption or an instruction without words teaches nothing.',
        bound_source='in few datapoints a mistake; in many, intended',
        applies=lambda field: field.is_text,
        scores=_blank,
        rare=True,
        detail='texts that are empty or blank',
    ),
    Check(
        name='misdecoded_texts',
        severity='warning',
        bound=0,
        reason='The text was decoded with another encoding than it was written in.',
        bound_source='no language has these characters, in this order',
        applies=lambda field: field.is_text,
        scores=_misdecoded,
        detail='texts with characters of a wrong encoding, as Ã© for é',
    ),
    Check(
        name='repeated_text_share',
        severity='info',
        bound=0.5,
        reason='Few different texts: a model may learn them by heart.',
        bound_source='a fact, not a mistake: one task in all episodes',
        applies=_plain,
        of_field=_repeated,
        detail='{value:.0%} of the sampled texts are repeats',
    ),
)
