"""Servers to files and back: export, import."""

import json
import logging
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from millpond.disks.backend import ImageFile
from millpond.errors import BadOption, HostProblem, MillpondError, NoSpace
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.images.intake import Intake
from millpond.images.receive import examine, receive
from millpond.images.source import Stream
from millpond.model.callbacks import Progress, noop
from millpond.model.devices import Vnc, check_description, parse_word
from millpond.model.image_properties import check_properties
from millpond.model.labels import parse_labels
from millpond.model.names import ServerId, check_id, check_name
from millpond.model.network_option import parse_network
from millpond.model.operation import ROOT
from millpond.model.server import (
    TARGET_PREFIXES,
    Content,
    Disk,
    Network,
    NetworkKind,
    Server,
)
from millpond.model.sizes import LEAST_MEMORY, format_size, whole_sectors
from millpond.model.transfer import Digest
from millpond.records import codec
from millpond.records.records import without_operation
from millpond.servers.archive import (
    ArchivedDisk,
    ArchivedGuest,
    ArchiveReader,
    ArchiveWriter,
    Manifest,
)
from millpond.servers.config_drive import GuestConfiguration, host_name
from millpond.servers.copies import (
    CopyRequest,
    ServerContent,
    check_copy,
    copied_disks,
    create_copy,
    networks_of_a_copy,
)
from millpond.system import files

LOG = logging.getLogger(__name__)


def export(content: ServerContent, target: BinaryIO, progress: Progress = noop) -> Manifest:
    """Everything, in one pass. The images are inspected like any others."""
    disks = [_describe(role, each) for role, each in content.files.items()]
    manifest = Manifest(
        server=codec.plain_server(without_operation(content.server)),
        disks=tuple(disks),
        guest=_archive_guest(content.guest) if content.guest else None,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    writer = ArchiveWriter(target)
    writer.put_manifest(manifest)
    for disk in disks:
        writer.put_disk(disk, content.files[disk.role].path, progress)
    writer.finish()
    return manifest


def read_server(reader: ArchiveReader, manifest: Manifest) -> ServerContent:
    """What the archive says of its server, without the disks. Whatever could not have been said on
    a command line is refused."""
    try:
        server = codec.decode_server(json.dumps(manifest.server).encode(), Path("its server"))
        _check(server)
        return ServerContent(
            server=replace(
                server,
                networks=tuple(_read_network(each) for each in server.networks),
                devices=replace(server.devices, vnc=_local_display(server)),
                leftovers=(),  # doctor would remove what a stranger names there
            ),
            files={},
            guest=_read_guest(manifest.guest) if manifest.guest else None,
        )
    except (MillpondError, RecursionError) as error:
        raise reader.refuse(f"what it says of its server is invalid: {error}") from error


@contextmanager
def receiving(
    intake: Intake, reader: ArchiveReader, manifest: Manifest, progress: Progress = noop
) -> Iterator[ServerContent]:
    """The whole content for the block: every image compared with its digest, and inspected."""
    content = read_server(reader, manifest)
    _compare(reader, manifest, copied_disks(content.server))
    with ExitStack() as stack:
        found: dict[str, ImageFile] = {}
        for disk in manifest.disks:
            _, path = stack.enter_context(intake.arriving())
            if disk.size > (free := files.free_space(path.parent)):
                where = str(path.parent)
                raise NoSpace(where, format_size(disk.size), format_size(free))
            _receive(reader, disk, path, progress)
            found[disk.role] = ImageFile(path=path, format=disk.format)
        yield replace(content, files=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    name: str = ""
    """Empty: the one that it had."""
    new_id: bool = False
    choose_networks: Callable[[tuple[Network, ...]], tuple[Network, ...]] = lambda usual: usual
    """Instead of those that it would have."""
    start: bool = True


def import_server(
    deployment: Deployment,
    reader: ArchiveReader,
    manifest: Manifest,
    request: ImportRequest,
    host: str = "",
    progress: Progress = noop,
) -> Server:
    """Nothing is made before all of the archive has been read and inspected. Killed, it leaves
    files that doctor removes, and a server whose creation is undone."""
    wanted = _plan(deployment, read_server(reader, manifest), request)
    check_copy(deployment, wanted, host)
    intake = Intake(deployment.own_images)
    with receiving(intake, reader, manifest, progress) as content:
        whole = replace(wanted, content=content)
        made = create_copy(deployment, whole, host, start=request.start)
    LOG.info("imported server %s (%s)", made.name, made.id)
    return made


def _plan(deployment: Deployment, content: ServerContent, request: ImportRequest) -> CopyRequest:
    """The same server again, with its id and the MACs of its NICs, unless there is one of that id
    here: then a new one."""
    server = content.server
    is_new = request.new_id or _is_known(deployment, server.id)
    usual = networks_of_a_copy(server) if is_new else server.networks
    return CopyRequest(
        id=ServerId(str(uuid.uuid4())) if is_new else server.id,
        name=request.name or server.name,
        networks=request.choose_networks(usual),
        content=content,
    )


def _is_known(deployment: Deployment, id: ServerId) -> bool:
    """On a host that does not answer it may be all the same; the one that it comes to is asked
    again."""
    return bool(deployment.records.find(id)) or any(
        _has_domain(host, id) for host in deployment.hosts.values()
    )


def _has_domain(host: Host, id: ServerId) -> bool:
    with suppress(HostProblem):
        return host.domains.description(id) is not None
    return False


def _describe(role: str, image: ImageFile) -> ArchivedDisk:
    disk = ArchivedDisk(role=role, format=image.format, size=0, virtual_size=0, sha512="")
    found = examine(image.path, disk.image_format, role)
    return replace(disk, size=found.size, virtual_size=found.virtual_size, sha512=found.digest)


def _receive(reader: ArchiveReader, disk: ArchivedDisk, path: Path, progress: Progress) -> None:
    stream = Stream(
        chunks=lambda _offset: reader.read_disk(disk),
        digest=Digest(algorithm="sha512", value=disk.sha512),
        length=lambda: disk.size,
    )
    found = receive(stream, path, disk.image_format, disk.member, progress)
    if found.virtual_size != disk.virtual_size:
        raise reader.refuse(f"{disk.member} is not as large as its manifest says")


def _compare(reader: ArchiveReader, manifest: Manifest, disks: Sequence[Disk]) -> None:
    """Whether there is an image for every disk, and none is larger than its disk."""
    sizes = {disk.role: whole_sectors(disk.size) for disk in disks}
    if sorted(sizes) != sorted(each.role for each in manifest.disks):
        raise reader.refuse("its disks are not those of its server")
    for each in manifest.disks:
        if not 0 < each.virtual_size <= sizes[each.role]:
            raise reader.refuse(f"{each.member} does not fit its disk")


_ROLES = {
    Content.IMAGE: r"disk",
    Content.BLANK: r"disk",
    Content.EPHEMERAL: r"disk\.eph\d{1,2}",
    Content.DATA: r"disk\.(data|eph)\d{1,2}",
    Content.SWAP: r"disk\.swap",
    Content.CONFIG: r"disk\.config",
    Content.CDROM: r"cdrom",
    Content.KERNEL: r"kernel",
    Content.RAMDISK: r"ramdisk",
    Content.NVRAM: r"nvram",
}
_TARGET = r"([hsv]d[a-z])?"
_LARGEST = 1 << 50
_LONGEST_TEXT = 4096
_MOST_VCPUS = 1024  # as of a new server


def _check(server: Server) -> None:
    """Raises what is invalid, as on a command line."""
    for text in _texts(codec.plain_server(replace(server, description=""))):
        if len(text) > _LONGEST_TEXT or not text.isprintable():
            raise BadOption("server", f"{text[:20]!r}… is no name, and no value of anything")
    check_id("a server", server.id)
    check_name("a server", server.name)
    check_description(server.description)
    parse_labels(f"{key}={value}" for key, value in server.labels.items())
    hardware, boot, flavor = server.hardware, server.boot, server.flavor
    check_properties(
        {
            "hw_machine_type": hardware.machine,
            "hw_disk_bus": hardware.disk_bus,
            "hw_vif_model": hardware.vif_model,
            "os_command_line": boot.command_line if boot else "",
        }
    )
    for option, word in (("--cpu", server.devices.cpu), ("--video", server.devices.video)):
        if word:
            parse_word(option, word)
    most, largest = flavor.most_vcpus, flavor.most_memory
    if not 0 < flavor.vcpus <= most <= _MOST_VCPUS:
        raise BadOption("flavor", f"{flavor.vcpus} of {most} vCPUs")
    if not LEAST_MEMORY <= flavor.memory <= largest <= _LARGEST:
        raise BadOption("flavor", f"{flavor.memory} of {largest} bytes of memory")
    _check_disks(server)


def _texts(value: object) -> Iterator[str]:
    """All in what JSON knows, keys too."""
    match value:
        case str():
            yield value
        case dict():
            for each in (*value, *value.values()):
                yield from _texts(each)
        case list() | tuple():
            for each in value:
                yield from _texts(each)


def _check_disks(server: Server) -> None:
    drive = server.cdrom
    disks = [disk for disk in server.disks if disk.content is not Content.CDROM]
    places = [(disk.target, disk.bus) for disk in disks]
    places += [(drive.target, drive.bus)] if drive else []
    for target, bus in places:
        if not re.fullmatch(_TARGET, target) or bus not in ("", *TARGET_PREFIXES):
            raise BadOption("disks", f"{target!r} on bus {bus!r}")
    named = Counter(disk.role for disk in server.disks)
    named.update(target for target, _ in places if target)
    if ROOT not in named or max(named.values()) > 1:
        raise BadOption("disks", f"not one of each: {', '.join(sorted(named))}")
    for disk in server.disks:
        least = 0 if disk.content is Content.NVRAM else 1
        if not re.fullmatch(_ROLES[disk.content], disk.role) or not least <= disk.size <= _LARGEST:
            raise BadOption("disks", f"{disk.role!r} with {disk.content}, {disk.size} bytes")


def _read_network(network: Network) -> Network:
    """As if it was said on the command line. Ports of this host are published by who says so."""
    said = {
        "mac": network.mac,
        "ip": network.address,
        "gateway": network.gateway if network.address else "",
        "dns": "+".join(network.nameservers) if network.address else "",
    }
    match network.kind:
        case NetworkKind.USER:
            source = "user"
        case NetworkKind.BRIDGE:
            source = f"bridge:{network.source}"
        case NetworkKind.NETWORK:
            source = network.source
    words = [source, *(f"{key}={each}" for key, each in said.items() if each)]
    found = parse_network(",".join(words))
    if found is None or found.kind is not network.kind:
        raise BadOption("--network", f"{network.source!r} is no network")
    return found


def _local_display(server: Server) -> Vnc | None:
    """What an archive says makes nothing listen beyond this machine."""
    return Vnc() if server.devices.vnc else None


def _archive_guest(guest: GuestConfiguration) -> ArchivedGuest:
    return ArchivedGuest(hostname=guest.hostname, keys=guest.keys, user_data=guest.user_data)


def _read_guest(guest: ArchivedGuest) -> GuestConfiguration:
    """Its keys are for the guest, as are its data."""
    if guest.hostname and host_name(guest.hostname) != guest.hostname.lower():
        raise BadOption("--hostname", f"{guest.hostname!r} cannot be the name of a host")
    return GuestConfiguration(hostname=guest.hostname, keys=guest.keys, user_data=guest.user_data)
