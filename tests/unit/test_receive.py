"""B45: one pass over the bytes, and no file if anything is wrong with them."""

import hashlib
import os
import random
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import FileNotReadable, ImageRefused
from millpond.images.receive import Received, receive, receive_file
from millpond.images.source import Stream
from millpond.model.formats import ImageFormat
from tests.support.image_files import (
    VHDX_HEADERS,
    KiB,
    MiB,
    converted,
    cut,
    image_of_each_format,
    patched,
    qemu_img,
    raw_file,
    with_footer,
    with_vhdx_checksums,
)

BLOCK = 64 * KiB


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Mapping[ImageFormat, Path]:
    return dict(image_of_each_format(tmp_path_factory.mktemp("images")))


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def once(chunks: Iterable[bytes]) -> Stream:
    return Stream(chunks=lambda _offset: chunks)


def take(content: bytes, target: Path, size: int = MiB) -> Received:
    return receive(once(pieces(content, size)), target, ImageFormat.RAW, "guest")


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


# What is received


def test_every_format_arrives_unchanged(
    tmp_path: Path, images: Mapping[ImageFormat, Path]
) -> None:
    for format, source in images.items():
        content = source.read_bytes()
        done: list[int] = []
        target = tmp_path / f"{format}-stream"
        received = receive(once(pieces(content, MiB)), target, format, "guest", done.append)
        again = receive_file(source, tmp_path / f"{format}-file", format, "guest")

        assert received == again
        assert received.size == sum(done) == len(content)
        assert received.digest == hashlib.sha512(content).hexdigest()
        assert target.read_bytes() == content
        assert (tmp_path / f"{format}-file").read_bytes() == content


def test_zeros_become_holes(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(BLOCK)
    content = data + bytes(8 * MiB) + data + bytes(8 * MiB)
    target = tmp_path / "disk"

    take(content, target)

    assert target.read_bytes() == content
    assert allocated(target) <= 4 * BLOCK


def test_holes_are_found_however_the_bytes_are_cut_up(tmp_path: Path) -> None:
    content = (b"\1" * BLOCK + bytes(BLOCK)) * 16
    target = tmp_path / "disk"

    take(content, target, 100_000)

    assert allocated(target) <= 17 * BLOCK


def test_a_disk_of_zeros_has_its_length_and_takes_no_space(tmp_path: Path) -> None:
    target = tmp_path / "disk"

    assert take(bytes(16 * MiB), target).size == 16 * MiB
    assert target.stat().st_size == 16 * MiB
    assert allocated(target) == 0


@given(
    blocks=st.lists(st.sampled_from([bytes(BLOCK), b"\1" * BLOCK, b"\0\1" * 256, bytes(512)])),
    size=st.integers(1, 3 * BLOCK),
)
@settings(max_examples=60)
def test_holes_never_change_the_content(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[bytes], size: int
) -> None:
    content = b"".join(blocks) or bytes(512)
    target = tmp_path_factory.mktemp("received") / "disk"

    take(content, target, max(size, len(content) // 200))

    assert target.read_bytes() == content


def test_a_fifo_can_be_received(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    content = raw_file(tmp_path).read_bytes()
    writer = threading.Thread(target=fifo.write_bytes, args=(content,))
    writer.start()

    received = receive_file(fifo, tmp_path / "disk", ImageFormat.RAW, "guest")

    writer.join()
    assert received.digest == hashlib.sha512(content).hexdigest()


# What leaves no file


def test_a_refused_image_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "disk"

    with pytest.raises(ImageRefused):
        take(b"QFI\xfb".ljust(4 * MiB, b"\0"), target)

    assert not target.exists()


def test_a_mislabelled_stream_is_stopped_at_once(tmp_path: Path) -> None:
    taken = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(1)
            yield b"QFI\xfb".ljust(MiB, b"\0")

    with pytest.raises(ImageRefused):
        receive(once(endless()), tmp_path / "disk", ImageFormat.RAW, "guest")

    assert len(taken) == 1


@pytest.mark.parametrize("error", [ConnectionError, KeyboardInterrupt])
def test_a_stream_that_breaks_leaves_nothing_behind(
    tmp_path: Path, error: type[BaseException]
) -> None:
    target = tmp_path / "disk"

    def broken() -> Iterator[bytes]:
        yield bytes(MiB)
        raise error

    with pytest.raises(error):
        receive(once(broken()), target, ImageFormat.RAW, "guest")

    assert not target.exists()


def test_what_was_there_before_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "disk"
    target.write_text("somebody else's")

    with pytest.raises(FileExistsError):
        take(bytes(MiB), target)

    assert target.read_text() == "somebody else's"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    target = tmp_path / "target"
    for source in (tmp_path / "missing", tmp_path, Path("/dev/zero")):
        with pytest.raises(FileNotReadable, match=str(source)):
            receive_file(source, target, ImageFormat.RAW, "guest")
        assert not target.exists()


# What only the complete file shows


@pytest.mark.parametrize(
    ("format", "qemu_format", "options", "words"),
    [
        (ImageFormat.QCOW2, "qcow2", "", ()),
        (ImageFormat.QCOW2, "qcow2", "", ("-c",)),
        (ImageFormat.QCOW2, "qcow2", "compat=0.10", ()),
        (ImageFormat.QCOW2, "qcow2", "cluster_size=4k", ()),
        (ImageFormat.VMDK, "vmdk", "", ()),
        (ImageFormat.VMDK, "vmdk", "subformat=streamOptimized", ()),
        (ImageFormat.VDI, "vdi", "", ()),
        (ImageFormat.VHD, "vpc", "", ()),
        (ImageFormat.VHD, "vpc", "subformat=fixed", ()),
        (ImageFormat.VHDX, "vhdx", "block_size=1M", ()),
        (ImageFormat.PLOOP, "parallels", "", ()),
    ],
)
def test_a_file_that_is_cut_off_is_refused(
    tmp_path: Path, format: ImageFormat, qemu_format: str, options: str, words: tuple[str, ...]
) -> None:
    whole = converted(raw_file(tmp_path), qemu_format, options, *words)
    size = whole.stat().st_size
    target = tmp_path / "received"

    for length in (513, 4 * KiB, BLOCK, size // 4, size // 2, 3 * size // 4, size - BLOCK - 1):
        with pytest.raises(ImageRefused):
            receive_file(cut(whole, length), target, format, "guest")
        assert not target.exists()
    receive_file(whole, target, format, "guest")


@pytest.mark.parametrize(
    "options",
    [
        "cluster_size=512",
        "cluster_size=2M",
        "preallocation=metadata",
        "preallocation=full",
        "refcount_bits=1",
        "compat=0.10",
    ],
)
def test_a_whole_qcow2_is_never_taken_for_one_that_is_cut_off(
    tmp_path: Path, options: str
) -> None:
    for size in (4 * MiB, 4 * MiB + 512, 64 * MiB):
        path = converted(raw_file(tmp_path, size), "qcow2", options)
        target = tmp_path / f"{size}"
        assert receive_file(path, target, ImageFormat.QCOW2, "guest").virtual_size == size


def test_a_qcow2_with_snapshots_and_zeroed_clusters_is_whole(tmp_path: Path) -> None:
    path = converted(raw_file(tmp_path), "qcow2")
    qemu_img("snapshot", "-c", "before", path)
    qemu_img("resize", "-f", "qcow2", path, "64M")

    receive_file(path, tmp_path / "received", ImageFormat.QCOW2, "guest")


def test_a_vmdk_with_a_footer_is_received(tmp_path: Path) -> None:
    source = raw_file(tmp_path)
    path = tmp_path / "vmware.vmdk"
    made = converted(source, "vmdk", "subformat=streamOptimized")
    path.write_bytes(with_footer(made.read_bytes()))
    back = tmp_path / "back.raw"
    qemu_img("convert", "-f", "vmdk", "-O", "raw", path, back)
    assert back.read_bytes() == source.read_bytes()  # QEMU reads what we made

    receive_file(path, tmp_path / "received", ImageFormat.VMDK, "guest")


def test_a_footer_that_contradicts_its_header_is_refused(tmp_path: Path) -> None:
    made = converted(raw_file(tmp_path), "vmdk", "subformat=streamOptimized")
    content = bytearray(with_footer(made.read_bytes()))
    struct.pack_into("<Q", content, len(content) - 1024 + 12, 2**40)

    with pytest.raises(ImageRefused, match="damaged"):
        receive(once([bytes(content)]), tmp_path / "received", ImageFormat.VMDK, "guest")


def _vhdx_metadata(content: bytes) -> int:
    """Where the block size and the flags are."""
    id = bytes.fromhex("3767a1ca36fa434db3b633f0aa44e76b")
    entry = content.index(id)
    table = content.rindex(b"metadata", 0, entry)
    return table + struct.unpack_from("<I", content, entry + 16)[0]


def test_a_vhdx_with_a_parent_is_refused(tmp_path: Path) -> None:
    path = converted(raw_file(tmp_path), "vhdx", "block_size=1M")
    flags = _vhdx_metadata(path.read_bytes()) + 4

    with pytest.raises(ImageRefused, match="only the differences"):
        receive_file(patched(path, flags, b"\2"), tmp_path / "received", ImageFormat.VHDX, "guest")


def test_a_vhdx_with_an_unfinished_log_is_refused(tmp_path: Path) -> None:
    path = converted(raw_file(tmp_path), "vhdx", "block_size=1M")
    for header in VHDX_HEADERS:
        path = patched(path, header + 48, b"log!" * 4)
    path.write_bytes(with_vhdx_checksums(path.read_bytes()))

    with pytest.raises(ImageRefused, match="not closed properly"):
        receive_file(path, tmp_path / "received", ImageFormat.VHDX, "guest")


def test_a_table_that_is_shorter_than_it_says_is_damaged(tmp_path: Path) -> None:
    """A second metadata region: oslo.utils goes by the first one."""
    content = bytearray(converted(raw_file(tmp_path), "vhdx", "block_size=1M").read_bytes())
    regions = 192 * KiB
    content[-44:] = b"metadata" + struct.pack("<HH", 0, 2) + bytes(32)
    id = bytes.fromhex("06a27c8b90479a4bb8fe575f050f886e")
    struct.pack_into("<16sQII", content, regions + 16 + 2 * 32, id, len(content) - 44, 44, 1)
    struct.pack_into("<I", content, regions + 8, 3)
    sealed = with_vhdx_checksums(content)

    with pytest.raises(ImageRefused, match="its header is damaged"):
        receive(once([sealed]), tmp_path / "received", ImageFormat.VHDX, "guest")


@given(
    format=st.sampled_from(list(ImageFormat)),
    changes=st.lists(
        st.tuples(st.integers(0, 3 * MiB), st.binary(min_size=1, max_size=12)), max_size=6
    ),
    length=st.integers(1, 9 * MiB),
)
@settings(max_examples=120)
def test_a_damaged_file_is_received_or_refused_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory,
    images: Mapping[ImageFormat, Path],
    format: ImageFormat,
    changes: list[tuple[int, bytes]],
    length: int,
) -> None:
    content = bytearray(images.get(format, images[ImageFormat.RAW]).read_bytes()[:length])
    for offset, change in changes:
        start = min(offset, len(content) - 1) % (256 * KiB)
        content[start : start + len(change)] = change
    target = tmp_path_factory.mktemp("received") / "image"
    try:
        receive(once([bytes(content)]), target, format, "guest")
    except ImageRefused:
        assert not target.exists()
    else:
        assert target.read_bytes() == content
