"""An image that is read before it has arrived: nothing unverified is seen, or kept."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from millpond.errors import FetchInterrupted
from millpond.images.index import INDEX_CHUNK, Index, make_index
from millpond.templates.streams.arriving import ArrivingImage
from millpond.templates.streams.chunk_file import ChunkFile
from millpond.templates.streams.nbd import NbdServer
from tests.support.image_files import KiB, MiB

ReadPart = Callable[[int, int], bytes]


@pytest.fixture(scope="module")
def content() -> bytes:
    """Twenty chunks, two of zeros, and a tail."""
    chunks = [os.urandom(INDEX_CHUNK) for _ in range(20)]
    chunks[3] = chunks[19] = bytes(INDEX_CHUNK)
    return b"".join(chunks) + os.urandom(64 * KiB + 512)


@pytest.fixture(scope="module")
def index(content: bytes) -> Index:
    return make_index([content])


class Source:
    """Gives what it has, and counts."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked: list[int] = []

    def __call__(self, offset: int, length: int) -> bytes:
        self.asked.append(offset)
        return self.content[offset : offset + length]


@contextmanager
def served(path: Path, image: ArrivingImage, size: int) -> Iterator[str]:
    server = NbdServer(path, size, image.read)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield f"nbd+unix:///?socket={path}"
    finally:
        server.close()
        thread.join()


def open_file(tmp_path: Path, index: Index) -> ChunkFile:
    return ChunkFile(tmp_path / "part", index)


def qemu(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def test_qemu_reads_the_image_and_its_file_becomes_it(
    tmp_path: Path, content: bytes, index: Index
) -> None:
    (whole := tmp_path / "whole").write_bytes(content)
    file, source = open_file(tmp_path, index), Source(content)
    with served(tmp_path / "socket", ArrivingImage(file, source), len(content)) as url:
        info = json.loads(qemu("qemu-img", "info", "--output=json", "-f", "raw", url))
        assert info["virtual-size"] == len(content)
        qemu("qemu-img", "compare", "-f", "raw", "-F", "raw", url, str(whole))
    file.close()
    assert (tmp_path / "part").read_bytes() == content
    assert len(source.asked) == len(set(source.asked)) == 19  # zeros are never fetched
    assert {3 * INDEX_CHUNK, 19 * INDEX_CHUNK}.isdisjoint(source.asked)


def test_qemu_may_not_write(tmp_path: Path, content: bytes, index: Index) -> None:
    file = open_file(tmp_path, index)
    image = ArrivingImage(file, Source(content))
    with served(tmp_path / "socket", image, len(content)) as url:
        words = ("qemu-io", "-f", "raw", "-c", "write 0 512", url)
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert "Permission denied" in done.stderr
    assert file.read(0, 512) == bytes(512)


def test_many_readers_fetch_a_chunk_once(tmp_path: Path, content: bytes, index: Index) -> None:
    source = Source(content)
    image = ArrivingImage(open_file(tmp_path, index), source)
    found: list[bytes] = []
    readers = [
        threading.Thread(target=lambda: found.append(image.read(0, 2 * MiB))) for _ in range(8)
    ]
    for each in readers:
        each.start()
    for each in readers:
        each.join()
    assert found == [content[: 2 * MiB]] * 8
    assert len(source.asked) == 7


def lie(content: bytes, _offset: int) -> bytes:
    return bytes([content[0] ^ 1]) + content[1:]


def cut_off(content: bytes, _offset: int) -> bytes:
    return content[:-1]


def give_more(content: bytes, _offset: int) -> bytes:
    return content + b"x"


def break_off(content: bytes, offset: int) -> bytes:
    raise FetchInterrupted("guest", "it broke off")


@pytest.mark.parametrize("spoil", [lie, cut_off, give_more, break_off])
def test_what_is_wrong_is_neither_delivered_nor_kept(
    tmp_path: Path, content: bytes, index: Index, spoil: Callable[[bytes, int], bytes]
) -> None:
    """And is had as soon as the source is right again."""
    spoils = True

    def source(offset: int, length: int) -> bytes:
        found = content[offset : offset + length]
        return spoil(found, offset) if spoils and offset == INDEX_CHUNK else found

    file = open_file(tmp_path, index)
    image = ArrivingImage(file, source, patience=0.5)
    with pytest.raises(OSError, match=r"other bytes|broke off"):
        image.read(INDEX_CHUNK - 5, 10)
    assert not file.has(1)
    assert file.read(INDEX_CHUNK, 512) == bytes(512)
    spoils = False
    assert image.read(INDEX_CHUNK - 5, 10) == content[INDEX_CHUNK - 5 : INDEX_CHUNK + 5]


def test_the_fill_goes_on_where_it_stopped(tmp_path: Path, content: bytes, index: Index) -> None:
    file, first, stopped = open_file(tmp_path, index), Source(content), threading.Event()
    ArrivingImage(file, first).read(0, 6 * INDEX_CHUNK)
    file.close()

    file, source = open_file(tmp_path, index), Source(content)
    assert ArrivingImage(file, source).fill(0, stopped)
    file.close()
    assert set(first.asked).isdisjoint(source.asked)
    assert (tmp_path / "part").read_bytes() == content


def test_the_fill_keeps_to_its_rate(tmp_path: Path, content: bytes, index: Index) -> None:
    file, source, stopped = open_file(tmp_path, index), Source(content), threading.Event()
    threading.Timer(0.5, stopped.set).start()
    assert not ArrivingImage(file, source).fill(2 * INDEX_CHUNK, stopped)
    assert 1 <= len(source.asked) <= 2


def test_a_map_of_other_bytes_marks_nothing(tmp_path: Path, content: bytes, index: Index) -> None:
    file = open_file(tmp_path, index)
    ArrivingImage(file, Source(content)).read(0, len(content))
    file.close()
    other = make_index([content[::-1]])
    assert len(open_file(tmp_path, other).missing()) == 21


DYING = """
import os, signal, sys, time
from pathlib import Path
from millpond.images.index import Index
from millpond.templates.streams.chunk_file import ChunkFile
from millpond.system import files

where, content, at = Path(sys.argv[1]), Path(sys.argv[2]).read_bytes(), sys.argv[3]
file = ChunkFile(where / "part", Index(size=len(content), digests=(where / "index").read_bytes()))
for number in range(8):
    if number == 6 and at == "before sync":
        os.kill(os.getpid(), signal.SIGKILL)
    file.put(number, content[number * 262144 : (number + 1) * 262144])
    if number in (2, 5):
        file.sync()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("at", ["before sync", "after writing"])
def test_what_the_map_marks_outlives_a_kill(
    tmp_path: Path, content: bytes, index: Index, at: str
) -> None:
    (tmp_path / "index").write_bytes(index.digests)
    (whole := tmp_path / "whole").write_bytes(content)
    words = [sys.executable, "-c", DYING, str(tmp_path), str(whole), at]
    assert subprocess.run(words, timeout=60).returncode == -signal.SIGKILL

    file = open_file(tmp_path, index)
    marked = [number for number in range(file.count) if file.has(number)]
    assert marked == [0, 1, 2, 3, 4, 5, 19]
    for number in marked:
        start = number * INDEX_CHUNK
        assert file.read(start, INDEX_CHUNK) == content[start : start + INDEX_CHUNK]


def test_who_speaks_something_else_is_hung_up_on(
    tmp_path: Path, content: bytes, index: Index
) -> None:
    """And nobody else notices."""
    image = ArrivingImage(open_file(tmp_path, index), Source(content))
    with served(tmp_path / "socket", image, len(content)) as url:
        for words in (b"GET / HTTP/1.1\r\n\r\n" * 8, b"\0\0\0\1" + b"x" * 16, b""):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(10)
                client.connect(str(tmp_path / "socket"))
                client.sendall(words)
                client.shutdown(socket.SHUT_WR)
                with suppress(ConnectionResetError):
                    while client.recv(4096):
                        pass
        qemu("qemu-img", "info", "-f", "raw", url)
