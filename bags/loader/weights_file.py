"""Weights that a run has changed: their digests in the state, and the file beside a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from bags.errors import CorruptError
from bags.formats.trees import decode_tree, encode_tree
from bags.samplers import Sampler
from bags.samplers.changes import Change, ChangesWeights, Weights, as_weights, digest_of_weights
from bags.storage import store_for

MAX_FILE_BYTES = 1 << 36
"""Maximum size of a file of weights: 8 bytes for each weight of each change."""
GIVE = 'load_state_dict(state, weights=…) takes the path of loader.save_weights, or loader.weights'


def initial_of(sampler: Sampler) -> Sampler:
    """Returns a sampler without the changes of a run."""
    return sampler.initial if isinstance(sampler, ChangesWeights) else sampler


def changes_of(sampler: Sampler) -> Mapping[int, Change]:
    """Returns the changes of a run, by position."""
    return sampler.changes if isinstance(sampler, ChangesWeights) else {}


def weights_of(sampler: Sampler) -> dict[int, Weights]:
    """Returns the weights of each change of a run, by position."""
    return {position: change.weights for position, change in changes_of(sampler).items()}


def digests_of(sampler: Sampler) -> str:
    """Returns the position and the digest of each change as text, for the state; empty without changes."""
    return ' '.join(f'{position}:{change.digest}' for position, change in changes_of(sampler).items())


def sampler_of(sampler: Sampler, digests: object, given: Any) -> Sampler:
    """Returns the sampler with the changes of a state.

    Args:
        sampler: The sampler of the loader, whose own changes are also used.
        digests: The result of `digests_of` in the state; None in a state of earlier versions.
        given: The weights by position, the path of `write_weights`, or None.

    Raises:
        ValueError: Weights are missing, or have another digest than in the state.
        TypeError: `given` is neither a mapping nor a path.
        CorruptError: The file is not one of `write_weights`.
    """
    by_position = weights_of(sampler)
    if isinstance(given, str | os.PathLike):
        given = read_weights(given)
    if given is not None:
        if not isinstance(given, Mapping):
            raise TypeError(f'weights: expected a path, or weights by position, got {given!r:.200}')
        for position, weights in given.items():
            try:
                at = int(position)
            except (TypeError, ValueError):
                raise TypeError(f'weights: expected positions as keys, got {position!r:.80}') from None
            by_position[at] = as_weights(weights)
    sampler = initial_of(sampler)
    for position, digest in _parsed(digests):
        what = f'weights from position {position} on'
        if position not in by_position:
            raise ValueError(f'state: expected the {what}, which its run has changed, got none: {GIVE}')
        found = digest_of_weights(by_position[position])
        if found != digest:
            raise ValueError(
                f'state: expected the {what} of its run (digest {digest}), got others ({found}): {GIVE}'
            )
        sampler = with_weights(sampler, position, by_position[position])
    return sampler


def with_weights(sampler: Sampler, position: int, weights: Any) -> Sampler:
    """Returns a sampler with other weights from a position on.

    Raises:
        TypeError: The sampler has no weights.
        ValueError: As the sampler, for such weights.
    """
    if not isinstance(sampler, ChangesWeights):
        raise TypeError(
            f'weights: expected the sampler Weighted or Mixture, got {sampler!r:.200}, which has no weights'
        )
    return sampler.with_weights(position, weights)


def write_weights(path: str | os.PathLike[str], weights: Mapping[int, Weights]) -> None:
    """Writes weights by position as one file, which replaces a file of this path at once."""
    store, name = store_for(path)
    entries = [[position, values] for position, values in weights.items()]
    store.replace(name, encode_tree({'weights': entries}))


def read_weights(path: str | os.PathLike[str]) -> dict[int, Weights]:
    """Reads the file of `write_weights`.

    Raises:
        FileNotFoundError: The file does not exist.
        CorruptError: It is another file.
    """
    store, name = store_for(path)
    data = store.read(name, MAX_FILE_BYTES)
    try:
        entries = decode_tree(data, max_size=2 * len(data) + (1 << 20))['weights']
        weights: dict[int, Weights] = dict(entries)
        for position, values in weights.items():
            if type(position) is not int or not isinstance(values, np.ndarray):
                raise TypeError(f'expected a position and an array, got {position!r:.80}')
            as_weights(values)
    except (ValueError, TypeError, KeyError, IndexError) as exc:
        raise CorruptError(os.fspath(path), None, f'expected a file of loader.save_weights: {exc}') from exc
    return weights


def _parsed(digests: object) -> list[tuple[int, str]]:
    try:
        pairs = [part.split(':') for part in str(digests or '').split()]
        return [(int(position), digest) for position, digest in pairs]
    except ValueError:
        raise ValueError(f'state: weights: expected positions and digests, got {digests!r:.200}') from None
