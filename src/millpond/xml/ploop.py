"""What we read of a DiskDescriptor.xml, which says what a ploop directory holds.

docs/interop/prl-xml.txt in QEMU describes it.
"""

from dataclasses import dataclass

from millpond.xml.element import Element, at


@dataclass(frozen=True, kw_only=True)
class PloopImageXml(Element, tag="Image"):
    type: str | None = at("Type", default=None)
    """Compressed: in Parallels' format. Plain: raw."""
    file: str | None = at("File", default=None)


@dataclass(frozen=True, kw_only=True)
class PloopStorageXml(Element, tag="Storage"):
    """One part of the disk; each snapshot adds an image to it."""

    images: tuple[PloopImageXml, ...] = at("Image", default=())


@dataclass(frozen=True, kw_only=True)
class PloopShotXml(Element, tag="Shot"):
    """A snapshot; the disk as it is counts as one."""

    id: str | None = at("GUID", default=None)


@dataclass(frozen=True, kw_only=True)
class PloopDescriptorXml(Element, tag="Parallels_disk_image"):
    sectors: int | None = at("Disk_Parameters/Disk_size", default=None)
    storages: tuple[PloopStorageXml, ...] = at("StorageData/Storage", default=())
    shots: tuple[PloopShotXml, ...] = at("Snapshots/Shot", default=())

    @property
    def images(self) -> list[PloopImageXml]:
        return [image for storage in self.storages for image in storage.images]
