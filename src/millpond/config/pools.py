"""Which pool a disk goes to, by the disk's name (B17)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from millpond.disks.selection import split_entries
from millpond.errors import BadOption

ROLES = (
    "disk",
    "disk.local",
    "disk.eph*",
    "disk.swap",
    "disk.config",
    "disk.rescue",
    "disk.data*",
    "kernel",
    "ramdisk",
)
"""The names that a server's disks can have; ``*`` stands for a number or a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryPool:
    name: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    base_images: DirectoryPool
    disks: DirectoryPool
    lvm: str = "nova-disks-pool-lvm"
    rbd: str = "nova-disks-pool-rbd"
    by_disk_name: Mapping[str, DirectoryPool] = field(default_factory=dict)
    """By the disk's name, which may end in ``*``; the most exact one stands first."""


def parse_pool_by_disk_name(text: str) -> Mapping[str, str]:
    """``disk.swap:fast, disk.eph*:fast`` to the pool's name by the disk's name."""
    option = "[libvirt] pool_by_disk_name"
    pools = parse_pairs(option, text, "disk:pool")
    unknown = [each for each in pools if not _can_fit(each)]
    if unknown:
        reason = f"{_quoted(unknown)} can never be the name of a disk"
        raise BadOption(option, reason, f"disks: {', '.join(ROLES)}")
    return dict(sorted(pools.items(), key=lambda pair: _looseness(pair[0])))


def _looseness(pattern: str) -> tuple[bool, int]:
    """A whole name comes before the beginning of one, and a long beginning before a short one."""
    return pattern.endswith("*"), -len(pattern)


def _can_fit(pattern: str) -> bool:
    """Some disk may have a name that the pattern takes."""
    if not pattern.endswith("*"):
        return any(fnmatchcase(pattern, role) for role in ROLES)
    start = pattern[:-1]
    return any(role.startswith(start) or fnmatchcase(start, role) for role in ROLES)


def parse_pairs(option: str, text: str, form: str) -> Mapping[str, str]:
    """``left:right`` entries between commas; what stands on the left stands there once."""
    pairs: dict[str, str] = {}
    problems: list[str] = []
    for entry in split_entries(text):
        left, _, right = (side.strip() for side in entry.partition(":"))
        if not left or not right:
            problems.append(f"{entry.strip()!r} is not of the form {form}")
        elif pairs.setdefault(left, right) != right:
            problems.append(f"{left!r} stands for both {pairs[left]!r} and {right!r}")
    if problems:
        raise BadOption(option, "; ".join(problems), f"write {form}, {form}")
    return pairs


def _quoted(names: list[str]) -> str:
    return ", ".join(repr(each) for each in names)
