"""Move a server that is off to another host: its steps (docs/decisions/0029)."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from millpond.disks import transfer
from millpond.disks.backend import ImageFile
from millpond.disks.transfer import Sent
from millpond.errors import Conflict, NoSuchHost, Tool, Unsupported, WrongState
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.legacy.storage import image_path
from millpond.libvirt.domains import ON, read_definition, write_definition
from millpond.libvirt.migration import Job
from millpond.model.callbacks import Progress, noop
from millpond.model.move import MigrateDetails, Way
from millpond.model.server import Disk, Server
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import without_operation
from millpond.servers import power, steps
from millpond.servers.leftovers import UNKNOWN, is_one, note, refuse_running_copy
from millpond.servers.move_plan import find_image, is_alike, require_volume
from millpond.servers.shutdown import Tell
from millpond.system import streams
from millpond.xml.carrying import without_paths

LOG = logging.getLogger(__name__)

MIGRATE = "migrate"

Arriving = Callable[[], AbstractContextManager[tuple[str, Path]]]
"""A file of this machine for the time of the block, as Intake has them."""


@dataclass(slots=True, kw_only=True)
class Measured:
    job: Job = field(default_factory=Job)
    idle: float = 0
    """Seconds that a guest that ran did nothing: it was paused, or off."""
    off_since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Both ends, and what comes of it on the way."""

    host: Host
    """One of the two: the server is its."""
    details: MigrateDetails
    patience: float = 0
    """Seconds that a guest that runs has to power itself off."""
    tell: Tell = noop
    progress: Progress = noop
    arriving: Arriving | None = None
    """Where a disk lies that travels as one image. None where nothing is copied any more."""
    sent: dict[str, Sent] = field(default_factory=dict)
    """By role: of one step for the next."""
    measured: Measured = field(default_factory=Measured)
    silent: set[str] = field(default_factory=set)
    """Hosts that keep what was to be removed there."""

    @property
    def source(self) -> Host:
        return _find_host(self.host, self.details.source)

    @property
    def destination(self) -> Host:
        return _find_host(self.host, self.details.destination)


def _find_host(host: Host, name: str) -> Host:
    """Another one of the same deployment."""
    if not isinstance(host.shared, Deployment):
        raise NoSuchHost(name)
    return host.shared.host(name)


def migrating(move: Move) -> Verb[Server]:
    """Undone up to the switch. The write that enters ``remove`` names the new host: from then on
    it only rolls forward."""

    def step(name: str, act: Callable[[Move, Server], object]) -> Step[Server]:
        return Step(name, as_step(partial(act, move)))

    return Verb(
        MIGRATE,
        (
            replace(step("claim", claim), undo=partial(revert_claim, move)),
            step("template", fetch_templates),
            Step("stop", partial(_stop, move), partial(_start_again, move)),
            replace(step("copy", _copy), undo=partial(delete_copies, move)),
            step("verify", verify_copies),
            replace(step("domain", _define), undo=partial(_undefine, move)),
            Step("switch", partial(_switch, move)),
            Step("remove", partial(remove_source, move)),
            step("release", release_claim),
            Step("start", partial(start, move)),
        ),
        finished=without_operation,
        undone=partial(as_before, move),
        no_return="remove",
    )


def claim(move: Move, server: Server) -> None:
    if claims := move.destination.claims:
        claims.begin_move(move.details.at_destination(server), move.details.migration)


def revert_claim(move: Move, server: Server) -> None:
    if claims := move.source.claims:
        with steps.log_placement_errors(server):
            claims.revert_move(server, move.details.migration)


def fetch_templates(move: Move, server: Server) -> None:
    """Before the guest is powered off: it may take long."""
    for disk in move.details.there:
        if disk.overlay and disk.template:
            _fetch_template(move, server, disk)


def _fetch_template(move: Move, server: Server, disk: Disk) -> None:
    assert disk.template
    name, destination = disk.template.volume, move.destination
    there = destination.template_store.find(name)
    if image := find_image(destination, server, disk):
        # Also where it is there: this keeps it from being evicted meanwhile.
        there = destination.disks.fetch_template(disk, image.id)
    here = move.source.template_store.find(name)
    if not (here and there and is_alike(here, there)):
        raise Conflict(
            f"template {name} on host {destination.name!r} is not the one that disk {disk.role!r} "
            f"of server {server.name!r} is backed by",
            "try again: then the disk is copied whole",
        )


def _stop(move: Move, server: Server) -> Server:
    """From now on its host does not start it either, whatever it should do there."""
    if move.details.starts:
        off = power.keep_off(move.source, move.patience, move.tell, server)
        move.measured.off_since = time.monotonic()
        return off
    if move.source.domains.state(server.id):  # somebody may have undefined it
        move.source.autostart.put(server.id, False)
    return server


def _start_again(move: Move, server: Server) -> None:
    if not move.source.domains.state(server.id):
        return
    if move.details.starts:
        steps.power_on(move.source, server)
    else:
        steps.sync_autostart(move.source, server)


def _copy(move: Move, server: Server) -> None:
    _refuse_running(move, server)
    for here, there in zip(move.details.here, move.details.there, strict=True):
        if move.details.is_sent(here):
            move.sent[here.role] = send_disk(move, here, there)


def send_disk(move: Move, here: Disk, there: Disk) -> Sent:
    changed = _time_of_change(move, here)
    return replace(_send(move, here, there), changed=changed)


def _time_of_change(move: Move, here: Disk) -> str | None:
    """Of a file; a device has none that follows its content."""
    if here.path:
        return None
    pool = move.source.pools.ensure(here.pool)
    return pool.get(here.volume).changed if pool.capabilities.sparse else None


def _send(move: Move, here: Disk, there: Disk) -> Sent:
    pool = move.destination.pools.ensure(there.pool)
    if move.details.ways[here.role] is Way.WHOLE:
        assert move.arriving
        with move.arriving() as (_, part):
            move.source.disks.extract(here, ImageFile(path=part, format=here.format))
            length = part.stat().st_size
            return transfer.send(streams.read(part), length, pool, there.volume, move.progress)
    if here.path:
        file = image_path(here)
        length = file.stat().st_size
        return transfer.send(streams.read(file), length, pool, there.volume, move.progress)
    origin = move.source.pools.ensure(here.pool)
    pieces, length = transfer.read(origin, here), origin.get(here.volume).length
    if there.overlay:
        pieces = transfer.rename_backing(pieces, _backing(move.destination, there))
    return transfer.send(pieces, length, pool, there.volume, move.progress)


def _backing(host: Host, disk: Disk) -> str:
    """Above a link an overlay's header names nothing."""
    assert disk.template
    if host.handlers.find_linked(disk.template.volume):
        return ""
    return host.pools.base.get(disk.template.volume).path


def delete_copies(move: Move, _server: Server) -> None:
    for disk in _copied(move):
        with leaving(move, move.details.destination, f"volume {disk.pool}/{disk.volume}"):
            if not is_one(move.source, _here(move, disk.role), move.destination, disk):
                move.destination.disks.delete(disk)


def _copied(move: Move) -> Iterator[Disk]:
    """As they are at the destination."""
    return (each for each in move.details.there if move.details.travels(each))


def shares_disk(move: Move, role: str) -> bool:
    """Whether what is left at the source is the disk that the destination has."""
    (there,) = (each for each in move.details.there if each.role == role)
    return is_one(move.destination, there, move.source, _here(move, role))


def _here(move: Move, role: str) -> Disk:
    (found,) = (each for each in move.details.here if each.role == role)
    return found


def verify_copies(move: Move, _server: Server) -> None:
    for disk in (each for each in move.details.there if each.role in move.sent):
        pool = move.destination.pools.ensure(disk.pool)
        transfer.verify(pool, disk, move.sent[disk.role])


def _define(move: Move, server: Server) -> None:
    """Off, and not to be started with its host: the server is still the source's."""
    fetch_templates(move, server)
    for disk in move.details.there:
        if not move.details.travels(disk):
            require_volume(move.destination, disk)
    moved = replace(move.details.at_destination(server), should_run=False)
    if move.source.domains.state(server.id):  # what people changed in its domain goes along
        definition = without_paths(read_definition(move.source.libvirtd, server.id))
        write_definition(move.destination.libvirtd, server.name, definition)
    steps.define(move.destination, moved)


def _undefine(move: Move, server: Server) -> None:
    with leaving(move, move.details.destination, f"domain {server.name}"):
        steps.undefine(move.destination, server)


def _switch(move: Move, server: Server) -> Server:
    """Whoever started it by virsh after it was copied may have stopped it again."""
    _refuse_running(move, server)
    for disk in (each for each in move.details.here if each.role in move.sent):
        if _time_of_change(move, disk) != move.sent[disk.role].changed:
            raise Conflict(
                f"{disk.role} of server {server.name!r} was changed after it was copied",
                "somebody ran it meanwhile, and it stays where it is: try again",
            )
    moved = move.details.at_destination(server)
    return replace(moved, disks=tuple(_measure(move.destination, each) for each in moved.disks))


def _measure(host: Host, disk: Disk) -> Disk:
    """A volume group rounds sizes up to its own extents."""
    pool = host.pools.ensure(disk.pool)
    if pool.capabilities.sparse:
        return disk
    return replace(disk, size=pool.get(disk.volume).capacity)


def remove_source(move: Move, server: Server) -> Server:
    copied = [each for each in move.details.here if move.details.travels(each)]
    with leaving(move, move.details.source, f"the domain and the disks of server {server.name}"):
        refuse_running_copy(
            move.source,
            server,
            f"what it writes is lost: 'virsh destroy {server.name}' on that host ends it, then "
            f"'{Tool.REPAIR}' goes on",
        )
        steps.undefine(move.source, server)
        for disk in copied:
            if not shares_disk(move, disk.role):
                move.source.disks.delete(disk)
    return note(server, move.details.source, copied) if move.silent else server


def release_claim(move: Move, server: Server) -> None:
    if claims := move.destination.claims:
        with steps.log_placement_errors(server):
            claims.confirm_move(move.details.migration)


def start(move: Move, server: Server) -> Server:
    """With the copy of the record that its domain has, as it is now."""
    defined = steps.define(move.destination, server)
    started = steps.power_on(move.destination, defined) if move.details.starts else defined
    if move.measured.off_since is not None:
        move.measured.idle = time.monotonic() - move.measured.off_since
    return started


def as_before(move: Move, server: Server) -> Server:
    runs = server.should_run or move.details.starts
    before = replace(without_operation(server), should_run=runs)
    return note(before, move.details.destination, _copied(move)) if move.silent else before


def _refuse_running(move: Move, server: Server) -> None:
    """Somebody may have started it by virsh."""
    state = move.source.domains.state(server.id)
    if state in ON:
        raise WrongState(server.name, state or "", "stopped")


@contextmanager
def leaving(move: Move, host: str, what: str) -> Iterator[None]:
    """A host that does not answer keeps what it has: the server is usable without it. So does one
    that has what may be the server's only disk."""
    try:
        yield
    except UNKNOWN as error:
        move.silent.add(host)
        LOG.warning("%s stays on host %s: %s", what, host, error)


def refuse_running(host: Host, server: Server) -> None:
    if host.domains.state(server.id) in ON:
        raise Unsupported(
            f"moving server {server.name!r} while it runs",
            "its guest would write to disks that are being copied",
            "add --stop: it is stopped, and started again on the other host",
        )
