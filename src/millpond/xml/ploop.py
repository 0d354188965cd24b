"""DiskDescriptor.xml: what a ploop directory says of the disk in it."""

from dataclasses import dataclass

from millpond.xml.element import Element, at


@dataclass(frozen=True, kw_only=True)
class PloopImageXml(Element, tag="Image"):
    type: str | None = at("Type", default=None)
    """Compressed: in Parallels' format. Plain: raw."""
    file: str | None = at("File", default=None)


@dataclass(frozen=True, kw_only=True)
class DiskDescriptorXml(Element, tag="Parallels_disk_image"):
    sectors: int | None = at("Disk_Parameters/Disk_size", default=None)
    images: tuple[PloopImageXml, ...] = at("StorageData/Storage/Image", default=())
    """More than one: it has snapshots."""
