"""A server back to Nova's own driver: its disks are where that one finds them, and no record of
ours is left."""

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nova.conf

from millpond.errors import BadConfiguration, BadOption, Unsupported
from millpond.hosts.host import Host
from millpond.legacy.layout import is_nova_disk
from millpond.model.formats import Backend, DiskFormat
from millpond.model.server import Content, Disk, TemplateRef
from millpond.nova.records import InstanceRecords
from millpond.nova.short_records import DiskRecord
from millpond.nova.transition import NO_RETURN, Plan, server_of, verb
from millpond.nova.transition_journal import REVERT, InstanceJournal
from millpond.records import journal
from millpond.servers.transition_plan import plan_files_back
from millpond.servers.transition_steps import Transit

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_FILES = (Backend.RAW, Backend.QCOW2)
_CONFIG_DRIVES = (*_FILES, Backend.LVM)
"""With these Nova has config drives as files."""


def refuse_unknown_driver(host: Host) -> None:
    """Nova's own driver will run with the images_type that is there, and has no backend for
    ours."""
    if host.settings.libvirt.selection.images_type.pools_only:
        reason = "Nova's own driver, which is to find the disks, does not know libvirt-storage"
        advice = "set it to what that driver will run with"
        raise BadConfiguration((BadOption("[libvirt] images_type", reason, advice),))


def plan_back(host: Host, instance: Any) -> Plan:
    """Of a server that is off. Raises Unsupported for what Nova's driver would not find."""
    records = InstanceRecords(instance).all()
    what = f"giving server {instance.display_name!r} back to Nova"
    if reasons := [reason for each in records for reason in _objections(host, each)]:
        advice = "the server stays as it is; 'openstack server image create' saves its root disk"
        raise Unsupported(what, "; ".join(reasons), advice)
    disks = [_seen(each.disk) for each in records]
    files = [each for each in disks if each.backend in _FILES]
    server = server_of(host, instance, files)
    in_place = tuple(each for each in disks if each.backend not in _FILES)
    return Plan(server=server, details=plan_files_back(host, server), in_place=in_place)


def give_back(host: Host, instance: Any, planned: Plan) -> None:
    notes = InstanceJournal(
        instance=instance,
        details=planned.details,
        no_return=NO_RETURN,
        besides=dict.fromkeys((each.role for each in planned.in_place), None),
    )
    todo = verb(Transit(host=host, details=planned.details), REVERT)
    journal.run(todo, planned.server, notes, host.watch)
    if host.nova_bases:
        host.nova_bases.unprotect()
    LOG.info("server %s: its disks are where Nova's own driver finds them", instance.uuid)


def _objections(host: Host, record: DiskRecord) -> Iterator[str]:
    disk = _seen(record.disk)
    if not record.made:
        yield f"{disk.role} was begun and never finished"
        return
    find = _objections_to_file if disk.backend in _FILES else _objections_to_volume
    yield from (f"{disk.role}: {each}" for each in find(host, disk))


def _objections_to_volume(host: Host, disk: Disk) -> Iterator[str]:
    wanted = host.settings.libvirt.selection.blank_backend()
    if disk.backend is not wanted or host.pool_plan.by_backend[wanted].name != disk.pool:
        yield f"with images_type = {wanted} Nova does not look for it in pool {disk.pool}"


def _objections_to_file(host: Host, disk: Disk) -> Iterator[str]:
    """Nova's Flat reads from disk.info what a file is, its Qcow2 does not. A config drive is a raw
    file, unless disks are in Ceph."""
    wanted = host.settings.libvirt.selection.blank_backend()
    known = _CONFIG_DRIVES if disk.content is Content.CONFIG else _FILES
    if wanted not in known:
        yield f"with images_type = {wanted} Nova looks for it elsewhere"
    elif wanted is Backend.QCOW2 and known is _FILES and disk.format is not DiskFormat.QCOW2:
        yield f"with images_type = {wanted} Nova takes it for qcow2, and it is {disk.format}"
    if not is_nova_disk(disk):
        yield "Nova does not know such a disk, or what it is backed by"
    elif disk.overlay and disk.template:
        yield from _objections_to_base(host, disk.template)


def _objections_to_base(host: Host, base: TemplateRef) -> Iterator[str]:
    pool = host.pool_plan.base
    cache = Path(CONF.instances_path, CONF.image_cache.subdirectory_name)
    if base.pool != pool.name:
        yield f"it is backed by {base.volume} of pool {base.pool}, which Nova does not know"
    elif os.path.realpath(pool.path) != os.path.realpath(cache):
        yield f"its base is in {pool.path}, and Nova keeps bases in {cache}"


def _seen(disk: Disk) -> Disk:
    """Which device the guest sees, Nova knows; that it sees one, is known."""
    return replace(disk, target=disk.role)
