"""What the modules of the formats find by themselves, oslo.utils' checks aside."""

import struct
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.images import qcow2, vdi, vhd, vhdx, vmdk
from millpond.images.container import CUT_OFF, DAMAGED, NOT_CLOSED, Container, Objection
from millpond.images.inspection import HEAD
from millpond.model.formats import ImageFormat
from tests.support.image_files import (
    VHDX_HEADERS,
    KiB,
    MiB,
    converted,
    image_of_each_format,
    raw_file,
    virtual_size,
    with_vhdx_checksums,
)

Images = Mapping[ImageFormat, bytes]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    made = image_of_each_format(tmp_path_factory.mktemp("images"))
    return {format: path.read_bytes() for format, path in made}


def changed(image: bytes, offset: int, layout: str, *values: object) -> bytes:
    content = bytearray(image)
    struct.pack_into(layout, content, offset, *values)
    return bytes(content)


def objections(container: Container, image: bytes) -> list[Objection]:
    return list(islice(container.objections(image[:HEAD]), 1))


def flaws(container: Container, image: bytes) -> list[Objection]:
    """The first one: what comes after it may rely on its absence."""

    def read(offset: int, length: int) -> bytes:
        return image[offset : offset + length]

    return list(islice(container.flaws(read, len(image)), 1))


# qcow2: 64 KiB clusters; the L1 table is at 24 and 40 of the header, its first entry leads to L2

COMPRESSED = 1 << 62


def first_l2_entry(image: bytes) -> int:
    (l1,) = struct.unpack_from(">Q", image, 40)
    (l2,) = struct.unpack_from(">Q", image, l1)
    return int(l2 & 0x00FF_FFFF_FFFF_FE00)


def claims(entry: int, cluster_bits: int) -> int:
    """Where the cluster of an L2 entry begins, entry by entry."""
    if entry & COMPRESSED:
        return int(entry & (1 << (62 - (cluster_bits - 8))) - 1)
    return 0 if entry & 1 else entry & 0x00FF_FFFF_FFFF_FE00


@given(
    cluster_bits=st.sampled_from([9, 12, 16]),
    entries=st.dictionaries(
        st.integers(0, 63),
        st.tuples(st.integers(0, 2**44), st.sampled_from([0, 1, 1 << 62, 1 << 63, 3 << 62])),
    ),
    size=st.integers(2**20, 2**44),
)
def test_every_cluster_of_a_qcow2_table_counts(
    cluster_bits: int, entries: dict[int, tuple[int, int]], size: int
) -> None:
    """All entries of a table are looked at at once: the same comes of it as one by one."""
    cluster = 1 << cluster_bits
    head = struct.pack(
        ">4sIQIIQIIQQIIQ", b"QFI\xfb", 2, 0, 0, cluster_bits, size, 0, 1, cluster, 0, 0, 0, 0
    )
    table = [0] * (cluster // 8)
    for place, (offset, flags) in entries.items():
        table[place] = offset | flags
    first = struct.pack(">Q", 2 * cluster)
    content = head.ljust(cluster, b"\0") + first.ljust(cluster, b"\0")
    content += struct.pack(f">{len(table)}Q", *table)

    def read(offset: int, length: int) -> bytes:
        return content[offset : offset + length]

    beyond = any(claims(each, cluster_bits) >= size for each in table)
    assert list(islice(qcow2.flaws(read, size), 1)) == [CUT_OFF] * beyond


@pytest.mark.parametrize(
    ("offset", "layout", "value", "objection"),
    [
        (4, ">I", 4, qcow2.UNKNOWN_FEATURES),
        (8, ">Q", 512, qcow2.BACKING_FILE),
        (72, ">Q", 1 << 2, qcow2.DATA_FILE),
        (72, ">Q", 1 << 4, qcow2.UNKNOWN_FEATURES),
        (32, ">I", 2, qcow2.ENCRYPTED),
        (36, ">I", 4 * MiB + 1, DAMAGED),
    ],
)
def test_qcow2_objects_to_its_header(
    images: Images, offset: int, layout: str, value: int, objection: Objection
) -> None:
    image = images[ImageFormat.QCOW2]

    assert objections(qcow2, image) == []
    assert objections(qcow2, changed(image, offset, layout, value)) == [objection]


def test_version_2_of_qcow2_has_no_features(images: Images) -> None:
    image = changed(changed(images[ImageFormat.QCOW2], 72, ">Q", 2**64 - 1), 4, ">I", 2)

    assert objections(qcow2, image) == []


@pytest.mark.parametrize(
    ("offset", "layout", "value"),
    [
        (40, ">Q", 2**40),  # the L1 table
        (48, ">Q", 2**40),  # the refcount table
        (56, ">I", 2**20),
    ],
)
def test_a_table_of_a_qcow2_beyond_its_end_is_cut_off(
    images: Images, offset: int, layout: str, value: int
) -> None:
    image = images[ImageFormat.QCOW2]

    assert flaws(qcow2, image) == []
    assert flaws(qcow2, changed(image, offset, layout, value)) == [CUT_OFF]


def test_an_l2_table_beyond_the_end_is_cut_off(images: Images) -> None:
    image = images[ImageFormat.QCOW2]
    (l1,) = struct.unpack_from(">Q", image, 40)

    assert flaws(qcow2, changed(image, l1, ">Q", 2**40)) == [CUT_OFF]


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (2**40, [CUT_OFF]),
        (1 << 63 | 2**40, [CUT_OFF]),
        (COMPRESSED | 2**40 + 17, [CUT_OFF]),
        (COMPRESSED | 1 << 60 | 128 * KiB + 17, []),  # some of the bits above are a length
        (2**40 | 1, []),  # it reads as zeros, whatever is there
    ],
)
def test_a_cluster_beyond_the_end_is_cut_off_if_it_is_read(
    images: Images, entry: int, found: list[Objection]
) -> None:
    image = images[ImageFormat.QCOW2]

    assert flaws(qcow2, changed(image, first_l2_entry(image), ">Q", entry)) == found


def test_a_hostile_l1_table_is_not_followed_for_longer_than_the_file(images: Images) -> None:
    """Every entry leads to an L2 table, most of which begin in the middle of another."""
    size = 4 * MiB
    entries = size // 1024
    image = bytearray(images[ImageFormat.QCOW2][:512].ljust(size, b"\0"))
    struct.pack_into(">I", image, 36, entries)
    struct.pack_into(">Q", image, 40, size - 8 * entries)
    struct.pack_into(f">{entries}Q", image, size - 8 * entries, *range(0, 512 * entries, 512))
    read: list[int] = []

    def reading(offset: int, length: int) -> bytes:
        read.append(length)
        return bytes(image[offset : offset + length])

    assert list(qcow2.flaws(reading, size)) == []
    assert sum(read) <= 2 * size


# The others


@pytest.mark.parametrize(
    ("offset", "layout", "value"), [(20, "<Q", 0), (44, "<I", 0), (44, "<I", 513)]
)
def test_a_vmdk_without_grains_or_tables_is_damaged(
    images: Images, offset: int, layout: str, value: int
) -> None:
    image = images[ImageFormat.VMDK]

    assert objections(vmdk, image) == []
    assert objections(vmdk, changed(image, offset, layout, value)) == [DAMAGED]


@pytest.mark.parametrize(("offset", "layout", "value"), [(56, "<Q", 2**40), (12, "<Q", 2**40)])
def test_a_vmdk_whose_directory_does_not_fit_is_cut_off(
    images: Images, offset: int, layout: str, value: int
) -> None:
    image = images[ImageFormat.VMDK]

    assert flaws(vmdk, image) == []
    assert flaws(vmdk, changed(image, offset, layout, value)) == [CUT_OFF]


@pytest.mark.parametrize(("offset", "value"), [(0x178, 512), (0x180, 3), (0x180, 0)])
def test_a_vdi_with_other_or_too_few_blocks_is_damaged(
    images: Images, offset: int, value: int
) -> None:
    image = images[ImageFormat.VDI]

    assert objections(vdi, image) == []
    assert objections(vdi, changed(image, offset, "<I", value)) == [DAMAGED]


@pytest.mark.parametrize(("offset", "value"), [(0x154, 2**31), (0x158, 2**31), (0x180, 2**30)])
def test_a_vdi_whose_map_or_data_does_not_fit_is_cut_off(
    images: Images, offset: int, value: int
) -> None:
    image = images[ImageFormat.VDI]

    assert flaws(vdi, image) == []
    assert flaws(vdi, changed(image, offset, "<I", value)) == [CUT_OFF]


def test_a_vdi_without_any_block_is_whole(images: Images) -> None:
    image = bytearray(images[ImageFormat.VDI][:1024])
    image[512:528] = b"\xff" * 8 + b"\xfe\xff\xff\xff" * 2

    assert flaws(vdi, bytes(image)) == []


def with_checksum(image: bytes) -> bytes:
    """A VHD whose header was changed, as a program would have written it."""
    others = sum(image[:64]) + sum(image[68:512])
    return changed(image, 64, ">I", ~others & 0xFFFF_FFFF)


@pytest.mark.parametrize("kind", [0, 2, 5])
def test_a_vhd_with_a_header_that_does_not_grow_is_damaged(images: Images, kind: int) -> None:
    image = images[ImageFormat.VHD]

    assert objections(vhd, image) == []
    assert objections(vhd, with_checksum(changed(image, 60, ">I", kind))) == [DAMAGED]


def test_a_vhd_with_a_wrong_checksum_is_damaged(images: Images) -> None:
    image = images[ImageFormat.VHD]
    footer = changed(image[-512:], 100, ">I", 1)

    assert objections(vhd, changed(image, 100, ">I", 1)) == [DAMAGED]
    for grows in (True, False):
        assert next(vhd.objections_to_end(footer, len(image), grows=grows)) == DAMAGED


@pytest.mark.parametrize("creator", [b"vpc ", b"qemu", b"win ", b"qem2", b"tap\0"])
@pytest.mark.parametrize("geometry", [(4, 16, 63), (65535, 16, 255)])
def test_the_size_of_a_vhd_is_counted_as_qemu_counts_it(
    tmp_path: Path, creator: bytes, geometry: tuple[int, int, int]
) -> None:
    image = bytearray(converted(raw_file(tmp_path), "vpc").read_bytes())
    image[28:32] = creator
    struct.pack_into(">QHBB", image, 48, 3 * MiB, *geometry)
    path = tmp_path / "changed.vhd"
    path.write_bytes(with_checksum(bytes(image)))

    assert vhd.virtual_size(path.read_bytes()) == virtual_size(path, "vpc")


def test_of_an_unknown_creator_a_vhd_is_never_thought_larger_than_qemu_thinks(
    tmp_path: Path,
) -> None:
    for size in (1 * MiB, 3 * MiB):
        image = bytearray(converted(raw_file(tmp_path), "vpc").read_bytes())
        image[28:32] = b"none"
        struct.pack_into(">QHBB", image, 48, size, 4, 16, 63)  # 4 * 16 * 63 sectors are 1.97 MiB
        path = tmp_path / "changed.vhd"
        path.write_bytes(with_checksum(bytes(image)))
        assert 0 < vhd.virtual_size(path.read_bytes()) <= virtual_size(path, "vpc")


def region(image: bytes, id: str) -> int:
    """Where a VHDX' table of regions, or its metadata, has this entry."""
    return image.index(bytes.fromhex(id), 192 * KiB)


BLOCKS, METADATA = "6677c22d23f600429d64115e9bfd4a08", "06a27c8b90479a4bb8fe575f050f886e"
FILE_PARAMETERS = "3767a1ca36fa434db3b633f0aa44e76b"


@pytest.mark.parametrize("id", [BLOCKS, METADATA, FILE_PARAMETERS])
def test_a_vhdx_that_lacks_something_is_damaged(images: Images, id: str) -> None:
    image = images[ImageFormat.VHDX]

    assert flaws(vhdx, image) == []
    without = changed(image, region(image, id), "<Q", 0)
    assert flaws(vhdx, with_vhdx_checksums(without)) == [DAMAGED]


@pytest.mark.parametrize("id", [BLOCKS, METADATA])
def test_a_region_of_a_vhdx_beyond_its_end_is_cut_off(images: Images, id: str) -> None:
    image = images[ImageFormat.VHDX]

    beyond = changed(image, region(image, id) + 16, "<Q", 2**62)
    assert flaws(vhdx, with_vhdx_checksums(beyond)) == [CUT_OFF]


def newer_and_older(image: bytes) -> tuple[int, int]:
    """Where a VHDX has its two headers."""
    one, other = VHDX_HEADERS
    sequences = [struct.unpack_from("<Q", image, each + 8)[0] for each in (one, other)]
    return (one, other) if sequences[0] > sequences[1] else (other, one)


def test_the_sound_header_of_a_vhdx_counts(images: Images, tmp_path: Path) -> None:
    """A log is named by the newer one, whose checksum is wrong: QEMU passes it over, too."""
    image = images[ImageFormat.VHDX]
    newer, older = newer_and_older(image)
    with_log = changed(image, newer + 48, "<QQ", 1, 1)

    assert flaws(vhdx, with_log) == []
    assert flaws(vhdx, with_vhdx_checksums(with_log)) == [NOT_CLOSED]
    assert flaws(vhdx, changed(with_log, older + 48, "<QQ", 1, 1)) == [DAMAGED]
    (tmp_path / "with-log").write_bytes(with_log)
    assert virtual_size(tmp_path / "with-log", "vhdx") == 4 * MiB


@pytest.mark.parametrize(
    ("offset", "layout", "values"),
    [
        (192 * KiB, "<4s", (b"none",)),
        (192 * KiB + 8, "<I", (2048,)),
        *((each + 66, "<H", (2,)) for each in VHDX_HEADERS),
    ],
    ids=["signature", "count", "first-version", "second-version"],
)
def test_what_qemu_refuses_of_a_vhdx_is_refused(
    images: Images, offset: int, layout: str, values: tuple[object, ...], tmp_path: Path
) -> None:
    image = images[ImageFormat.VHDX]
    newer, older = newer_and_older(image)
    if offset in range(newer, newer + KiB):  # then the other one must not count, either
        image = changed(image, older, "<4s", b"none")
    if offset in range(older, older + KiB):
        image = changed(image, newer, "<4s", b"none")
    content = bytearray(image)
    struct.pack_into(layout, content, offset, *values)
    path = tmp_path / "changed.vhdx"
    path.write_bytes(with_vhdx_checksums(content))

    assert flaws(vhdx, path.read_bytes()) == [DAMAGED]
    with pytest.raises(AssertionError):
        virtual_size(path, "vhdx")


def test_headers_of_a_vhdx_of_one_age_must_be_the_same(images: Images) -> None:
    image = images[ImageFormat.VHDX]
    one, other = VHDX_HEADERS
    content = bytearray(image)
    content[other : other + 4 * KiB] = content[one : one + 4 * KiB]
    assert flaws(vhdx, bytes(content)) == []
    content[other + 16] ^= 1
    assert flaws(vhdx, with_vhdx_checksums(content)) == [DAMAGED]


def test_a_vhdx_with_a_wrong_checksum_of_its_regions_is_damaged(images: Images) -> None:
    image = images[ImageFormat.VHDX]
    assert flaws(vhdx, changed(image, 250 * KiB, "<I", 1)) == [DAMAGED]
