"""What other libraries call the methods of datasets, for errors."""

from __future__ import annotations

import difflib
from collections.abc import Collection

OTHER_NAMES = {
    **dict.fromkeys(('shape', 'num_rows', 'length', 'count'), 'len(dataset)'),
    **dict.fromkeys(('columns', 'column_names', 'features', 'dtypes', 'keys'), 'dataset.spec'),
    **dict.fromkeys(('head', 'take', 'limit'), 'dataset[:5]'),
    'skip': 'dataset[5:]',
    **dict.fromkeys(('iloc', 'loc', 'get', 'row'), 'dataset[index]'),
    **dict.fromkeys(('iter', 'iterrows', 'itertuples', 'rows'), 'for datapoint in dataset'),
    **dict.fromkeys(('to_list', 'tolist', 'values'), 'list(dataset), or dataset.column(field)'),
    **dict.fromkeys(('to_pandas', 'to_polars'), 'dataset.to_arrow_dataset()'),
    'map': 'bags.copy(dataset, path, add=…) to keep the values, or transform= of a Loader',
    **dict.fromkeys(
        ('with_format', 'set_format', 'with_transform', 'set_transform', 'with_epoch', 'batched', 'to_tuple'),
        'bags.Loader(dataset, batch_size)',
    ),
    **dict.fromkeys(
        ('shuffle', 'shuffled'),
        'bags.Loader(dataset, batch_size, seed=0), which shuffles, or dataset.select(order)',
    ),
    **dict.fromkeys(('train_test_split', 'random_split'), "dataset.split({'train': 0.9, 'test': 0.1})"),
    **dict.fromkeys(
        ('sort', 'sort_values', 'order_by'), 'dataset.select(numpy.argsort(dataset.column(field)))'
    ),
    'describe': 'bags.statistics(dataset)',
    **dict.fromkeys(('groupby', 'group_by'), 'bags.statistics(dataset, by=field)'),
    **dict.fromkeys(('remove_columns', 'drop_columns'), 'dataset.drop(fields=names)'),
    'select_columns': 'dataset[:, names]',
    **dict.fromkeys(('rename_column', 'rename_columns'), "dataset.rename({'old': 'new'})"),
    **dict.fromkeys(('add_column', 'assign'), 'bags.copy(dataset, path, add=…)'),
    **dict.fromkeys(('concat', 'concatenate'), 'bags.concat([dataset, other])'),
    **dict.fromkeys(('save', 'save_to_disk', 'to_disk', 'write'), 'bags.copy(dataset, path)'),
    'push_to_hub': 'bags.push(path, target)',
    **dict.fromkeys(('to_parquet', 'to_csv', 'to_json'), "bags.export(dataset, path, format='parquet')"),
    **dict.fromkeys(('append', 'add', 'extend'), 'bags.ShardedDatasetWriter(path, spec, resume=True)'),
}


def advice_for(name: str, known: Collection[str], fields: Collection[str]) -> str:
    """Returns what was probably meant by an attribute that does not exist: `; did you mean …?`, or nothing.

    Args:
        name: The attribute.
        known: The attributes that exist.
        fields: The fields of the dataset.
    """
    if name not in fields and name in OTHER_NAMES:
        return f'; did you mean {OTHER_NAMES[name]}?'
    candidates = [each for each in [*fields, *known] if not each.startswith('_')]
    found = name if name in fields else next(iter(difflib.get_close_matches(name, candidates, 1, 0.75)), None)
    if found in fields:
        perhaps = '' if found == name else f' (perhaps {found!r})'
        return (
            f'{perhaps}; fields are no attributes: dataset[index, {found!r}] reads one value, '
            f'dataset.column({found!r}) all'
        )
    return f'; did you mean {found}?' if found is not None else ''
