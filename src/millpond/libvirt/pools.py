"""The pools of one host by name: made when they are first needed, opened as they are otherwise."""

import fnmatch
import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from millpond.errors import (
    LibvirtFailed,
    PoolElsewhere,
    PoolInactive,
    PoolNotFound,
    PoolOfAnotherType,
    PoolUnusable,
)
from millpond.libvirt.libvirt_pool import LibvirtPool
from millpond.libvirt.locality import LocalityProbe, Probe, probe
from millpond.libvirt.pool import CAPABILITIES, PoolType
from millpond.model.formats import Backend
from millpond.model.layer import CephAccess
from millpond.model.volume import Clearing, PoolUsage
from millpond.records.journal import undo_on_failure
from millpond.system import files, libvirtd
from millpond.system.libvirtd import Connection, Libvirtd
from millpond.system.locks import Locks
from millpond.xml.domain import MonitorXml
from millpond.xml.storage import PoolXml, RbdOptionXml

LOG = logging.getLogger(__name__)

# QEMU's user walks through the directory to files whose names it was given; it need not list it.
_MODE = "0711"

_MISSING = "No such file or directory"  # what libvirt says of a pool without its directory

# Ceph's own default is 300: a cluster that does not answer would hold every call for so long.
_CEPH_SECONDS = "10"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWanted:
    name: str
    path: str
    type: PoolType = PoolType.DIR
    source: str = ""
    """The volume group of a logical pool."""
    ceph: CephAccess | None = None
    """Of an RBD pool."""

    @property
    def location(self) -> str:
        """Where its volumes are, in words."""
        return f"Ceph pool {self.ceph.pool}" if self.ceph else self.path

    def to_xml(self) -> PoolXml:
        if self.ceph:
            return _rbd_xml(self.name, self.ceph)
        if self.type is PoolType.DIR:
            return PoolXml(type=self.type, name=self.name, path=self.path, mode=_MODE)
        return PoolXml(type=self.type, name=self.name, source=self.source, path=self.path)


def _rbd_xml(name: str, ceph: CephAccess) -> PoolXml:
    return PoolXml(
        type=PoolType.RBD,
        name=name,
        source=ceph.pool,
        source_hosts=tuple(MonitorXml(name=host, port=port) for host, port in ceph.monitors),
        auth_type="ceph" if ceph.user else None,
        user=ceph.user or None,
        secret=ceph.secret or None,
        rbd_options=(RbdOptionXml(name="client_mount_timeout", value=_CEPH_SECONDS),),
    )


def ensure_pool(
    host: Libvirtd,
    wanted: PoolWanted,
    locks: Locks,
    clearing: Clearing | None = None,
    probe: Probe = probe,
) -> LibvirtPool:
    """The pool, defined and started if there was none. What is there already is never changed,
    but for its autostart: a pool that differs raises one of three errors (B27)."""
    with locks.hold(f"pool-define:{wanted.name}"):
        if not _start_defined(host, wanted):
            _define(host, wanted)
    return LibvirtPool(
        host, wanted.name, wanted.path, locks, wanted.type, wanted.ceph, clearing, probe
    )


def start_pool(host: Libvirtd, name: str, *, build: bool = False) -> None:
    """Start a pool that is defined; ``build`` makes its directory if that is missing. Doctor's
    remedy."""
    try:
        _start(host, name)
    except LibvirtFailed as error:
        if not (build and _MISSING in error.detail):
            raise PoolUnusable(name, error.detail) from error
        _start(host, name, build=True)


def _start(host: Libvirtd, name: str, *, build: bool = False) -> None:
    with host.calling(f"starting pool {name}", slow=True) as connection:
        pool = connection.storagePoolLookupByName(name)
        if not pool.isActive():
            if build:
                pool.build(0)
            pool.create(0)
            LOG.info("started pool %s", name)


def _start_defined(host: Libvirtd, wanted: PoolWanted) -> bool:
    """Check the pool that is defined, and start it if need be; False if there is none."""
    with host.calling(f"looking for pool {wanted.name}") as connection:
        pools = {pool.name(): pool for pool in connection.listAllStoragePools(0)}
        if found := pools.get(wanted.name):
            _check(found, wanted)
            if not found.autostart():
                found.setAutostart(True)
            is_inactive = not found.isActive()
    if found and is_inactive:
        start_pool(host, wanted.name)
    return found is not None


def _define(host: Libvirtd, wanted: PoolWanted) -> None:
    if wanted.type is PoolType.DIR:
        _define_directory(host, wanted.to_xml())
    else:
        _make(host, wanted.to_xml())
    LOG.info("defined pool %s at %s", wanted.name, wanted.location)


def _define_directory(host: Libvirtd, xml: PoolXml) -> None:
    """One that is there keeps its owner and mode, which libvirt's build would change."""
    try:
        _make(host, xml)
    except LibvirtFailed as error:
        if _MISSING not in error.detail:
            raise
        _build_directory(host, xml)


def _build_directory(host: Libvirtd, xml: PoolXml) -> None:
    """On btrfs copy-on-write is asked for: libvirt would switch it off, and with it every
    reflink. Elsewhere libvirt refuses to be asked."""
    try:
        _make(host, replace(xml, copy_on_write="yes"), build=True)
    except LibvirtFailed as error:
        if "not btrfs" not in error.detail:
            raise
        _make(host, xml, build=True)


def _make(host: Libvirtd, xml: PoolXml, *, build: bool = False) -> None:
    with host.calling(f"making pool {xml.name}", slow=True) as connection:
        pool = connection.storagePoolDefineXML(xml.to_xml(), libvirtd.POOL_DEFINE_FLAGS)
        with undo_on_failure() as undo:
            undo.callback(pool.undefine)
            if build:
                pool.build(0)
            pool.create(0)
            pool.setAutostart(True)


def _check(pool: Any, wanted: PoolWanted) -> None:
    found = PoolXml.from_xml(pool.XMLDesc(0))
    if found.type != wanted.type:
        raise PoolOfAnotherType(wanted.name, found.type, wanted.type)
    if (location := location_of(found)) != wanted.location:
        raise PoolElsewhere(wanted.name, location, wanted.location)
    if wanted.ceph and found.source_hosts != wanted.to_xml().source_hosts:
        raise PoolElsewhere(wanted.name, _monitors(found), _monitors(wanted.to_xml()))
    if not pool.isActive() and not CAPABILITIES[wanted.type].remote:
        raise PoolInactive(wanted.name)


def _monitors(xml: PoolXml) -> str:
    """Where the cluster of an RBD pool is, in words."""
    hosts = (f"{each.name}:{each.port or '(usual port)'}" for each in xml.source_hosts)
    return f"the Ceph monitors {', '.join(hosts)}"


def location_of(found: PoolXml) -> str:
    """Where a pool's volumes are, in words."""
    if found.type == PoolType.RBD:
        return f"Ceph pool {found.source}"
    return found.path or "an unknown place"


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

    @property
    def ceph(self) -> CephAccess | None:
        """None where no disk is made in a Ceph cluster."""
        wanted = self.by_backend.get(Backend.RBD)
        return wanted.ceph if wanted else None

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
        self._probe = probe or LocalityProbe(lambda: self.base)
        self._clearing = clearing
        self._host = host
        self._locks = locks
        self._known: dict[str, LibvirtPool] = {}

    @property
    def base(self) -> LibvirtPool:
        return self.ensure(self.plan.base.name)

    @property
    def records(self) -> LibvirtPool:
        return self.ensure(self.plan.records.name)

    @property
    def consoles(self) -> LibvirtPool:
        return self.ensure(self.plan.consoles.name)

    def for_disk(self, backend: Backend, role: str = "disk") -> LibvirtPool:
        return self.ensure(self.plan.for_disk(backend, role).name)

    def ensure(self, name: str) -> LibvirtPool:
        """A pool of the configuration is made if it is missing; a pool that only a record still
        names is opened where it is."""
        if name not in self._known:
            wanted = self.plan.find(name)
            self._known[name] = (
                ensure_pool(self._host, wanted, self._locks, self._clearing, self._probe)
                if wanted
                else self.open(name)
            )
        return self._known[name]

    def open(self, name: str) -> LibvirtPool:
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
            _ceph_access(xml),
            self._clearing,
            self._probe,
        )


def _ceph_access(xml: PoolXml) -> CephAccess | None:
    if xml.type != PoolType.RBD:
        return None
    return CephAccess(
        pool=xml.source or "",
        monitors=tuple((host.name or "", host.port) for host in xml.source_hosts),
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


def overview(host: Libvirtd, plan: PoolPlan, *, local: bool = False) -> list[PoolOverview]:
    """``local``: the directories are on this machine."""
    with host.calling("listing pools") as connection:
        wanted = [_look_at(connection, each, plan.keeps(each)) for each in plan.all().values()]
        remote = [_look_at(connection, each, plan.keeps(each)) for each in plan.remote().values()]
    found = [*wanted, *(each for each in remote if each.state != "missing")]
    return [_measured(each) for each in found] if local else found


def _measured(pool: PoolOverview) -> PoolOverview:
    if pool.type != PoolType.DIR or not pool.usage or not os.path.isdir(pool.path):
        return pool
    return replace(pool, usage=files.usage(Path(pool.path)))


def _look_at(connection: Connection, wanted: PoolWanted, keeps: str) -> PoolOverview:
    found = next((p for p in connection.listAllStoragePools(0) if p.name() == wanted.name), None)
    xml = PoolXml.from_xml(found.XMLDesc(0)) if found else None
    active = bool(found and found.isActive())
    return PoolOverview(
        name=wanted.name,
        keeps=keeps,
        state="active" if active else "inactive" if found else "missing",
        type=xml.type if xml else wanted.type,
        path=location_of(xml) if xml else wanted.location,
        volumes=found.numOfVolumes() if found and active else 0,
        usage=_usage(xml) if xml and active else None,
    )


def _usage(xml: PoolXml) -> PoolUsage:
    return PoolUsage(
        capacity=xml.capacity or 0, allocation=xml.allocation or 0, available=xml.available or 0
    )
