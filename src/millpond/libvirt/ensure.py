"""The pools that a host needs: there, of the right type, at the right place, running."""

import logging
from dataclasses import dataclass, replace
from typing import Any

from millpond.errors import (
    LibvirtFailed,
    PoolElsewhere,
    PoolInactive,
    PoolOfAnotherType,
    PoolUnusable,
)
from millpond.libvirt.libvirt_pool import LibvirtPool
from millpond.libvirt.locality import Probe, probe
from millpond.libvirt.pool import CAPABILITIES, PoolType
from millpond.model.layer import CephAccess
from millpond.model.volume import Clearing
from millpond.system import libvirtd
from millpond.system.libvirtd import Libvirtd
from millpond.system.locks import Locks
from millpond.undo import undo_on_failure
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
    def place(self) -> str:
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
        if not _is_there(host, wanted):
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


def _is_there(host: Libvirtd, wanted: PoolWanted) -> bool:
    with host.calling(f"looking for pool {wanted.name}") as connection:
        pools = {pool.name(): pool for pool in connection.listAllStoragePools(0)}
        if found := pools.get(wanted.name):
            _check(found, wanted)
            starts = not found.isActive()
    if found and starts:
        start_pool(host, wanted.name)
    return found is not None


def _define(host: Libvirtd, wanted: PoolWanted) -> None:
    if wanted.type is PoolType.DIR:
        _define_directory(host, wanted.to_xml())
    else:
        _make(host, wanted.to_xml())
    LOG.info("defined pool %s at %s", wanted.name, wanted.place)


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
    if (place := place_of(found)) != wanted.place:
        raise PoolElsewhere(wanted.name, place, wanted.place)
    if wanted.ceph and found.source_hosts != wanted.to_xml().source_hosts:
        raise PoolElsewhere(wanted.name, _monitors(found), _monitors(wanted.to_xml()))
    if not pool.isActive() and not CAPABILITIES[wanted.type].remote:
        raise PoolInactive(wanted.name)
    if not pool.autostart():
        pool.setAutostart(True)


def _monitors(xml: PoolXml) -> str:
    """Where the cluster of an RBD pool is, in words."""
    hosts = (f"{each.name}:{each.port or '(usual port)'}" for each in xml.source_hosts)
    return f"the Ceph monitors {', '.join(hosts)}"


def place_of(found: PoolXml) -> str:
    """Where a pool's volumes are, in words."""
    if found.type == PoolType.RBD:
        return f"Ceph pool {found.source}"
    return found.path or "an unknown place"
