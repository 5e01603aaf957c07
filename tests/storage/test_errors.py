import errno

import pytest

from bags.storage.errors import PreconditionError, TransientError, error_for_status, map_fsspec_error

PATH = 'other://bucket/x.bag'


def test_operations_that_a_file_system_does_not_support():
    error = map_fsspec_error(PATH, NotImplementedError())
    assert isinstance(error, OSError)
    assert (error.errno, error.filename) == (errno.EOPNOTSUPP, PATH)


def test_rejected_arguments():
    error = map_fsspec_error(PATH, ValueError('invalid bucket name'))
    assert isinstance(error, OSError)
    assert (error.errno, error.filename) == (errno.EINVAL, PATH)
    assert 'invalid bucket name' in str(error)


def test_programming_errors_are_not_taken_for_errors_of_the_storage():
    for error in (TypeError('one argument too many'), AttributeError('no such attribute')):
        assert map_fsspec_error(PATH, error) is error
        assert error.__notes__ == [PATH]


@pytest.mark.parametrize(
    ('status', 'reason', 'error'),
    [
        (412, 'PreconditionFailed', PreconditionError),
        (409, 'ConditionalRequestConflict: please try again', TransientError),
        (409, 'BlobAlreadyExists The specified blob already exists.', PreconditionError),  # Azure.
    ],
)
def test_conditions_that_are_not_met(status, reason, error):
    assert type(error_for_status(PATH, status, reason)) is error
