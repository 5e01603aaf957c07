"""Files with a position, of buffers and of files that are lent."""

import io
import random

import pytest

from bags.storage.range_file import BorrowedFile, BufferFile


@pytest.mark.parametrize(
    'file_over', [lambda data: BufferFile(memoryview(data)), lambda data: BorrowedFile(io.BytesIO(data))]
)
def test_files_read_as_bytesio_does(file_over):
    data = bytes(range(50))
    generator = random.Random(0)
    ours, theirs = file_over(data), io.BytesIO(data)
    for _ in range(300):
        match generator.randrange(4):
            case 0:
                args = generator.choice(
                    [(generator.randrange(70), 0), (-generator.randrange(50), 2), (0, 1), (5, 1)]
                )
                assert ours.seek(*args) == theirs.seek(*args)
            case 1:
                size = generator.choice([-1, None, 0, 1, 7, 100])
                assert ours.read(size) == theirs.read(size)
            case 2:
                buffers = bytearray(9), bytearray(9)
                assert ours.readinto(buffers[0]) == theirs.readinto(buffers[1])
                assert buffers[0] == buffers[1]
            case _:
                assert ours.tell() == theirs.tell()
    assert ours.seekable()
    assert ours.readable()
    assert not ours.writable()


def test_a_borrowed_file_has_a_position_of_its_own():
    lent = io.BytesIO(bytes(range(50)))
    lent.seek(10)
    first, second = BorrowedFile(lent), BorrowedFile(lent)
    assert (first.read(3), second.read(2), first.read(1)) == (b'\x0a\x0b\x0c', b'\x0a\x0b', b'\x0d')
    first.close()
    assert not lent.closed
