"""What a domain's disks stand on: read of every domain of a host, whoever made it."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.xml.element import Element, at


@dataclass(frozen=True, kw_only=True)
class LayerXml(Element, tag="backingStore"):
    """A <disk>, a <backingStore> or a <mirror>: they have the same parts."""

    file: str | None = at("source/@file", default=None)
    device: str | None = at("source/@dev", default=None)
    pool: str | None = at("source/@pool", default=None)
    volume: str | None = at("source/@volume", default=None)
    below: LayerXml | None = at("backingStore", default=None)


@dataclass(frozen=True, kw_only=True)
class ChainsXml(Element, tag="domain"):
    name: str = at("name")
    kernel: str | None = at("os/kernel", default=None)
    initrd: str | None = at("os/initrd", default=None)
    disks: tuple[LayerXml, ...] = at("devices/disk", default=())
    mirrors: tuple[LayerXml, ...] = at("devices/disk/mirror", default=())
