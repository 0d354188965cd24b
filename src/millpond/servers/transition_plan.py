"""How each disk of a server comes out of Nova's legacy layout into a pool, or back, and what
speaks against it. Nothing is changed, but that pools are made where they are missing."""

import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from millpond.errors import (
    DiskRefused,
    NoSpace,
    Tool,
    Unsupported,
    VolumeExists,
)
from millpond.hosts.host import Host
from millpond.hosts.legacy import require_files
from millpond.legacy.layout import is_nova_disk
from millpond.legacy.storage import image_path
from millpond.model.formats import Backend, DiskFormat
from millpond.model.names import volume_name
from millpond.model.server import Disk, Server
from millpond.model.sizes import format_size
from millpond.model.transition import TransitionDetails, Way, is_moving
from millpond.servers import steps
from millpond.system import files


def has_legacy_disks(server: Server) -> bool:
    return any(each.path for each in server.disks)


def is_unfinished(server: Server) -> bool:
    """It has such disks, or was left on its way between the two places."""
    return is_moving(server) or has_legacy_disks(server)


def plan_transition(host: Host, server: Server, *, starts: bool = False) -> TransitionDetails:
    """Into the pools."""
    _refuse_unsettled(host, server)
    return replace(plan_files_in(host, server), starts=starts)


def plan_revert(host: Host, server: Server) -> TransitionDetails:
    """Into the instance directory, where Nova finds them."""
    _refuse_unsettled(host, server)
    return plan_files_back(host, server)


def _refuse_unsettled(host: Host, server: Server) -> None:
    steps.refuse_unsettled(server)
    steps.refuse_overlays(host, server)


def plan_files_in(host: Host, server: Server) -> TransitionDetails:
    """Into the pools, of a server whose domain may be somebody else's."""
    here = tuple(each for each in server.disks if each.path)
    for disk in here:
        if missing := host.legacy_storage.missing(disk):
            raise DiskRefused(disk.path, f"{', '.join(map(str, missing))} is missing")
        if linked := host.legacy_storage.linked(disk):
            raise DiskRefused(disk.path, f"{linked} is a symbolic link")
    there = tuple(as_volume(host, server, each) for each in here)
    return _plan(host, server, here, there)


def plan_files_back(host: Host, server: Server) -> TransitionDetails:
    """Out of them, the same."""
    what, here = f"giving server {server.name!r} back to Nova", server.disks
    if legacy := [each.role for each in here if each.path]:
        reason = f"{', '.join(legacy)} is in its layout already"
        raise Unsupported(what, reason, f"'{Tool.LEGACY}' shows such disks")
    if odd := [each.role for each in here if not is_nova_disk(each)]:
        reason = f"Nova's driver would not find {', '.join(odd)}"
        raise Unsupported(what, reason, f"'{Tool.SERVER} export' saves it")
    directory = host.shared.settings.instances_path
    there = tuple(as_file(directory, server, each) for each in here)
    return _plan(host, server, here, there)


def as_file(instances: Path, server: Server, disk: Disk) -> Disk:
    """As Nova lays it out."""
    return replace(disk, pool="", volume="", path=str(instances / server.id / disk.role))


def as_volume(host: Host, server: Server, disk: Disk) -> Disk:
    """Of a ploop directory, its one image."""
    backend = Backend.RAW if disk.format is DiskFormat.RAW else disk.backend
    template = disk.template and replace(disk.template, pool=host.pool_plan.base.name)
    pool = host.pool_plan.for_disk(backend, disk.role).name
    volume = volume_name(server.id, disk.role)
    return replace(disk, backend=backend, pool=pool, volume=volume, path="", template=template)


def file_of(host: Host, disk: Disk) -> Path:
    """What QEMU opens, wherever it lies."""
    if disk.path:
        return image_path(disk)
    return Path(host.pools.ensure(disk.pool).path) / disk.volume


def _plan(
    host: Host, server: Server, here: Sequence[Disk], there: Sequence[Disk]
) -> TransitionDetails:
    require_files(host, f"moving the disks of server {server.name!r}", "its files are to be moved")
    ways = {}
    for before, after in zip(here, there, strict=True):
        source, target = file_of(host, before), file_of(host, after)
        if not is_same(source, target):
            _refuse_odd(source)
            _refuse_taken(source, target, after)
        ways[before.role] = Way.RENAME if _is_one_file_system(source, target) else Way.COPY
    details = TransitionDetails(
        here=tuple(here),
        there=tuple(there),
        ways=ways,
        prepares=bool(host.claims) or any(each.template for each in there),
    )
    check_space(host, details)
    return details


def is_same(one: Path, other: Path) -> bool:
    """One file under two names: somebody has begun to move it."""
    return os.path.lexists(one) and os.path.lexists(other) and os.path.samefile(one, other)


def _refuse_odd(source: Path) -> None:
    """A link, which somebody made, or a file that has another name besides: whoever has that could
    still write to the disk."""
    try:
        found = source.lstat()
    except FileNotFoundError as error:
        raise DiskRefused(str(source), "it is missing") from error
    if not stat.S_ISREG(found.st_mode):
        raise DiskRefused(str(source), "it is no plain file")
    if found.st_nlink > 1:
        raise DiskRefused(str(source), f"it has {found.st_nlink} names (hard links)")


def _refuse_taken(source: Path, target: Path, after: Disk) -> None:
    if not os.path.lexists(target):
        return
    if after.path:
        raise DiskRefused(str(target), f"it is there already, and not {source}")
    raise VolumeExists(after.pool, after.volume)


def can_link(host: Host, server: Server, disk: Disk) -> bool:
    """Whether a file of Nova's layout can have another name in the pool that it would be in."""
    target = file_of(host, as_volume(host, server, disk))
    return host.probe_local_files() and _is_one_file_system(file_of(host, disk), target)


def _is_one_file_system(source: Path, target: Path) -> bool:
    return source.stat().st_dev == files.nearest_existing(target.parent).stat().st_dev


def bytes_to_copy(host: Host, details: TransitionDetails) -> int:
    copied = (here for here, _, way in details.moves() if way is not Way.RENAME)
    return sum(files.taken_space(file_of(host, each)) for each in copied)


def check_space(host: Host, details: TransitionDetails) -> None:
    needed: Counter[Path] = Counter()
    for here, there, way in details.moves():
        if way is not Way.RENAME:
            place = files.nearest_existing(file_of(host, there).parent)
            needed[place] += files.taken_space(file_of(host, here))
    for place, size in needed.items():
        if size > (free := files.free_space(place)):
            raise NoSpace(str(place), format_size(size), format_size(free))
