"""Image files to inspect: real ones by qemu-img, and handwritten what no tool here makes."""

import json
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.model.formats import ImageFormat

KiB = 1024
MiB = 1024 * KiB
SECTOR = 512
SIZE = 4 * MiB


def qemu_img(*words: str | Path) -> str:
    if shutil.which("qemu-img") is None:
        pytest.skip("qemu-img is missing: apt-get install qemu-utils")
    done = subprocess.run(
        ["qemu-img", *map(str, words)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def raw_file(directory: Path, size: int = SIZE, seed: int = 1) -> Path:
    """A disk with data at its beginning, in its middle and at its end."""
    path = directory / f"disk-{size}-{seed}.raw"
    chance = random.Random(seed)
    with path.open("wb") as file:
        file.truncate(size)
        for start in (0, size // 2, size - 192 * KiB):
            file.seek(start)
            file.write(chance.randbytes(160 * KiB))
    return path


def converted(source: Path, qemu_format: str, options: str = "", *words: str) -> Path:
    """The raw disk in another format."""
    name = "-".join([source.stem, *filter(None, [options, *words])]).replace("=", "-")
    target = source.with_name(f"{name.replace(',', '-').replace(':', '-')}.{qemu_format}")
    chosen = ["-o", options] if options else []
    qemu_img("convert", "-f", "raw", "-O", qemu_format, *chosen, *words, source, target)
    return target


def virtual_size(path: Path, qemu_format: str) -> int:
    """What QEMU says, told the format."""
    found = json.loads(qemu_img("info", "-f", qemu_format, "--output", "json", path))
    size: int = found["virtual-size"]
    return size


def image_of_each_format(directory: Path) -> Iterator[tuple[ImageFormat, Path]]:
    source = raw_file(directory)
    yield ImageFormat.RAW, source
    yield ImageFormat.QCOW2, converted(source, "qcow2")
    yield ImageFormat.VMDK, converted(source, "vmdk")
    yield ImageFormat.VDI, converted(source, "vdi")
    yield ImageFormat.VHD, converted(source, "vpc")
    yield ImageFormat.VHDX, converted(source, "vhdx", "block_size=1M")
    yield ImageFormat.PLOOP, converted(source, "parallels")
    yield ImageFormat.ISO, iso_file(directory)


def iso_file(directory: Path, blocks: int = 64, boot_sector: bytes = b"") -> Path:
    """The least that is an ISO 9660: 32 KiB for the system, a primary descriptor, an end."""
    primary = bytearray(2048)
    primary[0:7] = b"\x01CD001\x01"
    struct.pack_into("<I", primary, 80, blocks)
    struct.pack_into(">I", primary, 84, blocks)
    struct.pack_into("<H", primary, 128, 2048)
    struct.pack_into(">H", primary, 130, 2048)
    terminator = b"\xffCD001\x01".ljust(2048, b"\0")
    content = boot_sector.ljust(32 * KiB, b"\0") + primary + terminator
    path = directory / f"disc-{blocks}-{len(boot_sector)}.iso"
    path.write_bytes(content.ljust(blocks * 2048, b"\0"))
    return path


def with_footer(vmdk: bytes) -> bytes:
    """A streamOptimized VMDK as VMware writes it: the header leaves it to a footer to say where
    the grain directory is. qemu-img writes none."""
    header = bytearray(vmdk[:SECTOR])
    struct.pack_into("<Q", header, 56, 2**64 - 1)
    footer_marker = struct.pack("<QII", 1, 0, 3).ljust(SECTOR, b"\0")
    end_of_stream = bytes(SECTOR)
    return bytes(header) + vmdk[SECTOR:] + footer_marker + vmdk[:SECTOR] + end_of_stream


VHDX_HEADERS = (64 * KiB, 128 * KiB)


def with_vhdx_checksums(content: bytes) -> bytes:
    """Of both headers and both tables of regions, right again after a change."""
    sealed = bytearray(content)
    blocks = [(each, 4 * KiB) for each in VHDX_HEADERS]
    for start, length in (*blocks, (192 * KiB, 64 * KiB), (256 * KiB, 64 * KiB)):
        struct.pack_into("<I", sealed, start + 4, 0)
        struct.pack_into("<I", sealed, start + 4, _crc32c(sealed[start : start + length]))
    return bytes(sealed)


def _crc32c(content: bytes) -> int:
    found = 0xFFFF_FFFF
    for byte in content:
        found ^= byte
        for _ in range(8):
            found = found >> 1 ^ (0x82F6_3B78 if found & 1 else 0)
    return found ^ 0xFFFF_FFFF


def boot_sector(partitions: bool = True) -> bytes:
    """A PC's boot sector, with one partition or none."""
    sector = bytearray(SECTOR)
    sector[0:3] = b"\xeb\x3c\x90"
    if partitions:
        sector[446:462] = struct.pack("<B3sB3sII", 0x80, b"\1\1\0", 0x83, b"\1\2\3", 63, 1000)
    sector[510:512] = b"\x55\xaa"
    return bytes(sector)


def patched(path: Path, offset: int, content: bytes) -> Path:
    """A copy of the file in which some bytes are others."""
    copy = path.with_name(f"patched-{offset}-{content.hex()[:16]}-{path.name}")
    shutil.copyfile(path, copy)
    with copy.open("r+b") as file:
        file.seek(offset)
        file.write(content)
    return copy


def cut(path: Path, size: int) -> Path:
    """A copy of the file's beginning."""
    copy = path.with_name(f"cut-{size}-{path.name}")
    with path.open("rb") as file:
        copy.write_bytes(file.read(size))
    return copy
