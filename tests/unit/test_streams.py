"""Bytes of a volume into a file of this machine."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millpond.system import files, streams

KIB = 1024
LIMIT = 150 * KIB


@contextmanager
def limited() -> Iterator[None]:
    """Files of this process end at the limit: a write across it is short, the next one fails. Not
    a fixture: pytest's own output may be a file, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_is_fetched_is_written_with_its_holes(tmp_path):
    target, done = tmp_path / "fetched", []
    length = streams.written([b"x" * 10, 100, b"y" * 5, 7], target, done.append)
    assert target.read_bytes() == b"x" * 10 + bytes(100) + b"y" * 5 + bytes(7)
    assert length == sum(done) == 122


def test_a_short_write_of_what_is_fetched_is_an_error_and_no_hole(tmp_path):
    def pieces() -> Iterator[streams.Piece]:
        yield b"x" * 200 * KIB
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)  # space again
        yield b"y"

    with limited(), pytest.raises(OSError, match="File too large"):
        streams.written(pieces(), tmp_path / "fetched", files.silent)


def test_a_short_write_is_completed_or_an_error(tmp_path):
    with limited(), open(tmp_path / "file", "wb") as file:
        files.write(file.fileno(), b"x" * LIMIT, 0)
        with pytest.raises(OSError, match="File too large"):
            files.write(file.fileno(), b"y" * 200 * KIB, 0)
    assert (tmp_path / "file").read_bytes() == b"y" * LIMIT
