"""Parallels images: both kinds of header, held against what QEMU makes of the same bytes."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.images.formats import parallels
from millpond.images.formats.container import CUT_OFF, DAMAGED, NOT_CLOSED, Objection
from millpond.model.formats import DiskFormat
from tests.support.image_files import MiB, converted, qemu_img, raw_file, virtual_size

VERSION, BLOCK_SECTORS, BLOCKS, SECTORS, IN_USE, TABLE = 16, 28, 32, 36, 44, 64


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return raw_file(tmp_path)


@pytest.fixture
def image(disk: Path) -> bytearray:
    return bytearray(converted(disk, "parallels").read_bytes())


def as_older_kind(image: bytes) -> bytearray:
    """The older header, whose table counts in sectors."""
    older = bytearray(image)
    older[:16] = b"WithoutFreeSpace"
    block_sectors, blocks = struct.unpack_from("<II", older, BLOCK_SECTORS)
    for offset in range(TABLE, TABLE + 4 * blocks, 4):
        (block,) = struct.unpack_from("<I", older, offset)
        struct.pack_into("<I", older, offset, block * block_sectors)
    return older


def flaws(image: bytes) -> list[Objection]:
    return list(
        parallels.flaws(lambda offset, length: image[offset : offset + length], len(image))
    )


def objections(image: bytes) -> list[Objection]:
    return list(parallels.objections(bytes(image)))


def test_what_qemu_makes_is_whole(image: bytearray) -> None:
    assert parallels.matches(image)
    assert parallels.virtual_size(image) == 4 * MiB
    assert not objections(image)
    assert not flaws(image)


def test_an_image_without_any_data_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "empty.hds"
    qemu_img("create", "-f", "parallels", path, "10M")
    image = path.read_bytes()

    assert parallels.virtual_size(image) == virtual_size(path, "parallels")
    assert not objections(image)
    assert not flaws(image)


def test_the_older_kind_is_read_as_qemu_reads_it(
    tmp_path: Path, disk: Path, image: bytearray
) -> None:
    older = as_older_kind(image)
    path = tmp_path / "older.hds"
    path.write_bytes(older)
    back = tmp_path / "back.raw"
    qemu_img("convert", "-f", "parallels", "-O", "raw", path, back)

    assert back.read_bytes() == disk.read_bytes()
    assert parallels.matches(older)
    assert parallels.virtual_size(older) == 4 * MiB
    assert not flaws(older)
    assert flaws(older[:-512]) == [CUT_OFF]


def test_only_the_newer_kind_has_64_bits_for_the_size(image: bytearray) -> None:
    struct.pack_into("<Q", image, SECTORS, 2**32 + 8)

    assert parallels.virtual_size(image) == (2**32 + 8) * 512
    assert parallels.virtual_size(as_older_kind(image)) == 8 * 512


def test_another_version_is_refused(image: bytearray) -> None:
    struct.pack_into("<I", image, VERSION, 3)

    assert objections(image) == [parallels.OTHER_VERSION]


def test_an_image_that_is_open_somewhere_is_refused(image: bytearray) -> None:
    struct.pack_into("<I", image, IN_USE, 0x746F6E59)

    assert objections(image) == [NOT_CLOSED]


@pytest.mark.parametrize(("field", "value"), [(BLOCKS, 3), (BLOCKS, 0), (BLOCK_SECTORS, 0)])
def test_too_few_blocks_for_the_size_are_refused(image: bytearray, field: int, value: int) -> None:
    struct.pack_into("<I", image, field, value)

    assert objections(image) == [DAMAGED]


def _lengths(image: bytes) -> Iterator[int]:
    yield from (64, 70, 64 + 3, MiB, MiB + 1, 2 * MiB, len(image) - MiB, len(image) - 512)
    yield len(image) - 1


def test_a_shorter_file_is_cut_off_wherever_it_ends(image: bytearray) -> None:
    for length in _lengths(image):
        assert flaws(image[:length]) == [CUT_OFF], length


@pytest.mark.parametrize("entry", [4, 2**31, 2**32 - 1])
def test_a_block_beyond_the_end_is_cut_off(image: bytearray, entry: int) -> None:
    struct.pack_into("<I", image, TABLE + 4, entry)

    assert flaws(image) == [CUT_OFF]


def test_a_table_that_does_not_fit_is_not_read(image: bytearray) -> None:
    struct.pack_into("<I", image, BLOCKS, 2**32 - 1)

    assert flaws(image) == [CUT_OFF]


@given(header=st.binary(min_size=48, max_size=48), rest=st.binary(max_size=2048))
def test_any_header_gets_an_answer(header: bytes, rest: bytes) -> None:
    for magic in (b"WithoutFreeSpace", b"WithouFreSpacExt"):
        image = magic + header + rest
        assert parallels.virtual_size(image) >= 0
        assert flaws(image) in ([], [CUT_OFF])
        assert all(isinstance(each, Objection) for each in objections(image))


@pytest.mark.parametrize("size", [512, 1000 * 1024, MiB, 3 * MiB + 512])
def test_a_full_image_is_as_long_as_was_foretold(tmp_path: Path, size: int) -> None:
    source, target = tmp_path / "full.raw", tmp_path / "full.hds"
    source.write_bytes(b"!" * size)
    qemu_img("convert", "-f", "raw", "-O", "parallels", source, target)

    assert target.stat().st_size == DiskFormat.PLOOP.most_bytes(size)
