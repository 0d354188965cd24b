"""The disks of a server: planned all at once, made from templates, removed by their record."""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from millpond.disks.backend import DiskWanted
from millpond.errors import BadOption, DiskTooSmall, ImageRefused
from millpond.images.boot_images import BootImages
from millpond.model.flavor import Flavor
from millpond.model.formats import Backend, DiskFormat
from millpond.model.image import Image
from millpond.model.layer import Chain
from millpond.model.names import ImageId, ServerId, template_name
from millpond.model.server import TARGET_PREFIXES, Content, Disk, Server, TemplateRef
from millpond.model.sizes import MiB, enough_for, format_size, whole_sectors
from millpond.model.template import Template
from millpond.servers.host import Host
from millpond.system.files import Progress, silent

LOG = logging.getLogger(__name__)

_MOST = 26
"""Letters for targets; no bus that we offer has more than libvirt numbers by letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRequest:
    """What the disks of a new server depend on."""

    server: ServerId
    image: Image
    flavor: Flavor
    bus: str
    boot: BootImages | None = None
    config_size: int = 0
    """Of the config drive; 0 for none."""


def plan(host: Host, request: DiskRequest) -> tuple[Disk, ...]:
    """All disks as they will be. Raises what makes one impossible; changes nothing."""
    disks: list[Disk] = []
    for backend, wanted in _wanted(host, request):
        seen = wanted.content.is_seen_by_the_guest
        taken = {each.target for each in disks}
        target = free_target(request.bus, taken) if seen else ""
        disks.append(host.backend(backend).plan(replace(wanted, target=target)))
    return tuple(disks)


def make(host: Host, server: Server, config_drive: bytes) -> Server:
    """Every disk of the record; the record then has their true sizes."""
    made = []
    for disk in server.disks:
        backend = host.storage_of(disk)
        made.append(backend.create(disk, template(host, server, disk)))
        if disk.content is Content.CONFIG:
            backend.fill(disk, config_drive)
    return replace(server, disks=tuple(made))


def delete(host: Host, server: Server) -> None:
    for disk in server.disks:
        host.storage_of(disk).delete(disk)


def mend(host: Host, server: Server) -> None:
    """What a crash of the host may have left in the disks of a server that is off."""
    for disk in server.disks:
        host.storage_of(disk).mend(disk)


def template(
    host: Host, server: Server, disk: Disk, progress: Progress = silent
) -> Template | None:
    """Fetched if it is not there yet; None for a disk that begins empty."""
    source = server.images.get(disk.content)
    return template_of(host, disk, source.id if source else None, progress)


def template_of(
    host: Host, disk: Disk, image: ImageId | None, progress: Progress = silent
) -> Template | None:
    if disk.template is None:
        return None
    if image:
        described = host.images.describe(image)
        return host.templates.fetch_image(described, disk.template.format, progress)
    return host.blanks.fetch(disk.content, disk.size)


def chains(host: Host, server: Server) -> Mapping[str, Chain]:
    """The layers of every disk, by its role. A pool that cannot be used is an error here."""
    return {disk.role: host.storage_of(disk).chain(disk) for disk in server.disks}


def free_target(bus: str, taken: Collection[str]) -> str:
    """The first name that no disk has."""
    names = (f"{TARGET_PREFIXES[bus]}{chr(ord('a') + number)}" for number in range(_MOST))
    found = next((name for name in names if name not in taken), None)
    if found is None:
        raise BadOption("disks", f"a server can have {_MOST} at the most", "remove one first")
    return found


def _wanted(host: Host, request: DiskRequest) -> Iterator[tuple[Backend, DiskWanted]]:
    flavor = request.flavor
    yield root(host, request)
    if flavor.ephemeral:
        yield blank(host, request.server, "disk.eph0", Content.EPHEMERAL, flavor.ephemeral)
    if flavor.swap:
        yield blank(host, request.server, "disk.swap", Content.SWAP, flavor.swap)
    if request.config_size:
        yield config_drive(request.server, "disk.config", request.config_size)
    if request.boot:
        yield _boot_file(host, request, Content.KERNEL, request.boot.kernel)
        if request.boot.ramdisk:
            yield _boot_file(host, request, Content.RAMDISK, request.boot.ramdisk)


def root(host: Host, request: DiskRequest) -> tuple[Backend, DiskWanted]:
    image = request.image
    choice = host.selection.choose(image.format)
    LOG.debug("image %s goes to backend %s: %s", image.name, choice.backend, choice.reason)
    return choice.backend, DiskWanted(
        server=request.server,
        role="disk",
        size=root_size(request.image, request.flavor),
        template=_base(host, image, choice.template_format),
    )


def config_drive(server: ServerId, role: str, size: int) -> tuple[Backend, DiskWanted]:
    """Always raw, in the directory pool (B12)."""
    wanted = DiskWanted(server=server, role=role, size=size, content=Content.CONFIG)
    return Backend.RAW, wanted


def _boot_file(
    host: Host, request: DiskRequest, content: Content, image: Image
) -> tuple[Backend, DiskWanted]:
    """A copy of the server's own, because libvirt gives it to QEMU's user for the guest's life;
    raw, in a directory pool, because libvirt takes its path (B12)."""
    return Backend.RAW, DiskWanted(
        server=request.server,
        role=content.value,
        size=image.size,
        content=content,
        template=_base(host, image, DiskFormat.RAW),
    )


def _base(host: Host, image: Image, format: DiskFormat) -> TemplateRef:
    return TemplateRef(pool=host.base_pool, volume=template_name(image.id, format), format=format)


def blank(
    host: Host, server: ServerId, role: str, content: Content, size: int
) -> tuple[Backend, DiskWanted]:
    """In whole MiB, so that disks of one size share one template."""
    size = -(-size // MiB) * MiB
    base = TemplateRef(
        pool=host.base_pool, volume=host.blanks.name(content, size), format=DiskFormat.RAW
    )
    return host.selection.blank_backend(), DiskWanted(
        server=server, role=role, size=size, content=content, template=base
    )


def root_size(image: Image, flavor: Flavor) -> int:
    asked, needed = flavor.disk, image.virtual_size
    if not asked and not needed:
        reason = "how large a disk it holds is known only when all of it has been read"
        raise ImageRefused(image.name, reason, "state the size of the server's disk")
    if asked and asked < needed:
        name, enough = image.name, enough_for(needed)
        raise DiskTooSmall(format_size(asked), format_size(needed), name, enough)
    return whole_sectors(asked or needed)
