"""What libvirt cannot do to logical volumes: grow them, and wipe what they grew by."""

import errno
import fcntl
import os
import struct

from millpond.errors import NoSpace, ToolFailed
from millpond.model.sizes import format_size
from millpond.system import files
from millpond.system.process import run

_BLKZEROOUT = 0x127F  # _IO(0x12, 127) in linux/fs.h


def extend(path: str, size: int, pool: str) -> None:
    """At least ``size`` bytes; a volume that is as large already is no error."""
    try:
        run(["lvextend", "--quiet", "--size", f"{size}b", path])
    except ToolFailed as error:
        if "matches existing size" in error.reason or "not larger than" in error.reason:
            return
        if "nsufficient free space" in error.reason:
            raise NoSpace(f"pool {pool}", format_size(size), "too little") from error
        raise


def size(path: str) -> int:
    """Of a device, as the kernel has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


def zero(path: str, start: int) -> None:
    """Everything from ``start`` to the end of a device."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        if start < end:
            fcntl.ioctl(descriptor, _BLKZEROOUT, struct.pack("QQ", start, end - start))
            files.sync(descriptor)
    except OSError as error:
        raise ToolFailed("zeroing", os.strerror(error.errno or errno.EIO)) from error
    finally:
        os.close(descriptor)
