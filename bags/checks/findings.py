"""`Findings`: the result of a check, worst first, as a table and as JSON; and the lines that act on them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from bags.checks.definition import SEVERITIES, Severity
from bags.display.counts import plural
from bags.display.tables import TableColumn, as_lines

MAX_LISTED = 100
"""Maximum number of datapoints that a finding lists, and that a line with `--drop` names."""
MAX_SHOWN = 3
"""Maximum number of datapoints in a line of the table."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """Scores of a check above its bound: all datapoints of a field together.

    Examples:
        >>> for finding in bags.check('episodes'):
        ...     print(finding.check, finding.field, finding.datapoints)
    """

    check: str
    severity: Severity
    field: str | None
    """None: the dataset."""
    detail: str
    """What was found, in the worst datapoint."""
    value: float
    """The worst score."""
    bound: float
    count: int
    """Number of datapoints with a score above the bound; of a finding about a whole field, 0."""
    datapoints: tuple[int, ...] = ()
    """The datapoints, worst first; at most 100."""
    seconds: float | None = None
    """Where in the worst datapoint, on its clock; None if the finding has no time."""
    other: int | None = None
    """Another datapoint that the worst one is to be compared with, such as an equal one."""
    show: str = ''
    """The command that shows the worst datapoint."""
    leave_out: str = ''
    """The command that saves the dataset without these datapoints."""

    def __str__(self) -> str:
        where = '' if self.field is None else f'{self.field}: '
        return (
            f'{self.severity}: {self.check}: {where}{self.detail}{self.rows_text and f", {self.rows_text}"}'
        )

    @property
    def rows_text(self) -> str:
        """The worst datapoints: `5 at 0.2 s, 7, 9 and 4 others`; empty if it is about a field."""
        if not self.count:
            return ''
        shown = self.datapoints[:MAX_SHOWN]
        first = str(shown[0]) if self.seconds is None else f'{shown[0]} at {self.seconds:.3f} s'
        names = ', '.join([first, *map(str, shown[1:])])
        others = self.count - len(shown)
        return f'{names} and {others:,} others' if others else names


class SkippedCheck(NamedTuple):
    """A check that could not run.

    Examples:
        >>> [skipped.reason for skipped in bags.check('episodes').skipped]
        []
    """

    check: str
    field: str
    reason: str


class Findings(Sequence[Finding]):
    """The findings of `bags.check`, worst first. `str` is a table.

    Examples:
        >>> found = bags.check('episodes')
        >>> found.has('error')
        False
    """

    def __init__(
        self,
        findings: Sequence[Finding],
        skipped: Sequence[SkippedCheck] = (),
        datapoints: int = 0,
        fingerprint: str = '',
        installed: Sequence[str] = (),
        leave_out: str = '',
    ) -> None:
        order = {severity: number for number, severity in enumerate(SEVERITIES)}
        self._findings = sorted(
            findings, key=lambda finding: (order[finding.severity], -finding.count, finding.check)
        )
        self.skipped = list(skipped)
        """The checks that could not run, with the reason."""
        self.datapoints = datapoints
        """Number of datapoints that were checked."""
        self.fingerprint = fingerprint
        """The fingerprint of the dataset."""
        self.installed = list(installed)
        """Names of checks of installed packages, which run only if `checks` names them."""
        self.leave_out = leave_out
        """The command that saves the dataset without the datapoints of all errors and warnings; empty if they
        are more than 100."""

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> list[Finding]: ...
    def __getitem__(self, index: int | slice) -> Finding | list[Finding]:
        return self._findings[index]

    def __len__(self) -> int:
        return len(self._findings)

    def has(self, severity: Severity) -> bool:
        """Returns whether there is a finding of a severity, or of a worse one."""
        worst = SEVERITIES.index(severity)
        return any(SEVERITIES.index(finding.severity) <= worst for finding in self._findings)

    def __repr__(self) -> str:
        return f'<Findings: {self.summary}; str() has all>'

    @property
    def summary(self) -> str:
        """The number of findings of each severity."""
        counts = [
            plural(sum(finding.severity == severity for finding in self), severity)
            for severity in SEVERITIES[:2]
        ]
        return f'{counts[0]}, {counts[1]}, {plural(self.datapoints, "datapoint")}'

    def __str__(self) -> str:
        """Returns a table with a line for each finding, and below it the commands that act on it."""
        if not self._findings:
            return f'no findings in {plural(self.datapoints, "datapoint")}'
        rest = ['', f'without all of these: {self.leave_out}'] if self.leave_out else []
        return '\n'.join([*lines_of(self), *rest])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Prints `str` in IPython."""
        printer.text(str(self))

    def as_json(self) -> dict[str, Any]:
        """Returns the findings as JSON values."""
        return {
            'datapoints': self.datapoints,
            'fingerprint': self.fingerprint,
            'findings': [_as_json(finding) for finding in self],
            'skipped': [skipped._asdict() for skipped in self.skipped],
            'installed': self.installed,
            'leave_out': self.leave_out,
        }


def _as_json(finding: Finding) -> dict[str, Any]:
    value = finding.value if math.isfinite(finding.value) else None
    return {**dataclasses.asdict(finding), 'value': value, 'datapoints': list(finding.datapoints)}


def findings_table(findings: Sequence[Finding]) -> list[TableColumn]:
    """Returns a table with a line for each finding."""
    return [
        TableColumn('severity', 'left', [finding.severity for finding in findings]),
        TableColumn('field', 'left', [finding.field or '' for finding in findings]),
        TableColumn('check', 'left', [finding.check for finding in findings]),
        TableColumn('found', 'right', [f'{finding.value:.3g}' for finding in findings]),
        TableColumn('bound', 'right', [f'{finding.bound:g}' for finding in findings]),
        TableColumn('datapoints', 'left', [finding.rows_text for finding in findings]),
        TableColumn('', 'left', [finding.detail for finding in findings]),
    ]


def lines_of(findings: Sequence[Finding]) -> list[str]:
    """Returns the lines of the table, and below each error and warning the commands that act on it."""
    header, *rows = as_lines(findings_table(findings)).split('\n')
    lines = [header]
    for finding, row in zip(findings, rows, strict=True):
        commands = [line for line in (finding.show, finding.leave_out) if line]
        lines += [row, *(f'    {line}' for line in (() if finding.severity == 'info' else commands))]
    return lines
