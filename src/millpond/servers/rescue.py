"""Rescue a server: it boots from another image, and its own root disk is one disk more.

The disk to boot from has the root disk's place in the domain, and the root disk another one, for
as long as the record has both.
"""

import logging
from dataclasses import dataclass, field, replace
from functools import partial

from millpond.disks.backend import DiskRequest
from millpond.errors import Conflict, Tool, Unsupported, VolumeExists
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.boot_images import find_boot_images
from millpond.model.callbacks import Progress, noop
from millpond.model.image import Image
from millpond.model.names import ImageId
from millpond.model.operation import ROOT, RescueDetails
from millpond.model.server import RESCUE, ImageRef, Server
from millpond.model.template import Template
from millpond.records import journal
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import ServerJournal, without_operation
from millpond.servers import steps
from millpond.servers.create import free_target
from millpond.servers.power import runs_on
from millpond.servers.shutdown import Tell, shut_down, start_again
from millpond.servers.transition import bring_into_pools, refuse_legacy_root

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switching:
    """What the living process knows, and whoever undoes it does not need."""

    patience: float = 0
    """As for stop()."""
    tell: Tell = noop
    progress: Progress = noop
    templates: list[Template | None] = field(default_factory=list)


UNDOING = Switching()


def rescue(host: Host, server: Server, image: Image, switching: Switching) -> Server:
    """One that runs is stopped first, as stop() does it."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        check_rescue(host, current, image)
        current = bring_into_pools(host, current)
        refuse_legacy_root(current)
        planned = _plan(host, current, image)
        disk = planned.get_disk(RESCUE)
        if host.disks.exists(disk):  # no record names it: it is somebody's
            raise VolumeExists(disk.pool, disk.volume)
        details = RescueDetails(ran=host.domains.state(server.id) in ON)
        verb, notes = rescuing(host, details, switching), ServerJournal(host.records, details)
        rescued = journal.run(verb, planned, notes, host.watch)
    LOG.info("rescued server %s by %s", server.name, image.name)
    return rescued


def unrescue(host: Host, server: Server, switching: Switching) -> Server:
    """One that runs is stopped, and started from its own disk."""
    with host.records.lock(server):
        current = steps.load_idle(host, server)
        if not current.is_rescued:
            what = f"server {server.name!r} is not in rescue"
            raise Conflict(what, f"'{Tool.SERVER} rescue {server.name}' boots another image")
        steps.check_networks(host, current.networks)
        steps.refuse_overlays(host, current)
        details = RescueDetails(ran=host.domains.state(server.id) in ON)
        verb, notes = unrescuing(host, details, switching), ServerJournal(host.records, details)
        restored = journal.run(verb, current, notes, host.watch)
    LOG.info("unrescued server %s", server.name)
    return restored


def check_rescue(host: Host, server: Server, image: Image) -> None:
    steps.refuse_unsettled(server)
    what = f"rescuing server {server.name!r} by {image.name!r}"
    boot = find_boot_images(
        image.format, image.properties, lambda each: host.images.describe(ImageId(each))
    )
    if server.boot or boot:
        reason = "one of the two has a kernel of its own"
        raise Unsupported(what, reason, "use an image that boots by itself")
    steps.check_networks(host, server.networks)
    steps.refuse_overlays(host, server)


def _plan(host: Host, server: Server, image: Image) -> Server:
    root = server.get_disk()
    bus = root.bus or server.hardware.disk_bus
    away = free_target(bus, steps.targets(host, server))
    request = DiskRequest(server=server.id, role=RESCUE, image=image, target=root.target)
    disk = replace(host.disks.plan(request), bus=root.bus, image=ImageRef.of(image))
    moved = (replace(each, target=away) if each is root else each for each in server.disks)
    return replace(server, disks=(*moved, disk))


def rescuing(host: Host, details: RescueDetails, switching: Switching = UNDOING) -> Verb[Server]:
    """Undone, unless its guest runs on the other disk already."""
    return Verb(
        "rescue",
        (
            Step("claim", as_step(partial(steps.claim, host)), partial(_unclaim, host)),
            Step("template", as_step(partial(_fetch, host, switching))),
            Step("volume", partial(_make, host, switching), partial(_delete, host)),
            Step(
                "stop",
                as_step(partial(shut_down, host, switching.patience, switching.tell)),
                partial(start_again, host, details.ran),
            ),
            Step("domain", partial(steps.define, host), partial(_define_own, host)),
            Step("start", partial(steps.power_on, host), partial(steps.power_off, host)),
        ),
        finished=without_operation,
        undone=lambda server: without_operation(_unrescued(server)),
        arrived=partial(_runs_on_rescue, host),
    )


def unrescuing(host: Host, details: RescueDetails, switching: Switching = UNDOING) -> Verb[Server]:
    """Undone until the other disk is removed, unless its guest runs on its own already."""
    return Verb(
        "unrescue",
        (
            Step(
                "stop",
                as_step(partial(shut_down, host, switching.patience, switching.tell)),
                partial(start_again, host, details.ran),
            ),
            Step("domain", partial(_define, host), partial(_define_rescue, host)),
            Step(
                "start",
                partial(_start, host, details),
                partial(steps.power_off, host) if details.ran else noop,
            ),
            Step("remove", as_step(partial(_delete, host))),
            Step("release", as_step(partial(_claim_own, host))),
        ),
        finished=lambda server: without_operation(_unrescued(server)),
        undone=without_operation,
        arrived=partial(_runs_on_own, host),
        no_return="remove",
    )


def _unrescued(server: Server) -> Server:
    target = server.get_disk(RESCUE).target
    disks = (
        replace(each, target=target) if each.role == ROOT else each
        for each in server.disks
        if each.role != RESCUE
    )
    return replace(server, disks=tuple(disks))


def _claim_own(host: Host, server: Server) -> None:
    steps.claim(host, _unrescued(server))


def _unclaim(host: Host, server: Server) -> None:
    steps.unclaim(host, _unrescued(server))


def _fetch(host: Host, switching: Switching, server: Server) -> None:
    disk = server.get_disk(RESCUE)
    id = disk.image.id if disk.image else None
    switching.templates.append(host.disks.fetch_template(disk, id, switching.progress))


def _make(host: Host, switching: Switching, server: Server) -> Server:
    disk = server.get_disk(RESCUE)
    made = host.disks.create(disk, switching.templates[-1])
    return replace(server, disks=tuple(made if each is disk else each for each in server.disks))


def _delete(host: Host, server: Server) -> None:
    host.disks.delete(server.get_disk(RESCUE))


def _define(host: Host, server: Server) -> Server:
    defined = steps.define(host, _unrescued(server))
    return replace(server, hardware=defined.hardware)


def _define_own(host: Host, server: Server) -> None:
    steps.define(host, _unrescued(server))


def _define_rescue(host: Host, server: Server) -> None:
    steps.define(host, server)


def _start(host: Host, details: RescueDetails, server: Server) -> Server:
    return steps.power_on(host, server) if details.ran else server


def _runs_on_rescue(host: Host, server: Server, step: str) -> bool:
    disk = server.get_disk(RESCUE)
    return step in ("domain", "start") and runs_on(host, server, disk.target, disk)


def _runs_on_own(host: Host, server: Server, step: str) -> bool:
    target = server.get_disk(RESCUE).target
    return step in ("domain", "start") and runs_on(host, server, target, server.get_disk(ROOT))
