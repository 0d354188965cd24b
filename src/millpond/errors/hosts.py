"""Hosts: libvirt, its pools and volumes, and Ceph."""

from dataclasses import dataclass

from millpond.errors.base import BadInput, Conflict, HostProblem, NotFound


@dataclass(eq=False)
class PoolNotFound(NotFound):
    pool: str
    message = "there is no storage pool {self.pool!r}"
    hint = "'{tool.POOLS}' shows what there is"


@dataclass(eq=False)
class VolumeNotFound(NotFound):
    pool: str
    name: str
    message = "there is no volume {self.name!r} in pool {self.pool!r}"
    hint = "'{tool.VOLUMES} {self.pool}' lists its volumes"


@dataclass(eq=False)
class NetworkNotFound(NotFound):
    kind: str
    """libvirt network, or bridge."""
    name: str
    host: str
    known: tuple[str, ...]
    message = "there is no {self.kind} {self.name!r} on host {self.host!r}"
    hint = "there is {self.listed}; '{tool.NETWORKS}' shows more"

    @property
    def listed(self) -> str:
        return ", ".join(self.known) or "none"


@dataclass(eq=False)
class ExceedsHost(BadInput):
    """What the host, or its machine type, does not have, or has given to another already."""

    option: str
    reason: str
    advised: str
    message = "{self.option}: {self.reason}"
    hint = "{self.advised}"


@dataclass(eq=False)
class UnfitHost(BadInput):
    """One that a server cannot move to."""

    reason: str
    advised: str = "choose another host"
    message = "{self.reason}"
    hint = "{self.advised}"


@dataclass(eq=False)
class VolumeExists(Conflict):
    pool: str
    name: str
    message = "volume {self.name!r} already exists in pool {self.pool!r}"
    hint = "'{tool.DOCTOR}' says whose it is"


@dataclass(eq=False)
class HostUnreachable(HostProblem):
    uri: str
    reason: str
    advised: str = (
        "start libvirtd ('systemctl start libvirtd', or 'make setup' where there is no systemd)"
    )
    message = "cannot reach libvirt at {self.uri}: {self.reason}"
    hint = "{self.advised}"


@dataclass(eq=False)
class ConnectionLost(HostProblem):
    uri: str
    doing: str
    message = "the connection to libvirt at {self.uri} was lost while {self.doing}"
    hint = "try again; '{tool.DOCTOR}' shows what was left in the middle"


@dataclass(eq=False)
class TooOld(HostProblem):
    what: str
    version: str
    needed: str
    message = "{self.what} {self.version} is too old: Millpond needs {self.needed} or newer"
    hint = "upgrade the host (Debian 12 has what is needed)"


@dataclass(eq=False)
class NetworkInactive(HostProblem):
    name: str
    host: str
    message = "libvirt network {self.name!r} on host {self.host!r} is not active"
    hint = "'{tool.START_NETWORK} {self.name}' starts it"


@dataclass(eq=False)
class PoolInactive(HostProblem):
    pool: str
    message = "storage pool {self.pool!r} is defined but not active"
    hint = "'virsh pool-start {self.pool}', or '{tool.REPAIR}', starts it"


@dataclass(eq=False)
class PoolOfAnotherType(HostProblem):
    pool: str
    type: str
    needed: str
    message = "storage pool {self.pool!r} is of type '{self.type}', not '{self.needed}'"
    hint = "name another pool in [libvirt], or undefine this one if nothing needs it"


@dataclass(eq=False)
class PoolElsewhere(HostProblem):
    pool: str
    path: str
    needed: str
    message = "storage pool {self.pool!r} is at {self.path}, not at {self.needed}"
    hint = "set its path in [libvirt] to {self.path}, or define the pool at {self.needed}"


@dataclass(eq=False)
class PoolUnusable(HostProblem):
    pool: str
    reason: str
    message = "storage pool {self.pool!r} cannot be used: {self.reason}"
    hint = "put that right, then '{tool.REPAIR}' starts the pool again"


@dataclass(eq=False)
class PoolBusy(HostProblem):
    pool: str
    message = (
        "storage pool {self.pool!r} stays busy: libvirt refuses to refresh it while a volume is "
        "being built"
    )
    hint = "wait for the copies in that pool to end and try again"


class CephUnreachable(HostProblem):
    message = "the Ceph cluster does not answer, or not to this user"
    hint = (
        "look at its monitors and at rbd_user; their key is in the libvirt secret that "
        "rbd_secret_uuid names and in the keyring of images_rbd_ceph_conf"
    )


@dataclass(eq=False)
class NoSpace(HostProblem):
    where: str
    needed: str
    available: str
    message = "no space left in {self.where}: {self.needed} needed, {self.available} available"
    hint = "free some space there ('{tool.DOCTOR}' shows what takes it)"


@dataclass(eq=False)
class LibvirtFailed(HostProblem):
    doing: str
    code: int
    detail: str
    message = "libvirt failed while {self.doing}: {self.detail}"
    hint = "'{tool.DOCTOR}' checks the host; libvirtd's log says more"
