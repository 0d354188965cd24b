"""What neither libvirt nor qemu-img can do to RBD images: snapshots, names, locks of all hosts.

``rbd`` and ``rados`` take the user's key from the keyring that the configuration file names; no
key is ever among our words.
"""

import errno
import json
import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from millpond.errors import Busy, CephUnreachable, MillpondError, ToolFailed
from millpond.model.layer import CephAccess, RbdSource
from millpond.model.sizes import GiB
from millpond.system.process import CONVERSION, Limits, run

LOG = logging.getLogger(__name__)

_SECONDS = "10"
"""Ceph's own patience with a cluster that does not answer is 300 s."""
_LEASE = 60
"""Seconds that a lock is held if nobody releases it; what is done in it takes two or three."""
_LOCK = "millpond"
_LIMITS = Limits(memory=4 * GiB)
"""Of addresses: a client has a thread, with its stack and arena, for each OSD that it talks to."""


def cluster_id(access: CephAccess) -> str:
    return _call(access, "ceph", "fsid").strip()


def exists(image: RbdSource) -> bool:
    """The image, with the snapshot that is named."""
    return _unless(errno.ENOENT, image.access, "info", image.name)


def has_snapshot(at: RbdSource, *, protected: bool = False) -> bool:
    """Of an image that may not be there."""
    try:
        found = _rbd_json(at.access, "snap", "ls", f"{at.access.pool}/{at.image}")
    except ToolFailed as error:
        if error.status == errno.ENOENT:
            return False
        raise
    return any(
        each["name"] == at.snapshot and (each["protected"] == "true" or not protected)
        for each in found
    )


def create_snapshot(at: RbdSource) -> None:
    """Raises ToolFailed with status EEXIST if there is one."""
    _rbd(at.access, "snap", "create", "--no-progress", at.name)


def protect_snapshot(at: RbdSource) -> None:
    """From now on it can be cloned, and not be removed."""
    _rbd(at.access, "snap", "protect", at.name)


def unprotect_snapshot(at: RbdSource) -> bool:
    """False while clones are backed by it."""
    return _unless(errno.EBUSY, at.access, "snap", "unprotect", at.name)


def remove_snapshot(at: RbdSource) -> None:
    """One that is gone already, or whose image is, is no error."""
    _unless(errno.ENOENT, at.access, "snap", "rm", "--no-progress", at.name)


def children(at: RbdSource) -> list[str]:
    """The images that were cloned from a snapshot, in any pool."""
    found = _rbd_json(at.access, "children", at.name)
    return [f"{each['pool']}/{each['image']}" for each in found]


def clone(origin: RbdSource, new: RbdSource) -> None:
    """An image that shows what a protected snapshot does, in whatever pool; no data is written."""
    _rbd(new.access, "clone", origin.name, new.name)


def copy(image: RbdSource, new: RbdSource) -> None:
    """An image that is cloned from the same snapshot, if that one is a clone, and has what was
    written to it since. Nobody writes to it meanwhile."""
    limits = replace(CONVERSION, memory=_LIMITS.memory)
    _call(new.access, "rbd", "deep", "cp", "--no-progress", image.name, new.name, limits=limits)


def size(image: RbdSource) -> int:
    return int(_rbd_json(image.access, "info", image.name)["size"])


def resize(image: RbdSource, wanted: int) -> None:
    """Longer or shorter: what lies behind the new end is gone. rbd refuses the size that an image
    has, and with the same status a size that is invalid."""
    if size(image) != wanted:
        words = ("--no-progress", "--allow-shrink", "--size", f"{wanted}B")
        _rbd(image.access, "resize", *words, image.name)


def watchers(image: RbdSource) -> list[str]:
    """Addresses of the clients that have it open for writing."""
    found = _rbd_json(image.access, "status", image.name)
    return [each["address"] for each in found.get("watchers", ())]


def remove(image: RbdSource) -> None:
    """One that is gone already is no error."""
    _unless(errno.ENOENT, image.access, "rm", "--no-progress", image.name)


class Lease:
    """A lock that we hold until it is released or its time is over."""

    def __init__(self, what: str, seconds: float) -> None:
        self._what = what
        self._end = time.monotonic() + seconds

    @property
    def limits(self) -> Limits:
        """Of a command that must not outlive it. Raises Busy if another may hold the lock."""
        left = int(self._end - time.monotonic())
        if left < 1:
            raise Busy(self._what)
        return replace(_LIMITS, seconds=left)


def names(access: CephAccess) -> list[str]:
    """Of all images in the pool."""
    return [str(each) for each in _rbd_json(access, "ls", access.pool)]


def rename(image: RbdSource, new: str, lease: Lease) -> bool:
    """With its snapshots; False if there is an image of the new name. Two at once may both have
    their way, and one image is lost: so only as long as a lock is held."""
    words = ("rename", image.name, f"{image.access.pool}/{new}")
    return _unless(errno.EEXIST, image.access, *words, limits=lease.limits)


@contextmanager
def holding_lock(access: CephAccess, name: str, seconds: int = _LEASE) -> Iterator[Lease]:
    """Of all hosts only we are in such a block of this name. Ceph lets go of the lock when its
    holder has been gone for a while."""
    thing, cookie = f"millpond.{name}", secrets.token_hex(8)
    what = f"{name} in Ceph pool {access.pool}"
    end = time.monotonic() + 2 * _LEASE
    while not (lease := _take_lock(access, thing, cookie, Lease(what, seconds), seconds)):
        if time.monotonic() > end:
            raise Busy(what)
        time.sleep(0.2)
    try:
        yield lease
    finally:
        _unlock(access, thing, cookie)


def _take_lock(
    access: CephAccess, thing: str, cookie: str, lease: Lease, seconds: int
) -> Lease | None:
    words = ("lock", "get", thing, _LOCK, "--lock-cookie", cookie, "--lock-duration", str(seconds))
    try:
        _rados(access, *words)
    except ToolFailed as error:
        if "busy" not in error.reason.lower():
            raise
        return None
    return lease


def _unlock(access: CephAccess, thing: str, cookie: str) -> None:
    """Only what is ours: the lease may be over, and another may hold the lock. The object stays,
    empty: removing it would take that one's lock away. What cannot be unlocked ends by itself."""
    try:
        found = json.loads(_rados(access, "lock", "info", thing, _LOCK, "--format", "json"))
        for each in found["lockers"]:
            if each["cookie"] == cookie:
                words = ("lock", "break", thing, _LOCK, each["name"], "--lock-cookie", cookie)
                _rados(access, *words)
    except MillpondError as error:
        LOG.debug("unlocking %s: %s", thing, error)


def _rados(access: CephAccess, *words: str) -> str:
    return _call(access, "rados", "--pool", access.pool, *words)


def _unless(status: int, access: CephAccess, *words: str, limits: Limits = _LIMITS) -> bool:
    """Whether it was done; False if it ended with this status."""
    try:
        _call(access, "rbd", *words, limits=limits)
    except ToolFailed as error:
        if error.status != status:
            raise
        return False
    return True


def _rbd_json(access: CephAccess, *words: str) -> Any:
    return json.loads(_rbd(access, *words, "--format", "json"))


def _rbd(access: CephAccess, *words: str) -> str:
    return _call(access, "rbd", *words)


def _call(access: CephAccess, tool: str, *words: str, limits: Limits = _LIMITS) -> str:
    who = ["--id", access.user] if access.user else []
    where = ["--conf", str(access.conf)] if access.conf else []
    try:
        words = ("--client-mount-timeout", _SECONDS, *words)
        return run([tool, *who, *where, *words], limits)
    except ToolFailed as error:
        if "couldn't connect to the cluster" in error.reason:
            raise CephUnreachable from error
        raise
