"""The messages `tf.train.Example` and `SequenceExample`, parsed without TensorFlow."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from bags.errors import MissingDependencyError

__all__ = ['Example', 'parse_example']

Example = dict[tuple[bool, str], list[Sequence[Any]]]
"""The values of each feature, by its key: those of one list, or of a list for each step, if the first part of
the key is true. Values are bytes, ints or floats."""

_MESSAGES = {
    'Bytes': 'value: BYTES*',
    'Floats': 'value: FLOAT*',
    'Ints': 'value: INT64*',
    'Feature': 'bytes: Bytes, floats: Floats, ints: Ints',
    'Entry': 'key: STRING, value: Feature',
    'Features': 'entries: Entry*',
    'Steps': 'features: Feature*',
    'StepsEntry': 'key: STRING, value: Steps',
    'StepsFeatures': 'entries: StepsEntry*',
    'SequenceExample': 'context: Features, steps: StepsFeatures',
}
"""Fields in the order of their numbers, as in tensorflow/core/example; `*` for repeated ones."""


def parse_example(data: bytes) -> Example:
    """Returns the features of a SequenceExample, which an Example is too, without feature lists.

    Raises:
        ValueError: It is another message, or none.
    """
    try:
        message = _message().FromString(data)
    except Exception as exc:  # google.protobuf.message.DecodeError
        raise ValueError(f'expected a tf.train.Example: {exc}') from exc
    example: Example = {(False, each.key): [_values(each.value)] for each in message.context.entries}
    for each in message.steps.entries:
        example[True, each.key] = [_values(step) for step in each.value.features]
    if data and not example:
        raise ValueError('expected a tf.train.Example with features')
    return example


def _values(feature: Any) -> Sequence[Any]:
    values: Sequence[Any] = feature.bytes.value or feature.floats.value or feature.ints.value
    return values


@functools.cache
def _message() -> Any:
    """Returns the class of SequenceExample, in a pool of its own: TensorFlow has its in the common one."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as exc:
        raise MissingDependencyError('protobuf', 'tfrecord') from exc
    file = descriptor_pb2.FileDescriptorProto(name='bags.proto', package='bags', syntax='proto3')
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields.split(', '), 1):
            word, _, kind = field.partition(': ')
            scalar = kind.strip('*') not in _MESSAGES
            message.field.add(
                name=word,
                number=number,
                label='LABEL_REPEATED' if kind.endswith('*') else 'LABEL_OPTIONAL',
                type=f'TYPE_{kind.strip("*")}' if scalar else 'TYPE_MESSAGE',
                type_name=None if scalar else f'.bags.{kind.strip("*")}',
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName('bags.SequenceExample'))
