"""The domains of one host and the logs of their consoles: libvirt's calls, and nothing of what a
server is."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from millpond.errors import (
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
from millpond.xml.domain import NAMESPACE, BareRecordXml, DomainXml, RecordXml
from millpond.xml.element import Element
from millpond.xml.keeping import Kept, keep

X = TypeVar("X", bound=Element)

ON = ("running", "paused", "stopping", "suspended", "crashed")
"""The states of a domain that has a QEMU."""


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

    def is_named(self, name: str, *, but: ServerId) -> bool:
        """Whether another one is."""
        with self._host.calling(f"looking for domain {name}") as connection:
            found = libvirtd.unless_gone(lambda: connection.lookupByName(name))
            return found is not None and found.UUIDString() != but

    def define(self, xml: DomainXml, before: DomainXml | None = None) -> Sequence[str]:
        """What else the present definition says stays in it; what could not be kept, in words.
        One that Nova gave another name is renamed first, if it is off: a UUID has one name."""
        with self._host.calling(f"defining domain {xml.name}", slow=True) as connection:
            kept = None
            if found := libvirtd.find_domain(connection, xml.uuid):
                if found.name() != xml.name and found.isActive():
                    xml = replace(xml, name=found.name())
                kept = keep(found.XMLDesc(libvirtd.XML_WHOLE), xml, before or xml)
                if found.name() != xml.name:
                    found.rename(xml.name, 0)
            if kept:  # libvirt has looked at it once: its whole schema takes longer than the rest
                connection.defineXML(kept.xml)
                return kept.lost
            connection.defineXMLFlags(xml.to_xml(), libvirtd.DOMAIN_DEFINE_FLAGS)
            return ()

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
        with get_domain(self._host, id, "starting", slow=True) as domain:
            if not domain.isActive():
                domain.createWithFlags(libvirtd.START_PAUSED if paused else 0)

    def shutdown(self, id: ServerId) -> None:
        """Ask the guest to power itself off."""
        with suppress_if_off(self, id), get_domain(self._host, id, "shutting down") as domain:
            domain.shutdown()

    def power_off(self, id: ServerId) -> None:
        """Power off. A domain that is off or gone is no error."""
        found = _find(self._host, id, "powering off", slow=True)
        with suppress_if_off(self, id), _tolerate_gone(), found as domain:
            if domain and domain.isActive():
                domain.destroy()

    def undefine(self, id: ServerId, *, keeps_variables: bool = False) -> None:
        """A domain that is gone already is no error."""
        variables = libvirtd.KEEP_NVRAM if keeps_variables else libvirtd.UNDEFINE_NVRAM
        with _tolerate_gone(), _find(self._host, id, "undefining") as domain:
            if domain:
                domain.undefineFlags(libvirtd.UNDEFINE_FLAGS | variables)

    def suspend(self, id: ServerId) -> None:
        """Until resume() the guest does nothing. One that does nothing already is no error."""
        with suppress_if_off(self, id), get_domain(self._host, id, "pausing") as domain:
            domain.suspend()

    def resume(self, id: ServerId) -> None:
        """A guest that is not paused is no error."""
        if self.state(id) == "paused":
            with suppress_if_off(self, id), get_domain(self._host, id, "resuming") as domain:
                domain.resume()

    def is_stuck(self, id: ServerId) -> bool:
        """Whether QEMU has paused the guest because a disk took nothing more."""
        with get_domain(self._host, id, "asking for the state of") as domain:
            return bool(domain.state(0) == libvirtd.STUCK)

    def open_console(self, id: ServerId) -> ConsoleStream:
        with get_domain(self._host, id, "opening the console of") as domain:
            stream = domain.connect().newStream(0)
            domain.openConsole(None, stream, libvirtd.CONSOLE_FORCE)
            return ConsoleStream(stream)


@contextmanager
def suppress_if_off(domains: Domains, id: ServerId) -> Iterator[None]:
    """A call in the block that fails because the guest has powered itself off is no error."""
    try:
        yield
    except LibvirtFailed:
        if domains.state(id) != "stopped":
            raise


@contextmanager
def pausing(domains: Domains, id: ServerId) -> Iterator[None]:
    """For the block: a running guest does nothing meanwhile."""
    runs = domains.state(id) == "running"
    try:
        if runs:
            domains.suspend(id)
        yield
    finally:
        if runs:
            domains.resume(id)


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
        with get_domain(self._host, id, "writing metadata of") as domain:
            before = self._read(domain)
            bare = BareRecordXml(
                owner=record.owner,
                written=before.written if before else None,
                record=record.record,
            )
            live = libvirtd.AFFECT_LIVE if domain.isActive() else 0
            domain.setMetadata(
                libvirtd.METADATA_ELEMENT,
                bare.to_xml(),
                "millpond",
                NAMESPACE,
                libvirtd.AFFECT_CONFIG | live,
            )

    def remove(self, id: ServerId) -> None:
        """A domain without one, or none, is no error."""
        with _tolerate_gone(), _find(self._host, id, "removing metadata of") as domain:
            if domain and self._read(domain):
                live = libvirtd.AFFECT_LIVE if domain.isActive() else 0
                flags = libvirtd.AFFECT_CONFIG | live
                domain.setMetadata(libvirtd.METADATA_ELEMENT, None, None, NAMESPACE, flags)

    def _read(self, domain: Any) -> RecordXml | None:
        try:
            with self._host.calling("reading metadata"):
                return RecordXml.from_xml(
                    domain.metadata(libvirtd.METADATA_ELEMENT, NAMESPACE, libvirtd.AFFECT_CONFIG)
                )
        except LibvirtFailed as error:
            # A transient domain has no definition: one that just arrives, or somebody else's.
            if error.code in {*libvirtd.NO_METADATA, libvirtd.NO_SUCH_DOMAIN}:
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
        with get_domain(self._host, id, "setting the autostart of") as domain:
            if bool(domain.autostart()) != on:
                domain.setAutostart(on)


@contextmanager
def get_domain(host: Libvirtd, id: ServerId, doing: str, *, slow: bool = False) -> Iterator[Any]:
    with host.calling(f"{doing} domain {id}", slow=slow) as connection:
        yield connection.lookupByUUIDString(id)


@contextmanager
def _find(host: Libvirtd, id: ServerId, doing: str, *, slow: bool = False) -> Iterator[Any | None]:
    with host.calling(f"{doing} domain {id}", slow=slow) as connection:
        yield libvirtd.find_domain(connection, id)


@contextmanager
def _tolerate_gone() -> Iterator[None]:
    """It may go meanwhile: one that was about to come from another host does so by itself."""
    try:
        yield
    except LibvirtFailed as error:
        if error.code != libvirtd.NO_SUCH_DOMAIN:
            raise


def read_all(host: Libvirtd, kind: type[X]) -> Mapping[str, X]:
    """By UUID, what the kind knows of every domain of the host."""
    with host.calling("reading the definitions of domains", slow=True) as connection:
        found = [
            (each.UUIDString(), libvirtd.unless_gone(partial(each.XMLDesc, 0)))
            for each in connection.listAllDomains(0)
        ]
    return {uuid: kind.from_xml(text) for uuid, text in found if text}


def read_definition(host: Libvirtd, id: ServerId) -> str:
    """With its secrets."""
    with get_domain(host, id, "reading the definition of") as domain:
        return str(domain.XMLDesc(libvirtd.XML_WHOLE))


def write_definition(host: Libvirtd, name: str, text: str) -> None:
    with host.calling(f"defining domain {name}") as connection:
        connection.defineXMLFlags(text, libvirtd.DOMAIN_DEFINE_FLAGS)


def reset_variables(host: Libvirtd, id: ServerId) -> None:
    """What the firmware of a domain that is off has written down is as in its template again.
    libvirt does that only as it starts one: paused from its very beginning, its guest does
    nothing, and if this process dies, it is off again."""
    with get_domain(host, id, "resetting the firmware's variables of", slow=True) as domain:
        ends_with_us = libvirtd.START_PAUSED | libvirtd.START_AUTODESTROY
        domain.createWithFlags(ends_with_us | libvirtd.RESET_NVRAM)
        domain.destroy()


def is_saved(host: Libvirtd, id: ServerId) -> bool:
    """Whether the next start goes on with what the guest's memory held."""
    with get_domain(host, id, "asking for the saved memory of") as domain:
        return bool(domain.hasManagedSaveImage(0))


def compare(host: Libvirtd, xml: DomainXml) -> Kept | None:
    """What Domains.define() would make of the present definition, if there is one."""
    with _find(host, ServerId(xml.uuid), "reading the definition of") as domain:
        return keep(domain.XMLDesc(libvirtd.XML_WHOLE), xml, xml) if domain else None


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
