"""Moving servers that run. What is not shared is made at the destination, empty but for what backs
it, and QEMU mirrors the rest while the guest writes (trap 16)."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import nova.conf
from nova import exception
from nova.virt.libvirt import utils as libvirt_utils
from nova.virt.libvirt.driver import LibvirtDriver

from millpond.disks import transfer
from millpond.errors import MillpondError, UnfitHost
from millpond.hosts.host import Host
from millpond.libvirt.pool import PoolType
from millpond.model.formats import Backend, DiskFormat
from millpond.model.names import ServerId
from millpond.model.server import Content, Disk
from millpond.nova import carrying
from millpond.nova.advice import explain
from millpond.nova.carrying import Carried, Way
from millpond.nova.explaining import explaining
from millpond.nova.images import fetch_base, trusted_by
from millpond.nova.journey import Journey, LeavingDomain, read_journey
from millpond.nova.peers import find_peer, own_address
from millpond.nova.records import InstanceRecords
from millpond.nova.short_records import DiskRecord
from millpond.records.journal import watching
from millpond.system import streams
from millpond.xml.carrying import find_volumes

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_NO_FILES = "the host keeps no disks outside of storage pools (images_type = libvirt-storage)"
_OTHER_DRIVER = "the destination does not run Millpond's driver, and would not find the disks"
_SENT = (Content.CONFIG, Content.CDROM)
"""No guest writes to them: they are copied before."""


class MovesRunningServers(LibvirtDriver):
    @property
    def millpond(self) -> Host:
        raise NotImplementedError

    def check_can_live_migrate_destination(
        self, context: Any, instance: Any, *args: Any, **kw: Any
    ) -> Any:
        records = InstanceRecords(instance)
        if not records.any():
            if self._pools_only and has_local_disks(instance):
                raise exception.MigrationPreCheckError(reason=_NO_FILES)
            return super().check_can_live_migrate_destination(context, instance, *args, **kw)
        with _checking():
            for record in records.all():
                self._refuse_unknown_pool(record.disk)
        data = super().check_can_live_migrate_destination(context, instance, *args, **kw)
        data.image_type = msgspec.json.encode(Journey(host=CONF.host)).decode()
        data.target_connect_addr = own_address()
        return data

    def _refuse_unknown_pool(self, disk: Disk) -> None:
        """A record names one pool, whatever the host."""
        wanted = self.millpond.pool_plan.find(disk.pool)
        types = {Backend.LVM: PoolType.LOGICAL, Backend.RBD: PoolType.RBD}
        if wanted is None or wanted.type is not types.get(disk.backend, PoolType.DIR):
            reason = f"host {CONF.host!r} has no pool {disk.pool!r} for {disk.backend} disks"
            raise UnfitHost(reason, "hosts that servers move between have pools of the same names")

    def check_can_live_migrate_source(
        self, context: Any, instance: Any, dest_check_data: Any, block_device_info: Any = None
    ) -> Any:
        if not InstanceRecords(instance).any():
            return super().check_can_live_migrate_source(
                context, instance, dest_check_data, block_device_info
            )
        journey = read_journey(dest_check_data)
        if journey is None:
            raise exception.MigrationPreCheckError(reason=_OTHER_DRIVER)
        with _checking():
            ways = {each.here.role: each.way for each in self._plan_live(instance, journey.host)}
        planned = Journey(host=journey.host, ways=ways)
        dest_check_data.image_type = msgspec.json.encode(planned).decode()
        return super().check_can_live_migrate_source(
            context, instance, dest_check_data, block_device_info
        )

    def _plan_live(self, instance: Any, host: str) -> list[Carried]:
        peer = find_peer(self.millpond, host)
        disks = [each.disk for each in InstanceRecords(instance).all()]
        for disk in disks:
            if disk.format is DiskFormat.PLOOP:
                reason = f"QEMU migrates no guest that has a {disk.format} disk, as {disk.role} is"
                raise UnfitHost(reason, "migrate the server while it is off")
        carried = carrying.plan(self.millpond, peer, instance, disks, saves=False)
        for each in carried:
            template = each.here.template
            linked = template and self.millpond.handlers.find_linked(template.volume)
            if each.way is not Way.SHARED and each.here.overlay and linked:
                reason = f"{each.here.role} is backed by a link"
                raise UnfitHost(reason, "migrate the server while it is off")
        return [carry_live(each) for each in carried]

    def _is_shared_block_storage(
        self, instance: Any, dest_check_data: Any, block_device_info: Any = None
    ) -> bool:
        if journey := read_journey(dest_check_data):
            return not any(map(journey.carries, journey.ways))
        return bool(super()._is_shared_block_storage(instance, dest_check_data, block_device_info))

    def pre_live_migration(
        self,
        context: Any,
        instance: Any,
        block_device_info: Any,
        network_info: Any,
        disk_info: Any,
        migrate_data: Any,
    ) -> Any:
        """At the destination: what will be mirrored is made, and what it is backed by. What is
        sent whole, the source makes."""
        journey = read_journey(migrate_data)
        if journey and not migrate_data.is_shared_instance_path:
            self._remove_directory(instance, migrate_data)
        data = super().pre_live_migration(
            context, instance, block_device_info, network_info, disk_info, migrate_data
        )
        if journey is None:
            return data
        with explaining():
            for record in InstanceRecords(instance).all():
                disk, way = record.disk, journey.ways[record.disk.role]
                if way is Way.WHOLE:
                    continue
                template = fetch_base(
                    self.millpond.disks, disk, instance.image_ref, trusted_by(instance)
                )
                if way is Way.TOP and disk.content not in _SENT:
                    with watching(self.millpond.watch, "live", "make"):
                        self.millpond.disks.create(_arriving(disk, Way.TOP), template)
        return data

    def _remove_directory(self, instance: Any, migrate_data: Any) -> None:
        """Left by a migration whose source was killed: Nova would not migrate it here any more."""
        if self.millpond.domains.state(ServerId(instance.uuid)) is None:
            place = libvirt_utils.get_instance_path_at_destination(instance, migrate_data)
            shutil.rmtree(place, ignore_errors=True)

    def _live_migration_operation(
        self,
        context: Any,
        instance: Any,
        dest: str,
        block_migration: bool,
        migrate_data: Any,
        guest: Any,
        device_names: Any,
    ) -> None:
        """What fails is logged and not raised: Nova has then found the guest here, and undone
        the rest, when it would set the server to ERROR for it."""
        try:
            if journey := read_journey(migrate_data):
                self._send_ahead(instance, journey)
                guest = self._describe_there(instance, journey, guest)
            super()._live_migration_operation(
                context, instance, dest, block_migration, migrate_data, guest, device_names
            )
        except Exception:
            LOG.exception("server %s stays: its live migration failed", instance.uuid)

    def _send_ahead(self, instance: Any, journey: Journey) -> None:
        """What does not change while the guest runs: config drives, and what backs a disk that
        arrives as one image."""
        peer = find_peer(self.millpond, journey.host)
        for record in InstanceRecords(instance).all():
            disk, way = record.disk, journey.ways[record.disk.role]
            pool = peer.pool(disk.pool)
            with watching(self.millpond.watch, "live", "send"):
                if way is Way.WHOLE or (way is Way.TOP and disk.content in _SENT):
                    carrying.remove_copy(peer, disk)
                if way is not Way.SHARED and disk.content in _SENT:
                    origin = self.millpond.pools.ensure(disk.pool)
                    length = origin.get(disk.volume).length
                    transfer.send(transfer.read(origin, disk), length, pool, disk.volume)
                elif way is Way.WHOLE:
                    with carrying.base_image(self.millpond, disk) as path:
                        length = path.stat().st_size
                        transfer.send(streams.read(path), length, pool, disk.volume)

    def _describe_there(self, instance: Any, journey: Journey, guest: Any) -> Any:
        """libvirt copies no layer into a disk that is named by its volume (trap 16)."""
        peer = find_peer(self.millpond, journey.host)
        whole = self._targets(guest, instance, journey, Way.WHOLE)
        mirrored = whole | self._targets(guest, instance, journey, Way.TOP)
        leaving = copy(guest)
        leaving._domain = LeavingDomain(
            guest._domain,
            paths={
                target: peer.pool(disk.pool).get(disk.volume).path
                for target, disk in mirrored.items()
            },
            devices=[each for each, disk in mirrored.items() if disk.backend is Backend.LVM],
            whole=whole,
            shares=Way.SHARED in journey.ways.values(),
        )
        return leaving

    def _live_migration_copy_disk_paths(
        self, context: Any, instance: Any, guest: Any
    ) -> tuple[list[str], list[str]]:
        """Volumes, too, which Nova takes for Cinder's. One that was migrated live before has them
        by their paths until its next start."""
        paths, names = super()._live_migration_copy_disk_paths(context, instance, guest)
        journey = self._journeys.get(instance.uuid)
        if journey is None:
            return paths, names
        ours = {way: self._targets(guest, instance, journey, way) for way in Way}
        known = {each for targets in ours.values() for each in targets}
        copied = {name: path for name, path in zip(names, paths, strict=True) if name not in known}
        for target, disk in (ours[Way.TOP] | ours[Way.WHOLE]).items():
            copied[target] = self.millpond.pools.ensure(disk.pool).get(disk.volume).path
        return list(copied.values()), list(copied)

    def _get_instance_disk_info(self, instance: Any, block_device_info: Any) -> Any:
        """Of disks in the instance's directory: the same."""
        found = super()._get_instance_disk_info(instance, block_device_info)
        ours = {each.disk.volume for each in InstanceRecords(instance).readable()}
        return [each for each in found if Path(each["path"]).name not in ours]

    def _get_instance_disk_info_from_config(
        self, guest_config: Any, block_device_info: Any
    ) -> Any:
        """What the pools have is counted there."""
        found = super()._get_instance_disk_info_from_config(guest_config, block_device_info)
        ours = {each.path for each in self.millpond.pool_plan.directories()}
        return [each for each in found if str(Path(each["path"]).parent) not in ours]

    def _targets(self, guest: Any, instance: Any, journey: Journey, way: Way) -> dict[str, Disk]:
        """By the device that the guest sees: disks of ours that QEMU mirrors in this way."""
        disks = {each.disk.volume: each.disk for each in InstanceRecords(instance).all()}
        found = find_volumes(guest.get_xml_desc())
        return {
            target: disks[volume]
            for target, volume in found.items()
            if volume in disks
            and journey.ways[disks[volume].role] is way
            and disks[volume].content not in _SENT
        }

    def _live_migration(
        self,
        context: Any,
        instance: Any,
        dest: str,
        post: Any,
        recover: Any,
        block: Any,
        data: Any,
    ) -> None:
        if journey := read_journey(data):
            self._journeys[instance.uuid] = journey
        try:
            super()._live_migration(context, instance, dest, post, recover, block, data)
        finally:
            self._journeys.pop(instance.uuid, None)

    @cached_property
    def _journeys(self) -> dict[str, Journey]:
        """Of the servers that are just leaving."""
        return {}

    def cleanup(
        self,
        context: Any,
        instance: Any,
        network_info: Any,
        block_device_info: Any = None,
        destroy_disks: bool = True,
        migrate_data: Any = None,
        destroy_vifs: bool = True,
        destroy_secrets: bool = True,
    ) -> None:
        """At the source, when the server runs elsewhere: what was carried goes, and the records
        say how it is there."""
        journey = read_journey(migrate_data)
        with self._keeping_disks(instance, journey):
            super().cleanup(
                context,
                instance,
                network_info,
                block_device_info,
                destroy_disks,
                migrate_data,
                destroy_vifs,
                destroy_secrets,
            )
        if journey:
            with explaining():
                self._delete_carried(instance, journey)
                _note_arrival(instance, journey)

    def rollback_live_migration_at_destination(
        self,
        context: Any,
        instance: Any,
        network_info: Any,
        block_device_info: Any,
        destroy_disks: bool = True,
        migrate_data: Any = None,
    ) -> None:
        journey = read_journey(migrate_data)
        try:
            with self._keeping_disks(instance, journey):
                super().rollback_live_migration_at_destination(
                    context, instance, network_info, block_device_info, destroy_disks, migrate_data
                )
        finally:
            if journey:
                with explaining():
                    self._delete_carried(instance, journey)

    @contextmanager
    def _keeping_disks(self, instance: Any, journey: Journey | None) -> Iterator[None]:
        """In the block no disk of it is deleted: it lives, on another host."""
        if journey is None:
            yield
            return
        self._kept.add(instance.uuid)
        try:
            yield
        finally:
            self._kept.discard(instance.uuid)

    @cached_property
    def _kept(self) -> set[str]:
        """Servers whose disks are not deleted now."""
        return set()

    def _delete_carried(self, instance: Any, journey: Journey) -> None:
        for record in InstanceRecords(instance).all():
            if journey.carries(record.disk.role):
                self.millpond.disks.delete(record.disk)

    @property
    def _pools_only(self) -> bool:
        return self.millpond.settings.libvirt.selection.images_type.pools_only


def carry_live(carried: Carried) -> Carried:
    """What is made again for a server that is off is carried for one that runs."""
    if carried.way is not Way.NEW:
        return carried
    disk = carried.here
    way = Way.WHOLE if disk.overlay else Way.TOP
    return Carried(here=disk, way=way, there=_arriving(disk, way))


def _arriving(disk: Disk, way: Way) -> Disk:
    return disk if way is Way.TOP and disk.overlay else _flat(disk)


def _flat(disk: Disk) -> Disk:
    return replace(disk, overlay=False, template=None)


def _note_arrival(instance: Any, journey: Journey) -> None:
    whole = {
        each.disk.role: DiskRecord(disk=_flat(each.disk), made=True)
        for each in InstanceRecords(instance).all()
        if journey.ways[each.disk.role] is Way.WHOLE
    }
    if whole:
        InstanceRecords(instance).put_all(whole)


def has_local_disks(instance: Any) -> bool:
    """Besides a config drive, which is made again wherever it is needed."""
    flavor = instance.flavor
    return bool(instance.image_ref or flavor.ephemeral_gb or flavor.swap)


@contextmanager
def _checking() -> Iterator[None]:
    try:
        yield
    except MillpondError as error:
        raise exception.MigrationPreCheckError(reason=explain(error)) from error
