"""B11 and B46, on files as qemu-img makes them and as accidents and attackers change them."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import ImageRefused
from millpond.images.formats.inspection import (
    HEAD,
    LARGEST,
    LARGEST_TO_BOOT,
    Inspection,
    InspectionResult,
)
from millpond.images.formats.recognition import recognise
from millpond.model.formats import DiskFormat, ImageFormat
from tests.support.image_files import (
    KiB,
    MiB,
    boot_sector,
    converted,
    cut,
    image_of_each_format,
    iso_file,
    patched,
    qemu_img,
    raw_file,
    virtual_size,
    with_footer,
)

Images = Mapping[ImageFormat, bytes]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    """One honest image of each format."""
    made = image_of_each_format(tmp_path_factory.mktemp("images"))
    return {format: path.read_bytes() for format, path in made}


def inspect(content: bytes, declared: ImageFormat, step: int = MiB) -> InspectionResult:
    inspection = Inspection(declared, "guest")
    for start in range(0, len(content), step):
        inspection.eat(content[start : start + step])
    return inspection.finish(len(content))


def refusal(content: bytes, declared: ImageFormat) -> ImageRefused:
    with pytest.raises(ImageRefused) as caught:
        inspect(content, declared)
    return caught.value


# What is honest passes


@pytest.mark.parametrize(
    ("declared", "qemu_format", "options", "words"),
    [
        (ImageFormat.RAW, "raw", "", ()),
        (ImageFormat.AMI, "raw", "", ()),
        (ImageFormat.QCOW2, "qcow2", "", ()),
        (ImageFormat.QCOW2, "qcow2", "", ("-c",)),
        (ImageFormat.QCOW2, "qcow2", "compression_type=zstd", ("-c",)),
        (ImageFormat.QCOW2, "qcow2", "compat=0.10", ()),
        (ImageFormat.QCOW2, "qcow2", "cluster_size=512", ()),
        (ImageFormat.QCOW2, "qcow2", "cluster_size=2M", ()),
        (ImageFormat.QCOW2, "qcow2", "refcount_bits=1", ()),
        (ImageFormat.QCOW2, "qcow2", "lazy_refcounts=on", ()),
        (ImageFormat.QCOW2, "qcow2", "preallocation=metadata", ()),
        (ImageFormat.VMDK, "vmdk", "", ()),
        (ImageFormat.VMDK, "vmdk", "subformat=streamOptimized", ()),
        (ImageFormat.VDI, "vdi", "", ()),
        (ImageFormat.VDI, "vdi", "static=on", ()),
        (ImageFormat.VHD, "vpc", "", ()),
        (ImageFormat.VHD, "vpc", "subformat=fixed", ()),
        (ImageFormat.VHD, "vpc", "force_size=on", ()),
        (ImageFormat.VHD, "vpc", "subformat=fixed,force_size=on", ()),
        (ImageFormat.VHDX, "vhdx", "", ()),
        (ImageFormat.VHDX, "vhdx", "subformat=fixed", ()),
        (ImageFormat.PLOOP, "parallels", "", ()),
    ],
)
def test_what_qemu_img_makes_is_accepted_with_the_size_that_qemu_sees(
    tmp_path: Path,
    declared: ImageFormat,
    qemu_format: str,
    options: str,
    words: tuple[str, ...],
) -> None:
    source = raw_file(tmp_path)
    path = source if qemu_format == "raw" else converted(source, qemu_format, options, *words)

    finding = inspect(path.read_bytes(), declared)

    assert finding == InspectionResult(
        format=declared.content, virtual_size=virtual_size(path, qemu_format)
    )


def test_a_qcow2_with_internal_snapshots_is_accepted(tmp_path: Path) -> None:
    path = converted(raw_file(tmp_path), "qcow2")
    qemu_img("snapshot", "-c", "before", path)

    assert inspect(path.read_bytes(), ImageFormat.QCOW2).format is DiskFormat.QCOW2


@pytest.mark.parametrize("partitions", [True, False])
def test_a_raw_disk_with_a_boot_sector_is_raw(partitions: bool) -> None:
    disk = boot_sector(partitions).ljust(MiB, b"\0")

    assert inspect(disk, ImageFormat.RAW) == InspectionResult(
        format=DiskFormat.RAW, virtual_size=MiB
    )


@pytest.mark.parametrize("start", [b"", boot_sector()], ids=["plain", "bootable"])
def test_an_iso_is_raw_content_of_its_own_length(tmp_path: Path, start: bytes) -> None:
    disc = iso_file(tmp_path, boot_sector=start).read_bytes()

    assert inspect(disc, ImageFormat.ISO) == InspectionResult(
        format=DiskFormat.RAW, virtual_size=len(disc)
    )


def test_an_odd_virtual_size_is_rounded_up_to_whole_sectors(tmp_path: Path) -> None:
    path = patched(converted(raw_file(tmp_path), "qcow2"), 24, struct.pack(">Q", 4 * MiB - 100))

    assert inspect(path.read_bytes(), ImageFormat.QCOW2).virtual_size == 4 * MiB


# What was declared as something else


def test_no_format_passes_for_another(images: Images) -> None:
    for actual, content in images.items():
        for declared in set(images) - {actual}:
            refused = refusal(content, declared)
            if actual is ImageFormat.RAW:
                assert "but its content is not" in str(refused)
            else:
                assert f"but its content is {actual}" in str(refused)
                assert refused.advice.endswith(f"--disk-format {actual}")


def test_a_fixed_vhd_does_not_pass_for_raw(tmp_path: Path) -> None:
    path = converted(raw_file(tmp_path), "vpc", "subformat=fixed")

    assert "its content is vhd" in str(refusal(path.read_bytes(), ImageFormat.RAW))


def test_qed_and_luks_are_refused_by_name(tmp_path: Path) -> None:
    qed = tmp_path / "disk.qed"
    qemu_img("create", "-f", "qed", qed, "1M")
    luks = b"LUKS\xba\xbe\x00\x02".ljust(MiB, b"\0")

    assert "its content is qed" in str(refusal(qed.read_bytes(), ImageFormat.RAW))
    assert "its content is luks" in str(refusal(luks, ImageFormat.RAW))


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"Bochs Virtual HD Image", "bochs"),
        (b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop", "cloop"),
        (b"OOOM\0\0\0\2", "cow"),
        (b"COWD\1\0\0\0", "an extent of a VMDK"),
        (b"# Disk DescriptorFile\nversion=1\n\xff\xff", "vmdk"),
    ],
)
def test_what_only_qemu_or_libvirt_would_recognise_is_refused_by_name(
    start: bytes, name: str
) -> None:
    assert f"its content is {name}" in str(refusal(start.ljust(MiB, b"\0"), ImageFormat.RAW))


def _tar() -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("disk.raw"))
    return written.getvalue()


def _zip() -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("disk.raw", b"disk")
    return written.getvalue()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("gzip", lambda: gzip.compress(b"disk")),
        ("xz", lambda: lzma.compress(b"disk")),
        ("bzip2", lambda: bz2.compress(b"disk")),
        ("zip", _zip),
        ("tar", _tar),
    ],
)
@pytest.mark.parametrize("declared", [ImageFormat.RAW, ImageFormat.QCOW2])
def test_a_packed_image_is_to_be_unpacked_first(
    name: str, pack: Callable[[], bytes], declared: ImageFormat
) -> None:
    refused = refusal(pack().ljust(MiB, b"\0"), declared)

    assert f"its content is packed ({name})" in str(refused)
    assert "unpack it first" in refused.advice


def test_bytes_that_are_two_formats_at_once_are_refused(images: Images, tmp_path: Path) -> None:
    qcow2 = bytearray(images[ImageFormat.QCOW2])
    disc = iso_file(tmp_path).read_bytes()
    qcow2[32 * KiB : 34 * KiB] = disc[32 * KiB : 34 * KiB]

    for declared in (ImageFormat.QCOW2, ImageFormat.ISO, ImageFormat.RAW):
        assert "can be read as iso and qcow2" in str(refusal(bytes(qcow2), declared))


def test_a_header_that_oslo_cannot_parse_is_recognised_all_the_same(images: Images) -> None:
    vmdk = bytearray(images[ImageFormat.VMDK])
    struct.pack_into("<Q", vmdk, 28, 7)  # the descriptor is elsewhere, for libvirt it is not

    assert recognise(bytes(vmdk[:HEAD])) == {"vmdk"}
    assert "its content is vmdk" in str(refusal(bytes(vmdk), ImageFormat.RAW))
    assert "its header is damaged" in str(refusal(bytes(vmdk), ImageFormat.VMDK))


# A kernel and a ramdisk are any bytes that nobody takes for something else

TO_BOOT = (ImageFormat.AKI, ImageFormat.ARI)
ODD = 64 * KiB + 307  # they are as long as they are, and no disks


@pytest.mark.parametrize(
    "head",
    [
        b"MZ".ljust(510, b"\x90") + b"\x55\xaa" + b"HdrS",  # Linux for a PC is a boot sector, too
        b"\x7fELF\x02\x01\x01",
        b"070701",  # cpio
        b"\x1f\x8b\x08",
        b"\xfd7zXZ\0",
        b"\x28\xb5\x2f\xfd",
        b"BZh91AY&SY",
        b"?",
    ],
)
@pytest.mark.parametrize("declared", TO_BOOT)
@pytest.mark.parametrize("length", [100, ODD])
def test_a_kernel_or_a_ramdisk_is_accepted_packed_or_not(
    declared: ImageFormat, head: bytes, length: int
) -> None:
    content = head.ljust(length, b"k")

    assert inspect(content, declared) == InspectionResult(
        format=DiskFormat.RAW, virtual_size=len(content)
    )


@pytest.mark.parametrize("declared", TO_BOOT)
def test_a_kernel_or_a_ramdisk_that_is_something_else_is_refused(
    images: Images, declared: ImageFormat
) -> None:
    for format, content in images.items():
        if format is not ImageFormat.RAW:
            assert f"its content is {format}" in str(refusal(content, declared))
    for head in (b"PK\x03\x04", b"7z\xbc\xaf\x27\x1c"):
        assert "is packed" in str(refusal(head.ljust(ODD, b"k"), declared))
    assert "its content is vhd" in str(refusal(bytes(KiB) + b"conectix".ljust(512), declared))


@pytest.mark.parametrize("declared", TO_BOOT)
def test_a_kernel_that_would_fill_the_hosts_memory_is_refused(declared: ImageFormat) -> None:
    inspection = Inspection(declared, "vmlinuz")
    piece = bytes(64 * MiB)
    for _ in range(LARGEST_TO_BOOT // len(piece)):
        inspection.eat(piece)
    assert inspection.finish(LARGEST_TO_BOOT).virtual_size == LARGEST_TO_BOOT
    inspection.eat(b"k")
    with pytest.raises(ImageRefused, match="a kernel or ramdisk of 2"):
        inspection.finish(LARGEST_TO_BOOT + 1)


# What reaches beyond itself


def _with_backing(directory: Path, backing: str) -> bytes:
    path = directory / "overlay.qcow2"
    qemu_img("create", "-u", "-f", "qcow2", "-F", "raw", "-b", backing, path, "1M")
    return path.read_bytes()


@pytest.mark.parametrize(
    "backing",
    [
        "/etc/passwd",
        "overlay.qcow2",  # itself
        'json:{"driver":"file","filename":"/etc/passwd"}',
        "nbd://192.0.2.1/disk",
    ],
)
def test_a_qcow2_with_a_backing_file_is_refused(tmp_path: Path, backing: str) -> None:
    refused = refusal(_with_backing(tmp_path, backing), ImageFormat.QCOW2)

    assert "it has a backing file" in str(refused)
    assert "stands alone" in refused.advice


def test_a_qcow2_with_a_data_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "disk.qcow2"
    qemu_img("create", "-f", "qcow2", "-o", f"data_file={tmp_path}/data", path, "1M")

    assert "keeps its data in another file" in str(refusal(path.read_bytes(), ImageFormat.QCOW2))


def test_an_encrypted_qcow2_is_refused(images: Images) -> None:
    for method in (1, 2):  # AES, LUKS
        content = bytearray(images[ImageFormat.QCOW2])
        struct.pack_into(">I", content, 32, method)
        assert "encrypted" in str(refusal(bytes(content), ImageFormat.QCOW2))


@pytest.mark.parametrize(
    ("bit", "sentence"),
    [
        (0, "was not closed properly"),
        (1, "marked as corrupt"),
        (4, "a feature of qcow2 that is not known"),  # extended L2 entries
        (37, "a feature of qcow2 that is not known"),
    ],
)
def test_a_qcow2_with_such_a_feature_is_refused(images: Images, bit: int, sentence: str) -> None:
    content = bytearray(images[ImageFormat.QCOW2])
    (features,) = struct.unpack_from(">Q", content, 72)
    struct.pack_into(">Q", content, 72, features | 1 << bit)

    assert sentence in str(refusal(bytes(content), ImageFormat.QCOW2))


@pytest.mark.parametrize("version", [1, 4])
def test_a_qcow_of_another_version_is_refused(images: Images, version: int) -> None:
    content = bytearray(images[ImageFormat.QCOW2])
    struct.pack_into(">I", content, 4, version)

    assert "a version or a feature" in str(refusal(bytes(content), ImageFormat.QCOW2))


@pytest.mark.parametrize("bits", [0, 8, 22, 255])
def test_a_qcow2_with_impossible_clusters_is_refused(images: Images, bits: int) -> None:
    content = bytearray(images[ImageFormat.QCOW2])
    struct.pack_into(">I", content, 20, bits)

    assert "its header is damaged" in str(refusal(bytes(content), ImageFormat.QCOW2))


def test_a_vmdk_with_a_parent_is_refused(tmp_path: Path) -> None:
    parent = converted(raw_file(tmp_path), "vmdk")
    child = tmp_path / "child.vmdk"
    qemu_img("create", "-f", "vmdk", "-F", "vmdk", "-b", parent, child)

    assert "only the differences" in str(refusal(child.read_bytes(), ImageFormat.VMDK))


@pytest.mark.parametrize("subformat", ["monolithicFlat", "twoGbMaxExtentSparse"])
def test_a_vmdk_of_several_files_is_refused_file_by_file(tmp_path: Path, subformat: str) -> None:
    path = converted(raw_file(tmp_path), "vmdk", f"subformat={subformat}")
    assert "its data lies in other files" in str(refusal(path.read_bytes(), ImageFormat.VMDK))

    (extent,) = set(tmp_path.glob(f"{path.stem}-*.vmdk"))
    refused = refusal(extent.read_bytes(), ImageFormat.VMDK)
    assert "Flat" in subformat or "one of several files" in str(refused)


def _with_descriptor(image: bytes, edit: Callable[[bytes], bytes], sectors: int = 20) -> bytes:
    content = bytearray(image)
    # What follows the first zero is the rest of a longer descriptor, which qemu-img wrote before.
    text = edit(bytes(content[512 : 512 + 20 * 512]).partition(b"\0")[0])
    content[512 : 512 + 20 * 512] = text.ljust(20 * 512, b"\0")
    struct.pack_into("<Q", content, 36, sectors)
    return bytes(content)


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda text: text + b'RW 8 FLAT "secret.raw" 0\n', "its data lies in other files"),
        (lambda text: text.replace(b" SPARSE ", b" FLAT "), "its data lies in other files"),
        (lambda text: text.replace(b" SPARSE ", b" VMFS "), "its data lies in other files"),
        (lambda text: b'CREATETYPE="monolithicSparse"\n' + text, "its header is damaged"),
        (lambda text: b'createType: "vmfs"\n' + text, "its header is damaged"),
        (lambda text: text.replace(b"monolithicSparse", b"vmfs"), "subformat, vmfs,"),
        (lambda text: text.replace(b"monolithicSparse", b"\x1b[2J"), "its header is damaged"),
        (lambda text: text + b'parentFileNameHint="/etc/passwd"\n', "only the differences"),
        (
            lambda text: text.replace(b"parentCID=ffffffff", b"parentCID=12345678"),
            "only the differences",
        ),
    ],
)
def test_a_vmdk_whose_descriptor_names_another_file_is_refused(
    images: Images, edit: Callable[[bytes], bytes], sentence: str
) -> None:
    content = _with_descriptor(images[ImageFormat.VMDK], edit)

    assert sentence in str(refusal(content, ImageFormat.VMDK))


def test_a_parent_after_the_stated_end_of_a_descriptor_is_seen(images: Images) -> None:
    """QEMU reads on to the first zero byte."""

    def hide(text: bytes) -> bytes:
        return text.ljust(512, b"\n") + b'parentFileNameHint="/etc/passwd"\n'

    content = _with_descriptor(images[ImageFormat.VMDK], hide, sectors=1)

    assert "only the differences" in str(refusal(content, ImageFormat.VMDK))


def test_a_descriptor_without_an_end_is_refused(images: Images) -> None:
    content = bytearray(images[ImageFormat.VMDK])
    content[512:HEAD] = content[512:HEAD].replace(b"\0", b"\n")

    assert "its header is damaged" in str(refusal(bytes(content), ImageFormat.VMDK))


def test_a_vmdk_whose_header_leaves_the_size_to_the_descriptor_is_refused(
    images: Images,
) -> None:
    content = bytearray(images[ImageFormat.VMDK])
    struct.pack_into("<Q", content, 12, 0)

    assert "its data lies in other files" in str(refusal(bytes(content), ImageFormat.VMDK))


def test_a_vhd_that_holds_differences_is_refused(images: Images) -> None:
    content = bytearray(images[ImageFormat.VHD])
    struct.pack_into(">I", content, 60, 4)

    assert "only the differences" in str(refusal(bytes(content), ImageFormat.VHD))


def test_a_vdi_that_holds_differences_is_refused(images: Images) -> None:
    content = bytearray(images[ImageFormat.VDI])
    content[0x1A8:0x1B8] = b"p" * 16

    assert "only the differences" in str(refusal(bytes(content), ImageFormat.VDI))


# What is no image, or not all of one


@pytest.mark.parametrize("declared", list(ImageFormat))
def test_an_empty_file_is_refused(declared: ImageFormat) -> None:
    assert "it is empty" in str(refusal(b"", declared))


def test_a_raw_image_of_broken_sectors_is_refused() -> None:
    refused = refusal(bytes(MiB + 1), ImageFormat.RAW)

    assert "not a multiple of 512" in str(refused)
    assert "truncate -s %512" in refused.advice


def test_a_qcow2_header_in_less_than_a_sector_does_not_pass_for_raw(tmp_path: Path) -> None:
    assert refusal(_with_backing(tmp_path, "/etc/passwd")[:300], ImageFormat.RAW)


def test_what_ends_in_its_header_is_refused(images: Images) -> None:
    for format, content in images.items():
        if format is not ImageFormat.RAW:
            for size in (1, 100, 511):
                assert refusal(content[:size], format)


def test_a_vhdx_without_its_metadata_is_cut_off_in_its_header(images: Images) -> None:
    content = images[ImageFormat.VHDX][: 300 * KiB]

    assert "in the middle of its header" in str(refusal(content, ImageFormat.VHDX))


def test_an_image_of_nothing_but_tables_is_refused() -> None:
    """64 TiB of a disk, and tables that would take an hour to look through."""
    cluster, tables = 2 * MiB, 1024
    head = struct.pack(
        ">4sIQIIQIIQQIIQ", b"QFI\xfb", 2, 0, 0, 21, LARGEST, 0, tables, cluster, 0, 0, 0, 0
    )
    first = struct.pack(f">{tables}Q", *((2 + each) * cluster for each in range(tables)))
    content = head.ljust(cluster, b"\0") + first.ljust(cluster, b"\0")

    def read(offset: int, length: int) -> bytes:
        return content[offset : offset + length] or bytes(length)

    with pytest.raises(ImageRefused, match="its tables take more than 1 GiB"):
        Inspection(ImageFormat.QCOW2, "guest").look_at(read, (2 + tables) * cluster)


def test_a_vhdx_whose_size_is_no_number_is_damaged(images: Images) -> None:
    content = bytearray(images[ImageFormat.VHDX])
    entry = content.index(bytes.fromhex("2442a52f1bcd7648b2115dbed83bf4b8"))
    struct.pack_into("<I", content, entry + 20, 4)  # of its 8 bytes

    assert "its header is damaged" in str(refusal(bytes(content), ImageFormat.VHDX))


def test_a_stream_that_ends_early_is_refused() -> None:
    inspection = Inspection(ImageFormat.RAW, "guest")
    inspection.eat(bytes(MiB))

    with pytest.raises(ImageRefused, match="1 MiB arrived instead of 2 MiB"):
        inspection.finish(2 * MiB)


def test_an_iso_that_is_shorter_than_it_says_is_cut_off(tmp_path: Path) -> None:
    path = cut(iso_file(tmp_path, blocks=64), 63 * 2048)

    assert "it is cut off" in str(refusal(path.read_bytes(), ImageFormat.ISO))


def test_a_vmdk_without_the_footer_that_its_header_promises_is_cut_off(tmp_path: Path) -> None:
    path = converted(raw_file(tmp_path), "vmdk", "subformat=streamOptimized")
    content = with_footer(path.read_bytes())

    assert inspect(content, ImageFormat.VMDK).format is DiskFormat.VMDK
    assert "it is cut off" in str(refusal(content[:-512], ImageFormat.VMDK))


def test_a_vhd_without_its_footer_is_cut_off(images: Images) -> None:
    assert "it is cut off" in str(refusal(images[ImageFormat.VHD][:-512], ImageFormat.VHD))


def test_a_fixed_vhd_that_promises_more_than_it_has_is_refused(tmp_path: Path) -> None:
    content = converted(raw_file(tmp_path), "vpc", "subformat=fixed").read_bytes()

    assert "damaged" in str(refusal(content[MiB:], ImageFormat.VHD))


@pytest.mark.parametrize(
    ("format", "offset", "layout", "unit"),
    [
        (ImageFormat.QCOW2, 24, ">Q", 1),
        (ImageFormat.VMDK, 12, "<Q", 512),
        (ImageFormat.PLOOP, 36, "<Q", 512),
    ],
)
def test_an_absurd_virtual_size_is_refused(
    images: Images, format: ImageFormat, offset: int, layout: str, unit: int
) -> None:
    for size in (LARGEST + MiB, 2**60):
        content = bytearray(images[format])
        struct.pack_into(layout, content, offset, size // unit)
        if format is ImageFormat.PLOOP:  # enough blocks for it, or that would be what is wrong
            struct.pack_into("<II", content, 28, 2**31, 2**31)
        assert "it says that it holds a disk of" in str(refusal(bytes(content), format))


def test_a_disk_of_no_size_is_refused(images: Images) -> None:
    content = bytearray(images[ImageFormat.QCOW2])
    struct.pack_into(">Q", content, 24, 0)

    assert "a disk of no size" in str(refusal(bytes(content), ImageFormat.QCOW2))


# However it arrives


@pytest.mark.parametrize("declared", [ImageFormat.RAW, ImageFormat.VMDK, ImageFormat.QCOW2])
def test_what_the_first_block_shows_is_not_waited_for(
    tmp_path: Path, declared: ImageFormat
) -> None:
    content = _with_backing(tmp_path, "/etc/passwd")
    inspection = Inspection(declared, "guest")

    with pytest.raises(ImageRefused):
        inspection.eat(content[:HEAD])


def test_an_absurd_size_is_not_waited_for(images: Images) -> None:
    content = bytearray(images[ImageFormat.QCOW2][:HEAD])
    struct.pack_into(">Q", content, 24, 2**60)
    inspection = Inspection(ImageFormat.QCOW2, "guest")

    with pytest.raises(ImageRefused, match="holds a disk of"):
        inspection.eat(bytes(content))


def _pieces(content: bytes, sizes: list[int]) -> Iterator[bytes]:
    start = 0
    for size in sizes:
        yield content[start : start + size]
        start += size
    yield content[start:]


_SIZES = st.lists(
    st.one_of(st.integers(0, 700), st.integers(0, 3 * HEAD), st.integers(0, 2 * MiB)), max_size=12
)


def verdict(pieces: Iterable[bytes], size: int, declared: ImageFormat) -> InspectionResult | str:
    """What comes of an image: it is accepted or refused, and nothing else."""
    try:
        inspection = Inspection(declared, "guest")
        for piece in pieces:
            inspection.eat(piece)
        return inspection.finish(size)
    except ImageRefused as refused:
        return str(refused)


@given(sizes=_SIZES, declared=st.sampled_from(list(ImageFormat)))
@settings(max_examples=150)
def test_how_the_bytes_are_cut_up_changes_nothing(
    images: Images, sizes: list[int], declared: ImageFormat
) -> None:
    for content in images.values():
        at_once = verdict([content], len(content), declared)
        assert verdict(_pieces(content, sizes), len(content), declared) == at_once


@pytest.mark.parametrize("step", [1, 3, 511])
def test_even_single_bytes_are_enough(images: Images, step: int) -> None:
    for format in (ImageFormat.QCOW2, ImageFormat.VMDK, ImageFormat.PLOOP):
        content = images[format][: 2 * HEAD]
        inspection = Inspection(format, "guest")
        for start in range(0, len(content), step):
            inspection.eat(content[start : start + step])
        assert inspection.finish(len(content)) == inspect(content, format)


_MAGICS = [
    b"",
    b"QFI\xfb\0\0\0\3",
    b"KDMV\1\0\0\0",
    b"vhdxfile",
    b"conectix",
    b"WithouFreSpacExt",
    b"QED\0",
    b"LUKS\xba\xbe",
    b"# Disk DescriptorFile\nversion=1\n",
    b"A" * 600,
]


@given(
    magic=st.sampled_from(_MAGICS),
    rest=st.binary(max_size=4 * KiB),
    length=st.sampled_from([0, 512, 40 * KiB, HEAD, 300 * KiB]),
    declared=st.sampled_from(list(ImageFormat)),
)
@settings(max_examples=400)
def test_arbitrary_bytes_are_accepted_or_refused_and_nothing_else(
    magic: bytes, rest: bytes, length: int, declared: ImageFormat
) -> None:
    content = (magic + rest).ljust(length, b"\0")

    assert verdict([content], len(content), declared)
