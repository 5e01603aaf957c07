"""`bags.check`: what is wrong with the data of a dataset, before a training finds out."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bags.checks.built_in import BUILT_IN
from bags.checks.check_log import CheckLog
from bags.checks.definition import LEVELS, Check, Level
from bags.checks.findings import MAX_LISTED, Finding, Findings
from bags.checks.like import BOUNDS as COMPARISONS
from bags.checks.like import compare_with
from bags.checks.own import installed_checks, load_checks
from bags.checks.places import Places
from bags.checks.run import run_checks
from bags.checks.scores import read_key_column, save_scores
from bags.dataset.base import Dataset
from bags.dataset.format.options import ReadOptions
from bags.dataset.open import open_with_known_decoders
from bags.dataset.reader import DatasetReader
from bags.dataset.sharded_reader import ShardedDatasetReader
from bags.errors import CorruptError, SpecError
from bags.links.permission import PermittedPaths
from bags.storage import store_for
from bags.storage.urls import plain_path
from bags.validation import at_least_or_none, nearest_name, with_advice
from bags.views.concat import concat

SHARD = re.compile('[0-9]{6}')
"""The names of shard folders."""


@with_advice
def check(
    dataset: Dataset | str | os.PathLike[str],
    *,
    only: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    bounds: Mapping[str, float] | None = None,
    window: int | None = None,
    checks: Iterable[str | os.PathLike[str] | Check] = (),
    headers: bool = False,
    decode: bool = False,
    like: Dataset | str | os.PathLike[str] | None = None,
    save: str | os.PathLike[str] | None = None,
    on: str | None = None,
    resume: bool = False,
    progress: bool | None = None,
    trust_links: PermittedPaths = (),
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Findings:
    """Finds mistakes in the data of a dataset: frozen sensors, gaps in clocks, NaN, equal records, and more.

    The dataset does not change. docs/check.md lists the checks with their bounds. A check is a function of
    the values of a field that returns a score for each datapoint; datapoints with a score above the bound of
    the check are a finding. By default, numbers, texts, refs and checksums are read, and no media.

    Damage is one finding; `bags.verify` lists all of it. A check that raises an error is a finding, too, and
    the other checks continue.

    Args:
        dataset: A reader, a view, or the path of a dataset; or of a local folder of datasets, as `split`
            writes them: then equal records in two of them are errors.
        only: Names of the checks to run, or of fields to check. Default: all.
        skip: Names of checks not to run, or of fields not to check.
        bounds: Bounds by name of a check, instead of the default: `{'gap_seconds': 1}`.
        window: Number of items of the windows that training uses: shorter sequences are findings.
        checks: Checks of one's own to run, too: `bags.types.Check`, the path of a Python file that defines
            some, or the name of a check that an installed package adds. Files and packages are executed.
        headers: Whether to read the headers of media, too.
        decode: Whether to decode media, too. Includes `headers`.
        like: A reference, a dataset or its path: fields, types, metadata and distributions that differ from
            it are findings, too.
        save: The folder of a new dataset with the scores of all datapoints, in columns `FIELD.CHECK`, and the
            findings in its metadata. `bags edit --scores` and `bags view --scores` use it.
        on: A field of keys that `save` stores with the scores, so that they are joined by key, not by row.
        resume: Whether `save` continues a check with the same options that was interrupted, after its last
            datapoint. Until all scores are computed, they are in a folder beside `save`, `SAVE.progress`.
        progress: Whether to show a progress bar; None: if standard error is a terminal.
        trust_links, filesystem, storage_options: As in `bags.open`, for a path.

    Raises:
        FileNotFoundError: The path has no dataset.
        ValueError: No such check or field, `checks` names nothing, or the dataset was opened with `raw`; or,
            with `resume`, the interrupted check had other options or was of another dataset.
        FileExistsError: The folder `save` is not empty, or has an interrupted check, and `resume` is not set.
        KeyError, TypeError: No such field `on`, or it has no keys; ValueError if a datapoint has none.

    Examples:
        >>> bags.check(dataset, skip=['label']).has('error')
        False
    """
    dataset = plain_path(dataset)
    if not isinstance(dataset, Dataset | str | os.PathLike):
        raise TypeError(f'check: expected a dataset, or the path of one, got {dataset!r:.80}')
    for given in (dataset, like):
        if isinstance(given, Dataset) and any(getattr(root.options, 'raw', False) for root in given.roots()):
            raise ValueError('check: expected a dataset of values, got one that was opened with raw=True')
    own = load_checks(checks)
    level: Level = 'decoded' if decode else 'headers' if headers else 'columns'
    opening: ReadOptions = {
        'trust_links': trust_links, 'filesystem': filesystem, 'storage_options': storage_options,
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        if like is not None and not isinstance(like, Dataset):
            like = stack.enter_context(open_with_known_decoders(like, **opening))
        options = _Options(
            [*BUILT_IN, *own], own, _names(only), _names(skip) or (), bounds or {},
            at_least_or_none('window', window, 1), level, like, save, on, resume, progress,
        )  # fmt: skip
        _expect_different_names(options.checks)
        if isinstance(dataset, Dataset):
            return _check(dataset, None, options, has_own_decoders=True)
        path, parts = os.fspath(dataset), []
        paths = parts_of(path, filesystem, storage_options) or [path]
        for part in paths:
            try:
                parts.append(stack.enter_context(open_with_known_decoders(part, **opening)))
            except (CorruptError, SpecError) as exc:
                detail = f'cannot be opened: {exc}; bags verify {part} lists all damage'
                return Findings([Finding('damaged_datapoints', 'error', None, detail, 1.0, 0.0, 0)])
        whole = parts[0] if len(parts) == 1 else concat(parts)
        return _check(whole, Places(paths, list(map(len, parts))), options, has_own_decoders=False)


def _names(names: Iterable[str] | None) -> list[str] | None:
    return names if names is None else [names] if isinstance(names, str) else list(names)


def parts_of(
    path: str, filesystem: Any = None, storage_options: Mapping[str, Any] | None = None
) -> list[str]:
    """Returns the paths of the parts of a local folder of datasets, as `split` saves them; else none."""
    store, folder = store_for(path, filesystem, storage_options)
    if store.is_remote or store.exists(store.join(folder, 'spec.json')):
        return []
    try:
        names = sorted(store.names(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    firsts = ('spec.json', '000000/spec.json')
    parts = [
        name
        for name in names
        if not SHARD.fullmatch(name)
        and any(store.exists(store.join(folder, f'{name}/{first}')) for first in firsts)
    ]
    is_sharded = any(SHARD.fullmatch(name) for name in names)
    return [f'{path.rstrip("/")}/{name}' for name in parts] if not is_sharded else []


@dataclasses.dataclass
class _Options:
    """The options of a call, checked and with paths opened."""

    checks: Sequence[Check]
    """All checks, with those of one's own."""
    own: Sequence[Check]
    only: Sequence[str] | None
    skip: Sequence[str]
    bounds: Mapping[str, float]
    window: int | None
    level: Level
    like: Dataset | None
    save: str | os.PathLike[str] | None
    on: str | None
    resume: bool
    progress: bool | None

    @property
    def names(self) -> list[str]:
        """The names of all checks, and of the comparisons with the reference."""
        return [*(check.name for check in self.checks), *(() if self.like is None else COMPARISONS)]

    def choose(self, known: Sequence[str], others: Collection[str]) -> list[str]:
        """Returns the names of checks or fields that `only` and `skip` leave.

        Args:
            known: All names of checks, or of fields.
            others: The names of fields, or of checks: `only` of these alone means all `known` ones.
        """
        only = [name for name in self.only or () if name in known]
        is_open = self.only is None or (not only and any(name in others for name in self.only))
        return [name for name in known if (is_open or name in only) and name not in self.skip]


def _check(dataset: Dataset, places: Places | None, options: _Options, *, has_own_decoders: bool) -> Findings:
    names = options.names
    for option, given in (('only', options.only or ()), ('skip', options.skip)):
        for name in given:
            if name not in dataset.schema:
                _expect_known(option, name, [*names, *dataset.schema])
    for name in options.bounds:
        _expect_known('bounds', name, names)
    chosen, fields = options.choose(names, dataset.schema), options.choose(list(dataset.schema), names)
    checks = [
        check
        for check in options.checks
        if check.name in chosen and LEVELS.index(check.level) <= LEVELS.index(options.level)
    ]
    if places is None and isinstance(dataset, DatasetReader | ShardedDatasetReader):
        places = Places([dataset.roots()[0].path], [len(dataset)])
    if options.on is not None:
        read_key_column(dataset, options.on)  # Raises an error before all else is read.
    log = None
    if options.save is not None:
        names = [check.name for check in checks]
        log = _open_log(options.save, options.resume, {
            'fingerprint': dataset.fingerprint, 'checks': names, 'fields': fields, 'window': options.window,
        })  # fmt: skip
    result = run_checks(
        dataset, checks, options.bounds, fields=fields, places=places, window=options.window,
        keep_scores=options.save is not None, log=log, has_own_decoders=has_own_decoders,
        progress=options.progress,
    )  # fmt: skip
    if options.like is not None:
        result.findings += compare_with(
            dataset, options.like, fields=fields, chosen=chosen, bounds=options.bounds,
            headers=options.level != 'columns',
        )  # fmt: skip
    if dataset.unfinished:
        detail = 'the writer did not close the dataset: bags recover accepts it as it is'
        result.findings.append(Finding('unfinished_datasets', 'warning', None, detail, 1.0, 0.0, 0))
    own = {check.name for check in options.own}
    installed = [name for name in installed_checks() if name not in own]
    serious = [finding for finding in result.findings if finding.severity != 'info' and finding.leave_out]
    rows = sorted({row for finding in serious for row in finding.datapoints})
    are_all = all(finding.count == len(finding.datapoints) for finding in serious)
    is_short = are_all and len(serious) > 1 and len(rows) <= MAX_LISTED
    leave_out = places.drop(rows) if is_short and places is not None else ''
    found = Findings(result.findings, result.skipped, len(dataset), dataset.fingerprint, installed, leave_out)
    if options.save is not None and log is not None:
        save_scores(dataset, found, result.scores, options.save, options.on, options.resume)
        log.remove()
    return found


def _open_log(save: str | os.PathLike[str], resume: bool, identity: Mapping[str, Any]) -> CheckLog:
    """Opens the log of a check that saves its scores; raises FileExistsError if scores are saved already."""
    store, folder = store_for(save)
    with contextlib.suppress(FileNotFoundError):
        if not resume and store.names(folder):
            raise FileExistsError(errno.EEXIST, 'expected a new or an empty folder', os.fspath(save))
    return CheckLog(store, f'{folder.rstrip("/")}.progress', identity, resume)


def _expect_known(option: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        similar = nearest_name(name, known)
        advice = f'did you mean {similar!r}?' if similar else f'the checks are {", ".join(known)}'
        raise ValueError(f'check: {option}: expected a check or a field, got {name!r}; {advice}')


def _expect_different_names(checks: Sequence[Check]) -> None:
    seen: set[str] = set()
    for each in checks:
        if each.name in seen:
            raise ValueError(f'check: checks: expected different names, got two checks {each.name!r}')
        seen.add(each.name)
