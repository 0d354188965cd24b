"""Whether the files of a host can be opened here: tried, not deduced from the host's address."""

import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from millpond.errors import NoSpace, VolumeNotFound
from millpond.libvirt.pool import Pool
from millpond.model.formats import DiskFormat
from millpond.model.sizes import GiB
from millpond.model.volume import Volume, VolumeSpec

LOG = logging.getLogger(__name__)

_MARKER = re.compile(r"millpond-marker-(\d+)-[0-9a-f]{32}")
_DEAD_AFTER = 60
"""Seconds: who looks for a marker needs a thousandth of one."""


class HostFiles:
    """The answer for each pool is kept for as long as the process lives."""

    def __init__(self, find_pool: Callable[[str], Pool], base: str) -> None:
        """``base``: the directory pool that answers for pools whose volumes are no files."""
        self._find_pool = find_pool
        self._base = base
        self._known: dict[str, bool] = {}
        self._lock = threading.Lock()

    def can_open(self, volume: Volume, how: int) -> bool:
        """For reading or for writing. A file of another host may have the same path here."""
        return self.are_here(volume.pool) and os.access(volume.path, how)

    def are_here(self, pool: str) -> bool:
        with self._lock:
            if pool not in self._known:
                self._known[pool] = self._are_here(self._find_pool(pool))
            return self._known[pool]

    def _are_here(self, pool: Pool) -> bool:
        if not (pool.path and pool.capabilities.sparse):
            pool = self._find_pool(self._base)
        _sweep(pool)
        found = are_here(pool)
        LOG.debug("the files of pool %s %s here", pool.name, "are" if found else "are not")
        return found


def can_open(volume: Volume, how: int) -> bool:
    """Of a host whose files are all here."""
    return os.access(volume.path, how)


def are_here(pool: Pool) -> bool:
    try:
        while (found := _look(pool)) is None:
            LOG.debug("somebody swept the marker in pool %s: once more", pool.name)
        return found
    except NoSpace:
        return _compare(pool)


def _compare(pool: Pool) -> bool:
    """Where there is no space for a marker (XFS needs some for an inode): by what is there
    already. An empty directory is enough if nothing is: nothing can be made in it now."""
    volumes = [each for each in pool.volumes() if each.changed]
    return any(map(_is_this, volumes)) if volumes else Path(pool.path).is_dir()


def _is_this(volume: Volume) -> bool:
    """Whether the file of this path here is the volume: a copy of it changed at another time."""
    try:
        seconds, rest = divmod(os.stat(volume.path).st_ctime_ns, 10**9)
    except OSError:
        return False
    return volume.changed in (f"{seconds}.{rest:09}", f"{seconds}")


def _look(pool: Pool) -> bool | None:
    """A volume without content whose name and length nobody could guess; None if somebody took
    it away before it was looked for."""
    length = secrets.randbelow(GiB)
    name = f"millpond-marker-{int(time.time())}-{secrets.token_hex(16)}"
    spec = VolumeSpec(name=name, format=DiskFormat.RAW, capacity=length)
    made = pool.create(spec)
    try:
        found = _has_length(Path(made.path), length)
    finally:
        gone = not _delete(pool, spec.name)
    return None if gone and not found else found


def _has_length(path: Path, length: int) -> bool:
    try:
        return path.stat().st_size == length and os.access(path, os.R_OK | os.W_OK)
    except OSError:
        return False


def _sweep(pool: Pool) -> None:
    """What processes left that were killed while they looked."""
    for name in pool.names():
        found = _MARKER.fullmatch(name)
        if found and time.time() - int(found[1]) > _DEAD_AFTER:
            _delete(pool, name)


def is_marker(name: str) -> bool:
    return bool(_MARKER.fullmatch(name))


def _delete(pool: Pool, name: str) -> bool:
    with suppress(VolumeNotFound):
        pool.delete(name)
        return True
    return False
