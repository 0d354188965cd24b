"""Bring a server of a dead host to another one that has its disks: its steps
(docs/decisions/0031). Nothing is asked of the dead host."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from millpond.errors import Conflict, DiskInUse, LibvirtFailed, Tool, ToolFailed
from millpond.hosts.host import Host
from millpond.model.layer import RbdSource
from millpond.model.server import Server
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import without_operation
from millpond.servers import steps
from millpond.servers.leftovers import note
from millpond.servers.move_plan import find_image, require_volume
from millpond.servers.move_steps import (
    Move,
    as_before,
    claim,
    leaving,
    release_claim,
    revert_claim,
    start,
)
from millpond.system import rbd
from millpond.system.waiting import wait_until

EVACUATE = "evacuate"

_LOCKED = "another process using the image"
"""In what QEMU says when it does not get its lock on an image."""
_WATCH_PATIENCE = 40.0
"""Seconds. Ceph misses a client after 30 (osd_client_watch_timeout)."""


def evacuating(move: Move) -> Verb[Server]:
    """Undone up to the switch. The write that enters ``release`` names the new host: from then on
    it only rolls forward."""

    def step(name: str, act: Callable[[Move, Server], object]) -> Step[Server]:
        return Step(name, as_step(partial(act, move)))

    return Verb(
        EVACUATE,
        (
            replace(step("claim", claim), undo=partial(revert_claim, move)),
            step("template", _fetch_templates),
            replace(step("domain", _define), undo=partial(_undefine, move)),
            step("lock", _take_lock),
            Step("switch", partial(_switch, move)),
            step("release", release_claim),
            Step("start", partial(start, move)),
        ),
        finished=without_operation,
        undone=partial(as_before, move),
        no_return="release",
    )


def _fetch_templates(move: Move, server: Server) -> None:
    destination = move.destination
    for disk in move.details.there:
        if not (disk.overlay and disk.template):
            continue
        if image := find_image(destination, server, disk):
            destination.disks.fetch_template(disk, image.id)
        elif not destination.template_store.find(disk.template.volume):
            raise Conflict(
                f"the image of disk {disk.role!r} of server {server.name!r} is gone, and its "
                f"template on host {destination.name!r} is, too",
                f"'{Tool.SERVER} evacuate --dry-run' shows which hosts can have it",
            )


def _define(move: Move, server: Server) -> None:
    """Off, and not to be started with its host: the server is still the dead host's."""
    for disk in move.details.there:
        if not move.details.travels(disk):
            require_volume(move.destination, disk)
    moved = replace(move.details.at_destination(server), should_run=False)
    steps.define(move.destination, moved)


def _undefine(move: Move, server: Server) -> None:
    """If the destination has died as well, a third host can have the server."""
    with leaving(move, move.details.destination, f"domain {server.name}"):
        steps.power_off(move.destination, server)
        steps.undefine(move.destination, server)


def _take_lock(move: Move, server: Server) -> None:
    """Whether another QEMU has a disk open: one here is started and executes nothing. It takes
    QEMU's lock on every image, where the file system has locks that all hosts see; and so does
    what repairs an image first that the dead host left open."""
    destination = move.destination
    _refuse_watched(destination, move, server)
    try:
        for disk in move.details.there:
            destination.disks.repair(disk)
        destination.domains.start(server.id, paused=True)
    except (LibvirtFailed, ToolFailed) as error:
        said = error.detail if isinstance(error, LibvirtFailed) else error.reason
        if _LOCKED in said:
            raise DiskInUse(server.name, said.splitlines()[-1]) from error
        if isinstance(error, ToolFailed):
            raise
        raise LibvirtFailed(f"starting server {server.name}", error.code, said) from error
    steps.power_off(destination, server)


def _refuse_watched(host: Host, move: Move, server: Server) -> None:
    """Who has an image of Ceph open watches it."""
    for disk in move.details.there:
        for layer in host.disks.chain(disk)[:1]:
            if isinstance(layer.source, RbdSource) and (who := _find_living(layer.source)):
                raise DiskInUse(server.name, f"{layer.source.name} is open at {', '.join(who)}")


def _find_living(image: RbdSource) -> list[str]:
    """The dead host may still be listed, and is not when Ceph has missed it."""
    wait_until(lambda: not rbd.watchers(image), _WATCH_PATIENCE, every=1.0)
    return rbd.watchers(image)


def _switch(move: Move, server: Server) -> Server:
    """The dead host keeps a domain of it, and perhaps UEFI variables: noted, and removed when that
    answers."""
    kept = [each for each in move.details.here if move.details.travels(each)]
    return note(move.details.at_destination(server), move.details.source, kept)
