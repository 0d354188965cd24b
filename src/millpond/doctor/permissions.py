"""Permissions: QEMU's user reaches the pools, and the bases are as we made them."""

import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from millpond.doctor.finding import Finding, ok, problem
from millpond.errors import Tool
from millpond.hosts.cache import open_store
from millpond.hosts.host import Host
from millpond.libvirt.virtualization import QemuUser, qemu_user

_WALK = 1
_READ_AND_WRITE = 6
_PTMX = Path("/dev/ptmx")
_READ_ONLY = 0o444


def search_permissions(host: Host) -> Iterator[Finding]:
    """Every directory on the way to each pool, and behind a link on the real way, too."""
    user = qemu_user(host.libvirtd)
    pools = [Path(pool.path) for pool in host.pool_plan.directories()]
    ends = {*pools, *(pool.resolve() for pool in pools)}
    directories = {way for end in ends for way in (end, *end.parents) if way.exists()}
    shut = sorted(way for way in directories if user and not user.can_open(way, _WALK))
    for way in shut:
        yield problem(f"QEMU's user cannot walk through {way} to the disks", f"chmod o+x {way}")
    if not shut:
        yield ok("QEMU's user can walk to the pools")


def terminals(host: Host) -> Iterator[Finding]:
    """QEMU's user opens one for each serial console. Which /dev a libvirtd sees that has a socket
    of its own, nobody here knows."""
    if "socket=" not in host.settings.libvirt.connection_uri:
        yield from find_closed_terminals(qemu_user(host.libvirtd), _PTMX)


def find_closed_terminals(user: QemuUser | None, ptmx: Path) -> Iterator[Finding]:
    if user and ptmx.exists() and not user.can_open(ptmx, _READ_AND_WRITE):
        yield problem(
            f"QEMU's user cannot open {ptmx}: no server starts, for each has a serial console",
            "mount -o remount,ptmxmode=0666 /dev/pts",
        )


def bases(host: Host) -> Iterator[Finding]:
    """A base that QEMU's user owned could be written to by a guest (trap 17). What is linked is
    somebody else's."""
    store = open_store(host)
    here = [each.volume for each in store.all() if not each.link] if store else []
    paths = [store.cache / each for each in here] if store else []
    changed = [path for path in paths if not _is_as_we_made_it(path)]
    for path in changed:
        yield problem(
            f"the base {path} is not root's and read-only any more",
            f"'chown root:root {path} && chmod 0444 {path}', or '{Tool.REPAIR}'",
            partial(_restore, path),
        )
    if paths and not changed:
        yield ok("the bases are root's and read-only")


def _is_as_we_made_it(path: Path) -> bool:
    """Root's, or that of the member of group libvirt who runs Millpond."""
    found = path.stat()
    return found.st_uid in (0, os.geteuid()) and stat.S_IMODE(found.st_mode) == _READ_ONLY


def _restore(path: Path) -> str:
    os.chown(path, os.geteuid(), os.getegid())
    path.chmod(_READ_ONLY)
    return "now it is again"
