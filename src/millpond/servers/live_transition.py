"""The disks that Nova laid out into the pools while their guest writes to them: the steps. QEMU
copies them, and continues on the copies.

The guest does nothing from before the first disk is the copy until the domain says so. So at any
moment the two are alike, or nobody has written to the one that is not used.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from millpond.errors import Conflict, HostProblem, LibvirtFailed, Tool, Unsupported, WrongState
from millpond.hosts.host import Host
from millpond.libvirt.domains import ON
from millpond.model.formats import DiskFormat
from millpond.model.layer import Chain, FileSource, Layer
from millpond.model.server import Content, Disk, Server
from millpond.model.transition import TransitionDetails, Way
from millpond.model.volume import Backing, VolumeSpec
from millpond.records.journal import Step, Verb, as_step
from millpond.records.records import without_operation
from millpond.servers import steps
from millpond.servers.transition_plan import check_space, file_of, plan_transition
from millpond.servers.transition_steps import (
    Transit,
    copy_file,
    find_moved,
    forget_volume,
    make_empty,
    prepare,
    remove_old,
    unclaim,
)
from millpond.system.waiting import POLL, wait_until

LIVE_TRANSITION = "live transition"

_PATIENCE = 30.0
"""Seconds for what the guest wrote last: it waits then."""


def plan_live(host: Host, server: Server) -> TransitionDetails:
    """What is only read is copied as a file. Raises what cannot be."""
    state = host.domains.state(server.id)
    if state != "running":
        raise WrongState(server.name, state or "missing", "running")
    planned = plan_transition(host, server)
    ways = {each.role: Way.MIRROR if _is_written(each) else Way.COPY for each in planned.here}
    if ploop := [each.role for each in planned.there if each.format is DiskFormat.PLOOP]:
        what = f"moving the disks of server {server.name!r} while it runs"
        raise Unsupported(what, f"QEMU copies into no ploop image, as {ploop[0]} is", "add --stop")
    details = replace(planned, ways=ways)
    check_space(host, details)
    return details


def _is_written(disk: Disk) -> bool:
    return disk.is_attached and disk.content not in (Content.CONFIG, Content.CDROM)


def live_transiting(transit: Transit) -> Verb[Server]:
    """Undone as long as no disk is a copy."""
    host, details = transit.host, transit.details

    def step(name: str, act: Callable[[Transit, Server], object]) -> Step[Server]:
        return Step(name, as_step(partial(act, transit)))

    return Verb(
        LIVE_TRANSITION,
        (
            replace(step("prepare", prepare), undo=partial(unclaim, transit)),
            replace(step("volumes", _make_volumes), undo=partial(_delete_volumes, transit)),
            replace(step("mirror", _mirror), undo=partial(_stop_mirroring, transit)),
            replace(step("pause", _pause), undo=partial(_resume, transit)),
            Step("pivot", partial(_pivot, transit), partial(_refuse_to_go_back, transit)),
            Step("domain", partial(steps.define, host)),
            step("resume", _resume),
            step("remove", remove_old),
        ),
        finished=without_operation,
        undone=lambda each: without_operation(details.before(each)),
        arrived=partial(_has_pivoted, transit),
        no_return="domain",
    )


def _mirrored(transit: Transit) -> Iterator[tuple[Disk, Disk]]:
    for here, there, way in transit.details.moves():
        if way is Way.MIRROR:
            yield here, there


def _make_volumes(transit: Transit, server: Server) -> None:
    host = transit.host
    for here, there, way in transit.details.moves():
        if way is Way.COPY:
            copy_file(file_of(host, here), make_empty(host, there), transit.progress)
            continue
        forget_volume(host, there)
        base = _base_of(host, there)
        spec = VolumeSpec(
            name=there.volume,
            format=there.format,
            capacity=host.block_jobs.size(server.id, there.target),
            backing=Backing(path=str(base), format=there.template.format)
            if base and there.template
            else None,
        )
        host.pools.ensure(there.pool).create(spec)


def _base_of(host: Host, disk: Disk) -> Path | None:
    return Path(host.pools.base.path) / disk.template.volume if disk.template else None


def _delete_volumes(transit: Transit, _server: Server) -> None:
    for there in transit.details.there:
        forget_volume(transit.host, there)


def _mirror(transit: Transit, server: Server) -> None:
    """The pool may fill up meanwhile: QEMU then ends the copy, and the guest runs on."""
    try:
        _copy_all(transit, server)
    except LibvirtFailed:
        check_space(transit.host, transit.details)
        raise


def _copy_all(transit: Transit, server: Server) -> None:
    jobs = transit.host.block_jobs
    for _, there in _mirrored(transit):
        jobs.mirror(server.id, there.target, _chain(transit.host, there))
    for _, there in _mirrored(transit):
        left = jobs.remaining(server.id, there.target)
        while not jobs.is_mirrored(server.id, there.target):
            time.sleep(POLL)
            before, left = left, jobs.remaining(server.id, there.target)
            transit.progress(max(before - left, 0))
        transit.progress(left)


def _chain(host: Host, disk: Disk) -> Chain:
    """By paths: libvirt copies into no disk that is named by its volume (trap 15)."""
    top = Layer(source=FileSource(path=str(file_of(host, disk))), format=disk.format)
    base = _base_of(host, disk)
    if not base or not disk.template:
        return (top,)
    return (top, Layer(source=FileSource(path=str(base)), format=disk.template.format))


def _stop_mirroring(transit: Transit, server: Server) -> None:
    host = transit.host
    if host.domains.state(server.id) in ON:
        for _, there in _mirrored(transit):
            host.block_jobs.stop_mirroring(server.id, there.target)


def _pause(transit: Transit, server: Server) -> None:
    transit.pause.append(time.monotonic())
    transit.host.domains.suspend(server.id)


def _resume(transit: Transit, server: Server) -> None:
    transit.host.domains.resume(server.id)
    transit.pause.append(time.monotonic())


def _pivot(transit: Transit, server: Server) -> Server:
    """Of a guest that has ended since then, what was not the copy yet is copied again."""
    host = transit.host
    if host.domains.state(server.id) in ON:
        _pivot_running(transit, server)
    else:
        moved = find_moved(transit, host.domains.description(server.id, defined=True))
        for here, there in _mirrored(transit):
            if there.target not in moved:
                copy_file(file_of(host, here), make_empty(host, there), transit.progress)
    return transit.details.after(server)


def _pivot_running(transit: Transit, server: Server) -> None:
    """All copies are whole before the first one is used. One that has broken off raises."""
    jobs, id = transit.host.block_jobs, server.id
    moved = find_moved(transit, transit.host.domains.description(id))
    left = [there.target for _, there in _mirrored(transit) if there.target not in moved]

    def are_whole() -> bool:
        return all(jobs.is_mirrored(id, each) and not jobs.remaining(id, each) for each in left)

    if not wait_until(are_whole, _PATIENCE, 0.01):
        what = f"what the guest of {server.name!r} wrote last was not copied in time"
        raise HostProblem(what, "it runs on where it was: try again")
    for target in left:
        jobs.pivot(id, target)


def _refuse_to_go_back(transit: Transit, server: Server) -> None:
    """The guest is to write to a copy."""
    if _has_pivoted(transit, server, "pivot"):
        what = f"disks of server {server.name!r} are in the pools already, and not all of them"
        raise Conflict(what, f"'{Tool.REPAIR}' finishes it")


def _has_pivoted(transit: Transit, server: Server, step: str) -> bool:
    """libvirt leads the definition to the copy, too. While it runs, only what QEMU has open
    counts."""
    if step != "pivot":
        return False
    domains = transit.host.domains
    off = domains.state(server.id) not in ON
    return bool(find_moved(transit, domains.description(server.id, defined=off)))
