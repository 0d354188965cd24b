"""Records under Nova: instance.system_metadata, one key per disk (decision 13)."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from types import MappingProxyType
from typing import Any

from nova import context, exception
from nova.compute import vm_states
from nova.objects.instance import Instance, InstanceList
from nova.objects.migration import MigrationList

from millpond.errors import Busy, DiskNotFound, UnreadableRecord
from millpond.model.formats import ImageFormat
from millpond.model.names import ImageId, ServerId
from millpond.model.operation import Operation
from millpond.model.server import Disk, Flavor, Hardware, ImageRef, Server
from millpond.nova import short_records as short
from millpond.nova.short_records import DiskRecord

_PREFIX = "millpond_"
"""Of the keys; the disk's role follows."""
_FORMER = "millpond-former_"
"""The same, of disks that a server had before it was resized or migrated: on the host that it
came from, until that is confirmed or reverted."""
_MOVING = ("pre-migrating", "migrating", "post-migrating", "finished", "confirming", "reverting")
"""As Nova calls the states of a migration whose server may still go back."""
_OURS = (_PREFIX, "millpond-")
"""Of these and of other keys of ours, which are no records."""


def record_key(role: str) -> str:
    return _PREFIX + role


class InstanceRecords:
    """Of the disks of one instance. What is put is in Nova's database when it returns."""

    def __init__(self, instance: Any, *, only_settled: bool = False) -> None:
        """``only_settled`` is for who is not nova-compute: nothing is written while Nova does
        something with the instance, since it would write all of its metadata over that."""
        self._instance = instance
        self._only_settled = only_settled

    def refresh(self) -> None:
        """Read them again from Nova's database: what Nova hands over with a request may be older
        than disks made since, and a save of it would erase their records."""
        admin = context.get_admin_context(read_deleted="yes")
        with suppress(exception.InstanceNotFound):
            now = Instance.get_by_uuid(admin, self._id, expected_attrs=["system_metadata"])
            found = now.system_metadata.items()
            self._instance.system_metadata.update(
                {key: text for key, text in found if key.startswith(_OURS)}
            )

    def has(self, role: str) -> bool:
        return bool(self._instance.system_metadata.get(_PREFIX + role))

    def any(self) -> bool:
        """Whether a disk of it is ours, be its record readable or not."""
        return any(True for _ in self.roles())

    def find(self, role: str) -> DiskRecord | None:
        text = self._instance.system_metadata.get(_PREFIX + role)
        return short.decode(text, self._id, role) if text else None

    def get(self, role: str) -> DiskRecord:
        if found := self.find(role):
            return found
        raise DiskNotFound(self._instance.display_name, role, tuple(self.roles()))

    def all(self) -> list[DiskRecord]:
        return [self.get(role) for role in self.roles()]

    def readable(self) -> list[DiskRecord]:
        found = []
        for role in self.roles():
            with suppress(UnreadableRecord):
                found.append(self.get(role))
        return found

    def put(self, disk: Disk, *, made: bool) -> None:
        """Refused by Nova if the instance is gone, or is being deleted: who deletes it reads the
        records once, and would miss this one."""
        self.put_all({disk.role: DiskRecord(disk=disk, made=made)})

    def put_all(
        self,
        records: Mapping[str, DiskRecord | None],
        former: Mapping[str, DiskRecord | None] = MappingProxyType({}),
    ) -> None:
        """At once; None: there is none any more. Refused as put() is."""
        self.write(
            {
                prefix + role: short.encode(record) if record else ""
                for prefix, each in ((_PREFIX, records), (_FORMER, former))
                for role, record in each.items()
            }
        )

    def former(self) -> dict[str, DiskRecord]:
        """By role: what the server had before it was moved. Its volumes are on the host that it
        came from."""
        roles = self.roles(_FORMER)
        texts = {role: self._instance.system_metadata[_FORMER + role] for role in roles}
        return {role: short.decode(text, self._id, role) for role, text in texts.items()}

    def write(self, texts: Mapping[str, str]) -> None:
        """These keys at once, or none of them. Refused by Nova as put() is."""
        metadata = self._instance.system_metadata
        before = dict(metadata)
        metadata.update(texts)
        try:
            self._instance.save(expected_task_state=[self._instance.task_state])
        except BaseException:  # whoever goes on with the instance sees what was before
            metadata.clear()
            metadata.update(before)
            raise

    def remove(self, role: str) -> None:
        """Emptied and not taken away: Nova shows keys again that were."""
        self._instance.system_metadata[_PREFIX + role] = ""
        try:
            self._instance.save(expected_task_state=[None] if self._only_settled else None)
        except exception.InstanceNotFound:
            pass  # it is gone, with its records
        except exception.UnexpectedTaskStateError as error:
            raise Busy(f"server {self._id}") from error

    @property
    def _id(self) -> ServerId:
        return ServerId(self._instance.uuid)

    def roles(self, prefix: str = _PREFIX) -> Iterator[str]:
        found = sorted(self._instance.system_metadata.items())
        ours = (key for key, text in found if key.startswith(prefix) and text)
        return (key.removeprefix(prefix) for key in ours)


class NovaRecords:
    """All instances of this host, as servers: who uses which template, and which volume is whose.
    Nova itself locks instances and keeps what is under way in their task_state."""

    def __init__(self, host: str) -> None:
        self.owner = host

    def find(self, id: ServerId) -> Server | None:
        with suppress(exception.InstanceNotFound):
            return _server(_instance(id))
        return None

    def all(self) -> list[Server]:
        servers, damaged = self.readable()
        if damaged:
            raise damaged[0]
        return servers

    def readable(self) -> tuple[list[Server], list[UnreadableRecord]]:
        servers: list[Server] = []
        damaged: list[UnreadableRecord] = []
        admin = context.get_admin_context()
        for instance in InstanceList.get_by_host(
            admin, self.owner, expected_attrs=["system_metadata", "flavor"]
        ):
            try:
                servers.append(_server(instance))
            except UnreadableRecord as error:
                damaged.append(error)
        servers += self._leaving(damaged)
        return sorted(servers, key=lambda server: (server.name, server.id)), damaged

    def _leaving(self, damaged: list[UnreadableRecord]) -> Iterator[Server]:
        """Servers that were moved from here and may come back, with what they have here."""
        admin = context.get_admin_context()
        filters = {"source_compute": self.owner, "status": list(_MOVING)}
        found = MigrationList.get_by_filters(admin, filters)
        for id in {each.instance_uuid for each in found if each.dest_compute != self.owner}:
            with suppress(exception.InstanceNotFound):
                try:
                    instance = _instance(id)
                    if instance.host != self.owner and _may_return(instance):
                        yield _describe(instance, InstanceRecords(instance).former().values())
                except UnreadableRecord as error:
                    damaged.append(error)

    def host_of(self, id: ServerId) -> str | None:
        found = self.find(id)
        return found.host if found else None

    def has_name(self, name: str) -> bool:
        return any(each.name == name for each in self.all())

    def put(self, server: Server) -> None:
        records = InstanceRecords(_instance(server.id))
        for disk in server.disks:
            records.put(disk, made=server.operation is None)

    def remove(self, id: ServerId) -> None:
        with suppress(exception.InstanceNotFound):
            records = InstanceRecords(_instance(id))
            for record in records.all():
                records.remove(record.disk.role)

    def lock(self, _server: Server) -> AbstractContextManager[None]:
        return nullcontext()

    def lock_name(self, _name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def is_worked_on(self, server: Server) -> bool:
        return server.operation is not None


def _instance(id: ServerId) -> Any:
    admin = context.get_admin_context()
    return Instance.get_by_uuid(admin, id, expected_attrs=["system_metadata", "flavor"])


def _may_return(instance: Any) -> bool:
    """One that is given up where it went, and set to rights there, does not."""
    return bool(instance.task_state or instance.vm_state in (vm_states.RESIZED, vm_states.ERROR))


def _server(instance: Any) -> Server:
    """What it had before, too, unless that is on the host that it came from."""
    records = InstanceRecords(instance)
    present = {each.disk.volume: each for each in records.all()}
    former = {each.disk.volume: each for each in records.former().values()}
    return _describe(instance, (former | present).values())


def _describe(instance: Any, records: Collection[DiskRecord]) -> Server:
    """As much of it as our records have: its domain is Nova's."""
    task = instance.task_state or ("" if all(each.made for each in records) else "building")
    format = instance.system_metadata.get("image_disk_format", ImageFormat.RAW)
    known = format in tuple(ImageFormat)  # a cloud may have formats of its own
    return Server(
        id=ServerId(instance.uuid),
        name=instance.display_name or instance.uuid,
        host=instance.host or "",
        image=ImageRef(
            id=ImageId(instance.image_ref or ""),
            name="",
            format=ImageFormat(format) if known else ImageFormat.RAW,
        ),
        flavor=Flavor(name=instance.flavor.name),
        hardware=Hardware(),
        disks=tuple(each.disk for each in records),
        operation=Operation(verb=task, step="", started="") if task else None,
    )
