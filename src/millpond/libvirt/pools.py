"""The pools of one host by name: made when they are first needed, opened as they are otherwise."""

import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from millpond.errors import LibvirtFailed, PoolNotFound, PoolOfAnotherType
from millpond.libvirt.ensure import PoolWanted, ensure_pool, place_of
from millpond.libvirt.libvirt_pool import LibvirtPool
from millpond.libvirt.locality import LocalityProbe, Probe
from millpond.libvirt.pool import PoolType
from millpond.model.formats import Backend
from millpond.model.layer import CephAccess
from millpond.model.volume import Clearing, PoolUsage
from millpond.system import libvirtd
from millpond.system.libvirtd import Connection, Libvirtd
from millpond.system.locks import Locks
from millpond.xml.storage import PoolXml


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """Which pools a host shall have, and which of them keeps which disks (B17)."""

    base: PoolWanted
    disks: PoolWanted
    by_role: Mapping[str, PoolWanted] = field(default_factory=dict)
    """By the disk's name, which may end in ``*``; the first that fits keeps it."""
    by_backend: Mapping[Backend, PoolWanted] = field(default_factory=dict)
    """Of those that have a pool of their own, and are configured."""

    @property
    def records(self) -> PoolWanted:
        """Of the templates of a remote host, whose sidecar is reached only as a pool."""
        return PoolWanted(
            name=f"{self.base.name}.records", path=f"{self.base.path}.millpond/records"
        )

    @property
    def consoles(self) -> PoolWanted:
        """Their logs, likewise."""
        return PoolWanted(name=f"{self.disks.name}.consoles", path=f"{self.disks.path}.consoles")

    def for_disk(self, backend: Backend, role: str = "disk") -> PoolWanted:
        """Where a new disk is made: this decides, and this is what is reported."""
        if backend.has_own_pool:
            return self.by_backend[backend]
        fitting = (pool for name, pool in self.by_role.items() if fnmatch.fnmatchcase(role, name))
        return next(fitting, self.disks)

    def of_disks(self, backends: Collection[Backend]) -> set[str]:
        """The names of all pools in which disks of these backends are made, of any role."""
        own = [self.by_backend[each] for each in backends if each.has_own_pool]
        shared = [self.disks, *self.by_role.values()] if len(own) < len(backends) else []
        return {each.name for each in (*own, *shared)}

    def keeps(self, pool: PoolWanted) -> str:
        """What the pool is for, in words."""
        roles = [role for role, each in self.by_role.items() if each == pool]
        own = dict.fromkeys(self.by_backend.values(), "disks")
        general = {self.base: "templates", self.disks: "disks", **own}
        general |= {self.records: "records of templates", self.consoles: "logs of consoles"}
        return ", ".join([*([general[pool]] if pool in general else []), *roles])

    def all(self) -> Mapping[str, PoolWanted]:
        own = self.by_backend.values()
        return {each.name: each for each in (self.base, self.disks, *self.by_role.values(), *own)}

    def remote(self) -> Mapping[str, PoolWanted]:
        """Those that only a remote host has."""
        return {each.name: each for each in (self.records, self.consoles)}

    def find(self, name: str) -> PoolWanted | None:
        return self.all().get(name) or self.remote().get(name)

    def directories(self) -> list[PoolWanted]:
        return [each for each in self.all().values() if each.type is PoolType.DIR]


class Pools:
    def __init__(
        self,
        host: Libvirtd,
        plan: PoolPlan,
        locks: Locks,
        clearing: Clearing | None = None,
        probe: Probe | None = None,
    ) -> None:
        self.plan = plan
        self._probe = probe or LocalityProbe(lambda: self.opened(plan.base.name))
        self._clearing = clearing
        self._host = host
        self._locks = locks
        self._known: dict[str, LibvirtPool] = {}

    @property
    def base(self) -> LibvirtPool:
        return self.named(self.plan.base.name)

    @property
    def records(self) -> LibvirtPool:
        return self.named(self.plan.records.name)

    @property
    def consoles(self) -> LibvirtPool:
        return self.named(self.plan.consoles.name)

    def for_disk(self, backend: Backend, role: str = "disk") -> LibvirtPool:
        return self.named(self.plan.for_disk(backend, role).name)

    def named(self, name: str) -> LibvirtPool:
        """A pool of the configuration is made if it is missing; a pool that only a record still
        names is opened where it is."""
        if name not in self._known:
            wanted = self.plan.find(name)
            self._known[name] = (
                ensure_pool(self._host, wanted, self._locks, self._clearing, self._probe)
                if wanted
                else self.opened(name)
            )
        return self._known[name]

    def opened(self, name: str) -> LibvirtPool:
        """A pool as it is; none is made."""
        try:
            with self._host.calling(f"looking up pool {name}") as connection:
                xml = PoolXml.from_xml(connection.storagePoolLookupByName(name).XMLDesc(0))
        except LibvirtFailed as error:
            if error.code == libvirtd.NO_SUCH_POOL:
                raise PoolNotFound(name) from error
            raise
        if xml.type not in tuple(PoolType):
            raise PoolOfAnotherType(name, xml.type, " or ".join(PoolType))
        type_ = PoolType(xml.type)
        return LibvirtPool(
            self._host,
            name,
            xml.path or "",
            self._locks,
            type_,
            _ceph(xml),
            self._clearing,
            self._probe,
        )


def _ceph(xml: PoolXml) -> CephAccess | None:
    if xml.type != PoolType.RBD:
        return None
    return CephAccess(
        pool=xml.source or "",
        monitors=tuple((host.name, host.port) for host in xml.source_hosts),
        user=xml.user or "",
        secret=xml.secret or "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOverview:
    name: str
    keeps: str
    state: str
    """``missing`` (it is made when it is first needed), ``inactive`` or ``active``."""
    type: str
    path: str
    """Or where its volumes are otherwise, in words."""
    volumes: int
    usage: PoolUsage | None


def overview(host: Libvirtd, plan: PoolPlan) -> list[PoolOverview]:
    with host.calling("listing pools") as connection:
        wanted = [_pool(connection, each, plan.keeps(each)) for each in plan.all().values()]
        remote = [_pool(connection, each, plan.keeps(each)) for each in plan.remote().values()]
    return [*wanted, *(each for each in remote if each.state != "missing")]


def _pool(connection: Connection, wanted: PoolWanted, keeps: str) -> PoolOverview:
    found = next((p for p in connection.listAllStoragePools(0) if p.name() == wanted.name), None)
    xml = PoolXml.from_xml(found.XMLDesc(0)) if found else None
    active = bool(found and found.isActive())
    return PoolOverview(
        name=wanted.name,
        keeps=keeps,
        state="active" if active else "inactive" if found else "missing",
        type=xml.type if xml else wanted.type,
        path=place_of(xml) if xml else wanted.place,
        volumes=found.numOfVolumes() if found and active else 0,
        usage=_usage(xml) if xml and active else None,
    )


def _usage(xml: PoolXml) -> PoolUsage:
    return PoolUsage(
        capacity=xml.capacity or 0, allocation=xml.allocation or 0, available=xml.available or 0
    )
