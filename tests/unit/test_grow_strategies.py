"""Disks that grow by being copied: interrupted at any call, nothing is lost."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.disks.disks import Disks
from millpond.disks.grow_strategies import STRATEGIES, GrowStrategy
from millpond.disks.libvirt_storage import LibvirtStorage
from millpond.errors import LibvirtFailed, NoSpace
from millpond.libvirt.memory_pool import MemoryPool
from millpond.libvirt.pool import PoolType
from millpond.model.callbacks import noop
from millpond.model.formats import Backend, DiskFormat
from millpond.model.operation import GrowMethod
from millpond.model.server import Disk
from millpond.model.sizes import GiB, MiB
from millpond.model.volume import Volume, VolumeSpec
from millpond.records.records import FileRecords
from millpond.servers import grow
from millpond.servers.recover import recover
from millpond.system.locks import Locks
from tests.support.few_disks import disks_of
from tests.unit.samples import server

DISK = Disk(
    role="disk",
    backend=Backend.LVM,
    pool="lvm",
    volume="server_disk",
    format=DiskFormat.RAW,
    size=64 * MiB,
    target="vda",
)


class Killed(BaseException):
    pass


class PoolThatDies(MemoryPool):
    """Knows what each volume holds, and dies before or in the middle of a call."""

    def __init__(self, calls: int, *, size: int = GiB) -> None:
        super().__init__("lvm", type_=PoolType.LOGICAL, size=size)
        self.holds: dict[str, str] = {}
        self.calls = calls
        self.death: BaseException = Killed()

    def create_from(self, spec: VolumeSpec, source: Volume) -> Volume:
        """Half made it looks like a whole one."""
        self._call()
        made = super().create_from(spec, source)
        self.holds[spec.name] = "half"
        self._call()
        self.holds[spec.name] = self.holds[source.name]
        return made

    def delete(self, name: str) -> None:
        self._call()
        super().delete(name)
        del self.holds[name]
        self._call()

    def _call(self) -> None:
        self.calls -= 1
        if self.calls == 0:
            raise self.death


class Pools:
    def __init__(self, pool: MemoryPool) -> None:
        self.base = pool

    def for_disk(self, _backend: Backend, _role: str = "disk") -> MemoryPool:
        return self.base

    def ensure(self, _name: str) -> MemoryPool:
        return self.base


def pool_with_a_disk(calls: int, *, size: int = GiB) -> PoolThatDies:
    pool = PoolThatDies(0, size=size)
    pool.create(VolumeSpec(name=DISK.volume, format=DISK.format, capacity=DISK.size))
    pool.holds[DISK.volume] = "everything"
    pool.calls = calls
    return pool


def grow_strategy(pool: PoolThatDies) -> GrowStrategy:
    return STRATEGIES[GrowMethod.COPY_VOLUME](pool, DISK)


def take(pool: PoolThatDies, steps: list[str]) -> list[str]:
    """Take the steps as the journal does, and say which were begun and not finished."""
    for index, step in enumerate(steps):
        try:
            getattr(grow_strategy(pool), step)(128 * MiB)
        except Killed:
            return steps[index:]
    return []


@pytest.mark.parametrize("first", range(1, 12))
@pytest.mark.parametrize("second", range(12))
def test_killed_anywhere_and_once_more_it_holds_what_it_held(first: int, second: int) -> None:
    pool = pool_with_a_disk(first)
    left = take(pool, ["begin", "finish"])
    pool.calls = second
    left = take(pool, left)
    pool.calls = 0
    assert take(pool, left) == []
    assert pool.holds == {DISK.volume: "everything"}
    assert pool.get(DISK.volume).capacity == 128 * MiB


@pytest.mark.parametrize("first", range(1, 6))
def test_given_up_before_the_disk_is_touched_only_the_disk_remains(first: int) -> None:
    pool = pool_with_a_disk(first)
    take(pool, ["begin"])
    pool.calls = 0
    grow_strategy(pool).abandon()
    assert pool.holds == {DISK.volume: "everything"}
    assert pool.get(DISK.volume).capacity == DISK.size


def test_without_room_for_both_nothing_is_begun() -> None:
    pool = pool_with_a_disk(0, size=127 * MiB)
    with pytest.raises(NoSpace, match="128 MiB needed, 63 MiB available"):
        grow_strategy(pool).begin(128 * MiB)
    assert pool.holds == {DISK.volume: "everything"}


def test_a_disk_that_is_large_enough_is_not_copied() -> None:
    pool = pool_with_a_disk(0)
    grow_strategy(pool).begin(DISK.size)
    assert list(pool.holds) == [DISK.volume]
    assert grow_strategy(pool).finish(DISK.size) == DISK.size


# In the journal


class Off:
    """Domains, all of which are off."""

    def state(self, _id: str) -> str:
        return "stopped"


class NoDomainRecords:
    def put(self, _id: str, _record: object) -> None:
        """Nobody reads it here."""


def disks_in(pool: PoolThatDies) -> Disks:
    return disks_of({Backend.LVM: LibvirtStorage(Backend.LVM, Pools(pool))})


def host_of(pool: PoolThatDies, records: FileRecords) -> Any:
    return SimpleNamespace(
        domains=Off(),
        domain_records=NoDomainRecords(),
        records=records,
        claims=None,
        disks=disks_in(pool),
        watch=noop,
    )


@pytest.mark.parametrize("call", range(1, 12))
def test_a_failure_anywhere_is_undone_or_goes_on_and_loses_nothing(
    tmp_path: Path, call: int
) -> None:
    """The one that must not be undone: the disk is gone, and its copy would be removed, too."""
    pool, records = pool_with_a_disk(call), FileRecords(tmp_path, Locks(tmp_path / "locks"))
    pool.death = LibvirtFailed("copying", 1, "no more")
    host, web = host_of(pool, records), server(disks=(DISK,))
    records.put(web)
    with suppress(LibvirtFailed):
        grow.grow(host, web, "disk", 128 * MiB)
    left = records.find(web.id)
    assert left
    if left.operation:
        assert left.operation.step == "extend"
        recover(host, left)
        left = records.find(web.id)
    assert left == replace(web, disks=(replace(DISK, size=pool.get(DISK.volume).capacity),))
    assert pool.holds == {DISK.volume: "everything"}


@pytest.mark.parametrize("first", range(1, 12))
@pytest.mark.parametrize("second", range(12))
def test_a_single_disk_grows_however_often_it_was_interrupted(first: int, second: int) -> None:
    """Its caller has a record of its own and no journal: it calls again."""
    pool = pool_with_a_disk(first)
    disks = disks_in(pool)
    for calls in (first, second):
        pool.calls = calls
        with suppress(Killed):
            disks.grow(DISK, 128 * MiB)
    pool.calls = 0
    assert disks.grow(DISK, 128 * MiB) == replace(DISK, size=128 * MiB)
    assert pool.holds == {DISK.volume: "everything"}


def test_a_copy_that_was_removed_by_whoever_gave_up_is_made_again() -> None:
    """Its journal may say that the copy was complete: giving up could not be written down."""
    pool = pool_with_a_disk(0)
    grow_strategy(pool).begin(128 * MiB)
    grow_strategy(pool).abandon()
    assert grow_strategy(pool).finish(128 * MiB) == 128 * MiB
    assert pool.holds == {DISK.volume: "everything"}


# Which way


def method(type_: PoolType, disk: Disk, directory: Path, *, local: bool) -> GrowMethod:
    pool = MemoryPool("pool", type_=type_, local=local)
    pool.path = str(directory)
    pool.create(VolumeSpec(name=disk.volume, format=disk.format, capacity=disk.size))
    (directory / disk.volume).touch()
    return LibvirtStorage(disk.backend, Pools(pool)).grow_strategy(disk).method


@pytest.mark.parametrize(
    ("type_", "format", "local", "expected"),
    [
        (PoolType.DIR, DiskFormat.QCOW2, True, GrowMethod.RESIZE),
        (PoolType.DIR, DiskFormat.RAW, False, GrowMethod.RESIZE),
        (PoolType.RBD, DiskFormat.RAW, False, GrowMethod.RESIZE),
        (PoolType.LOGICAL, DiskFormat.RAW, True, GrowMethod.LVEXTEND),
        (PoolType.LOGICAL, DiskFormat.RAW, False, GrowMethod.COPY_VOLUME),
        (PoolType.DIR, DiskFormat.PLOOP, True, GrowMethod.REWRITE_FILE),
        (PoolType.DIR, DiskFormat.PLOOP, False, GrowMethod.REWRITE_FILE),
    ],
)
def test_the_way_follows_from_the_pool_the_format_and_the_hosts_files(
    tmp_path: Path, type_: PoolType, format: DiskFormat, local: bool, expected: GrowMethod
) -> None:
    assert method(type_, replace(DISK, format=format), tmp_path, local=local) is expected


def test_a_disk_goes_with_what_lies_beside_it() -> None:
    pool = pool_with_a_disk(0)
    grow_strategy(pool).begin(128 * MiB)
    LibvirtStorage(Backend.LVM, Pools(pool)).delete(DISK)
    assert pool.volumes() == []
