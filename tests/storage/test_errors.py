import errno

from bags.storage.errors import map_fsspec_error

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
