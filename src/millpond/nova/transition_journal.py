"""What is under way when the disks of an instance move between Nova's layout and the pools: kept
in its system_metadata, next to the records.

One key says the verb and the step, and one for each disk how it moves and what its record in the
pool is: the place outside of the pool follows from the disk's name. These are no records: nobody
takes a disk that moves for one that was never finished.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millpond.errors import DamagedRecord, StateProblem
from millpond.model.names import ServerId
from millpond.model.server import Disk, Server
from millpond.model.transition import TransitionDetails, Way
from millpond.nova import short_records as short
from millpond.nova.records import InstanceRecords, record_key
from millpond.nova.short_records import LONGEST, DiskRecord
from millpond.servers.transition_plan import as_file
from millpond.servers.transition_steps import TRANSITION

REVERT = "revert"

_STEP = "millpond-moving"
_DISK = "millpond-moving_"
"""The disk's role follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceJournal:
    """One for each attempt. ``besides``: records of disks that stay where they are, by role; they
    change with those of the disks that move, and are empty where one is forgotten."""

    instance: Any
    details: TransitionDetails
    no_return: str
    besides: Mapping[str, Disk | None] = field(default_factory=dict)

    def enter(self, state: Server, verb: str, step: str) -> Server:
        texts = {**self._notes(), **self._records(state), _STEP: f"{verb} {step}"}
        if step == self.no_return:
            texts |= {record_key(role): _encode(each) for role, each in self.besides.items()}
        InstanceRecords(self.instance).write(texts)
        return state

    def close(self, _state: Server, remains: Server | None) -> None:
        assert remains
        texts = {**dict.fromkeys(self._notes(), ""), **self._records(remains), _STEP: ""}
        InstanceRecords(self.instance).write(texts)

    def _records(self, server: Server) -> dict[str, str]:
        """Of the disks that move: one that lies in no pool has none."""
        moved = self.details.ways
        return {
            record_key(each.role): "" if each.path else _encode(each)
            for each in server.disks
            if each.role in moved
        }

    def _notes(self) -> dict[str, str]:
        return dict(_note(here, there, way) for here, there, way in self.details.moves())


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What an instance's metadata say of a move that nobody has ended."""

    verb: str
    step: str
    details: TransitionDetails


def is_begun(instance: Any) -> bool:
    return bool(instance.system_metadata.get(_STEP))


def step_of(instance: Any) -> str:
    """That is under way; empty if none is."""
    return str(instance.system_metadata.get(_STEP, "")).partition(" ")[2]


def find_begun(instance: Any, server: Server, instances: Path) -> Begun:
    """Of one that is begun. Raises DamagedRecord."""
    verb, _, step = instance.system_metadata[_STEP].partition(" ")
    if verb not in (TRANSITION, REVERT):
        raise DamagedRecord(Path(server.id, _STEP), f"it speaks of {verb!r}")
    noted = list(_read_notes(instance))
    pooled = tuple(disk for disk, _ in noted)
    files = tuple(as_file(instances, server, each) for each in pooled)
    here, there = (files, pooled) if verb == TRANSITION else (pooled, files)
    ways = {disk.role: way for disk, way in noted}
    details = TransitionDetails(here=here, there=there, ways=ways)
    return Begun(verb=verb, step=step, details=details)


def _note(here: Disk, there: Disk, way: Way) -> tuple[str, str]:
    pooled = here if there.path else there
    text = f"{way} {_encode(pooled)}"
    if len(text) > LONGEST:
        raise StateProblem(
            f"the note of disk {pooled.location} has {len(text)} characters, and Nova takes "
            f"{LONGEST}",
            "shorten the names of the storage pools in nova.conf",
        )
    return _DISK + pooled.role, text


def _read_notes(instance: Any) -> Iterator[tuple[Disk, Way]]:
    id = ServerId(instance.uuid)
    for key, text in sorted(instance.system_metadata.items()):
        if not (key.startswith(_DISK) and text):
            continue
        way, _, record = text.partition(" ")
        if way not in tuple(Way):
            raise DamagedRecord(Path(id, key), f"it speaks of a way {way!r}")
        yield short.decode(record, id, key.removeprefix(_DISK)).disk, Way(way)


def _encode(disk: Disk | None) -> str:
    return short.encode(DiskRecord(disk=disk, made=True)) if disk else ""
