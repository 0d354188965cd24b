"""Bytes between a volume and a file of this machine."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millpond.model.callbacks import noop
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
    length = streams.write([b"x" * 10, 100, b"y" * 5, 7], target, done.append)
    assert target.read_bytes() == b"x" * 10 + bytes(100) + b"y" * 5 + bytes(7)
    assert length == sum(done) == 122


class Stream:
    """What reaches a volume, and how many bytes of it were skipped."""

    def __init__(self) -> None:
        self.content, self.skipped, self.finished = b"", 0, False

    def send(self, content: bytes) -> None:
        self.content += content

    def sendHole(self, count: int, _flags: int) -> None:  # noqa: N802 (libvirt's name)
        self.send(bytes(count))
        self.skipped += count

    def finish(self) -> None:
        self.finished = True


@pytest.mark.parametrize("sparse", [True, False])
def test_holes_are_sent_as_zeros_where_a_stream_cannot_skip(tmp_path, sparse):
    source, done, stream = tmp_path / "source", [], Stream()
    with source.open("wb") as file:
        file.write(b"begins")
        file.seek(1024 * KIB)
        file.write(b"ends")
        file.truncate(2048 * KIB)
    streams.send(stream, streams.read(source, done.append), sparse=sparse)
    assert (stream.content == source.read_bytes(), stream.finished) == (True, True)
    assert bool(stream.skipped) == sparse
    assert sum(done) == 2048 * KIB


def test_a_short_write_of_what_is_fetched_is_an_error_and_no_hole(tmp_path):
    def pieces() -> Iterator[streams.Piece]:
        yield b"x" * 200 * KIB
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)  # space again
        yield b"y"

    with limited(), pytest.raises(OSError, match="File too large"):
        streams.write(pieces(), tmp_path / "fetched", noop)


def test_a_short_write_is_completed_or_an_error(tmp_path):
    with limited(), open(tmp_path / "file", "wb") as file:
        files.write(file.fileno(), b"x" * LIMIT, 0)
        with pytest.raises(OSError, match="File too large"):
            files.write(file.fileno(), b"y" * 200 * KIB, 0)
    assert (tmp_path / "file").read_bytes() == b"y" * LIMIT
