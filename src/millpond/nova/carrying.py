"""The disks of a server that is moved: where each of them goes, and how its bytes get there."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import nova.conf
import nova.utils

from millpond.disks import own_format, transfer
from millpond.disks.backend import ImageFile
from millpond.disks.duplication import check_duplicate, duplicate
from millpond.errors import (
    ImageNotFound,
    ImageRefused,
    MillpondError,
    UnfitHost,
    VolumeNotFound,
)
from millpond.hosts.host import Host
from millpond.model.formats import Backend
from millpond.model.layer import FileSource, Layer
from millpond.model.names import ImageId, ServerId, template_name, volume_name
from millpond.model.server import Content, Disk
from millpond.nova.peers import Peer, is_proven_apart, shares_pool
from millpond.nova.records import InstanceRecords
from millpond.nova.recovery import snapshots_of
from millpond.nova.short_records import DiskRecord
from millpond.records.journal import watching
from millpond.servers.move_plan import refuse_full
from millpond.system import streams

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_SUFFIXES = ("", ".saved")
"""Of the names that a volume may have: none is ever renamed."""


class Way(StrEnum):
    SHARED = "shared"
    """Both hosts have its volume, or they are one host."""
    SAVED = "saved"
    """The same; a copy of it is kept, for the case that the resize is reverted."""
    TOP = "top"
    """Its own layer; what backs it is prepared at the destination."""
    WHOLE = "whole"
    """With all that backs it."""
    NEW = "new"
    """Made again at the destination."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """One disk of a server that moves."""

    here: Disk
    way: Way
    there: Disk
    """As it is recorded at the destination."""
    former: Disk | None = None
    """What the server goes back to if it is reverted, at the source."""

    @property
    def travels(self) -> bool:
        return self.way in (Way.TOP, Way.WHOLE)


def plan(
    host: Host, peer: Peer | None, instance: Any, disks: list[Disk], *, saves: bool
) -> list[Carried]:
    """How each disk gets to the peer; None: to this host. ``saves``: a revert gives back what they
    hold now. Raises UnfitHost; changes nothing."""
    carried = choose(host, peer, instance, disks, saves=saves)
    for each in carried:
        if each.way is Way.SAVED:
            check_duplicate(host.pools.ensure(each.here.pool), each.here)
    if peer:
        _refuse_other_base(host, peer, instance, carried)
        _refuse_unfit(host, peer, instance, carried)
    return carried


def choose(
    host: Host, peer: Peer | None, instance: Any, disks: list[Disk], *, saves: bool
) -> list[Carried]:
    """The same, without asking whether the peer can have them."""
    shared = {
        name: peer is None or shares_pool(host, peer, name, instance.uuid)
        for name in {each.pool for each in disks}
    }
    return [
        _plan_shared(disk, saves=saves)
        if shared[disk.pool]
        else _plan_carried(host, instance, disk)
        for disk in disks
    ]


def _refuse_other_base(host: Host, peer: Peer, instance: Any, carried: list[Carried]) -> None:
    """A shared overlay would be backed by another file system, formatted there."""
    for each in carried:
        template = each.here.template if each.here.overlay else None
        stays = each.way in (Way.SHARED, Way.SAVED) and not _is_made_again(each.here)
        if template is None or not stays:
            continue
        if not has_image(host, instance, each.here) and not shares_pool(
            host, peer, template.pool, instance.uuid
        ):
            reason = f"host {peer.name!r} cannot have what {each.here.role} is backed by"
            raise UnfitHost(reason, "share the pool of the templates, too, or make it a raw disk")


def _plan_shared(disk: Disk, *, saves: bool) -> Carried:
    if not saves or _is_made_again(disk):
        return Carried(here=disk, way=Way.SHARED, there=disk)
    return Carried(here=disk, way=Way.SAVED, there=disk, former=with_other_name(disk))


def with_other_name(disk: Disk) -> Disk:
    """Of the two that it may have. What no record names is left of a move that came to nothing."""
    id = ServerId(disk.volume.partition("_")[0])
    names = (volume_name(id, disk.role) + each for each in _SUFFIXES)
    return replace(disk, volume=next(each for each in names if each != disk.volume))


def _plan_carried(host: Host, instance: Any, disk: Disk) -> Carried:
    id = ServerId(instance.uuid)
    there = replace(disk, volume=volume_name(id, disk.role))
    if _is_made_again(disk):
        return Carried(here=disk, way=Way.NEW, there=there, former=disk)
    if disk.backend is Backend.RBD:
        reason = f"pool {disk.pool}, of {disk.role}, is another one there"
        raise UnfitHost(reason)
    if not disk.overlay or has_image(host, instance, disk):
        return Carried(here=disk, way=Way.TOP, there=there, former=disk)
    there = replace(there, overlay=False, template=None)
    return Carried(here=disk, way=Way.WHOLE, there=there, former=disk)


def _is_made_again(disk: Disk) -> bool:
    """Nothing of the user's is on it."""
    return disk.content in (Content.SWAP, Content.CONFIG)


def has_image(host: Host, instance: Any, disk: Disk) -> bool:
    """Whether the destination can prepare the same template. Of what was formatted, each host has
    one of its own, under the same name."""
    assert disk.template
    image = ImageId(instance.image_ref or "")
    if not image or disk.template.volume != template_name(image, disk.template.format):
        return False
    try:
        host.images.describe(image)
    except (ImageNotFound, ImageRefused):
        return False
    return True


def _refuse_unfit(host: Host, peer: Peer, instance: Any, carried: list[Carried]) -> None:
    needed: dict[str, int] = {}
    if peer.has_domain(ServerId(instance.uuid)):
        advice = f"see what it is: 'virsh dominfo {instance.uuid}' there"
        raise UnfitHost(f"host {peer.name!r} has a domain of this server already", advice)
    for each in carried:
        pool = peer.pool(each.there.pool)
        if each.way in (Way.SHARED, Way.SAVED):
            continue
        size = _size(host, each) if pool.capabilities.sparse else each.there.size
        needed[pool.name] = needed.get(pool.name, 0) + size
    for name, size in needed.items():
        refuse_full(peer.name, peer.pool(name), size)


def _size(host: Host, each: Carried) -> int:
    taken = host.pools.ensure(each.here.pool).get(each.here.volume).allocation
    if each.way is Way.WHOLE and each.here.template:
        taken += host.pools.base.get(each.here.template.volume).allocation
    return taken if each.travels else 0


def carry(host: Host, peer: Peer | None, carried: list[Carried]) -> None:
    """While nobody writes to them. What is at the destination then was read back and compared."""
    for each in carried:
        if each.way is Way.SAVED:
            assert each.former
            with watching(host.watch, "move", "save"):
                duplicate(host.pools.ensure(each.here.pool), each.here, each.former)
        elif each.travels:
            assert peer
            with watching(host.watch, "move", "copy"):
                _send(host, peer, each)


def _send(host: Host, peer: Peer, each: Carried) -> None:
    remove_copy(peer, each.there)
    pool = peer.pool(each.there.pool)
    if each.way is Way.WHOLE:
        with _whole_image(host, each.here) as path:
            length = path.stat().st_size
            sent = transfer.send(streams.read(path), length, pool, each.there.volume)
    else:
        origin = host.pools.ensure(each.here.pool)
        pieces, length = transfer.read(origin, each.here), origin.get(each.here.volume).length
        if each.here.overlay and each.here.template:
            pieces = transfer.rename_backing(pieces, _backing(host, peer, each.here))
        sent = transfer.send(pieces, length, pool, each.there.volume)
    transfer.verify(pool, each.there, sent)


def _backing(host: Host, peer: Peer, disk: Disk) -> str:
    """By its path there, be it prepared yet or not. Above a link a header names nothing."""
    assert disk.template
    if host.handlers.find_linked(disk.template.volume):
        return ""
    return f"{peer.pool(disk.template.pool).path}/{disk.template.volume}"


@contextmanager
def _whole_image(host: Host, disk: Disk) -> Iterator[Path]:
    with temporary_directory() as directory:
        path = directory / "disk"
        host.disks.extract(disk, ImageFile(path=path, format=disk.format))
        yield path


@contextmanager
def base_image(host: Host, disk: Disk) -> Iterator[Path]:
    """What backs a disk that somebody writes to, as an image of its format and size."""
    assert disk.template
    base = FileSource(path=host.pools.base.get(disk.template.volume).path)
    with temporary_directory() as directory:
        path = directory / "disk"
        layer = Layer(source=base, format=disk.template.format)
        own_format.write(path, disk.format, disk.size, layer)
        yield path


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """What a killed process leaves in it, the next one removes as it starts."""
    place = snapshots_of(CONF.host, Path(CONF.libvirt.snapshots_directory))
    place.mkdir(mode=0o711, parents=True, exist_ok=True)
    with nova.utils.tempdir(dir=str(place)) as directory:
        yield Path(directory)


def remove_copies(host: Host, peer: Peer | None, carried: list[Carried]) -> None:
    """As far as they were made. What cannot be removed stays, and is told of."""
    for each in carried:
        if each.way is Way.SAVED and each.former:
            host.disks.delete(each.former)
        elif each.travels and peer:
            remove_copy(peer, each.there)


def remove_copy(peer: Peer, disk: Disk) -> None:
    """Also what an earlier move left: the pools are not one, and no domain of the server is
    there."""
    try:
        with suppress(VolumeNotFound):
            peer.pool(disk.pool).delete(disk.volume)
    except MillpondError as error:
        LOG.warning("volume %s stays on host %s: %s", disk.volume, peer.name, error)


def remove_sent(host: Host, peer: Peer, instance: Any) -> None:
    """What a move that came to nothing has left on the host that it went to."""
    records = InstanceRecords(instance)
    sent = [each.disk for each in records.former().values()] or [
        each.disk for each in records.all()
    ]
    for disk in sent:
        if is_proven_apart(host, peer.name, disk.pool, instance.uuid):
            remove_copy(peer, disk)


def records_of(carried: list[Carried]) -> tuple[dict[str, Any], dict[str, Any]]:
    """As they are when all have arrived, and what there is to go back to."""
    present = {
        each.here.role: None if each.way is Way.NEW else DiskRecord(disk=each.there, made=True)
        for each in carried
    }
    former = {
        each.here.role: DiskRecord(disk=each.former, made=True) for each in carried if each.former
    }
    return present, former
