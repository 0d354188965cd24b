"""The disks that Nova laid out into the pools, or back, while nobody writes to them (B24): the
steps. A file gets another name, or is copied where that is on another file system. All is undone
until the old places are cleared."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from millpond.errors import Conflict, DiskRefused, ServiceProblem, VolumeNotFound, WrongState
from millpond.hosts.host import Host
from millpond.legacy.storage import give_to_nova
from millpond.libvirt.domains import ON
from millpond.model.callbacks import Progress, noop
from millpond.model.formats import DiskFormat
from millpond.model.image import Image
from millpond.model.server import Disk, Server
from millpond.model.transition import TransitionDetails, Way
from millpond.model.volume import VolumeSpec
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import without_operation
from millpond.servers import steps
from millpond.servers.move_plan import find_image
from millpond.servers.shutdown import Tell, shut_down, start_again
from millpond.servers.transition_plan import file_of, is_same
from millpond.system import files
from millpond.xml.domain import DomainXml

LOG = logging.getLogger(__name__)

TRANSITION = "transition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transit:
    host: Host
    details: TransitionDetails
    patience: float = 0
    """Seconds that a guest that runs has to power itself off; without any, it is done at once."""
    tell: Tell = noop
    progress: Progress = noop
    copied: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By role: length and time of change of a file when it was copied."""
    pause: list[float] = field(default_factory=list)
    """When its guest was paused, and when it continued."""


def transiting(transit: Transit) -> Verb[Server]:
    """Only with the steps that have something to do: of a thousand servers each one counts."""
    host, details = transit.host, transit.details

    def step(name: str, act: Callable[[Transit, Server], object]) -> Step[Server]:
        return Step(name, as_step(partial(act, transit)))

    first = step("prepare", prepare)
    stop, start = step("stop", _stop), Step("start", partial(steps.power_on, host))
    return Verb(
        TRANSITION,
        (
            *((replace(first, undo=partial(unclaim, transit)),) if details.prepares else ()),
            *((replace(stop, undo=partial(start_again, host, True)),) if details.starts else ()),
            *moving_files(transit),
            Step("domain", partial(steps.define, host), partial(define_as_before, transit)),
            step("remove", remove_old),
            *((start,) if details.starts else ()),
            *((step("release", _release),) if details.is_back else ()),
        ),
        finished=noop if details.is_back else without_operation,
        undone=lambda each: without_operation(details.before(each)),
        arrived=partial(_runs_there, transit),
        no_return="remove",
    )


def moving_files(transit: Transit) -> tuple[Step[Server], ...]:
    """Until the files are where they shall be, and nobody has been told."""
    copy = Step("copy", as_step(partial(_copy, transit)), partial(_delete_copies, transit))
    verify = Step("verify", as_step(partial(_verify, transit)))
    move = Step("move", partial(_move, transit), partial(_move_back, transit))
    copies = Way.COPY in transit.details.ways.values()
    return (copy, verify, move) if copies else (move,)


def prepare(transit: Transit, server: Server) -> None:
    """Placement counts them where they will be, and their bases are templates, as they are."""
    host = transit.host
    steps.claim(host, transit.details.after(server))
    if not transit.details.is_back:
        adopt_bases(host, transit.details.before(server))


def adopt_bases(host: Host, server: Server) -> None:
    """What disks in Nova's layout are backed by are templates, as they are."""
    for disk in server.disks:
        if disk.path and disk.template and host.nova_bases:
            host.nova_bases.adopt_base(disk.template, _find_image(host, server, disk))


def _find_image(host: Host, server: Server, disk: Disk) -> Image | None:
    """Without Glance, too: what the base was made from is good to know, and no more."""
    try:
        return find_image(host, server, disk)
    except ServiceProblem:
        return None


def unclaim(transit: Transit, server: Server) -> None:
    steps.unclaim(transit.host, transit.details.before(server))


def _stop(transit: Transit, server: Server) -> None:
    shut_down(transit.host, transit.patience, transit.tell, server)


def _copy(transit: Transit, server: Server) -> None:
    _refuse_running(transit.host, server)
    _refuse_open(transit)
    for here, there, way in transit.details.moves():
        if way is Way.COPY:
            source, target = file_of(transit.host, here), make_empty(transit.host, there)
            transit.copied[here.role] = _seen(source)
            copy_file(source, target, transit.progress)


def make_empty(host: Host, disk: Disk) -> Path:
    """An empty file in its place, which libvirt knows if it is to be a volume; one that was begun
    is made again."""
    path = file_of(host, disk)
    if disk.path:
        path.parent.mkdir(exist_ok=True)
        files.remove(path)
        path.touch(0o600)
        return path
    pool = host.pools.ensure(disk.pool)
    forget_volume(host, disk)
    pool.create(VolumeSpec(name=disk.volume, format=DiskFormat.RAW, capacity=0))
    return path


def forget_volume(host: Host, disk: Disk) -> None:
    try:
        host.pools.ensure(disk.pool).delete(disk.volume)
    except VolumeNotFound:
        files.remove(file_of(host, disk))  # libvirt may not have noticed it


def copy_file(source: Path, target: Path, progress: Progress) -> None:
    with (
        files.explaining_lack_of_space(target),
        source.open("rb") as original,
        target.open("r+b") as copy,
    ):
        found = os.fstat(original.fileno())
        files.copy_into(original.fileno(), copy.fileno(), progress)
        os.fchown(copy.fileno(), found.st_uid, found.st_gid)
        files.sync(copy.fileno())
    files.sync_directory(target.parent)


def _delete_copies(transit: Transit, _server: Server) -> None:
    for _, there, way in transit.details.moves():
        if way is Way.COPY:
            _clear(transit.host, there)


def _clear(host: Host, disk: Disk) -> None:
    if disk.path:
        host.legacy_storage.delete(disk)
    else:
        forget_volume(host, disk)


def _verify(transit: Transit, _server: Server) -> None:
    """Read back from the device, as far as the kernel lets us."""
    for here, there, way in transit.details.moves():
        source, target = file_of(transit.host, here), file_of(transit.host, there)
        if way is Way.COPY and not files.have_same_content(source, target):
            raise DiskRefused(str(target), f"it is not what {source} is")


def _move(transit: Transit, server: Server) -> Server:
    """Somebody may have started it meanwhile, by virsh or with the host."""
    host = transit.host
    _refuse_running(host, server)
    _refuse_open(transit)
    for here, there, way in transit.details.moves():
        source = file_of(host, here)
        if way is Way.RENAME:
            _rename(host, source, there)
        elif transit.copied.get(here.role, _seen(source)) != _seen(source):
            what = f"{source} has changed since it was copied"
            raise Conflict(what, "somebody ran the server meanwhile: try again")
        if there.path:
            give_to_nova(there)
    return transit.details.after(server)


def _rename(host: Host, source: Path, disk: Disk) -> None:
    """Into the place of an empty volume, so that libvirt knows it, and nothing of anybody else's
    is replaced. May be done again."""
    target = file_of(host, disk)
    if is_same(source, target):
        files.remove(source)
    elif source.exists():
        if disk.path:
            target.parent.mkdir(exist_ok=True)
            files.move_to_new(source, target)
        else:
            _put_volume(host, source, disk)
    elif not target.exists():
        raise DiskRefused(str(source), "it is missing")
    for each in {source.parent, target.parent}:
        files.sync_directory(each)


def _put_volume(host: Host, source: Path, disk: Disk) -> None:
    target = file_of(host, disk)
    if target.exists() and target.stat().st_size:
        raise DiskRefused(str(target), f"it is there already, and not {source}")
    forget_volume(host, disk)
    host.pools.ensure(disk.pool).create(
        VolumeSpec(name=disk.volume, format=DiskFormat.RAW, capacity=0)
    )
    os.rename(source, target)


def _move_back(transit: Transit, _server: Server) -> None:
    host = transit.host
    for here, there, way in transit.details.moves():
        if way is not Way.RENAME:
            continue
        source, target = file_of(host, here), file_of(host, there)
        if not source.exists() and target.exists():
            if here.path:
                files.move_to_new(target, source)
                files.sync_directory(source.parent)
            else:
                _put_volume(host, target, here)
        _clear_emptied(host, there)


def _clear_emptied(host: Host, disk: Disk) -> None:
    """The place of a file that has left it, or never came."""
    path = file_of(host, disk)
    if path.exists() and path.stat().st_size:
        raise DiskRefused(str(path), "it was to be moved away, and is there")
    _clear(host, disk)


def define_as_before(transit: Transit, server: Server) -> None:
    steps.define(transit.host, transit.details.before(server))


def remove_old(transit: Transit, _server: Server) -> None:
    for disk in transit.details.there:
        if disk.template and not disk.path and transit.host.nova_bases:
            transit.host.nova_bases.protect(disk.template)
    for here, there, way in transit.details.moves():
        if way is not Way.RENAME or not file_of(transit.host, here).exists():
            _clear(transit.host, here)
        elif not is_same(file_of(transit.host, here), file_of(transit.host, there)):
            LOG.warning("%s came after the disk had moved: left alone", here.location)


def _release(transit: Transit, server: Server) -> None:
    """It is Nova's again, and nothing says otherwise."""
    steps.release(transit.host, server)
    transit.host.domain_records.remove(server.id)


def _refuse_open(transit: Transit) -> None:
    """What somebody writes to a file that has been copied would be lost with it."""
    moves = transit.details.moves()
    copied = [file_of(transit.host, here) for here, _, way in moves if way is Way.COPY]
    for found in sorted(files.find_open(copied)):
        what = f"{found} is open in another process"
        raise Conflict(what, f"'fuser --verbose {found}' says in which: end it, and try again")


def _seen(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _refuse_running(host: Host, server: Server) -> None:
    state = host.domains.state(server.id)
    if state in ON:
        raise WrongState(server.name, state or "", "stopped")


def _runs_there(transit: Transit, server: Server, step: str) -> bool:
    """libvirt may have started it with the host, when its domain named the new places."""
    if step != "domain" or transit.host.domains.state(server.id) not in ON:
        return False
    return bool(find_moved(transit, transit.host.domains.description(server.id)))


def find_moved(transit: Transit, domain: DomainXml | None) -> set[str]:
    """The targets of disks that the domain has at their new places."""
    moved = set()
    for disk in transit.details.there:
        found = domain.disk(disk.target) if domain and disk.is_attached else None
        source = found.source if found else None
        if source and (
            source.file == str(file_of(transit.host, disk))
            or (disk.volume and source.volume == disk.volume)
        ):
            moved.add(disk.target)
    return moved
