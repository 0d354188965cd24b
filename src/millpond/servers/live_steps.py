"""Move a server to another host while it runs: its steps (docs/decisions/0030)."""

import errno
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from millpond.disks.backend import ImageFile
from millpond.errors import (
    Conflict,
    HostProblem,
    LibvirtFailed,
    MillpondError,
    NoConsole,
    Tool,
    UnfitHost,
)
from millpond.hosts.host import Host
from millpond.legacy.storage import image_path
from millpond.libvirt import migration
from millpond.libvirt.migration import Job, LiveOptions, Passage, Place, Route
from millpond.libvirt.pool import download
from millpond.model.formats import Backend
from millpond.model.move import MigrateDetails, Way
from millpond.model.server import Content, Disk, Server
from millpond.model.sizes import format_size
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import without_operation
from millpond.servers import steps
from millpond.servers.leftovers import UNREACHABLE, note
from millpond.servers.move_plan import refuse_volume, require_volume
from millpond.servers.move_steps import (
    Move,
    as_before,
    claim,
    delete_copies,
    fetch_templates,
    leaving,
    release_claim,
    revert_claim,
    send_disk,
    shares_disk,
    verify_copies,
)
from millpond.servers.transition_plan import is_same
from millpond.system import files
from millpond.system.libvirt_migration import ABORTED
from millpond.xml.domain import DiskXml, DomainXml, SourceXml
from millpond.xml.keeping import keep
from millpond.xml.migration import PlacesXml
from millpond.xml.migration import move as move_xml

LOG = logging.getLogger(__name__)

LIVE_MIGRATE = "live migrate"
ARRIVING = ("migrate", "switch")
"""Steps at which the guest may be at the destination before the record says so."""
_NO_POST_COPY = "Postcopy is not supported"
"""Says QEMU (migration/migration.c), without a code of its own."""
_NO_SPACE = os.strerror(errno.ENOSPC)
"""In what QEMU says of a mirror that could not be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMove(Move):
    route: Route | None = None
    """None where the move was interrupted, and nothing is begun any more."""
    options: LiveOptions = field(default_factory=LiveOptions)
    end_patience: float = migration.END_PATIENCE


def live_migrating(move: LiveMove) -> Verb[Server]:
    """What libvirt says decides: once the domain has left its source, the move only rolls forward,
    and the record follows."""

    def step(name: str, act: Callable[[LiveMove, Server], object]) -> Step[Server]:
        return Step(name, as_step(partial(act, move)))

    return Verb(
        LIVE_MIGRATE,
        (
            replace(step("claim", claim), undo=partial(revert_claim, move)),
            step("template", fetch_templates),
            replace(step("copy", _prepare_disks), undo=partial(_clear_disks, move)),
            step("verify", verify_copies),
            replace(step("migrate", _migrate), undo=partial(_stay, move)),
            Step("switch", lambda server: move.details.at_destination(server)),
            Step("domain", partial(_define, move)),
            Step("remove", partial(_remove, move)),
            step("release", release_claim),
        ),
        finished=without_operation,
        undone=partial(as_before, move),
        arrived=partial(_has_arrived_at, move),
        no_return="domain",
    )


def is_mirrored(details: MigrateDetails, disk: Disk) -> bool:
    """QEMU copies it while its guest writes; others do not change, and are copied before."""
    fixed = disk.content in (Content.CONFIG, Content.CDROM)
    return details.travels(disk) and disk.is_attached and not fixed


def _prepare_disks(move: LiveMove, _server: Server) -> None:
    for here, there in zip(move.details.here, move.details.there, strict=True):
        if not move.details.travels(here):
            if here.path:
                _link(move, here, there)
            require_volume(move.destination, there)
        elif is_mirrored(move.details, here):
            _make_target(move, here, there)
        elif move.details.is_sent(here):
            move.sent[here.role] = send_disk(move, here, there)


def _link(move: LiveMove, here: Disk, there: Disk) -> None:
    """A file in Nova's layout gets another name, in the pool that both hosts share (B24)."""
    link = _link_of(move, there)
    if not is_same(image_path(here), link):
        os.link(image_path(here), link)
        files.sync_directory(link.parent)


def _link_of(move: LiveMove, there: Disk) -> Path:
    return Path(move.source.pools.ensure(there.pool).path) / there.volume


def _clear_disks(move: LiveMove, server: Server) -> None:
    """Of a link nothing but that goes."""
    delete_copies(move, server)
    for here, there in zip(move.details.here, move.details.there, strict=True):
        linked = here.path and not move.details.travels(here)
        if linked and is_same(image_path(here), _link_of(move, there)):
            files.remove(_link_of(move, there))


def _make_target(move: LiveMove, here: Disk, there: Disk) -> None:
    """Empty, but for what its top layer is backed by at the source: that one alone is mirrored."""
    disks = move.destination.disks
    refuse_volume(move.destination, there)  # create() would replace it
    if move.details.ways[here.role] is Way.WHOLE:
        _make_from_base(move, here, there)
    elif there.overlay and there.template:
        disks.create(there, move.destination.template_store.find(there.template.volume))
    else:
        made = disks.create(replace(there, template=None), None)
        if made.backend is Backend.LVM:
            _refuse_other_size(move, here, made)


def _refuse_other_size(move: LiveMove, here: Disk, made: Disk) -> None:
    """A volume group rounds sizes up to its own extents, and QEMU mirrors a disk only into one
    that is as large."""
    volume = move.source.pools.ensure(here.pool).get(here.volume)
    if made.size != volume.capacity:
        sizes = f"{format_size(made.size)}, and has {format_size(volume.capacity)}"
        reason = f"{here.role} would have {sizes}: the volume groups have different extents"
        raise UnfitHost(reason, "stop the server: then it can move")


def _make_from_base(move: LiveMove, here: Disk, there: Disk) -> None:
    """The template never changes, so it is copied first; what the guest wrote comes above it."""
    assert move.arriving
    assert here.template
    base = move.source.pools.base
    with move.arriving() as (_, part):
        download(base, here.template.volume, part, move.progress)
        image = ImageFile(path=part, format=here.template.format)
        move.destination.disks.create(there, None, file=image)


def _migrate(move: LiveMove, server: Server) -> None:
    """If libvirt's answer was lost, the two hosts are asked."""
    if move.route is None:
        _continue_there(move, server)
        return
    passage = _describe(move, server, move.route)
    hosts = move.source.libvirtd, move.destination.libvirtd
    paused, resumed = time.monotonic(), None
    try:
        paused, resumed = migration.migrate(*hosts, server.id, passage, watch_job(move, server))
    except MillpondError as error:
        if not has_arrived(move, server):
            raise _explain(move, server, error) from error
    _continue_there(move, server)
    move.measured.idle = (resumed or time.monotonic()) - paused


def watch_job(move: LiveMove, server: Server) -> Callable[[Job], None]:
    patience, end = move.options.patience, time.monotonic() + move.options.patience

    def watch(job: Job) -> None:
        before = move.measured.job
        memory, disks = max(job.memory, before.memory), max(job.disks, before.disks)
        move.measured.job = Job(memory=memory, disks=disks)
        move.progress(move.measured.job.all - before.all)
        if patience and not job.left and time.monotonic() > end:
            raise HostProblem(
                f"server {server.name!r} had not moved after {patience:g} s, and stays",
                "give it longer (--timeout), or slow its guest down (--auto-converge)",
            )

    return watch


def _explain(move: LiveMove, server: Server, error: MillpondError) -> MillpondError:
    if isinstance(error, LibvirtFailed) and error.code == ABORTED:
        what = f"the migration of server {server.name!r} was aborted"
        return Conflict(what, f"it runs on host {server.host!r} as before")
    if isinstance(error, LibvirtFailed) and _NO_POST_COPY in error.detail:
        names = f"host {move.source.name!r} or {move.destination.name!r}"
        return HostProblem(
            f"the kernel of {names} does not let QEMU catch page faults, which post-copy needs",
            "set vm.unprivileged_userfaultfd = 1 (sysctl) on both, or leave out --post-copy",
        )
    if isinstance(error, LibvirtFailed) and _NO_SPACE in error.detail:
        return HostProblem(
            f"no space left on host {move.destination.name!r} for the disks of server "
            f"{server.name!r}, which runs on host {server.host!r} as before",
            "free some space there, or choose another host",
        )
    return error


def _continue_there(move: LiveMove, server: Server) -> None:
    """Its guest waits at the destination until nothing of it can run at the source any more."""
    with leaving(move, move.details.source, f"domain {server.name}"):
        move.source.domains.power_off(server.id)
    if migration.has_lost_memory(move.destination.libvirtd, server.id):
        LOG.warning("server %s lost its memory in its post-copy, and is powered off", server.name)
        move.destination.domains.power_off(server.id)
    move.destination.domains.resume(server.id)


def _stay(move: LiveMove, server: Server) -> None:
    """At the source, if it has not left it: there its guest continues when the destination has
    nothing of it that could."""
    if has_arrived(move, server):
        _continue_there(move, server)
        raise Conflict(
            f"server {server.name!r} has come to host {move.destination.name!r}",
            f"'{Tool.REPAIR}' finishes its move",
        )
    with leaving(move, move.details.destination, f"domain {server.name}"):
        move.destination.domains.power_off(server.id)
        _undefine(move, move.destination, server)
    if migration.look(move.source.libvirtd, server.id) in (Place.ARRIVING, Place.WAITING):
        move.source.domains.resume(server.id)


def _has_arrived_at(move: LiveMove, server: Server, step: str) -> bool:
    return step in ARRIVING and has_arrived(move, server)


def has_arrived(move: LiveMove, server: Server) -> bool:
    """When what libvirt does has ended. A guest at the destination does nothing before we resume
    it, and that we do only when it has left the source: as long as the source has a QEMU of it,
    it is there. By post-copy libvirt itself continues it at the destination. Raises what cannot be
    known."""
    there = move.destination.libvirtd
    try:
        ended = migration.end_job(move.source.libvirtd, server.id, move.end_patience)
        here = migration.look(move.source.libvirtd, server.id)
    except UNREACHABLE:
        if migration.look(there, server.id) is Place.RUNS:
            return True
        raise
    if not ended:
        raise _still_migrates(move, server, here)
    match here:
        case Place.GONE | Place.LEFT:
            return True
        case Place.RUNS:
            return False
        case Place.OFF:  # libvirt undefines it after its QEMU has ended
            return migration.look(there, server.id) in (Place.WAITING, Place.RUNS, Place.LEFT)
    return _was_continued(move, server)


def _still_migrates(move: LiveMove, server: Server, here: Place) -> Conflict:
    """libvirt keeps a post-copy that has failed, so that it can be resumed."""
    what = f"libvirt on host {move.source.name!r} still migrates server {server.name!r}"
    if here is not Place.LEFT:
        return Conflict(what, f"'{Tool.REPAIR}' looks again")
    return Conflict(
        f"{what}, by post-copy: a part of the guest's memory is only there",
        f"if it does not end, give that up by 'virsh destroy {server.name}' on host "
        f"{move.source.name!r}; '{Tool.REPAIR}' then finishes the move",
    )


def _was_continued(move: LiveMove, server: Server) -> bool:
    try:
        found = migration.look(move.destination.libvirtd, server.id)
    except UNREACHABLE:
        if move.details.post_copy:
            raise
        return False
    return found in (Place.RUNS, Place.LEFT)


def _describe(move: LiveMove, server: Server, route: Route) -> Passage:
    destination, details = move.destination, move.details
    wanted = steps.describe(
        destination, details.at_destination(server), destination.consoles.make(server.id)
    )
    mirrored = {each.target: each for each in details.there if is_mirrored(details, each)}
    disks = {each.target: each for each in wanted.disks if each.source}
    disks |= {target: _by_path(move, disks[target], disk) for target, disk in mirrored.items()}
    running, defined = migration.describe(move.source.libvirtd, server.id)
    return Passage(
        running=move_xml(
            running,
            PlacesXml(
                disks=disks,
                log=_log(wanted),
                nvram=wanted.nvram,
                kernel=wanted.kernel,
                initrd=wanted.initrd,
            ),
        ),
        defined=move_xml(keep(defined, wanted, wanted).xml, PlacesXml()),
        mirrored=tuple(mirrored),
        shares=any(_is_shared_file(details, each) for each in details.here),
        route=route,
        options=move.options,
    )


def _by_path(move: LiveMove, disk: DiskXml, there: Disk) -> DiskXml:
    """libvirt copies no layer into a disk that is named by its volume (trap 16)."""
    path = move.destination.pools.ensure(there.pool).get(there.volume).path
    if there.backend is Backend.LVM:
        return replace(disk, type="block", source=SourceXml(device=path))
    return replace(disk, type="file", source=SourceXml(file=path))


def _log(domain: DomainXml) -> str | None:
    return next((each.log for each in domain.serials if each.log), None)


def _is_shared_file(details: MigrateDetails, disk: Disk) -> bool:
    return disk.is_attached and not details.travels(disk) and disk.backend is not Backend.RBD


def _remove(move: LiveMove, server: Server) -> Server:
    copied = [each for each in move.details.here if move.details.travels(each) or each.path]
    with leaving(move, move.details.source, f"the disks of server {server.name}"):
        move.source.domains.power_off(server.id)  # it may not have answered before
        _undefine(move, move.source, server)
        for disk in copied:
            if not shares_disk(move, disk.role):
                move.source.disks.delete(disk)
    return note(server, move.details.source, copied) if move.silent else server


def _undefine(move: LiveMove, host: Host, server: Server) -> None:
    host.domains.undefine(server.id, keeps_variables=server.keeps_variables)
    steps.free_addresses(host, server.networks)
    if not _shares_console(move, server):
        host.consoles.remove(server.id)


def _shares_console(move: LiveMove, server: Server) -> bool:
    """Its log may lie next to a pool that both hosts share: then its guest prints to it now."""
    logs = []
    for host in (move.source, move.destination):
        with suppress(NoConsole, *UNREACHABLE):
            logs.append(host.consoles.read(server.id, server.name))
    return len(logs) > 1 and logs[1].startswith(logs[0])


def _define(move: LiveMove, server: Server) -> Server:
    """As its record says now, with the copy of it."""
    defined = steps.define(move.destination, server)
    steps.write_metadata(move.destination, without_operation(defined))
    return defined
