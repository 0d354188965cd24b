"""A server's record: everything that must be known to make, find and remove it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from millpond.errors import DiskNotFound
from millpond.model.devices import Devices
from millpond.model.formats import Backend, DiskFormat, ImageFormat
from millpond.model.image import Image
from millpond.model.names import ImageId, ServerId, extracted_name, grown_name
from millpond.model.operation import (
    DeleteDetails,
    FormerSizes,
    Operation,
    OverlayDetails,
    Overlays,
    SettleDetails,
)
from millpond.model.sizes import GiB, MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    name: str = ""
    vcpus: int = 1
    memory: int = 512 * MiB
    disk: int = 0
    """Size of the root disk; 0 means as large as the image."""
    ephemeral: int = 0
    swap: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    """What hosts must have for it, by Nova's names."""
    max_vcpus: int = 0
    max_memory: int = 0
    """What the two can become while it runs; 0: no more than it has."""

    @property
    def most_vcpus(self) -> int:
        return max(self.vcpus, self.max_vcpus)

    @property
    def most_memory(self) -> int:
        return max(self.memory, self.max_memory)


SMALL = Flavor(name="small", vcpus=1, memory=1 * GiB)


SCHEMA = 1
"""Version of the record's layout; a newer one than ours is refused, never guessed at."""

RESCUE = "disk.rescue"
"""The role of the disk that a server is rescued by."""

SAVED = "disk.saved"
"""The role of what its root disk was before a resize that can be reverted."""

TARGET_PREFIXES = {"virtio": "vd", "scsi": "sd", "sata": "sd", "usb": "sd", "ide": "hd"}
"""How a guest names its disks, by their bus."""


_LONGEST_SERIAL = 20
"""Of virtio-blk (VIRTIO_BLK_ID_BYTES) and ATA."""


class Firmware(StrEnum):
    BIOS = "bios"
    UEFI = "uefi"


class NetworkKind(StrEnum):
    USER = "user"
    NETWORK = "network"
    BRIDGE = "bridge"


class VirtType(StrEnum):
    KVM = "kvm"
    QEMU = "qemu"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortForward:
    """A port of the host that leads to one of the guest."""

    address: str
    """Of the host: 127.0.0.1, or 0.0.0.0 for all of its own."""
    port: int
    guest: int
    protocol: str = "tcp"

    def __str__(self) -> str:
        return f"{self.address}:{self.port} -> {self.guest}/{self.protocol}"

    def overlaps(self, other: Self) -> bool:
        everywhere = "0.0.0.0" in (self.address, other.address)
        same = (self.port, self.protocol) == (other.port, other.protocol)
        return same and (everywhere or self.address == other.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    kind: NetworkKind
    source: str = ""
    mac: str = ""
    address: str = ""
    """A fixed one with its prefix, such as 192.168.122.50/24. Empty: the guest asks for one."""
    gateway: str = ""
    nameservers: tuple[str, ...] = ()
    ports: tuple[PortForward, ...] = ()
    """Published; of the user network alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRef:
    """The image that a server was made from, as it was then."""

    id: ImageId
    name: str
    format: ImageFormat

    @classmethod
    def of(cls, image: Image) -> Self:
        return cls(id=image.id, name=image.name, format=image.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRef:
    """The template that a disk is made from."""

    pool: str
    volume: str
    format: DiskFormat


class Content(StrEnum):
    """What a disk holds when it is made."""

    IMAGE = "image"
    EPHEMERAL = "ephemeral"
    SWAP = "swap"
    CONFIG = "config"
    DATA = "data"
    """Nothing."""
    BLANK = "blank"
    """Nothing either, and the server is to be installed on it."""
    CDROM = "cdrom"
    """An ISO image, in the CD-ROM drive."""
    KERNEL = "kernel"
    RAMDISK = "ramdisk"
    NVRAM = "nvram"
    """The variables of UEFI. libvirt makes their volume when the server first starts."""

    @property
    def is_seen_by_the_guest(self) -> bool:
        """As a disk. Others are files that QEMU opens by their paths."""
        return self not in (Content.KERNEL, Content.RAMDISK, Content.NVRAM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk whose format *we* chose and wrote (B50)."""

    role: str
    backend: Backend
    pool: str
    volume: str
    format: DiskFormat
    size: int
    """0 of UEFI variables: it is libvirt's template for them that has one."""
    target: str
    """The name that the domain has for it, such as vda: it stays when other disks come and go.
    Empty for what the guest does not see: a kernel, or a disk that is detached."""
    content: Content = Content.IMAGE
    template: TemplateRef | None = None
    overlay: bool = False
    """It is backed by its template for life; otherwise it is a copy and needs it only once."""
    path: str = ""
    """Where it lies if it is in no pool, but in Nova's legacy layout: a file, or the directory of
    a ploop disk. Pool and volume are empty then, and its template is a file of the cache."""
    bus: str = ""
    """Empty: as the server's hardware has it."""
    image: ImageRef | None = None
    """What a data disk was made from; None: it began empty, or is a disk of another kind."""

    @property
    def is_attached(self) -> bool:
        return bool(self.target)

    @property
    def serial(self) -> str:
        """What its guest finds it by, whatever other disks there are."""
        return self.role[:_LONGEST_SERIAL]

    @property
    def location(self) -> str:
        """Where it is, in words."""
        return self.path or f"{self.pool}/{self.volume}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CdromDrive:
    """It stays when the medium, a disk of its own, is ejected."""

    target: str
    bus: str
    image: ImageRef | None = None
    """What is in it; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectBoot:
    """A kernel that QEMU starts itself: the root disk has no boot loader."""

    kernel: ImageRef
    ramdisk: ImageRef | None = None
    command_line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What the image's properties or the command line ask of the virtual machine."""

    virt_type: VirtType = VirtType.QEMU
    firmware: Firmware = Firmware.BIOS
    machine: str = ""
    """With its version (pc-i440fx-7.2), so that an upgrade of QEMU does not change the hardware
    of a guest. A record from before may have a shorter name, or none: libvirt's choice."""
    disk_bus: str = "virtio"
    vif_model: str = "virtio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What a move left on a host that did not answer: its domain, off, and copies of its disks."""

    host: str
    disks: tuple[Disk, ...]
    """As they are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    id: ServerId
    name: str
    host: str
    image: ImageRef
    flavor: Flavor
    hardware: Hardware
    networks: tuple[Network, ...] = ()
    disks: tuple[Disk, ...] = ()
    boot: DirectBoot | None = None
    """None: the root disk boots by itself."""
    cdrom: CdromDrive | None = None
    """None: it has no drive."""
    operation: Operation | None = None
    created: str = ""
    should_run: bool = False
    """What was last asked for. Not in a record from before, which says nothing of it."""
    autostart: bool = True
    """Whether it starts with its host, if it should run."""
    devices: Devices = field(default_factory=Devices)
    description: str = ""
    """For people."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """For people and scripts, to find it by."""
    resized_from: FormerSizes | None = None
    """Until a resize that can be reverted is confirmed; its root disk of then is another disk."""
    leftovers: tuple[Leftover, ...] = ()
    """On other hosts; nothing of it is used."""
    schema: int = field(default=SCHEMA)

    @property
    def overlays(self) -> Overlays:
        """What an operation, under way or interrupted, puts above its disks."""
        match self.operation and self.operation.details:
            case OverlayDetails(overlays=found) | DeleteDetails(overlays=found):
                return found
            case SettleDetails(every_overlay=found):
                return found
        return {}

    @property
    def starts_with_host(self) -> bool:
        return self.should_run and self.autostart

    @property
    def is_rescued(self) -> bool:
        return self.find_disk(RESCUE) is not None

    @property
    def keeps_variables(self) -> bool:
        """Those of UEFI lie in a pool. Of a server that was made before, libvirt has them in a
        file of its host that is named by the domain."""
        return self.find_disk(Content.NVRAM) is not None

    def find_disk(self, role: str = "disk") -> Disk | None:
        """By its role, or by its target."""
        named = (each for each in self.disks if role and role in (each.role, each.target))
        return next(named, None)

    def get_disk(self, role: str = "disk") -> Disk:
        if found := self.find_disk(role):
            return found
        raise DiskNotFound(self.name, role, tuple(each.role for each in self.disks))

    @property
    def images(self) -> Mapping[Content, ImageRef]:
        """What its disks were made from, by what they hold."""
        boot = self.boot
        found = {
            Content.IMAGE: self.image,
            Content.KERNEL: boot and boot.kernel,
            Content.RAMDISK: boot and boot.ramdisk,
            Content.CDROM: self.cdrom and self.cdrom.image,
        }
        return {content: image for content, image in found.items() if image}

    def image_of(self, disk: Disk) -> ImageRef | None:
        """What it was made from; None: from none."""
        return disk.image or self.images.get(disk.content)

    @property
    def every_image(self) -> tuple[ImageRef, ...]:
        """With those that its data disks were made from."""
        return (*self.images.values(), *(each.image for each in self.disks if each.image))

    def volumes_of(self, disk: Disk) -> tuple[str, ...]:
        """Its volume, and what may lie next to it while an operation is under way."""
        beside = (grown_name(disk.volume), extracted_name(disk.volume))
        return (disk.volume, *beside) if self.operation else (disk.volume,)
