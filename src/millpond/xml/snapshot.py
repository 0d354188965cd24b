"""The <domainsnapshot> element that we write."""

from dataclasses import dataclass

from millpond.xml.element import Element, at


@dataclass(frozen=True, kw_only=True)
class SnapshotDiskXml(Element, tag="disk"):
    name: str = at("@name")
    snapshot: str = at("@snapshot")
    """``external``, or ``no`` for a disk that is left alone."""
    type: str | None = at("@type", default=None)
    driver_type: str | None = at("driver/@type", default=None)
    file: str | None = at("source/@file", default=None)


@dataclass(frozen=True, kw_only=True)
class DomainSnapshotXml(Element, tag="domainsnapshot"):
    disks: tuple[SnapshotDiskXml, ...] = at("disks/disk", default=())
