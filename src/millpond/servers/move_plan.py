"""Whether a server can move to another host, and how its disks would travel. Nothing is changed,
but that the host's pools are made where they are missing."""

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.errors import BadOption, ImageNotFound, ImageRefused, Tool, UnfitHost, Unsupported
from millpond.hosts.host import Host
from millpond.legacy.storage import image_path
from millpond.libvirt.domains import read_definition
from millpond.libvirt.migration import Route
from millpond.libvirt.pool import Pool
from millpond.model.devices import Devices
from millpond.model.formats import Backend, DiskFormat
from millpond.model.image import Image
from millpond.model.move import MigrateDetails, Way
from millpond.model.names import rebuilt_name
from millpond.model.operation import ROOT
from millpond.model.server import SAVED, Content, Disk, Firmware, Server, TemplateRef
from millpond.model.sizes import format_size
from millpond.model.template import Template
from millpond.servers import steps
from millpond.servers.devices import check_devices
from millpond.servers.transition_plan import as_volume, can_link, is_same
from millpond.system import files
from millpond.xml.carrying import find_fixed_devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Travel:
    """Of one disk."""

    role: str
    way: Way
    size: int
    """Bytes that it takes at the source, and so at the most on the way."""
    template: str = ""
    """What is prepared at the destination first; empty if nothing is."""
    template_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    server: Server
    """As it would be there."""
    details: MigrateDetails
    travels: tuple[Travel, ...]
    route: Route | None = None
    """Of QEMU's bytes, if it moves while it runs."""

    @property
    def size(self) -> int:
        """Bytes that travel."""
        return sum(each.size for each in self.travels)

    @property
    def is_cached(self) -> bool:
        """Whatever its disks are backed by is there."""
        return not any(each.template for each in self.travels)


def refuse_unmovable(host: Host, server: Server, *, leaves_layout: bool = False) -> None:
    """What no destination can help; ``leaves_layout``: disks in Nova's come into pools by it."""
    legacy = [each.role for each in server.disks if each.path]
    if legacy and not leaves_layout:
        reason = f"{', '.join(legacy)} lies in Nova's legacy layout, and in no pool"
        advised = f"'{Tool.TRANSITION} {server.name}' moves them there; add --live if it runs"
        raise _refusal(server, reason, advised)
    for what, has in (
        ("its UEFI variables are", _has_own_variables(server)),
        ("the state of its TPM is", server.devices.tpm),
    ):
        if has:
            reason = f"{what} in a file of its host, and libvirt offers no call for it"
            raise _refusal(server, reason, f"'{Tool.SERVER} export' and 'import' make them again")
    own = {each.target for each in server.disks} | {server.cdrom.target if server.cdrom else ""}
    if unknown := sorted(steps.targets(host, server) - own):
        reason = f"its domain has disks that Millpond does not know: {', '.join(unknown)}"
        raise _refusal(server, reason, "detach them with virsh first")
    steps.refuse_overlays(host, server)
    if host.domains.state(server.id) is None:
        return
    definition = read_definition(host.libvirtd, server.id)
    macs = {each.mac.lower() for each in server.networks}
    if fixed := ", ".join(find_fixed_devices(definition, macs)):
        reason = f"its domain has devices of this host that Millpond does not know: {fixed}"
        raise _refusal(server, reason, "detach them with virsh first")


def _has_own_variables(server: Server) -> bool:
    return server.hardware.firmware is Firmware.UEFI and not server.keeps_variables


def _refusal(server: Server, reason: str, advised: str) -> Unsupported:
    return Unsupported(f"moving server {server.name!r}", reason, advised)


def plan_move(
    source: Host, destination: Host, server: Server, shared: Collection[str], *, starts: bool
) -> MovePlan:
    """Raises what the destination lacks. ``shared``: pools that were proven to be one."""
    steps.refuse_foreign_servers(destination)
    refuse_known(destination, server)
    check_machine(destination, server)
    planned = [_plan_disk(source, destination, server, disk, shared) for disk in server.disks]
    details = MigrateDetails(
        migration=str(uuid.uuid4()),
        source=source.name,
        destination=destination.name,
        here=server.disks,
        there=tuple(disk for disk, _ in planned),
        ways={travel.role: travel.way for _, travel in planned},
        starts=starts,
    )
    moved = details.at_destination(server)
    check_networks(destination, moved)
    _check_space(destination, moved, {travel.role: travel.size for _, travel in planned})
    travels = tuple(travel for _, travel in planned)
    return MovePlan(server=moved, details=details, travels=travels)


def refuse_known(host: Host, server: Server) -> None:
    names = host.domains.names()
    if server.id in names.values():
        advised = f"'{Tool.DOCTOR}' says what it is"
        raise UnfitHost(f"host {host.name!r} has a domain of this server already", advised)
    if server.name in names:
        raise UnfitHost(f"host {host.name!r} has somebody else's domain {server.name!r}")


def check_machine(host: Host, server: Server) -> None:
    hardware = server.hardware
    if host.limits(hardware).vcpus is None:
        machine = f"machine type {hardware.machine or 'pc'} with {hardware.virt_type}"
        raise UnfitHost(f"host {host.name!r} does not know {machine}")
    steps.check_size(host, server.flavor, hardware)
    if server.devices != Devices():
        check_devices(host, server.devices, hardware, server.id)


def check_networks(host: Host, moved: Server) -> None:
    """Its own stay as its guest knows them."""
    try:
        steps.plan_networks(host, moved.networks)
        with taking_networks(host, moved):
            pass
    except BadOption as error:
        raise UnfitHost(error.reason) from error


def taking_networks(host: Host, moved: Server) -> AbstractContextManager[None]:
    """While it is written down that it moves there: no other server has its MACs, addresses and
    ports."""
    return steps.taking_fixed(host, moved, moved.networks, moved.networks)


def _check_space(host: Host, moved: Server, sizes: Mapping[str, int]) -> None:
    needed: Counter[str] = Counter()
    for disk in moved.disks:
        pool = host.pools.ensure(disk.pool)
        travels = sizes[disk.role]
        needed[disk.pool] += travels if pool.capabilities.sparse or not travels else disk.size
    for name, size in needed.items():
        refuse_full(host.name, host.pools.ensure(name), size)


def refuse_full(host: str, pool: Pool, needed: int) -> None:
    """A host that lacks the space for what would come there."""
    if (lacks := needed - pool.usage().available) > 0:
        sizes = f"{format_size(lacks)} of the {format_size(needed)} that are needed"
        raise UnfitHost(f"pool {pool.name} of host {host!r} lacks {sizes}")


def _plan_disk(
    source: Host, destination: Host, server: Server, disk: Disk, shared: Collection[str]
) -> tuple[Disk, Travel]:
    require_local_files((source, destination), disk)
    here = as_volume(source, server, disk) if disk.path else disk
    there = place(destination, here)
    is_shared = here.pool == there.pool and here.pool in shared
    if disk.path:  # by another name of the same file
        is_shared = is_shared and can_link(source, server, disk)
    if disk.backend is Backend.RBD and not is_shared:
        reason = f"host {destination.name!r} does not share pool {disk.pool}, of {disk.role}"
        raise UnfitHost(reason)
    is_new = disk.content is Content.NVRAM and not source.disks.exists(disk)  # never started
    if is_shared and not is_new and not disk.path:
        require_volume(destination, there)
    else:
        refuse_volume(destination, there)
    way, fetched = Way.SHARED if is_shared else Way.COPY, None
    way = Way.NEW if is_new else way
    if disk.overlay and disk.template:
        alike, fetched = _find_base(source, destination, server, disk)
        way = way if alike else Way.WHOLE
        if not alike and is_shared and not disk.path:  # next to it, in the same pool
            there = replace(there, volume=rebuilt_name(there.volume))
            refuse_volume(destination, there)
    if way is Way.WHOLE:
        there = replace(there, overlay=False, template=None)
    size = _size(source, disk, way)
    name = disk.template.volume if fetched and disk.template else ""
    template_size = fetched.size if fetched else 0
    travel = Travel(role=disk.role, way=way, size=size, template=name, template_size=template_size)
    return there, travel


def is_linked(host: Host, template: TemplateRef) -> bool:
    """No volume of the host has its bytes, or not all of them yet."""
    found = host.template_store.find(template.volume)
    return bool(found and found.link)


def require_local_files(hosts: Sequence[Host], disk: Disk) -> None:
    for host in hosts:
        if not disk.format.libvirt_makes and not host.probe_local_files():
            reason = f"{disk.format} disks need the files of host {host.name!r} to be local"
            raise UnfitHost(reason)


def place(host: Host, disk: Disk) -> Disk:
    """The disk as it is recorded there: of the same backend and format (B14)."""
    plan, backend = host.pool_plan, disk.backend
    if backend.has_own_pool and backend not in plan.by_backend:
        raise UnfitHost(f"host {host.name!r} has no pool for {backend} disks, as {disk.role} is")
    template = disk.template and replace(disk.template, pool=plan.base.name)
    role = ROOT if disk.role == SAVED else disk.role
    return replace(disk, pool=plan.for_disk(backend, role).name, template=template)


def refuse_volume(host: Host, disk: Disk) -> None:
    """A leftover, or the pool is shared and nobody has proven it: never replaced."""
    pool = host.pools.ensure(disk.pool)
    pool.refresh()
    if pool.find(disk.volume):
        raise UnfitHost(
            f"pool {pool.name} of host {host.name!r} has volume {disk.volume} already",
            f"if both hosts share the pool, '{Tool.REPORT_HOSTS}' proves it; if it was left by a "
            f"move, remove it there: 'virsh vol-delete {disk.volume} {pool.name}'",
        )


def require_volume(host: Host, disk: Disk) -> None:
    """That the pool is shared was proven some time ago."""
    pool = host.pools.ensure(disk.pool)
    pool.refresh()
    if not pool.find(disk.volume):
        raise UnfitHost(
            f"pool {pool.name} of host {host.name!r} has no volume {disk.volume}, and was shared",
            f"see whether it is mounted there; '{Tool.REPORT_HOSTS}' looks who shares it",
        )


def _size(source: Host, disk: Disk, way: Way) -> int:
    if way in (Way.SHARED, Way.NEW):
        return 0
    base = disk.template.volume if way is Way.WHOLE and disk.template else ""
    if disk.path:  # libvirt need not know what Nova has put into the cache
        named = [image_path(disk), *([_in_cache(source, base)] if base else [])]
        return sum(map(files.taken_space, named))
    taken = source.pools.ensure(disk.pool).get(disk.volume).allocation
    return taken + (source.pools.base.get(base).allocation if base else 0)


def _in_cache(host: Host, name: str) -> Path:
    return Path(host.pools.base.path, name)


def _find_base(
    source: Host, destination: Host, server: Server, disk: Disk
) -> tuple[bool, Image | None]:
    """Whether the destination has, or can prepare, a template with the same content; and the image
    that it is prepared from."""
    assert disk.template
    if disk.path and _share_base(source, destination, disk.template):
        return True, None
    here = source.template_store.find(disk.template.volume)
    store = destination.find_template_store()
    there = store.find(disk.template.volume) if store else None
    if here and there:
        return is_alike(here, there), None
    becomes_one = disk.path and disk.template.format is DiskFormat.RAW
    image = find_image(destination, server, disk) if here or becomes_one else None
    return image is not None, image


def _share_base(source: Host, destination: Host, base: TemplateRef) -> bool:
    """One file: then it is a template of both as soon as it is one."""
    if base.format is not DiskFormat.RAW or not destination.probe_local_files():
        return False
    return is_same(_in_cache(source, base.volume), _in_cache(destination, base.volume))


def is_alike(one: Template, other: Template) -> bool:
    """Whether overlays on the one may be put on the other. Templates without an image were
    formatted each for itself."""
    if one == other or (one.digest and one.digest == other.digest):
        return True
    same = (one.image, one.image_digest) == (other.image, other.image_digest)
    return bool(one.image) and same


def find_image(host: Host, server: Server, disk: Disk) -> Image | None:
    """None if it is gone, or the disk was made from none."""
    image = server.image_of(disk)
    try:
        return host.images.describe(image.id) if image else None
    except (ImageNotFound, ImageRefused):
        return None
