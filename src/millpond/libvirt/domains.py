"""The domains of one host and the logs of their consoles: libvirt's calls, and nothing of what a
server is."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from millpond.errors import (
    Conflict,
    DetachTimeout,
    LibvirtFailed,
    MillpondError,
    NoConsole,
    StateNotWritable,
    VolumeNotFound,
)
from millpond.libvirt.pool import Pool
from millpond.model.names import ServerId
from millpond.system import libvirtd, streams
from millpond.system.libvirtd import ConsoleStream, Libvirtd
from millpond.system.waiting import wait_until
from millpond.xml.domain import NAMESPACE, BareRecordXml, ChainsXml, DiskXml, DomainXml, RecordXml
from millpond.xml.element import Element

X = TypeVar("X", bound=Element)

ON = ("running", "paused", "stopping", "suspended", "crashed")
"""The states of a domain that has a QEMU."""

DETACH_PATIENCE = 10
"""Seconds that a guest has to let a disk go; one that means to needs less than one."""

_AT_ONCE = 3
"""Of the five calls that a connection carries, when every domain is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedDomain:
    name: str
    uuid: str
    record: RecordXml


class Domains:
    def __init__(self, host: Libvirtd) -> None:
        self._host = host

    def states(self, ids: Iterable[str]) -> Mapping[str, str]:
        """The states of these domains by UUID; one that is not there is left out.

        Each is asked for by itself: listing them all would wait for every domain of the host
        that is just being started or destroyed.
        """
        with self._host.calling("asking for the states of domains") as connection:
            found = {each: libvirtd.find_state(connection, each) for each in ids}
        return {id: state for id, state in found.items() if state}

    def state(self, id: ServerId) -> str | None:
        """None if there is no such domain."""
        return self.states([id]).get(id)

    def names(self) -> Mapping[str, str]:
        """UUID by name."""
        with self._host.calling("listing domains") as connection:
            return {each.name(): each.UUIDString() for each in connection.listAllDomains(0)}

    def define(self, xml: DomainXml) -> None:
        """One that Nova gave another name is renamed first: a UUID has one name."""
        with self._host.calling(f"defining domain {xml.name}", slow=True) as connection:
            found = libvirtd.find_domain(connection, xml.uuid)
            if found and found.name() != xml.name:
                found.rename(xml.name, 0)
            connection.defineXMLFlags(xml.to_xml(), libvirtd.DOMAIN_DEFINE_FLAGS)

    def read(self, id: ServerId, kind: type[X]) -> X | None:
        """Of a domain that may not be ours, what the kind knows; as it runs, if it does."""
        with _find(self._host, id, "reading the definition of") as domain:
            return kind.from_xml(domain.XMLDesc(0)) if domain else None

    def description(self, id: ServerId, *, defined: bool = False) -> DomainXml | None:
        """As it runs, if it does; or always as it is defined, for the next start."""
        flags = libvirtd.XML_INACTIVE if defined else 0
        with _find(self._host, id, "reading the description of") as domain:
            return DomainXml.from_xml(domain.XMLDesc(flags)) if domain else None

    def start(self, id: ServerId, *, paused: bool = False) -> None:
        """A domain that runs already is no error."""
        with _get(self._host, id, "starting", slow=True) as domain:
            if not domain.isActive():
                domain.createWithFlags(libvirtd.START_PAUSED if paused else 0)

    def shutdown(self, id: ServerId) -> None:
        """Ask the guest to power itself off."""
        with self.suppress_if_off(id), _get(self._host, id, "shutting down") as domain:
            domain.shutdown()

    def power_off(self, id: ServerId) -> None:
        """Pull the plug. A domain that is off or gone is no error."""
        with self.suppress_if_off(id), _find(self._host, id, "powering off", slow=True) as domain:
            if domain and domain.isActive():
                domain.destroy()

    def undefine(self, id: ServerId) -> None:
        """A domain that is gone already is no error."""
        with _find(self._host, id, "undefining") as domain:
            if domain:
                domain.undefineFlags(libvirtd.UNDEFINE_FLAGS)

    @contextmanager
    def pause(self, id: ServerId) -> Iterator[None]:
        """For the block: a running guest does nothing meanwhile."""
        runs = self.state(id) == "running"
        try:
            if runs:
                with _get(self._host, id, "pausing") as domain:
                    domain.suspend()
            yield
        finally:
            if runs:
                self.resume(id)

    def resume(self, id: ServerId) -> None:
        """A guest that is not paused is no error."""
        if self.state(id) == "paused":
            with self.suppress_if_off(id), _get(self._host, id, "resuming") as domain:
                domain.resume()

    def is_stuck(self, id: ServerId) -> bool:
        """Whether QEMU has paused the guest because a disk took nothing more."""
        with _get(self._host, id, "asking for the state of") as domain:
            return bool(domain.state(0) == libvirtd.STUCK)

    @contextmanager
    def suppress_if_off(self, id: ServerId) -> Iterator[None]:
        """A call in the block that fails because the guest has powered itself off is no error."""
        try:
            yield
        except LibvirtFailed:
            if self.state(id) != "stopped":
                raise

    def open_console(self, id: ServerId) -> ConsoleStream:
        with _get(self._host, id, "opening the console of") as domain:
            stream = domain.connect().newStream(0)
            domain.openConsole(None, stream, libvirtd.CONSOLE_FORCE)
            return ConsoleStream(stream)


class DomainRecords:
    """Our records in the metadata of the host's domains."""

    def __init__(self, host: Libvirtd) -> None:
        self._host = host

    def all(self, *, ignoring: Collection[str] = ()) -> Iterator[MarkedDomain]:
        """A domain that somebody cloned carries the record of another server."""
        with self._host.calling("listing domains") as connection:
            domains = connection.listAllDomains(0)
        for domain in domains:
            if domain.UUIDString() in ignoring:
                continue
            if record := self._read(domain):
                yield MarkedDomain(name=domain.name(), uuid=domain.UUIDString(), record=record)

    def put(self, id: ServerId, record: RecordXml) -> None:
        """Replace the record of a domain, in its definition and in the running one."""
        bare = BareRecordXml(owner=record.owner, record=record.record)
        with _get(self._host, id, "writing metadata of") as domain:
            live = libvirtd.AFFECT_LIVE if domain.isActive() else 0
            domain.setMetadata(
                libvirtd.METADATA_ELEMENT,
                bare.to_xml(),
                "millpond",
                NAMESPACE,
                libvirtd.AFFECT_CONFIG | live,
            )

    def _read(self, domain: Any) -> RecordXml | None:
        try:
            with self._host.calling("reading metadata"):
                return RecordXml.from_xml(
                    domain.metadata(libvirtd.METADATA_ELEMENT, NAMESPACE, libvirtd.AFFECT_CONFIG)
                )
        except LibvirtFailed as error:
            if error.code in (libvirtd.NO_METADATA, libvirtd.NO_SUCH_DOMAIN):
                return None
            raise


class Autostart:
    """Which domains libvirt starts when it first runs after a boot of the host."""

    def __init__(self, host: Libvirtd) -> None:
        self._host = host

    def ids(self) -> frozenset[str]:
        with self._host.calling("listing domains that start with the host") as connection:
            found = connection.listAllDomains(libvirtd.LIST_AUTOSTART)
        return frozenset(each.UUIDString() for each in found)

    def put(self, id: ServerId, on: bool) -> None:
        with _get(self._host, id, "setting the autostart") as domain:
            if bool(domain.autostart()) != on:
                domain.setAutostart(on)


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
        with _get(self._host, id, f"attaching {disk.target} to", slow=True) as domain:
            for flags in (libvirtd.AFFECT_LIVE, libvirtd.AFFECT_CONFIG):
                found = _disk_of(domain, disk.target, flags)
                if found is None:
                    domain.attachDeviceFlags(disk.to_xml(), flags)
                elif not _is_same(found, disk):
                    raise Conflict(
                        f"domain {domain.name()!r} has another device at {disk.target}",
                        f"'virsh domblklist {domain.name()}' shows what somebody attached there",
                    )

    def detach(self, id: ServerId, disk: DiskXml) -> None:
        """Waits until the guest has let it go, and takes it out of the definition then. One that
        is gone already is no error; another one in its place is left alone."""
        for flags in (libvirtd.AFFECT_LIVE, libvirtd.AFFECT_CONFIG):
            with _get(self._host, id, f"detaching {disk.target} from", slow=True) as domain:
                found = _disk_of(domain, disk.target, flags)
                if found is None or not _is_same(found, disk):
                    continue
                domain.detachDeviceFlags(found.to_xml(), flags)
            if flags == libvirtd.AFFECT_LIVE:
                self._wait_until_gone(id, disk.target)

    def _wait_until_gone(self, id: ServerId, target: str) -> None:
        if not wait_until(lambda: not self._has(id, target), DETACH_PATIENCE):
            raise DetachTimeout(target, DETACH_PATIENCE)

    def _has(self, id: ServerId, target: str) -> bool:
        with _get(self._host, id, f"looking for {target} in") as domain:
            return target in _targets(domain)

    def resize(self, id: ServerId, target: str, size: int) -> None:
        """While it runs. libvirt would also shrink it, silently (trap 15): callers never ask."""
        with _get(self._host, id, f"resizing {target} of", slow=True) as domain:
            domain.blockResize(target, size, libvirtd.RESIZE_BYTES)

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


@contextmanager
def _get(host: Libvirtd, id: ServerId, doing: str, *, slow: bool = False) -> Iterator[Any]:
    with host.calling(f"{doing} domain {id}", slow=slow) as connection:
        yield connection.lookupByUUIDString(id)


@contextmanager
def _find(host: Libvirtd, id: ServerId, doing: str, *, slow: bool = False) -> Iterator[Any | None]:
    with host.calling(f"{doing} domain {id}", slow=slow) as connection:
        yield libvirtd.find_domain(connection, id)


def _targets(domain: Any) -> set[str]:
    return {disk.target for disk in DomainXml.from_xml(domain.XMLDesc(0)).disks}


def _is_same(found: DiskXml, disk: DiskXml) -> bool:
    """By where its bytes are. libvirt adds to a source what it knows besides."""
    if found.source is None or disk.source is None:
        return False
    there, wanted = found.source, disk.source
    return (there.pool, there.volume, there.file, there.device, there.name) == (
        wanted.pool,
        wanted.volume,
        wanted.file,
        wanted.device,
        wanted.name,
    )


def _disk_of(domain: Any, target: str, flags: int) -> DiskXml | None:
    inactive = libvirtd.XML_INACTIVE if flags == libvirtd.AFFECT_CONFIG else 0
    return DomainXml.from_xml(domain.XMLDesc(inactive)).disk(target)


CONSOLE_LOG = "console.log"


class Consoles(Protocol):
    def make(self, id: ServerId) -> Path:
        """The path of the log, as the host knows it; the host will write to it."""
        ...

    def read(self, id: ServerId, name: str) -> bytes:
        """What the server of this name has printed so far. Raises NoConsole."""
        ...

    def remove(self, id: ServerId) -> None:
        """Only what the server has printed; nothing printed is no error."""
        ...


class ConsoleFiles:
    """A directory for each server, as Nova has it."""

    def __init__(self, instances: Path) -> None:
        self._instances = instances

    def make(self, id: ServerId) -> Path:
        path = self._instances / id
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o711)
        except OSError as error:
            raise StateNotWritable(path, error.strerror or str(error)) from error
        return path / CONSOLE_LOG

    def read(self, id: ServerId, name: str) -> bytes:
        path = self._instances / id / CONSOLE_LOG
        try:
            return path.read_bytes()
        except OSError as error:
            raise NoConsole(name, f"its log {path}: {error.strerror}") from error

    def remove(self, id: ServerId) -> None:
        """Only what we put there; anything else stays, and keeps the directory."""
        path = self._instances / id
        try:
            for each in path.glob(f"{CONSOLE_LOG}*"):  # virtlogd rotates it
                if each.is_file():
                    each.unlink(missing_ok=True)
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        except OSError as error:
            raise StateNotWritable(path, error.strerror or str(error)) from error


class ConsoleVolumes:
    """One directory for all, which is a pool: of a host whose files are not here. What virtlogd
    writes there, libvirt sees after a refresh."""

    def __init__(self, open_pool: Callable[[], Pool]) -> None:
        self._open_pool = open_pool

    def make(self, id: ServerId) -> Path:
        return Path(self._open_pool().path) / _log_name(id)

    def read(self, id: ServerId, name: str) -> bytes:
        try:
            pool = self._open_pool()
            pool.refresh()
            return b"".join(streams.plain(pool.pieces(_log_name(id))))
        except MillpondError as error:
            raise NoConsole(name, f"its log on the host: {error}") from error

    def remove(self, id: ServerId) -> None:
        pool = self._open_pool()
        pool.refresh()
        for name in pool.names():
            if name.startswith(_log_name(id)):
                with suppress(VolumeNotFound):
                    pool.delete(name)


def _log_name(id: ServerId) -> str:
    return f"{id}.{CONSOLE_LOG}"
