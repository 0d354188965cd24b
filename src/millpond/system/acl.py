"""Access control lists of files and devices, as far as we need them: one more user may read, or
open a socket."""

import errno
import os
import struct
from pathlib import Path

# linux/posix_acl_xattr.h and linux/posix_acl.h
_ATTRIBUTE = "system.posix_acl_access"
_VERSION = struct.pack("<I", 2)
_ENTRY = "<HHI"
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_NOBODY = 0xFFFFFFFF
_READ, _WRITE = 4, 2

Entries = dict[tuple[int, int], int]
"""Permissions by kind and id."""


def let_read(path: Path, uid: int) -> None:
    """Unlike owner and mode, which udev sets again when it likes, this stays as long as the
    device does. Raises OSError where the file system knows no such lists."""
    _let(path, uid, _READ)


def let_write(path: Path, uid: int) -> None:
    """And read: whoever opens a socket writes to it."""
    _let(path, uid, _READ | _WRITE)


def _let(path: Path, uid: int, what: int) -> None:
    entries = _entries(path)
    entries[_USER, uid] = entries.get((_USER, uid), 0) | what
    entries[_MASK, _NOBODY] |= what
    packed = (struct.pack(_ENTRY, kind, may, id) for (kind, id), may in sorted(entries.items()))
    os.setxattr(path, _ATTRIBUTE, _VERSION + b"".join(packed))


def lets_read(path: Path, uid: int) -> bool:
    """Whether the list names the user."""
    entries = _entries(path)
    return bool(entries.get((_USER, uid), 0) & entries[_MASK, _NOBODY] & _READ)


def _entries(path: Path) -> Entries:
    try:
        packed = os.getxattr(path, _ATTRIBUTE).removeprefix(_VERSION)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
            raise
        return _entries_of_mode(path.stat().st_mode)
    found = {(kind, id): may for kind, may, id in struct.iter_unpack(_ENTRY, packed)}
    return {(_MASK, _NOBODY): found[_GROUP, _NOBODY], **found}


def _entries_of_mode(mode: int) -> Entries:
    owner, group, others = mode >> 6 & 7, mode >> 3 & 7, mode & 7
    return {
        (_OWNER, _NOBODY): owner,
        (_GROUP, _NOBODY): group,
        (_MASK, _NOBODY): group,
        (_OTHERS, _NOBODY): others,
    }
