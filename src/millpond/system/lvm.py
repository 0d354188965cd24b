"""What libvirt cannot do to logical volumes: grow them."""

import os

from millpond.system.process import run


def extents(path: str) -> list[str]:
    """Where a volume lies, as ranges of physical extents: ``/dev/sda:0-24``."""
    found = run(["lvs", "--noheadings", "--options", "seg_pe_ranges", path])
    return found.split()


def extend(path: str, extents: list[str]) -> None:
    """By exactly these, which are free. Fails if somebody has taken one of them meanwhile."""
    count = sum(_count(each) for each in extents)
    run(["lvextend", "--quiet", "--extents", f"+{count}", path, *extents])


def _count(range: str) -> int:
    first, last = range.rpartition(":")[2].split("-")
    return int(last) - int(first) + 1


def size(path: str) -> int:
    """Of a device, as the kernel has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)
