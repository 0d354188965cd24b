"""The layers of a disk to what a ``<disk>`` says of them, stated to their end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millpond.model.formats import DiskFormat
from millpond.model.layer import (
    Chain,
    FileSource,
    IscsiSource,
    Layer,
    RbdSource,
    Source,
    VolumeSource,
)
from millpond.xml.domain import BackingStoreXml, MonitorXml, SliceXml, SourceXml


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersXml:
    """What a ``<disk>`` says of its layers, for whoever writes the rest of it."""

    type: str
    format: DiskFormat
    source: SourceXml
    backing: BackingStoreXml


def layers_xml(chain: Chain) -> LayersXml:
    top, *below = chain
    return LayersXml(
        type=_type(top.source),
        format=top.format,
        source=_source(top.source),
        backing=_backing(below),
    )


def _backing(layers: Sequence[Layer]) -> BackingStoreXml:
    """The rest of the chain, stated to its end."""
    if not layers:
        return BackingStoreXml()  # empty: libvirt probes nothing
    base, *below = layers
    return BackingStoreXml(
        type=_type(base.source),
        format=base.format,
        source=_base_source(base),
        below=_backing(below),
    )


def _base_source(base: Layer) -> SourceXml:
    """A base keeps its owner: it is root's, and stays so (trap 17)."""
    slices = () if base.length is None else (SliceXml(size=base.length),)
    source = replace(_source(base.source), slices=slices)
    if source.protocol:
        return source
    return replace(source, seclabel_model="dac", seclabel_relabel="no")


def _type(source: Source) -> str:
    match source:
        case VolumeSource():
            return "volume"
        case FileSource(device=device):
            return "block" if device else "file"
        case RbdSource() | IscsiSource():
            return "network"


def _source(source: Source) -> SourceXml:
    match source:
        case VolumeSource(pool=pool, volume=volume):
            return SourceXml(pool=pool, volume=volume)
        case FileSource(path=path, device=device):
            return SourceXml(device=path) if device else SourceXml(file=path)
        case IscsiSource(host=host, port=port, place=place, initiator=initiator):
            return SourceXml(
                protocol="iscsi",
                name=place,
                monitors=(MonitorXml(name=host, port=port),),
                initiator=initiator or None,
            )
        case RbdSource(access=access, place=place, snapshot=snapshot):
            return SourceXml(
                protocol="rbd",
                name=place,
                snapshot=snapshot or None,
                monitors=tuple(MonitorXml(name=name, port=port) for name, port in access.monitors),
                user=access.user or None,
                secret_type="ceph" if access.secret else None,
                secret=access.secret or None,
            )
