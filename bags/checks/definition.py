"""`Check`: a function of the values of a field that returns scores, and the bound of its scores."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.checks.column import Column, Field
from bags.indexing import Int64s

Severity = Literal['error', 'warning', 'info']
"""error: cannot be right. warning: rarely right. info: a fact."""
SEVERITIES: tuple[Severity, ...] = ('error', 'warning', 'info')
Level = Literal['columns', 'headers', 'decoded']
"""What a check reads: numbers, texts, refs and checksums; also headers of media; or decoded media."""
LEVELS: tuple[Level, ...] = ('columns', 'headers', 'decoded')
NAME = re.compile(r'[a-z][a-z0-9]*(_[a-z0-9]+)+')
Float64s = npt.NDArray[np.float64]


class Scores(NamedTuple):
    """The scores of n datapoints.

    Examples:
        >>> from bags.types import Scores
        >>> scores = Scores(np.array([0.0, 2.5]), items=np.array([-1, 40]))
        >>> scores.values.tolist(), scores.items.tolist(), scores.others
        ([0.0, 2.5], [-1, 40], None)
    """

    values: npt.NDArray[Any]
    """Numbers, shape (n,); NaN where a datapoint has no score."""
    items: Int64s | None = None
    """The item with the score, shape (n,), e.g. the one after a gap; -1 if it is the whole datapoint."""
    others: Int64s | None = None
    """Another datapoint that the score refers to, shape (n,), e.g. an equal one; -1 if there is none."""
    spans: Int64s | None = None
    """The first and the last item with the score, shape (n, 2), e.g. of the longest run of equal frames; -1
    if there are none. By default, `items` is both."""


class FieldScores(NamedTuple):
    """The scores of a field as a whole, one for each dimension, or a single one.

    Examples:
        >>> from bags.types import FieldScores
        >>> FieldScores(np.array([0.1, 0.7]), 'share of items at the highest value').detail
        'share of items at the highest value'
    """

    values: npt.NDArray[Any]
    """Numbers, shape (d,); NaN where a dimension has no score."""
    detail: str = ''
    """What was found, instead of `Check.detail`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """A check of a field. Checks of one's own are written in the same way.

    Examples:
        >>> from bags.types import Check
        >>> loud = Check(
        ...     name='loudest_level',
        ...     severity='warning',
        ...     bound=0.99,
        ...     reason='Sound at full scale is clipped.',
        ...     bound_source='full scale is 1',
        ...     applies=lambda field: field.name == 'sound',
        ...     scores=lambda column: np.array([np.abs(value).max() for value in column.values]),
        ... )
        >>> len(bags.check(dataset, checks=[loud], only=['loudest_level']))
        0
    """

    name: str
    """The name of the score, in lower case, whose last word is its unit: `gap_seconds`."""
    severity: Severity
    bound: float
    """A score above this number is a finding."""
    reason: str
    """Why a score above the bound is a problem: one sentence."""
    bound_source: str
    """Where the bound comes from."""
    applies: Callable[[Field], bool | str]
    """Returns whether the check applies to a field; a str is the reason why a field that it is about is
    skipped."""
    scores: Callable[[Column], Scores | npt.NDArray[Any]] | None = None
    """Returns the scores of consecutive datapoints, given the values of the field in them."""
    of_field: Callable[[Field], FieldScores] | None = None
    """Returns the scores of the whole field, after all datapoints were read."""
    compare: Callable[[Float64s], Float64s] | None = None
    """Given what `scores` returned for all datapoints, returns the scores: e.g. how far a length is from the
    others. By default, `scores` returns them."""
    rare: bool = False
    """Whether the score is a problem only if few datapoints have it: at most `MAX_RARE_SHARE`. In more, it
    seems to be intended, and is reported as info."""
    level: Level = 'columns'
    detail: str = '{value:.3g}'
    """What was found, as a format with the score `value`, the `bound`, and what `scores` returned, `raw`."""
    where: str = ''
    """The condition that keeps the datapoints without a finding, as a format with `field` and `bound`, for
    `bags edit --where`; empty if no condition on the fields does."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(
                f'check {self.name!r}: expected a name in lower case that ends with its unit, as gap_seconds'
            )
        if self.severity not in SEVERITIES or self.level not in LEVELS:
            raise ValueError(
                f'check {self.name!r}: expected a severity of {", ".join(SEVERITIES)} and a level of '
                f'{", ".join(LEVELS)}, got {self.severity!r} and {self.level!r}'
            )
        if (self.scores is None) == (self.of_field is None):
            raise ValueError(f'check {self.name!r}: expected one of scores and of_field')
