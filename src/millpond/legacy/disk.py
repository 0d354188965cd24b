"""A disk in Nova's legacy layout as it is found: described, and with what speaks against it."""

from dataclasses import dataclass

from millpond.model.formats import Backend, DiskFormat
from millpond.model.names import ServerId
from millpond.model.server import Content, Disk, TemplateRef

CONFIG_DRIVE = "disk.config"

_CONTENTS = {
    "kernel": Content.KERNEL,
    "ramdisk": Content.RAMDISK,
    CONFIG_DRIVE: Content.CONFIG,
    "disk.swap": Content.SWAP,
    "disk.local": Content.EPHEMERAL,
    "disk.eph": Content.EPHEMERAL,
}


NO_EVIDENCE = (Content.CONFIG, Content.KERNEL, Content.RAMDISK)
"""Without another one, they do not make a server legacy (B22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyDisk:
    role: str
    path: str
    """A file, the directory of a ploop disk, a device, or a Ceph pool and an image."""
    layout: Backend | None = None
    format: DiskFormat | None = None
    size: int | None = None
    base: TemplateRef | None = None
    pool: str = ""
    """Of a logical volume or an RBD image, which is a volume of our pool as it is (B25)."""
    volume: str = ""
    obstacles: tuple[str, ...] = ()
    """Why it is not taken, in words."""

    @property
    def content(self) -> Content:
        fitting = (each for name, each in _CONTENTS.items() if self.role.startswith(name))
        return next(fitting, Content.IMAGE)

    def record(self, *, target: str, bus: str) -> Disk:
        """As a disk of a server of ours. Only for one that nothing speaks against."""
        assert not self.obstacles
        assert self.layout
        assert self.format
        assert self.size is not None
        return Disk(
            role=self.role,
            backend=self.layout,
            pool=self.pool,
            volume=self.volume,
            format=self.format,
            size=self.size,
            target=target,
            content=self.content,
            template=self.base,
            overlay=self.base is not None,
            path="" if self.pool else self.path,
            bus=bus,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyServer:
    id: ServerId
    disks: tuple[LegacyDisk, ...]

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Each once, with all the disks that it is of."""
        roles: dict[str, list[str]] = {}
        for disk in self.disks:
            for each in disk.obstacles:
                roles.setdefault(each, []).append(disk.role)
        return tuple(f"{', '.join(named)}: {each}" for each, named in roles.items())

    @property
    def layout(self) -> str:
        """Of its disks, without those that always are files."""
        disks = (each for each in self.disks if each.content not in NO_EVIDENCE)
        return ", ".join(dict.fromkeys(each.layout or "unknown" for each in disks))
