"""Every check, in the order in which they are made: what others need comes first."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from millpond.doctor import (
    apparmor,
    confinement,
    definitions,
    images,
    kvm,
    legacy,
    libvirt_host,
    moves,
    networks,
    permissions,
    placement,
    pools,
    power,
    records,
    servers,
    space,
    strays,
    streams,
    templates,
)
from millpond.doctor.finding import Finding
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host

CONFIGURATION = "configuration"
"""Looked at before there is an host to look with."""
NOT_VALID = "the configuration is not valid"


S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[S]):
    """Of a host, or of all of them."""

    name: str
    looks: tuple[Callable[[S], Iterable[Finding]], ...]
    needs: tuple[str, ...] = ()
    """Checks that must have found no problem, or this one is not made."""
    skips: Callable[[S], str] = lambda _subject: ""
    """Why it is not made there; empty if it is."""
    lack: str = ""
    """What is said in place of the checks that need this one, once it has found a problem."""


def _explain_remote(host: Host) -> str:
    return "" if host.seems_local else "the files of the host cannot be opened here"


COMMON: tuple[Check[Host], ...] = (
    Check(name="state", looks=(records.state_directory,)),
    Check(
        name="records",
        looks=(records.damaged, records.without_host, records.half_written),
        lack="a record has a problem",
    ),
    Check(
        name="images",
        looks=(images.contents, images.incomplete, images.uploads, images.leftovers),
    ),
    Check(name="confinement", looks=(confinement.look,)),
)
"""Of what all hosts share."""

OF_A_HOST: tuple[Check[Host], ...] = (
    Check(name="libvirt", looks=(libvirt_host.reachable,), lack="libvirt is not reachable"),
    Check(
        name="versions",
        looks=(libvirt_host.versions,),
        needs=("libvirt",),
        lack="libvirt or QEMU is too old",
    ),
    Check(name="kvm", looks=(kvm.look,), needs=("versions",)),
    Check(name="apparmor", looks=(apparmor.look,), needs=("versions",), skips=_explain_remote),
    Check(name="space", looks=(space.look,)),
    Check(name="pools", looks=(pools.look,), needs=("versions",), lack="a pool cannot be used"),
    Check(
        name="permissions",
        looks=(permissions.search_permissions, permissions.terminals, permissions.bases),
        needs=("versions",),
        skips=_explain_remote,
    ),
    Check(name="operations", looks=(servers.interrupted,), needs=("records",)),
    Check(
        name="templates",
        looks=(
            templates.unfinished,
            templates.half_written,
            templates.needed,
            templates.links,
            templates.arriving,
            streams.unsettled,
            streams.waiting,
        ),
        needs=("records", "pools"),
    ),
    Check(name="moves", looks=(moves.noted,), needs=("records", "pools")),
    Check(name="domains", looks=(servers.domains, strays.domains), needs=("versions", "records")),
    Check(name="networks", looks=(networks.look,), needs=("versions", "records")),
    Check(name="disks", looks=(servers.disks,), needs=("records", "pools")),
    Check(name="power", looks=(power.running, power.autostart), needs=("versions", "records")),
    Check(name="definitions", looks=(definitions.look,), needs=("records", "pools")),
    Check(name="volumes", looks=(strays.volumes, moves.unknown), needs=("records", "pools")),
    Check(
        name="directories",
        looks=(strays.directories,),
        needs=("versions", "records"),
        skips=_explain_remote,
    ),
    Check(
        name="legacy",
        looks=(legacy.look,),
        needs=("records", "pools"),
        skips=_explain_remote,
    ),
)

CHECKS = (*COMMON, *OF_A_HOST)

PLACEMENT: tuple[Check[Deployment], ...] = (
    Check(name="placement", looks=(placement.hosts,), lack="Placement does not know every host"),
    Check(name="allocations", looks=(placement.servers,), needs=("placement",)),
)
"""Only when it is asked for: Placement takes a while to load."""
