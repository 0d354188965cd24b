"""A disk that boots as what it is, raw; who takes it for qcow2 is led to a file of the host."""

import struct
import subprocess
import tempfile
from pathlib import Path

from tests.support.guests import MicroGuest

_HERE = Path(__file__).parent
_SECTOR = 512
_CLUSTER = 64 * 1024
_SIZE = 1024 * 1024
_LANDING = 128  # where two_faced.asm begins in sector 0
_NAME = 0xEB00 + _LANDING - 16  # as an instruction of x86: jump there from the byte after it
_DATA_FILE = 0x44415441
_UNKNOWN = 0x6D696C6C
_COPIED = 1 << 63
_EXTENSIONS = 104
_NAMES_DATA = 4 * _SECTOR  # behind the sectors that the guest uses


def two_faced(guest: MicroGuest, name: str, *, data_file: bool = False) -> bytes:
    """The whole disk. ``name`` is the backing file, or the external data file."""
    disk = bytearray(guest.path.read_bytes().ljust(_SIZE, b"\0")[:_SIZE])
    disk[8 * _SECTOR : 9 * _SECTOR] = disk[:_SECTOR]
    disk[: _SECTOR - 66] = _boot_sector(0 if data_file else len(name), data_file)
    if data_file:
        extension = struct.pack(">II", _DATA_FILE, len(name)) + name.encode()
        _put(disk, _NAMES_DATA, extension)
    else:
        _put(disk, _NAME, name.encode())
    _put_tables(disk, allocated=data_file)
    return bytes(disk)


def _boot_sector(length: int, data_file: bool) -> bytes:
    """Up to the partition table."""
    program = _assembled()
    head = struct.pack(
        ">4sIQIIQIIQQIIQQQQII",
        *(b"QFI\xfb", 3, _NAME, length, 16, _SIZE, 0, 1, 3 * _CLUSTER, _CLUSTER, 1, 0, 0),
        *(4 if data_file else 0, 0, 2 if data_file else 0, 4, _EXTENSIONS),
    )
    skips = struct.pack(">II", _UNKNOWN, _NAMES_DATA - _EXTENSIONS - 8)
    whole = (head + skips).ljust(_LANDING, b"\0") + program
    assert len(whole) <= _SECTOR - 66
    return whole.ljust(_SECTOR - 66, b"\0")


def _put_tables(disk: bytearray, *, allocated: bool) -> None:
    """Clusters 1 to 4: the counts' table, the counts, the first table and the second."""
    _put(disk, _CLUSTER, struct.pack(">Q", 2 * _CLUSTER))
    _put(disk, 2 * _CLUSTER, struct.pack(">5H", 1, 1, 1, 1, 1))
    if allocated:
        clusters = (number * _CLUSTER | _COPIED for number in range(_SIZE // _CLUSTER))
        _put(disk, 3 * _CLUSTER, struct.pack(">Q", 4 * _CLUSTER | _COPIED))
        _put(disk, 4 * _CLUSTER, struct.pack(f">{_SIZE // _CLUSTER}Q", *clusters))


def _put(disk: bytearray, at: int, content: bytes) -> None:
    disk[at : at + len(content)] = content


def _assembled() -> bytes:
    with tempfile.NamedTemporaryFile() as made:
        words = ["nasm", "-f", "bin", "-o", made.name, str(_HERE / "two_faced.asm")]
        subprocess.run(words, check=True)
        return Path(made.name).read_bytes()
