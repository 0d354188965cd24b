"""A layer put on a disk of a running domain, and taken away again: libvirt's calls for it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from millpond.errors import LibvirtFailed, Unsupported
from millpond.libvirt.domain_disks import find_path
from millpond.model.formats import DiskFormat
from millpond.model.layer import Chain
from millpond.model.names import ServerId
from millpond.system import libvirtd
from millpond.system.libvirtd import Libvirtd
from millpond.xml.domain import (
    DiskXml,
    DomainSnapshotXml,
    DomainXml,
    SnapshotDiskXml,
    layers_xml,
)
from millpond.xml.migration import put_layers

COPY = "copy"
"""As a domain names a job that copies a disk. It is never a snapshot's of ours: that one's is
"active-commit", and has no name while libvirt clears it away after a failure."""


class BlockJobs:
    def __init__(self, host: Libvirtd) -> None:
        self._host = host

    def size(self, id: ServerId, target: str) -> int:
        """Of a disk as the guest sees it: told by QEMU, and by nothing that lies on the disk."""
        with self._running(id, f"asking for the size of {target}") as domain:
            return int(domain.blockInfo(target)[0])

    def freeze(self, id: ServerId, overlays: Mapping[str, str]) -> None:
        """The guest goes on in overlays, files by the targets of their disks. What it has written
        so far stays as it is, on all of them at one moment; other disks are left alone."""
        with self._running(id, f"freezing {', '.join(overlays)}") as domain:
            running = DomainXml.from_xml(domain.XMLDesc(0))
            for target in overlays:
                _define_alike(domain, running, target)
            disks = tuple(
                _snapshot_disk(disk, overlays.get(disk.target)) for disk in running.disks
            )
            xml = DomainSnapshotXml(disks=disks).to_xml()
            domain.snapshotCreateXML(xml, libvirtd.FREEZE_FLAGS)

    def commit(self, id: ServerId, target: str, overlay: str) -> None:
        """Begin to write an overlay into the layer below it. It is named: where it is not on the
        disk any more, libvirt refuses, and no other layer is written to."""
        with self._running(id, f"committing {target}") as domain:
            domain.blockCommit(target, None, overlay, 0, libvirtd.COMMIT_FLAGS)

    def pivot(self, id: ServerId, target: str) -> None:
        """Let the guest go on in the layer that its overlay was written into."""
        with self._running(id, f"pivoting {target}") as domain:
            domain.blockJobAbort(target, libvirtd.PIVOT)

    def remaining(self, id: ServerId, target: str) -> int:
        """Bytes that a block job still has to write; the guest may add to them."""
        with self._running(id, f"asking for the job of {target}") as domain:
            job = domain.blockJobInfo(target, 0)
            return int(job["end"] - job["cur"]) if job else 0

    def files(self, id: ServerId) -> frozenset[str]:
        """All that QEMU has opened for the disks of a domain, told by QEMU: libvirt may have lost
        track of a layer. libvirt marks a domain that was asked so as tainted."""
        with self._running(id, "asking QEMU for the files") as domain:
            return libvirtd.list_open_files(domain)

    def mirror(self, id: ServerId, target: str, chain: Chain) -> None:
        """Begin to copy a disk into an empty image of its size: all its layers in one, or, where
        the image is backed by what the disk is, its top. The domain stays as it is defined, and
        the copy ends with it, with stop_mirroring(), pivot() or by itself."""
        layers = layers_xml(chain)
        copy = DiskXml(
            type=layers.type,
            driver_type=layers.format,
            source=layers.source,
            backing=layers.backing,
            target=target,
        )
        top = libvirtd.MIRROR_TOP if len(chain) > 1 else 0
        with self._running(id, f"copying {target}") as domain:
            domain.blockCopy(target, copy.to_xml(), {}, libvirtd.MIRROR_FLAGS | top)

    def is_mirrored(self, id: ServerId, target: str) -> bool:
        """Whether all is copied, and the copy follows whatever is written."""
        with self._running(id, f"asking for the copy of {target}") as domain:
            disk = DomainXml.from_xml(domain.XMLDesc(0)).disk(target)
        if disk is None or disk.job != COPY:
            raise LibvirtFailed(f"copying {target} of domain {id}", 0, "the copy broke off")
        return disk.job_ready == "yes"

    def stop_mirroring(self, id: ServerId, target: str) -> None:
        """The copy is of this moment then; where none is under way, nothing happens."""
        with self._running(id, f"ending the copy of {target}") as domain:
            disk = DomainXml.from_xml(domain.XMLDesc(0)).disk(target)
            if disk and disk.job == COPY:
                domain.blockJobAbort(target, 0)

    @contextmanager
    def _running(self, id: ServerId, doing: str) -> Iterator[Any]:
        with self._host.calling(f"{doing} of domain {id}", slow=True) as connection:
            yield connection.lookupByUUIDString(id)


def _define_alike(domain: Any, running: DomainXml, target: str) -> None:
    """libvirt leads the definition to the overlay, too (trap 28), but only if it names the same
    disk in the same way. Otherwise what the guest wrote would be forgotten with its next start."""
    definition = domain.XMLDesc(libvirtd.XML_WHOLE)
    defined, found = DomainXml.from_xml(definition).disk(target), running.disk(target)
    here, there = (found and found.source), (defined and defined.source)
    if here and there and here == there:
        return
    if not here or not there or find_path(domain, here) != find_path(domain, there):
        raise Unsupported(
            f"freezing {target}",
            "the running domain and its definition name different disks",
            "reboot the server, or make the snapshot while it is off",
        )
    assert found
    assert defined
    named = replace(found, backing=defined.backing)
    text = put_layers(definition, {target: named})
    domain.connect().defineXMLFlags(text, libvirtd.DOMAIN_DEFINE_FLAGS)


def _snapshot_disk(disk: DiskXml, overlay: str | None) -> SnapshotDiskXml:
    """Said of every disk: for one that is not named, libvirt would make an overlay by itself."""
    if overlay is None:
        return SnapshotDiskXml(name=disk.target, snapshot="no")
    return SnapshotDiskXml(
        name=disk.target,
        snapshot="external",
        type="file",  # libvirt takes no volume here (trap 15)
        driver_type=DiskFormat.QCOW2,
        file=overlay,
    )
