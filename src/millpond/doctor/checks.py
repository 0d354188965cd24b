"""Every check, in the order in which they are made: what others need comes first."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millpond.doctor import (
    apparmor,
    images,
    kvm,
    legacy,
    libvirt_host,
    permissions,
    pools,
    records,
    servers,
    space,
    strays,
    templates,
)
from millpond.doctor.finding import Finding
from millpond.engine import Engine

CONFIGURATION = "configuration"
"""Looked at before there is an engine to look with."""
NOT_VALID = "the configuration is not valid"


Look = Callable[[Engine], Iterable[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    looks: tuple[Look, ...]
    needs: tuple[str, ...] = ()
    """Checks that must have found no problem, or this one is not made."""
    lack: str = ""
    """What is said in place of the checks that need this one, once it has found a problem."""


COMMON = (
    Check(name="state", looks=(records.state_directory,)),
    Check(
        name="records",
        looks=(records.damaged, records.homeless),
        lack="a record cannot be read",
    ),
    Check(name="images", looks=(images.contents, images.leftovers)),
)
"""Of what all hosts share."""

OF_A_HOST = (
    Check(name="libvirt", looks=(libvirt_host.reachable,), lack="libvirt is not reachable"),
    Check(
        name="versions",
        looks=(libvirt_host.versions,),
        needs=("libvirt",),
        lack="libvirt or QEMU is too old",
    ),
    Check(name="kvm", looks=(kvm.look,), needs=("versions",)),
    Check(name="apparmor", looks=(apparmor.look,), needs=("versions",)),
    Check(name="space", looks=(space.look,)),
    Check(name="pools", looks=(pools.look,), needs=("versions",), lack="a pool cannot be used"),
    Check(name="permissions", looks=(permissions.ways, permissions.bases), needs=("versions",)),
    Check(name="operations", looks=(servers.interrupted,), needs=("records",)),
    Check(
        name="templates",
        looks=(templates.unfinished, templates.needed, templates.links),
        needs=("records", "pools"),
    ),
    Check(name="domains", looks=(servers.domains, strays.domains), needs=("versions", "records")),
    Check(name="disks", looks=(servers.disks,), needs=("records", "pools")),
    Check(name="volumes", looks=(strays.volumes,), needs=("records", "pools")),
    Check(name="directories", looks=(strays.directories,), needs=("versions", "records")),
    Check(name="legacy", looks=(legacy.look,), needs=("records", "pools")),
)

CHECKS = (*COMMON, *OF_A_HOST)
