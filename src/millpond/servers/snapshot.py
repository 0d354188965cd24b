"""A server's disks as new images, all of one moment, also while the server runs."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from millpond.disks.backend import ImageFile
from millpond.hosts.host import Host
from millpond.images.intake import Intake
from millpond.images.receive import examine
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import ImageFormat
from millpond.model.image import DISKS, ROOT_IMAGE, Image, state_disks
from millpond.model.operation import ROOT, SnapshotDetails
from millpond.model.server import Content, Disk, Server
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step, undo_on_failure
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.quiesce import Quiescence
from millpond.servers.snapshot_strategies import plan_snapshot, strategy_for
from millpond.system import files

LOG = logging.getLogger(__name__)

FORMATS = (ImageFormat.QCOW2, ImageFormat.RAW)


class Consistency(StrEnum):
    """What a copy of disks holds of what the guest was doing."""

    STOPPED = "stopped"
    QUIESCED = "quiesced"
    CRASH = "crash-consistent"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    name: str
    format: ImageFormat = ImageFormat.QCOW2
    compress: bool = False
    all_disks: bool = False
    quiesce: bool | None = None
    """None: if a guest agent answers."""
    progress: Progress = noop
    """Told of the bytes of the disks as they are copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    images: tuple[Image, ...]
    """The root disk's first."""
    consistency: Consistency


def snapshot(host: Host, intake: Intake, server: Server, request: SnapshotRequest) -> Snapshot:
    """Images with the properties of the one that the server came from, and of its hardware. That
    of the root disk names the others, and enters the catalogue last; they name it, for who finds
    them without it."""
    source = intake.find(server.image.id)
    inherited = source.properties if source else {}
    disks = kept_disks(server) if request.all_disks else (server.get_disk(ROOT),)
    with ExitStack() as stack, undo_on_failure() as undo:
        places = {
            disk.role: stack.enter_context(
                intake.adding(
                    image_name(request.name, disk),
                    request.format,
                    image_properties(server, disk, inherited),
                )
            )
            for disk in disks
        }
        targets = {role: part for role, (part, _) in places.items()}
        consistency = extract(host, server, request, targets)
        received = {
            role: examine(part, request.format, request.name) for role, part in targets.items()
        }
        others: dict[str, Image] = {}
        root_image = {ROOT_IMAGE: targets[ROOT].name}
        for role, (_, publish) in places.items():
            if role != ROOT:
                others[role] = publish(received[role], root_image)
                undo.callback(intake.remove, others[role])
        named = state_disks({role: each.id for role, each in others.items()})
        root = places[ROOT][1](received[ROOT], named)
    LOG.info("made image %s of server %s", root.name, server.name)
    return Snapshot(images=(root, *others.values()), consistency=consistency)


def kept_disks(server: Server) -> tuple[Disk, ...]:
    """The disks whose content a guest would miss, the root disk first: not swap, the config drive
    and the medium of the CD-ROM drive, which are made again."""
    made = (Content.IMAGE, Content.BLANK, Content.DATA, Content.EPHEMERAL)
    return tuple(disk for disk in server.disks if disk.content in made)


def image_name(name: str, disk: Disk) -> str:
    """Of a disk's image, in a snapshot of this name."""
    return name if disk.role == ROOT else f"{name}-{disk.role.removeprefix(f'{ROOT}.')}"


def image_properties(
    server: Server, disk: Disk, inherited: Mapping[str, str]
) -> Mapping[str, str]:
    """Of a disk's image. What a root disk boots with is its alone; other images belong to the one
    that it came from."""
    if disk.role != ROOT:
        return {}
    own = {name: value for name, value in inherited.items() if name not in (DISKS, ROOT_IMAGE)}
    return {**own, **hardware_properties(server)}


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


def extract(
    host: Host, server: Server, request: SnapshotRequest, targets: Mapping[str, Path]
) -> Consistency:
    """What its disks hold, by their roles, in new files. They are inspected like any image, when
    the server is free again."""
    images = {
        role: ImageFile(path=path, format=request.format.content, compress=request.compress)
        for role, path in targets.items()
    }
    return copy_disks(host, server, images, request.quiesce, request.progress)[1]


def copy_disks(
    host: Host,
    server: Server,
    images: Mapping[str, ImageFile],
    quiesce: bool | None = None,
    progress: Progress = noop,
) -> tuple[Server, Consistency]:
    """All of them of one moment, and the record of it."""
    directory = next(iter(images.values())).path.parent
    with host.records.lock(server), files.explaining_lack_of_space(directory):
        current = steps.load_idle(host, server)
        steps.refuse_unsettled(current)
        disks = [current.get_disk(role) for role in images]

        def extract(_server: Server) -> None:
            for disk in disks:
                host.disks.extract(disk, images[disk.role], progress)

        return current, _hold_still(host, current, disks, extract, quiesce)


def snapshotting(
    host: Host,
    details: SnapshotDetails,
    extract: Callable[[Server], None] = noop,
    quiescence: Quiescence | None = None,
) -> Verb[Server]:
    """All of it comes before the images are inspected and enter the catalogue: the disks are
    frozen for as long as they are copied and no longer, and what is undone leaves no image."""
    strategy = strategy_for(host, details)
    agent = quiescence or Quiescence(host)
    quiesce = Step("quiesce", as_step(agent.begin), agent.restore)
    release = Step("release", as_step(agent.end), agent.restore)
    restore = partial(_restore, strategy.restore, agent) if details.quiesces else strategy.restore
    taken = (
        Step("overlay", as_step(strategy.prepare), strategy.cleanup),
        *((quiesce,) if details.quiesces else ()),
        Step("freeze", as_step(strategy.begin), restore),
        *((release,) if details.quiesces else ()),
        Step("extract", as_step(extract), partial(_tidy, host, details)),
        Step("thaw", as_step(strategy.end)),
        Step("tidy", as_step(strategy.cleanup)),
    )
    return Verb("snapshot", taken, finished=without_operation, undone=without_operation)


def _hold_still(
    host: Host,
    server: Server,
    disks: Sequence[Disk],
    extract: Callable[[Server], None],
    quiesce: bool | None,
) -> Consistency:
    details = plan_snapshot(host, server, disks, quiesce=quiesce)
    if details is None:
        extract(server)
        return Consistency.STOPPED
    agent = Quiescence(host, insists=bool(quiesce))
    verb = snapshotting(host, details, extract, agent)
    journal.run(verb, server, ServerJournal(host.records, details), host.watch)
    if not details.state:
        return Consistency.STOPPED
    return Consistency.QUIESCED if agent.reached else Consistency.CRASH


def _restore(restore: Callable[[Server], None], agent: Quiescence, server: Server) -> None:
    """The agent of a guest that was left paused answers when that goes on."""
    try:
        restore(server)
    finally:
        agent.restore(server)


def _tidy(host: Host, details: SnapshotDetails, server: Server) -> None:
    for role in details.roles:
        host.disks.tidy(server.get_disk(role))
