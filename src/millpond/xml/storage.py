"""The <pool> and <volume> elements that we write and read."""

from dataclasses import dataclass

from millpond.xml.domain import MonitorXml
from millpond.xml.element import Element, at

_RBD = "http://libvirt.org/schemas/storagepool/rbd/1.0"


@dataclass(frozen=True, kw_only=True)
class RbdOptionXml(Element, tag="option", namespace=_RBD):
    """One of Ceph's own options, for what libvirt does in an RBD pool."""

    name: str = at("@name")
    value: str = at("@value")


@dataclass(frozen=True, kw_only=True)
class PoolXml(Element, tag="pool"):
    type: str = at("@type")
    name: str = at("name")
    capacity: int | None = at("capacity", default=None)
    allocation: int | None = at("allocation", default=None)
    available: int | None = at("available", default=None)
    source_hosts: tuple[MonitorXml, ...] = at("source/host", default=())
    source: str | None = at("source/name", default=None)
    auth_type: str | None = at("source/auth/@type", default=None)
    user: str | None = at("source/auth/@username", default=None)
    secret: str | None = at("source/auth/secret/@uuid", default=None)
    copy_on_write: str | None = at("features/cow/@state", default=None)
    path: str | None = at("target/path", default=None)
    mode: str | None = at("target/permissions/mode", default=None)
    rbd_options: tuple[RbdOptionXml, ...] = at(
        f"{{{_RBD}}}config_opts/{{{_RBD}}}option", default=()
    )


@dataclass(frozen=True, kw_only=True)
class VolumeXml(Element, tag="volume"):
    name: str = at("name")
    capacity: int = at("capacity")
    allocation: int | None = at("allocation", default=None)
    physical: int | None = at("physical", default=None)
    path: str | None = at("target/path", default=None)
    format: str | None = at("target/format/@type", default=None)
    compat: str | None = at("target/compat", default=None)
    mode: str | None = at("target/permissions/mode", default=None)
    changed: str | None = at("target/timestamps/ctime", default=None)
    backing_path: str | None = at("backingStore/path", default=None)
    backing_format: str | None = at("backingStore/format/@type", default=None)
