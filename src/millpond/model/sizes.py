"""Bytes inside, units only where a person types or reads them."""

import re
from decimal import Decimal

from millpond.errors import BadOption, BadSize, DiskTooLarge

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB

LEAST_MEMORY = 16 * MiB

_MOST = 2**63 - 1
"""What libvirt and file systems count sizes in."""
_LARGEST_DISK = 2**51
"""Of a qcow2 disk with clusters of 64 KiB, by its tables: QEMU's QCOW_MAX_L1_SIZE."""
_FACTORS = {"": 1, "b": 1, "k": KiB, "m": MiB, "g": GiB, "t": 1024 * GiB}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?|(b)?)", re.IGNORECASE)


def parse_size(text: str, *, unit: str | None = None) -> int:
    """``10G``, ``512 MiB``, ``1.5t`` to bytes; a bare number counts in ``unit``, or is refused
    unless it is 0."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise BadSize(text)
    number, unit_given, byte = match.groups()
    stated = unit_given or byte or unit
    if stated is None and Decimal(number):
        raise BadSize(text)
    size = int(Decimal(number) * _FACTORS[(stated or "").lower()])
    if size > _MOST:
        raise BadSize(text)
    return size


def check_disk_size(size: int) -> None:
    if size > _LARGEST_DISK:
        raise DiskTooLarge(format_size(size), format_size(_LARGEST_DISK))


def check_memory(size: int) -> None:
    if size < LEAST_MEMORY:
        reason = f"no guest boots with less than {format_size(LEAST_MEMORY)}"
        raise BadOption("--memory", reason, "write such as 512M")


def whole_sectors(size: int) -> int:
    """QEMU has no disk that ends within one."""
    return -(-size // 512) * 512


def format_size(size: int) -> str:
    """1610612736 to ``1.5 GiB``."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    amount = float(size)
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if amount == int(amount) else f"{amount:.1f} {units[0]}"


def enough_for(size: int) -> str:
    """What to type to get at least this much: ``1537M``."""
    return f"{-(-size // MiB)}M"
