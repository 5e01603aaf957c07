"""The messages `tf.train.Example` and `SequenceExample`, parsed without TensorFlow."""

from __future__ import annotations

import functools
from typing import Any

from bags.errors import MissingDependencyError

__all__ = ['parse_example']


def parse_example(data: bytes) -> Any:
    """Returns a record as SequenceExample, which an Example is too, without feature lists.

    Raises:
        ValueError: It is another message, or none.
    """
    message = _message()()
    try:
        message.ParseFromString(data)
    except Exception as exc:  # google.protobuf.message.DecodeError
        raise ValueError(f'expected a tf.train.Example: {exc}') from exc
    has_features = message.context.feature or message.feature_lists.feature_list
    if data and (message.ByteSize() != len(data) or not has_features):
        raise ValueError('expected a tf.train.Example with features')
    return message


_SCHEMA = """
name: 'bags/example.proto' package: 'bags' syntax: 'proto3'
message_type { name: 'BytesList' field { name: 'value' number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: 'FloatList' field { name: 'value' number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: 'Int64List' field { name: 'value' number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type { name: 'Feature' oneof_decl { name: 'kind' }
  field { name: 'bytes_list' number: 1 type: TYPE_MESSAGE type_name: '.bags.BytesList' oneof_index: 0 }
  field { name: 'float_list' number: 2 type: TYPE_MESSAGE type_name: '.bags.FloatList' oneof_index: 0 }
  field { name: 'int64_list' number: 3 type: TYPE_MESSAGE type_name: '.bags.Int64List' oneof_index: 0 }
}
message_type { name: 'FeatureList'
  field { name: 'feature' number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: '.bags.Feature' }
}
message_type { name: 'Features'
  field { name: 'feature' number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: '.bags.Features.FeatureEntry' }
  nested_type { name: 'FeatureEntry' options { map_entry: true }
    field { name: 'key' number: 1 type: TYPE_STRING }
    field { name: 'value' number: 2 type: TYPE_MESSAGE type_name: '.bags.Feature' } }
}
message_type { name: 'FeatureLists'
  field { name: 'feature_list' number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: '.bags.FeatureLists.FeatureListEntry' }
  nested_type { name: 'FeatureListEntry' options { map_entry: true }
    field { name: 'key' number: 1 type: TYPE_STRING }
    field { name: 'value' number: 2 type: TYPE_MESSAGE type_name: '.bags.FeatureList' } }
}
message_type { name: 'SequenceExample'
  field { name: 'context' number: 1 type: TYPE_MESSAGE type_name: '.bags.Features' }
  field { name: 'feature_lists' number: 2 type: TYPE_MESSAGE type_name: '.bags.FeatureLists' }
}
"""
"""The messages by their numbers, as in tensorflow/core/example."""


@functools.cache
def _message() -> Any:
    """Returns the class of SequenceExample, in a pool of its own: TensorFlow has its in the common one."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
    except ImportError as exc:
        raise MissingDependencyError('protobuf', 'tfrecord') from exc
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName('bags.SequenceExample'))
