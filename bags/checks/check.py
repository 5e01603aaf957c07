"""`bags.check`: what is wrong with the data of a dataset, before a training finds out."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bags.checks.built_in import BUILT_IN
from bags.checks.definition import LEVELS, Check, Level
from bags.checks.findings import Finding, Findings
from bags.checks.own import installed_checks, load_checks
from bags.checks.places import Places
from bags.checks.run import run_checks
from bags.checks.scores import read_key_column, save_scores
from bags.dataset.base import Dataset
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
    save: str | os.PathLike[str] | None = None,
    on: str | None = None,
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
        save: The folder of a new dataset with the scores of all datapoints, in columns `FIELD.CHECK`, and the
            findings in its metadata. `bags edit --scores` and `bags view --scores` use it.
        on: A field of keys that `save` stores with the scores, so that they are joined by key, not by row.
        progress: Whether to show a progress bar; None: if standard error is a terminal.
        trust_links, filesystem, storage_options: As in `bags.open`, for a path.

    Raises:
        FileNotFoundError: The path has no dataset.
        ValueError: No such check or field, or `checks` names nothing.
        FileExistsError: The folder `save` is not empty.
        KeyError, TypeError: No such field `on`, or it has no keys; ValueError if a datapoint has none.

    Examples:
        >>> bags.check(dataset, skip=['label']).has('error')
        False
    """
    dataset = plain_path(dataset)
    window = at_least_or_none('window', window, 1)
    level: Level = 'decoded' if decode else 'headers' if headers else 'columns'
    all_checks = [*BUILT_IN, *(own := load_checks(checks))]
    _expect_different_names(all_checks)
    if isinstance(dataset, Dataset):
        return _check(dataset, None, all_checks, own, only, skip, bounds, window, level, save, on, progress)
    if not isinstance(dataset, str | os.PathLike):
        raise TypeError(f'check: expected a dataset, or the path of one, got {dataset!r:.80}')
    path = os.fspath(dataset)
    options = {'trust_links': trust_links, 'filesystem': filesystem, 'storage_options': storage_options}
    paths = parts_of(path, filesystem, storage_options) or [path]
    with contextlib.ExitStack() as stack:
        parts = []
        for part in paths:
            try:
                parts.append(stack.enter_context(open_with_known_decoders(part, **options)))
            except (CorruptError, SpecError) as exc:
                detail = f'cannot be opened: {exc}; bags verify {part} lists all damage'
                return Findings([Finding('damaged_datapoints', 'error', None, detail, 1.0, 0.0, 0)])
        whole = parts[0] if len(parts) == 1 else concat(parts)
        places = Places(paths, list(map(len, parts)))
        return _check(whole, places, all_checks, own, only, skip, bounds, window, level, save, on, progress)


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


def _check(
    dataset: Dataset,
    places: Places | None,
    checks: Sequence[Check],
    own: Sequence[Check],
    only: Iterable[str] | None,
    skip: Iterable[str],
    bounds: Mapping[str, float] | None,
    window: int | None,
    level: Level,
    save: str | os.PathLike[str] | None,
    on: str | None,
    progress: bool | None,
) -> Findings:
    names = [check.name for check in checks]
    chosen, fields = _choose('only', only, checks, dataset)
    if only is None:
        chosen, fields = list(checks), list(dataset.schema)
    left_out, without = _choose('skip', skip, checks, dataset)
    bounds = dict(bounds or {})
    for name in bounds:
        _expect_known('bounds', name, names)
    chosen = [
        check
        for check in chosen
        if check not in left_out and LEVELS.index(check.level) <= LEVELS.index(level)
    ]
    fields = [name for name in fields if name not in without]
    if places is None and isinstance(dataset, DatasetReader | ShardedDatasetReader):
        places = Places([dataset.roots()[0].path], [len(dataset)])
    if on is not None:
        read_key_column(dataset, on)  # Raises an error before all else is read.
    result = run_checks(
        dataset, chosen, bounds, fields=fields, places=places, window=window, keep_scores=save is not None,
        progress=progress,
    )  # fmt: skip
    if dataset.unfinished:
        detail = 'the writer did not close the dataset: bags recover accepts it as it is'
        result.findings.append(Finding('unfinished_datasets', 'warning', None, detail, 1.0, 0.0, 0))
    installed = [name for name in installed_checks() if name not in {check.name for check in own}]
    found = Findings(result.findings, result.skipped, len(dataset), dataset.fingerprint, installed)
    if save is not None:
        save_scores(dataset, found, result.scores, save, on)
    return found


def _choose(
    option: str, names: Iterable[str] | None, checks: Sequence[Check], dataset: Dataset
) -> tuple[list[Check], list[str]]:
    """Returns the checks and the fields that names mean."""
    names = [names] if isinstance(names, str) else list(names or ())
    known = [check.name for check in checks]
    for name in names:
        if name not in dataset.schema:
            _expect_known(option, name, [*known, *dataset.schema])
    chosen = [check for check in checks if check.name in names]
    fields = [name for name in dataset.schema if name in names]
    if option == 'only':  # Only fields: all checks of them; only checks: in all fields.
        return chosen or list(checks), fields or list(dataset.schema)
    return chosen, fields


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
