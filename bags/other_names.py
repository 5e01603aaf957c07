"""Former names, and names of other libraries, with the name that Bags uses: advice for errors.

An old name raises an error of one line that says the new name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable

ANY_FUNCTION = ''
"""Owner of the options that have the same replacement in every function."""


def _same(owners: str | Iterable[str], names: str, advice: str) -> dict[tuple[str, str], str]:
    """Returns entries of the table with one advice, for several owners, or names separated by spaces."""
    owners = [owners] if isinstance(owners, str) else owners
    return {(owner, name): advice for owner in owners for name in names.split()}


WRITERS = ('DatasetWriter', 'ShardedDatasetWriter', 'write', 'WriteDataset')
"""Functions and classes with an option `linked_fields`. The function `write` of `bags.ray` also has it."""
READERS = (
    *('DatasetReader', 'ReadDataset', 'ShardedDatasetReader', 'create_index', 'open', 'read', 'statistics'),
    *('verify', 'view'),
)
"""Functions and classes with an option `trust_links`; `read` is the function of `bags.ray`."""
READING_COMMANDS = (
    *('bags cat', 'bags copy', 'bags create-index', 'bags diff', 'bags edit', 'bags export', 'bags prefetch'),
    *('bags show', 'bags split', 'bags statistics', 'bags verify', 'bags view'),
)

OTHER_NAMES: dict[tuple[str, str], str] = {
    # Attributes of the module `bags`.
    **_same('bags', 'load load_dataset read DatasetFolder', 'bags.open'),
    **_same('bags', 'load_from_disk WebDataset StreamingDataset LeRobotDataset', 'bags.open'),
    ('bags', 'Reader'): 'bags.DatasetReader, or bags.bag.Reader for records',
    ('bags', 'Index'): 'bags.DatasetReader, or bags.bag.Index for records',
    ('bags', 'Writer'): 'bags.DatasetWriter, or bags.bag.Writer for records',
    **{
        ('bags', name): f'dataset.{name}'
        for name in ('select', 'filter', 'windows', 'drop', 'rename', 'update', 'split')
    },
    **_same('bags', 'DataLoader Dataloader', 'bags.Loader'),
    **_same('bags', 'concatenate concatenate_datasets', 'bags.concat'),
    **_same('bags', 'interleave interleave_datasets', 'bags.samplers.Mixture'),
    **_same('bags', 'from_dict from_pandas', 'bags.from_numpy, which takes arrays by name, or a table'),
    **_same('bags', 'from_generator from_list save dump', 'bags.write(datapoints, path, spec)'),
    **_same('bags', 'read_csv read_parquet read_json from_parquet from_csv', 'bags.convert'),
    **_same('bags', 'to_parquet to_webdataset', 'bags.export'),
    ('bags', 'merge'): 'bags.join, or bags.concat',
    ('bags', 'index'): 'bags.consolidate, or bags.create_index',
    **_same('bags', 'Features Image ClassLabel', "a spec, such as {'image': 'jpeg', 'label': 'int'}"),
    ('bags', 'load_ipython_extension'): 'bags.describe(batch), which notebooks show as a table',
    ('bags.types', 'Written'): 'bags.types.WriteResult',
    ('bags.samplers', 'Sequential'): 'shuffle=False of a Loader',
    **_same('bags', 'ClipSequence AudioSequence FrameSequence', 'dataset.stream(index, field)'),
    # Attributes of datasets.
    **_same('Dataset', 'shape num_rows length count', 'len(dataset)'),
    **_same('Dataset', 'columns column_names features dtypes keys', 'dataset.spec'),
    **_same('Dataset', 'head take limit', 'dataset[:5]'),
    ('Dataset', 'skip'): 'dataset[5:]',
    **_same('Dataset', 'iloc loc get row', 'dataset[index]'),
    **_same('Dataset', 'iter iterrows itertuples rows', 'for datapoint in dataset'),
    **_same('Dataset', 'field items', 'dataset.records(field)'),
    (
        'Dataset',
        'available',
    ): 'dataset.spec for the fields, or dataset.lengths(field) for items of a sequence',
    ('Dataset', 'owner'): 'dataset.datapoint_of(field, item)',
    **_same('Dataset', 'to_list tolist values', 'list(dataset), or dataset.column(field)'),
    **_same('Dataset', 'to_pandas to_polars', 'dataset.to_arrow_dataset()'),
    ('Dataset', 'map'): 'bags.copy(dataset, path, add=…) to keep the values, or transform= of a Loader',
    **_same(
        'Dataset',
        'with_format set_format with_transform set_transform with_epoch batched to_tuple',
        'bags.Loader(dataset, batch_size)',
    ),
    **_same(
        'Dataset',
        'shuffle shuffled',
        'bags.Loader(dataset, batch_size, seed=0), which shuffles, or dataset.select(order)',
    ),
    **_same('Dataset', 'train_test_split random_split', "dataset.split({'train': 0.9, 'test': 0.1})"),
    **_same('Dataset', 'sort sort_values order_by', 'dataset.select(numpy.argsort(dataset.column(field)))'),
    ('Dataset', 'describe'): 'bags.statistics(dataset)',
    **_same('Dataset', 'groupby group_by', 'bags.statistics(dataset, by=field)'),
    **_same('Dataset', 'remove_columns drop_columns', 'dataset.drop(fields=names)'),
    ('Dataset', 'select_columns'): 'dataset[:, names]',
    **_same('Dataset', 'rename_column rename_columns', "dataset.rename({'old': 'new'})"),
    **_same('Dataset', 'add_column assign', 'bags.copy(dataset, path, add=…)'),
    **_same('Dataset', 'concat concatenate', 'bags.concat([dataset, other])'),
    **_same('Dataset', 'save_to_disk to_disk write', 'dataset.save(path, link=False)'),
    ('Dataset', 'push_to_hub'): 'bags.push(path, target)',
    **_same('Dataset', 'to_parquet to_csv to_json', "bags.export(dataset, path, format='parquet')"),
    **_same('Dataset', 'append add extend', 'bags.ShardedDatasetWriter(path, spec, resume=True)'),
    # Attributes of videos, of recordings, and of what their `read` returns.
    **_same(('Video', 'Audio'), 'timestamps pts', 'times'),
    **_same('Video', 'fps frame_rate average_rate', 'rate'),
    **_same('Audio', 'sample_rate samplerate', 'rate'),
    **_same(('Video', 'Audio'), 'streams', 'tracks'),
    ('Video', 'lengths'): 'clip_lengths',
    ('Elements', 'pixels'): 'values',
    ('Elements', 'timestamps'): 'times',
    # Options of functions and classes.
    **_same(('Video', 'Audio'), 'stream', 'track'),
    **_same('options', 'stream track', 'bags.Video(source, track=…) or bags.Audio(source, track=…)'),
    **_same('copy', 'link relink', 'dataset.save(path, link=…, relink=…)'),
    ('copy', 'links'): 'dataset.save(path, link=(FIELD, …))',
    ('open', 'replace'): 'bags.join([…], replace=…)',
    **_same(READERS, 'links', 'trust_links'),
    **_same(
        ('open', 'DatasetReader', 'ShardedDatasetReader'),
        'parallel n_jobs num_proc num_workers workers',
        'max_parallelism for concurrent requests, or workers of bags.Loader',
    ),
    **_same(WRITERS, 'links', 'linked_fields'),
    **_same(('convert', 'save'), 'links', 'link=(FIELD, …)'),
    ('from_numpy', 'links'): 'linked_fields of bags.write',
    ('card', 'dataset'): 'path',
    ('dataset', 'path'): 'dataset',  # The function of `bags.lerobot`.
    ('statistics', 'again'): 'recompute',
    ('recover', 'values'): 'partial_values',
    # Options of commands.
    **_same(READING_COMMANDS, '--links', '--trust-links'),
    ('bags statistics', '--again'): '--recompute',
    # Options of Bags 0.x, Granular, PyTorch and other libraries, in every function.
    (ANY_FUNCTION, 'shardsize'): 'shard_size (bytes) or shard_length (datapoints)',
    (ANY_FUNCTION, 'shardlen'): 'shard_length (datapoints)',
    (ANY_FUNCTION, 'shardstart'): 'shard_start',
    **_same(ANY_FUNCTION, 'shardstep shard_stop', 'shard_step'),
    (ANY_FUNCTION, 'overwrite'): "mode='overwrite'",
    (ANY_FUNCTION, 'directory'): 'path',
    (ANY_FUNCTION, 'num_workers'): 'workers',
    (ANY_FUNCTION, 'prefetch_factor'): 'prefetch',
    (
        ANY_FUNCTION,
        'persistent_workers',
    ): 'epochs=None: the iteration does not end, and neither do its workers',
    (ANY_FUNCTION, 'multiprocessing_context'): 'processes=True',
    (ANY_FUNCTION, 'num_replicas'): 'world_size',
    (ANY_FUNCTION, 'drop_last'): "last_batch='drop' (of a Loader) or padding='drop' (of windows)",
    (ANY_FUNCTION, 'collate_fn'): 'collate',
    (ANY_FUNCTION, 'pin_memory'): 'to_device',
    (ANY_FUNCTION, 'generator'): 'seed',
    (ANY_FUNCTION, 'batch_sampler'): 'sampler',
    (ANY_FUNCTION, 'split'): 'the path of the split, or dataset.split',
    (ANY_FUNCTION, 'streaming'): 'no option: only the accessed data is read',
    (ANY_FUNCTION, 'columns'): 'fields',
    **_same(ANY_FUNCTION, 'parallel n_jobs num_proc', 'workers'),
    (ANY_FUNCTION, 'cache_keys'): 'no option: a column of small values is read in one pass',
}
"""Maps (owner, other name) to what to use instead.

The owner of an attribute is the name of its module, such as 'bags', or 'Dataset'. The owner of an option is
the name of its function or class, its command, such as 'bags show', or `ANY_FUNCTION`.
"""

FORMER_CALLS = {
    'windows': "windows(fields, length) is windows(every=FIELD, FIELD=bags.steps(0, length), padding='drop')",
}
"""Maps functions to former forms of calls, with their replacements."""


def owner_of(function: Callable[..., object]) -> str:
    """Returns the owner of a function's options in the table: its name, or of a constructor its class."""
    name = getattr(function, '__qualname__', type(function).__qualname__)
    return str(name).removesuffix('.__init__').rpartition('.')[-1]


def option_advice(owner: str, option: str) -> str | None:
    """Returns what to use instead of an option of a function or class; None if the table does not have it."""
    return OTHER_NAMES.get((owner, option), OTHER_NAMES.get((ANY_FUNCTION, option)))


def module_advice(name: str, known: Collection[str], module: str = 'bags') -> str:
    """Returns the advice on an attribute that a module does not have: `; did you mean …?`, or nothing.

    Args:
        name: The attribute.
        known: The attributes that exist.
        module: `bags`, or a module of it.
    """
    meant = OTHER_NAMES.get((module, name))
    if meant is None:
        similar = difflib.get_close_matches(name, known, 1)
        meant = f'{module}.{similar[0]}' if similar else None
    return f'; did you mean {meant}?' if meant else ''


def find_attribute(instance: object, owner: str, name: str) -> object:
    """As `__getattr__` of a class: raises AttributeError, with what to use instead.

    Args:
        instance: The object without the attribute.
        owner: The name of its class in the table.
        name: The attribute.
    """
    if hasattr(type(instance), name):
        return object.__getattribute__(instance, name)  # A property, whose own error is raised again.
    message = f'{type(instance).__name__!r} object has no attribute {name!r}'
    meant = OTHER_NAMES.get((owner, name))
    if meant is None:
        raise AttributeError(message, name=name, obj=instance)  # Tracebacks then suggest a similar name.
    raise AttributeError(f'{message}; did you mean {meant}?')


def dataset_advice(name: str, known: Collection[str], fields: Collection[str]) -> str:
    """Returns the advice on an attribute that a dataset does not have: `; did you mean …?`, or nothing.

    Args:
        name: The attribute.
        known: The attributes that exist.
        fields: The fields of the dataset.
    """
    if name not in fields and ('Dataset', name) in OTHER_NAMES:
        return f'; did you mean {OTHER_NAMES["Dataset", name]}?'
    candidates = [candidate for candidate in [*fields, *known] if not candidate.startswith('_')]
    similar = difflib.get_close_matches(name, candidates, 1, 0.75)
    meant = name if name in fields else similar[0] if similar else None
    if meant in fields:
        perhaps = '' if meant == name else f' (perhaps {meant!r})'
        return (
            f'{perhaps}; fields are no attributes: dataset[index, {meant!r}] reads one value, '
            f'dataset.column({meant!r}) all'
        )
    return f'; did you mean {meant}?' if meant is not None else ''
