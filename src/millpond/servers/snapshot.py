"""A server's root disk as a new image, of one moment, also while the server runs."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from millpond.disks.backend import ImageFile
from millpond.hosts.host import Host
from millpond.images.intake import Intake
from millpond.images.receive import Received, examine
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.operation import SnapshotDetails
from millpond.model.server import Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.snapshot_strategies import ROOT, plan_snapshot, strategy_for
from millpond.system import files

LOG = logging.getLogger(__name__)

FORMATS = (ImageFormat.QCOW2, ImageFormat.RAW)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    name: str
    format: ImageFormat = ImageFormat.QCOW2
    compress: bool = False
    progress: Progress = noop
    """Told of the bytes of the disk as they are copied."""


def snapshot(host: Host, intake: Intake, server: Server, request: SnapshotRequest) -> Image:
    """It has the properties of the image that the server came from, and of its hardware."""
    source = intake.find(server.image.id)
    properties = {**(source.properties if source else {}), **hardware_properties(server)}
    with intake.adding(request.name, request.format, properties) as (part, publish):
        image = publish(extract(host, server, request, part))
    LOG.info("made image %s of server %s", image.name, server.name)
    return image


def hardware_properties(server: Server) -> dict[str, str]:
    """What the guest on its root disk has booted with, by Glance's names."""
    hardware, root = server.hardware, server.get_disk(ROOT)
    found = {
        "hw_firmware_type": hardware.firmware.value,
        "hw_machine_type": hardware.machine,
        "hw_disk_bus": root.bus or hardware.disk_bus,
        "hw_vif_model": hardware.vif_model,
    }
    return {name: value for name, value in found.items() if value}


def extract(host: Host, server: Server, request: SnapshotRequest, target: Path) -> Received:
    """What its root disk holds, in a new file. It is inspected like any image, when the server is
    free again."""
    with host.records.lock(server), files.explaining_lack_of_space(target.parent):
        _copy(host, steps.load_idle(host, server), request, target)
    return examine(target, request.format, request.name)


def snapshotting(
    host: Host, details: SnapshotDetails, extract: Callable[[Server], None] = noop
) -> Verb[Server]:
    """All of it comes before the image is inspected and enters the catalogue: the disk is frozen
    for as long as it is copied and no longer, and what is undone leaves no image."""
    strategy = strategy_for(host, details)
    taken = (
        Step("overlay", as_step(strategy.prepare), strategy.cleanup),
        Step("freeze", as_step(strategy.begin), strategy.restore),
        Step("extract", as_step(extract), partial(_tidy, host)),
        Step("thaw", as_step(strategy.end)),
        Step("tidy", as_step(strategy.cleanup)),
    )
    return Verb("snapshot", taken, finished=without_operation, undone=without_operation)


def _copy(host: Host, server: Server, request: SnapshotRequest, target: Path) -> None:
    disk = server.get_disk(ROOT)

    def extract(_server: Server) -> None:
        format = request.format.content
        image = ImageFile(path=target, format=format, compress=request.compress)
        host.disks.extract(disk, image, request.progress)

    details = plan_snapshot(host, server)
    if details is None:
        extract(server)
    else:
        verb = snapshotting(host, details, extract)
        journal.run(verb, server, ServerJournal(host.records, details), host.watch)


def _tidy(host: Host, server: Server) -> None:
    host.disks.tidy(server.get_disk(ROOT))
