"""The record of one disk as one short text, for the narrow values of Nova's system_metadata."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from millpond.errors import DamagedRecord, NewerRecord, StateProblem
from millpond.model.formats import Backend, DiskFormat
from millpond.model.names import ServerId, volume_name
from millpond.model.server import Content, Disk, TemplateRef

LONGEST = 255
"""What a value of Nova's table instance_system_metadata holds."""
SCHEMA = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRecord:
    disk: Disk
    made: bool
    """False from before the disk is begun until it is complete."""


class _Versioned(msgspec.Struct, array_like=True):
    schema: int


class _Base(msgspec.Struct, array_like=True):
    pool: str
    volume: str
    format: DiskFormat
    overlay: bool


class _Text(msgspec.Struct, array_like=True):
    """The volume's name is made of server and role, unless it takes the place of another one;
    which device the guest sees, Nova knows."""

    schema: int
    made: bool
    backend: Backend
    pool: str
    format: DiskFormat
    size: int
    content: Content
    base: _Base | None
    suffix: str = ""
    """Of the volume's name, since schema 2. Who knows schema 1 alone must not take another volume
    for this one."""


def encode(record: DiskRecord) -> str:
    disk, base = record.disk, record.disk.template
    suffix = disk.volume.partition("_")[2].removeprefix(disk.role)
    fields = _Text(
        schema=SCHEMA if suffix else 1,
        made=record.made,
        backend=disk.backend,
        pool=disk.pool,
        format=disk.format,
        size=disk.size,
        content=disk.content,
        base=_Base(base.pool, base.volume, base.format, disk.overlay) if base else None,
        suffix=suffix,
    )
    text = msgspec.json.encode(fields).decode()
    if len(text) > LONGEST:
        raise StateProblem(
            f"the record of disk {disk.location} has {len(text)} characters, and Nova takes "
            f"{LONGEST}",
            "shorten the names of the storage pools in nova.conf",
        )
    return text


def decode(text: str, server: ServerId, role: str) -> DiskRecord:
    """Raises DamagedRecord, or NewerRecord if a later version wrote it."""
    place = Path(server, role)
    try:
        if (schema := msgspec.json.decode(text, type=_Versioned).schema) > SCHEMA:
            raise NewerRecord(place, schema, SCHEMA)
        fields = msgspec.json.decode(text, type=_Text)
    except msgspec.MsgspecError as error:
        raise DamagedRecord(place, str(error)) from error
    base = fields.base
    disk = Disk(
        role=role,
        backend=fields.backend,
        pool=fields.pool,
        volume=volume_name(server, role) + fields.suffix,
        format=fields.format,
        size=fields.size,
        target="",
        content=fields.content,
        template=TemplateRef(pool=base.pool, volume=base.volume, format=base.format)
        if base
        else None,
        overlay=bool(base and base.overlay),
    )
    return DiskRecord(disk=disk, made=fields.made)
