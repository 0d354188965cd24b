"""The disks of domains, as libvirt has them, and what those are backed by."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from millpond.errors import Conflict, DetachTimeout, LibvirtFailed
from millpond.libvirt.domains import get_domain
from millpond.model.names import ServerId
from millpond.system import libvirtd
from millpond.system.libvirtd import Libvirtd
from millpond.system.waiting import wait_until
from millpond.xml.domain import ChainsXml, DiskXml, DomainXml, SourceXml

DETACH_PATIENCE = 10
"""Seconds that a guest has to let a disk go; one that means to needs less than one."""

_AT_ONCE = 3
"""Of the five calls that a connection carries, when every domain is asked."""


class DomainDisks:
    """The disks of domains, and what those are backed by."""

    def __init__(self, host: Libvirtd) -> None:
        self._host = host

    def chains(self) -> Iterator[ChainsXml]:
        """What each domain of the host is backed by, as it is defined and as it runs."""
        with self._host.calling("listing domains") as connection:
            defined = connection.listAllDomains(libvirtd.LIST_PERSISTENT)
            running = connection.listAllDomains(libvirtd.LIST_ACTIVE)
        described = [(each, libvirtd.XML_INACTIVE) for each in defined]
        described += [(each, 0) for each in running]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            yield from filter(None, threads.map(self._read_chains, described))

    def attach(self, id: ServerId, disk: DiskXml) -> None:
        """To the running domain and to its definition; one that is there already is no error,
        another one in its place is."""
        with get_domain(self._host, id, f"attaching {disk.target} to", slow=True) as domain:
            for flags in (libvirtd.AFFECT_LIVE, libvirtd.AFFECT_CONFIG):
                found = _disk_of(domain, disk.target, flags)
                if found is None:
                    domain.attachDeviceFlags(disk.to_xml(), flags)
                elif not _is_same(domain, found, disk):
                    raise Conflict(
                        f"domain {domain.name()!r} has another device at {disk.target}",
                        f"'virsh domblklist {domain.name()}' shows what somebody attached there",
                    )

    def detach(self, id: ServerId, disk: DiskXml) -> None:
        """Waits until the guest has let it go, and takes it out of the definition then. One that
        is gone already is no error; another one in its place is left alone."""
        for flags in (libvirtd.AFFECT_LIVE, libvirtd.AFFECT_CONFIG):
            with get_domain(self._host, id, f"detaching {disk.target} from", slow=True) as domain:
                found = _disk_of(domain, disk.target, flags)
                if found is None or not _is_same(domain, found, disk):
                    continue
                domain.detachDeviceFlags(found.to_xml(), flags)
            if flags == libvirtd.AFFECT_LIVE:
                self._wait_until_gone(id, disk.target)

    def _wait_until_gone(self, id: ServerId, target: str) -> None:
        if not wait_until(lambda: not self._has(id, target), DETACH_PATIENCE):
            raise DetachTimeout(target, DETACH_PATIENCE)

    def _has(self, id: ServerId, target: str) -> bool:
        with get_domain(self._host, id, f"looking for {target} in") as domain:
            return target in _targets(domain)

    def resize(self, id: ServerId, target: str, size: int) -> None:
        """While it runs. libvirt would also shrink it, silently (trap 15): callers never ask."""
        with get_domain(self._host, id, f"resizing {target} of", slow=True) as domain:
            domain.blockResize(target, size, libvirtd.RESIZE_BYTES)

    def failing(self, id: ServerId) -> frozenset[str]:
        """Targets of the disks at an error of which QEMU has paused the guest, unless that is a
        lack of space."""
        with get_domain(self._host, id, "asking for the errors of disks of") as domain:
            errors: dict[str, int] = domain.diskErrors()
        return frozenset(each for each, code in errors.items() if code != libvirtd.NO_SPACE_LEFT)

    def _read_chains(self, described: tuple[Any, int]) -> ChainsXml | None:
        """None for a domain that went while we were listing."""
        domain, flags = described
        try:
            with self._host.calling("reading the description of a domain"):
                return ChainsXml.from_xml(domain.XMLDesc(flags))
        except LibvirtFailed as error:
            if error.code == libvirtd.NO_SUCH_DOMAIN:
                return None
            raise


def _targets(domain: Any) -> set[str]:
    return {disk.target for disk in DomainXml.from_xml(domain.XMLDesc(0)).disks}


def _is_same(domain: Any, found: DiskXml, disk: DiskXml) -> bool:
    """By where its bytes are. libvirt adds to a source what it knows besides."""
    if found.source is None or disk.source is None:
        return False
    there, wanted = found.source, disk.source
    if there.file or there.device:
        return find_path(domain, there) == find_path(domain, wanted)
    return (there.pool, there.volume, there.file, there.device, there.name) == (
        wanted.pool,
        wanted.volume,
        wanted.file,
        wanted.device,
        wanted.name,
    )


def find_path(domain: Any, source: SourceXml) -> str | None:
    """Also of a volume: one that came from another host while its guest ran is named by its path
    until it is started again (trap 16)."""
    if source.pool and source.volume:
        pool = domain.connect().storagePoolLookupByName(source.pool)
        return str(pool.storageVolLookupByName(source.volume).path())
    return source.file or source.device


def _disk_of(domain: Any, target: str, flags: int) -> DiskXml | None:
    inactive = libvirtd.XML_INACTIVE if flags == libvirtd.AFFECT_CONFIG else 0
    return DomainXml.from_xml(domain.XMLDesc(inactive)).disk(target)
