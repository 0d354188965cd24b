"""Whether the files of a pool are local: probed by a marker volume, not deduced from the host's
address."""

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
"""Seconds: looking for a marker takes a thousandth of one."""


Probe = Callable[[Pool], bool]
"""Whether the files of a pool can be opened on this machine."""


class LocalityProbe:
    """Keeps the answer for each pool of a host as long as the process lives."""

    def __init__(self, find_base: Callable[[], Pool]) -> None:
        """``find_base``: the directory pool that answers for pools whose volumes are no files."""
        self._find_base = find_base
        self._known: dict[str, bool] = {}
        self._lock = threading.Lock()

    def __call__(self, pool: Pool) -> bool:
        if not pool.path:  # images in Ceph are files nowhere
            return False
        with self._lock:
            if pool.name not in self._known:
                has_files = pool.capabilities.sparse
                self._known[pool.name] = probe(pool if has_files else self._find_base())
            return self._known[pool.name]


def can_open(pool: Pool, volume: Volume, how: int) -> bool:
    """A volume of this pool, for reading or for writing. A file of a remote host may have the
    same path here."""
    return pool.local and os.access(volume.path, how)


def probe(pool: Pool) -> bool:
    _cleanup(pool)
    try:
        while (found := _look(pool)) is None:
            LOG.debug("somebody swept the marker in pool %s: once more", pool.name)
    except NoSpace:
        found = _compare(pool)
    LOG.debug("the files of pool %s are %s", pool.name, "local" if found else "remote")
    return found


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


def _cleanup(pool: Pool) -> None:
    """What processes left that were killed while they looked."""
    for name in pool.names():
        found = _MARKER.fullmatch(name)
        if found and time.time() - int(found[1]) > _DEAD_AFTER:
            _delete(pool, name)


def is_locality_probe(name: str) -> bool:
    return bool(_MARKER.fullmatch(name))


def _delete(pool: Pool, name: str) -> bool:
    with suppress(VolumeNotFound):
        pool.delete(name)
        return True
    return False
