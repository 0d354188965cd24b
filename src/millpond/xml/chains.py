"""What a domain's disks stand on: read of every domain of a host, whoever made it."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.xml.element import Element, at


@dataclass(frozen=True, kw_only=True)
class LayerXml(Element, tag="backingStore"):
    file: str | None = at("source/@file", default=None)
    device: str | None = at("source/@dev", default=None)
    pool: str | None = at("source/@pool", default=None)
    volume: str | None = at("source/@volume", default=None)
    name: str | None = at("source/@name", default=None)
    """In the network."""
    below: LayerXml | None = at("backingStore", default=None)


@dataclass(frozen=True, kw_only=True)
class MirrorXml(LayerXml, tag="mirror"):
    """What a block job copies to."""


@dataclass(frozen=True, kw_only=True)
class TopXml(LayerXml, tag="disk"):
    mirror: MirrorXml | None = at("mirror", default=None)


@dataclass(frozen=True, kw_only=True)
class ChainsXml(Element, tag="domain"):
    name: str = at("name")
    kernel: str | None = at("os/kernel", default=None)
    initrd: str | None = at("os/initrd", default=None)
    disks: tuple[TopXml, ...] = at("devices/disk", default=())
