"""A host in memory whose every change can fail, be interrupted or be the last of its process.

Volumes hold bytes, a guest writes single ones to the disks that it has: so a test can look whether
any was lost.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import libvirt

from millpond.disks.disks import Disks
from millpond.disks.libvirt_storage import LibvirtStorage
from millpond.disks.selection import ImagesType, Selection
from millpond.errors import (
    DetachTimeout,
    HostUnreachable,
    LibvirtFailed,
    NoConsole,
    NoRoom,
    NoSpace,
)
from millpond.hosts.host import Host
from millpond.libvirt.domains import MarkedDomain
from millpond.libvirt.memory_pool import MemoryPool
from millpond.libvirt.networks import HostNetwork, Lease
from millpond.libvirt.pool import PoolType
from millpond.libvirt.virtualization import Limits
from millpond.model.callbacks import noop
from millpond.model.formats import Backend, DiskFormat, ImageFormat
from millpond.model.image import Image
from millpond.model.layer import Chain, Layer, NbdSource
from millpond.model.names import ImageId, template_name
from millpond.model.server import Server, VirtType
from millpond.model.sizes import KiB, MiB
from millpond.model.template import Link, Prepared, Template
from millpond.model.volume import Volume, VolumeSpec
from millpond.records.records import FileRecords
from millpond.system.locks import Locks
from millpond.system.streams import Piece, plain
from millpond.xml.domain import (
    BackingStoreXml,
    DiskXml,
    DomainXml,
    InterfaceXml,
    LayersXml,
    RecordXml,
    SourceXml,
    layers_xml,
)
from tests.support.few_disks import disks_of
from tests.support.host_with import host_with

IMAGE = Image(
    id=ImageId("c9a3b0de-6a54-4d1e-8d9e-1f2a3b4c5d6e"),
    name="debian",
    format=ImageFormat.RAW,
    size=MiB,
    virtual_size=MiB,
    digest="0",
    created="",
)
CONTENT = b"IMAGE"
VARIABLES = b"UEFI"
"""As libvirt makes them."""


class Killed(BaseException):
    """Nothing that the process does afterwards has an effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong at which moment: of writes, of calls or of steps; 0 is never."""

    at: int
    kinds: frozenset[str] = frozenset({"write", "call", "step"})
    error: BaseException
    lasting: bool = False
    """Every later moment of these kinds as well, until somebody makes room."""
    again: int = 0
    """Once more, so many moments later: while it is being undone."""


NONE = Fault(at=0, error=Killed())


class Moments:
    """Everything that changes something passes here, before and after."""

    def __init__(self) -> None:
        self.begin(NONE)

    def begin(self, fault: Fault) -> None:
        """Of another process."""
        self.fault, self.seen, self.dead = fault, 0, False

    def __call__(self, kind: str) -> None:
        if self.dead:
            raise Killed
        if kind not in self.fault.kinds:
            return
        self.seen += 1
        fault = self.fault
        late = fault.lasting and self.seen > fault.at > 0
        again = fault.again and self.seen == fault.at + fault.again
        if self.seen == fault.at or late or again:
            self.dead = isinstance(self.fault.error, Killed)
            raise self.fault.error

    @contextmanager
    def around(self, kind: str) -> Iterator[None]:
        self(kind)
        yield
        self(kind)

    @property
    def has_come(self) -> bool:
        return self.seen >= self.fault.at


class Pool(MemoryPool):
    """What is copied is half there in between, and looks whole."""

    def __init__(self, name: str, type_: PoolType, moments: Moments, contents: dict[str, bytes]):
        super().__init__(name, type_=type_, contents=contents)
        self._moments = moments
        self.is_written = False
        """Guests write to its volumes all the time: whoever looks finds another time of change."""
        self._unknown: set[str] = set()
        """Files that libvirt has made without it."""

    def find(self, name: str) -> Volume | None:
        found = super().find(name)
        return replace(found, changed=self._now()) if found and self.is_written else found

    def add_file(self, name: str) -> None:
        """The pool knows it after a refresh."""
        if name not in self._volumes and name not in self._unknown:
            self._unknown.add(name)
            self._contents[f"{self.path}/{name}"] = VARIABLES

    def remove_file(self, name: str) -> None:
        self._unknown.discard(name)
        self._contents.pop(f"{self.path}/{name}", None)
        self._volumes.pop(name, None)

    def refresh(self) -> None:
        while self._unknown:
            name = self._unknown.pop()
            MemoryPool.create(self, VolumeSpec(name=name, format=DiskFormat.RAW, capacity=KiB))

    def touch(self, name: str) -> None:
        self.refresh()
        self._volumes[name] = replace(self._volumes[name], changed=self._now())

    def create(self, spec: VolumeSpec) -> Volume:
        with self._moments.around("call"):
            return super().create(spec)

    def create_from(self, spec: VolumeSpec, source: Volume) -> Volume:
        self._moments("call")
        made = super().create_from(spec, source)
        whole = self._contents[made.path]
        self._contents[made.path] = b"half"
        self._moments("call")
        self._contents[made.path] = whole
        self._moments("call")
        return made

    def send(self, name: str, pieces: Iterable[Piece], length: int) -> None:
        whole = b"".join(plain(pieces))
        self._moments("call")
        super().send(name, [whole[: len(whole) // 2], length - len(whole) // 2], length)
        self._moments("call")
        super().send(name, [whole], length)
        self._moments("call")

    def resize(self, name: str, capacity: int) -> None:
        with self._moments.around("call"):
            super().resize(name, capacity)

    def delete(self, name: str) -> None:
        with self._moments.around("call"):
            super().delete(name)


class Records(FileRecords):
    """An interruption may come when the record is already written; an error is told before."""

    def __init__(self, state: Path, moments: Moments) -> None:
        super().__init__(state, Locks(state / "locks"))
        self._moments = moments

    def put(self, server: Server) -> None:
        self._moments("write")
        super().put(server)
        self._after()

    def remove(self, id: Any) -> None:
        """It needs no space."""
        if not isinstance(self._moments.fault.error, NoSpace):
            self._moments("write")
        super().remove(id)
        self._after()

    def _after(self) -> None:
        if not isinstance(self._moments.fault.error, Exception):
            self._moments("write")


class Claims:
    def __init__(self, moments: Moments) -> None:
        self.held: dict[str, int] = {}
        self.free_vcpus = 1024
        """For one server."""
        self._moments = moments

    def hold(self, server: Server) -> None:
        with self._moments.around("call"):
            if server.flavor.vcpus > self.free_vcpus:
                raise NoRoom(f"{self.free_vcpus} vCPUs are free")
            self.held[server.id] = sum(disk.size for disk in server.disks)

    def release(self, server: Server) -> None:
        with self._moments.around("call"):
            self.held.pop(server.id, None)

    def begin_move(self, moved: Server, migration: str) -> None:
        with self._moments.around("call"):
            size = sum(disk.size for disk in moved.disks)
            self.held |= {moved.id: size, migration: size}

    def confirm_move(self, migration: str) -> None:
        with self._moments.around("call"):
            self.held.pop(migration, None)

    def revert_move(self, _server: Server, migration: str) -> None:
        self.confirm_move(migration)


class Definitions:
    """libvirt itself, as far as somebody reads and writes whole definitions, or asks how far a
    domain is that moves."""

    def __init__(self, world: "World") -> None:
        self._world = world

    @contextmanager
    def calling(self, _doing: str, *, slow: bool = False) -> Iterator["Definitions"]:
        if self._world.is_silent:
            raise HostUnreachable(self._world.name, "it is silent")
        yield self

    def lookupByUUIDString(self, id: str) -> Any:  # noqa: N802
        domains = self._world.domains
        if domains.state(id) is None:
            raise _no_such_domain()
        xml = domains.defined.get(id) or domains.live[id]
        return SimpleNamespace(
            XMLDesc=lambda _flags: xml.to_xml(),
            isActive=lambda: id in domains.live,
            state=lambda _flags: domains.places.get(id, _USUAL_PLACES[domains.state(id)]),
            jobInfo=lambda: [domains.job],
            abortJob=lambda: None,
        )

    def defineXMLFlags(self, text: str, _flags: int) -> None:  # noqa: N802
        self._world.domains.define(DomainXml.from_xml(text))


_USUAL_PLACES = {
    "running": (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED),
    "paused": (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER),
    "stopped": (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED),
}


def _no_such_domain() -> libvirt.libvirtError:
    error = libvirt.libvirtError("no domain with matching uuid")
    error.err = (
        libvirt.VIR_ERR_NO_DOMAIN,
        libvirt.VIR_FROM_QEMU,
        "no domain",
        2,
        "",
        "",
        "",
        0,
        0,
    )
    return error


class Domains:
    """As libvirt has them: as they are defined, and as they run."""

    def __init__(self, world: "World") -> None:
        self.defined: dict[str, DomainXml] = {}
        self.live: dict[str, DomainXml] = {}
        self.paused: set[str] = set()
        self.places: dict[str, tuple[int, int]] = {}
        """States with their reasons, where a migration has left others than the usual ones."""
        self.job: int = libvirt.VIR_DOMAIN_JOB_NONE
        self.holds_on = False
        """The guests let no disk go."""
        self._world = world

    def state(self, id: str) -> str | None:
        if id in self.live:
            return "paused" if id in self.paused else "running"
        return "stopped" if id in self.defined else None

    def names(self) -> dict[str, str]:
        return {each.name: id for id, each in self.defined.items()}

    def is_named(self, name: str, *, but: str) -> bool:
        return self.names().get(name, but) != but

    def description(self, id: str, *, defined: bool = False) -> DomainXml | None:
        found = self.defined.get(id)
        return found if defined else self.live.get(id, found)

    def define(self, xml: DomainXml, _before: DomainXml | None = None) -> tuple[str, ...]:
        with self._world.moments.around("call"):
            self.defined[xml.uuid] = xml
        return ()

    def undefine(self, id: str, *, keeps_variables: bool = False) -> None:
        with self._world.moments.around("call"):
            found = self.defined.pop(id, None)
            if found and found.nvram and not keeps_variables:
                self._world.pool_of(found.nvram).remove_file(Path(found.nvram).name)
            self._world.autostart.on.discard(id)

    def start(self, id: str, *, paused: bool = False) -> None:
        with self._world.moments.around("call"):
            if id not in self.live:
                self.live[id] = replace(self.defined[id], id=1)
                if nvram := self.live[id].nvram:
                    self._world.pool_of(nvram).add_file(Path(nvram).name)
                self.paused |= {id} if paused else set()

    def shutdown(self, id: str) -> None:
        self.power_off(id)

    def power_off(self, id: str) -> None:
        with self._world.moments.around("call"):
            self.live.pop(id, None)
            self.paused.discard(id)
            self.places.pop(id, None)

    def both(self) -> tuple[dict[str, DomainXml], dict[str, DomainXml]]:
        return self.live, self.defined

    def let_go(self, id: str, target: str) -> None:
        """The guest, late."""
        self.holds_on = False
        detach(self.live, id, target)

    def suspend(self, id: str) -> None:
        with self._world.moments.around("call"):
            self.paused.add(id)

    def resume(self, id: str) -> None:
        self._world.moments("call")
        self.paused.discard(id)
        self.places.pop(id, None)

    def is_stuck(self, _id: str) -> bool:
        return False


def detach(domains: dict[str, DomainXml], id: str, target: str) -> None:
    kept = tuple(each for each in domains[id].disks if each.target != target)
    domains[id] = replace(domains[id], disks=kept)


class Autostart:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.on: set[str] = set()

    def put(self, id: str, on: bool) -> None:
        with self._world.moments.around("call"):
            if self._world.domains.state(id) is None:
                raise LibvirtFailed("setting autostart", libvirt.VIR_ERR_NO_DOMAIN, "no domain")
            self.on = self.on | {id} if on else self.on - {id}


class DomainRecords:
    def __init__(self, world: "World") -> None:
        self._world = world

    def all(self, *, ignoring: Any = ()) -> Iterator[MarkedDomain]:
        for id, each in self._world.domains.defined.items():
            if each.record and id not in ignoring:
                yield MarkedDomain(name=each.name, uuid=id, record=each.record)

    def put(self, id: str, record: RecordXml) -> None:
        with self._world.moments.around("call"):
            for each in self._world.domains.both():
                if id in each:
                    each[id] = replace(each[id], record=record)

    def remove(self, id: str) -> None:
        with self._world.moments.around("call"):
            for each in self._world.domains.both():
                if id in each:
                    each[id] = replace(each[id], record=None)


class DomainDisks:
    def __init__(self, world: "World") -> None:
        self._world = world

    def attach(self, id: str, disk: DiskXml) -> None:
        for each in self._world.domains.both():
            with self._world.moments.around("call"):
                if each[id].disk(disk.target) is None:
                    each[id] = replace(each[id], disks=(*each[id].disks, disk))

    def detach(self, id: str, disk: DiskXml) -> None:
        for each in self._world.domains.both():
            with self._world.moments.around("call"):
                if (
                    self._world.domains.holds_on
                    and each is self._world.domains.live
                    and each[id].disk(disk.target)
                ):
                    raise DetachTimeout(disk.target, 10)
                detach(each, id, disk.target)

    def resize(self, id: str, target: str, size: int) -> None:
        disk = self._world.domains.live[id].disk(target)
        assert disk
        assert disk.source
        pool = self._world.pools.ensure(disk.source.pool or "")
        if pool.get(disk.source.volume or "").capacity < size:
            pool.resize(disk.source.volume or "", size)


class DomainNics:
    def __init__(self, world: "World") -> None:
        self._world = world

    def attach(self, id: str, nic: InterfaceXml) -> None:
        for each in self._world.domains.both():
            with self._world.moments.around("call"):
                if all(known.mac != nic.mac for known in each[id].interfaces):
                    each[id] = replace(each[id], interfaces=(*each[id].interfaces, nic))

    def detach(self, id: str, mac: str) -> None:
        for each in self._world.domains.both():
            with self._world.moments.around("call"):
                kept = tuple(known for known in each[id].interfaces if known.mac != mac)
                each[id] = replace(each[id], interfaces=kept)


class Networks:
    """One, ``net1``, and the addresses that its DHCP keeps."""

    def __init__(self, world: "World") -> None:
        self.reserved: dict[str, str] = {}
        self.nics = DomainNics(world)
        self._moments = world.moments

    def get_active(self, name: str) -> HostNetwork:
        return HostNetwork(
            name=name, active=True, autostart=True, addresses=("192.168.150.1/24",), dhcp=True
        )

    def leases(self, _name: str) -> list[Lease]:
        return []

    def reserve(self, _name: str, mac: str, address: str) -> None:
        with self._moments.around("call"):
            self.reserved[mac] = address

    def free(self, _name: str, mac: str) -> None:
        with self._moments.around("call"):
            self.reserved.pop(mac, None)


class BlockJobs:
    """Of root disks alone."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def size(self, id: str, target: str) -> int:
        path = self._world.path_of(self._disk(id, target))
        name = _own_name(path)
        return self._world.pool_of(path).get(name).capacity

    def files(self, id: str) -> frozenset[str]:
        layers = [
            each for disk in self._world.domains.live[id].disks for each in (disk, disk.backing)
        ]
        return frozenset(self._world.path(each.source) for each in layers if each and each.source)

    def freeze(self, id: str, overlays: Mapping[str, str]) -> None:
        with self._world.moments.around("call"):
            for target, overlay in overlays.items():
                disk = self._disk(id, target)
                below = BackingStoreXml(source=disk.source, below=disk.backing)
                self._put(id, replace(disk, source=SourceXml(file=overlay), backing=below))

    def commit(self, id: str, target: str, _overlay: str) -> None:
        """Until the pivot whatever the guest writes goes to both."""
        with self._world.moments.around("call"):
            disk = self._disk(id, target)
            self._world.merge(disk)
            self._put(id, replace(disk, job="active-commit", job_ready="yes"))

    def mirror(self, id: str, target: str, chain: Chain) -> None:
        with self._world.moments.around("call"):
            disk = self._disk(id, target)
            self._world.copies[disk.source] = layers = layers_xml(chain)
            self._world.follow(disk := replace(disk, job="copy", job_ready="yes"))
            assert layers.source.file
            self._put(id, disk)

    def pivot(self, id: str, target: str) -> None:
        with self._world.moments.around("call"):
            disk = self._disk(id, target)
            self._world.follow(disk)
            layers = self._world.copies.pop(disk.source, None) or disk.backing
            assert layers
            backing = layers.backing if isinstance(layers, LayersXml) else layers.below
            on = replace(disk, source=layers.source, backing=backing, job=None, job_ready=None)
            self._put(id, on)

    def _disk(self, id: str, target: str) -> DiskXml:
        found = self._world.domains.live[id].disk(target)
        if found is None:
            raise LibvirtFailed("looking for a disk", 1, target)
        return found

    def _put(self, id: str, disk: DiskXml) -> None:
        for each in (self._world.domains.live, self._world.domains.defined):
            disks = tuple(disk if old.target == disk.target else old for old in each[id].disks)
            each[id] = replace(each[id], disks=disks)


class Cdroms:
    def __init__(self, world: "World") -> None:
        self._world = world

    def change_medium(self, id: str, drive: DiskXml, *, force: bool = False) -> None:
        for each in self._world.domains.both():
            with self._world.moments.around("call"):
                found = (drive if old.target == drive.target else old for old in each[id].disks)
                each[id] = replace(each[id], disks=tuple(found))


class Pools:
    def __init__(self, base: Pool, disks: Pool) -> None:
        self.base, self._disks = base, disks

    def for_disk(self, _backend: Backend, _role: str = "disk") -> Pool:
        return self._disks

    def ensure(self, name: str) -> Pool:
        return {each.name: each for each in (self.base, self._disks)}[name]


class World:
    """The host with all that is on it; it outlives the processes that work on it."""

    def __init__(
        self,
        state: Path,
        type_: PoolType = PoolType.DIR,
        *,
        name: str = "local",
        other: "World | None" = None,
        shares: bool = False,
        backed: bool = False,
    ) -> None:
        """``other``: another host of the same deployment, on which the same processes work;
        ``shares``: with the same pools; ``backed``: disks are overlays of their templates."""
        self.name = name
        self.streams = False
        """Templates are links to what is still arriving."""
        self.copies: dict[SourceXml | None, LayersXml] = {}
        """Of what, and to what."""
        self.is_silent = False
        """Its libvirtd does not answer."""
        self.moments = other.moments if other else Moments()
        shared = other if shares else None
        self.contents: dict[str, bytes] = shared.contents if shared else {}
        self.written: dict[str, bytes] = {}
        """By volume: what the guests have written, whichever layer took it."""
        base = Pool("base", PoolType.DIR, self.moments, self.contents)
        disks = Pool("disks", type_, self.moments, self.contents)
        self.pool = shared.pool if shared else disks
        self.pools = Pools(base, self.pool)
        self.domains = Domains(self)
        self.autostart = Autostart(self)
        self.records = other.records if other else Records(state, self.moments)
        self.claims = other.claims if other else Claims(self.moments)
        self.networks = Networks(self)
        self.backend = Backend.RAW if type_ is PoolType.DIR else Backend.LVM
        self.backend = Backend.QCOW2 if backed else self.backend
        volume = base.create(
            VolumeSpec(
                name=template_name(IMAGE.id, DiskFormat.RAW), format=DiskFormat.RAW, capacity=MiB
            )
        )
        self.contents[volume.path] = CONTENT
        self.host = self._host()

    def guest_writes(self) -> None:
        """One byte to each disk of each guest that runs, never the same one twice; and one to the
        variables of its UEFI."""
        for id, domain in self.domains.live.items():
            if id in self.domains.paused:
                continue
            for disk in (each for each in domain.disks if not each.read_only):
                self._write(self.path_of(disk))
                if disk.job:
                    self.follow(disk)
            if domain.nvram:
                self._write(domain.nvram)

    def _write(self, path: str) -> None:
        volume = _own_name(path)
        byte = bytes([len(self.written.get(volume, b"")) + 128])
        self.written[volume] = self.written.get(volume, b"") + byte
        self.contents[path] = self.contents.get(path, b"") + byte
        self.pool_of(path).touch(volume)

    def follow(self, disk: DiskXml) -> None:
        """The block job of a disk does, with whatever the guest has written."""
        if disk.job != "copy":
            self.merge(disk)
            return
        there = self.path(self.copies[disk.source].source)
        self.contents[there] = self.contents.get(self.path_of(disk), b"")

    def merge(self, disk: DiskXml) -> None:
        assert disk.backing
        below = self.path(disk.backing.source)
        held = self.contents.get(below, b"")
        above = self.contents.get(self.path_of(disk), b"")
        self.contents[below] = held + bytes(each for each in above if each not in held)

    def path_of(self, disk: DiskXml) -> str:
        return self.path(disk.source)

    def pool_of(self, path: str) -> Pool:
        return self.pools.ensure(Path(path).parent.name)

    def holds(self, volume: str) -> bytes:
        return self.contents.get(self.pool.get(volume).path, b"")

    def path(self, source: SourceXml | None) -> str:
        assert source
        return source.file or f"/{source.pool}/{source.volume}"

    def _watch(self, _verb: str, _step: str, _moment: object) -> None:
        self.moments("step")

    def _host(self) -> Host:
        fields: dict[str, Any] = {
            "name": self.name,
            "shared": SimpleNamespace(
                records=self.records, locks=SimpleNamespace(hold=nullcontext)
            ),
            "domains": self.domains,
            "libvirtd": Definitions(self),
            "settings": SimpleNamespace(
                libvirt=SimpleNamespace(
                    selection=Selection(images_type=ImagesType(self.backend)), connection_uri=""
                )
            ),
            "domain_disks": DomainDisks(self),
            "autostart": self.autostart,
            "networks": self.networks,
            "limits": lambda _hardware: Limits(vcpus=255, memory=1024 * MiB),
            "domain_records": DomainRecords(self),
            "block_jobs": BlockJobs(self),
            "cdroms": Cdroms(self),
            "records": self.records,
            "claims": self.claims,
            "disks": self._disks(),
            "find_template_store": lambda: SimpleNamespace(find=self._find_template),
            "pools": self.pools,
            "choose_virt_type": lambda: VirtType.QEMU,
            "full_machine_name": lambda _virt_type, name: name,
            "consoles": SimpleNamespace(make=noop, remove=noop, read=_no_console),
            "starts": SimpleNamespace(hold=nullcontext),
            "watch": self._watch,
        }
        return host_with(**fields)

    def _disks(self) -> Disks:
        backends = {Backend.QCOW2, Backend.RAW, self.backend}
        return disks_of(
            {
                each: LibvirtStorage(each, self.pools, find_linked=self._find_linked)
                for each in backends
            },
            selection=Selection(images_type=ImagesType(self.backend)),
            images=SimpleNamespace(describe=lambda _id: IMAGE),
            templates=SimpleNamespace(fetch_image=self._fetch),
            base_pool="base",
        )

    def _find_template(self, _name: str) -> Template:
        return self._template(IMAGE, DiskFormat.RAW)

    def _find_linked(self, name: str) -> Layer | None:
        return self._find_template(name).linked_layer

    def _fetch(self, image: Image, format: DiskFormat, _progress: object) -> Template:
        self.moments("call")
        return self._template(image, format)

    def _template(self, image: Image, format: DiskFormat) -> Template:
        stream = Link(location="stream", nbd=NbdSource(socket=Path("/stream")))
        return Template(
            image=image.id,
            image_digest="0",
            pool="base",
            volume=template_name(image.id, format),
            format=format,
            virtual_size=image.virtual_size,
            size=image.size,
            prepared=Prepared.COPY,
            digest=None,
            created="",
            link=stream if self.streams else None,
        )


def _own_name(path: str) -> str:
    """Of the disk, whichever overlay takes its writes."""
    return Path(path).name.removesuffix(".rebased").removesuffix(".snapshot")


def _no_console(_id: str, name: str) -> str:
    raise NoConsole(name, "it is in memory")


Act = Callable[[World, Server], object]
