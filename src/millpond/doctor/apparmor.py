"""AppArmor: does it let QEMU open the files of the pools? (trap 24)"""

import os
from collections.abc import Iterator
from pathlib import Path

from millpond.doctor.apparmor_rules import permissions, read_rules
from millpond.doctor.finding import Finding, ok, problem
from millpond.hosts.host import Host
from millpond.libvirt.pools import PoolWanted

# The kernel's own word: Y or N, and no such file in a kernel without AppArmor.
_ENABLED = Path("/sys/module/apparmor/parameters/enabled")
# Included by libvirt's abstractions/libvirt-qemu, and left to the administrator.
_RULES = Path("/etc/apparmor.d/local/abstractions/libvirt-qemu")
# The first libvirt that tells AppArmor which file a <disk type='volume'> is.
_TELLS_ITSELF = (9, 9)

_BASES = "rk"
_DISKS = "rwk"  # read, write, lock; QEMU locks the bases, too
_A_VOLUME = "8a1f6b52-0a6f-4a0e-9f1c-3d2b7f4c9e01_disk"


def look(host: Host) -> Iterator[Finding]:
    libvirt, _qemu = host.libvirtd.versions()
    if not _is_enabled():
        yield ok("AppArmor is not enabled in this kernel")
    elif tuple(int(part) for part in libvirt.split("."))[:2] >= _TELLS_ITSELF:
        yield ok(f"libvirt {libvirt} tells AppArmor which files a server has")
    elif missing := _missing_lines(host):
        yield problem(
            f"AppArmor keeps QEMU from the disks in the pools: libvirt {libvirt} does not tell "
            f"it of them, and {_RULES} has no rule",
            "\n".join([f"add to {_RULES}:", *missing]),
        )
    else:
        yield ok(f"AppArmor lets QEMU open the files in the pools, by {_RULES}")


def _is_enabled() -> bool:
    try:
        return _ENABLED.read_text().strip() == "Y"
    except OSError:
        return False


def _missing_lines(host: Host) -> list[str]:
    rules = read_rules(_RULES)
    plan = host.pool_plan
    return [
        f'"{_real(pool)}/**" {needed},'
        for pool in plan.all().values()
        if pool.path  # of Ceph it opens no file
        for needed in [_BASES if pool == plan.base else _DISKS]
        if not set(needed) <= permissions(rules, f"{_real(pool)}/{_A_VOLUME}")
    ]


def _real(pool: PoolWanted) -> str:
    """The kernel compares real paths: links are followed before it does."""
    return os.path.realpath(pool.path)
