"""What people do on the hosts while a server that is off moves, and what is kept of it then."""

import os
import sys
from pathlib import Path

import pytest

from millpond.disks import transfer
from millpond.errors import Conflict
from millpond.libvirt.domains import CONSOLE_LOG, ConsoleFiles
from millpond.libvirt.memory_pool import MemoryPool
from millpond.model.formats import Backend, DiskFormat
from millpond.model.server import Disk
from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment
from tests.support.memory_host import Killed
from tests.unit.test_interruptions import FAULTS
from tests.unit.test_migrate import Hosts, Left


def test_one_that_ran_after_it_was_copied_stays_where_it_is(room):
    hosts = Hosts(room, runs=False)

    def run(_verb: str, step: str, moment: StepMoment) -> None:
        if (step, moment) == ("verify", StepMoment.END):
            hosts.alder.domains.start(hosts.server.id)
            hosts.alder.guest_writes()
            hosts.alder.domains.power_off(hosts.server.id)

    hosts.alder.host.watch = run
    with pytest.raises(Conflict, match="was changed after it was copied"):
        hosts.migrate()
    assert hosts.record.host == "alder"
    hosts.check_whole()


def test_what_runs_at_the_source_after_the_switch_is_not_removed(room):
    hosts = Hosts(room, runs=False)

    def die(_verb: str, step: str, _moment: StepMoment) -> None:
        if step == "remove":
            raise Killed

    hosts.alder.host.watch = die
    with pytest.raises(Killed):
        hosts.migrate()
    hosts.birch.host.watch = hosts.alder.host.watch = lambda *_: None
    assert hosts.record.host == "birch"
    hosts.alder.domains.start(hosts.server.id)
    before = hosts.alder.pool.names()
    with pytest.raises(Conflict, match="on host 'alder' is running") as error:
        hosts.recover()
    assert "virsh destroy web" in error.value.advised
    assert (hosts.alder.pool.names(), bool(hosts.alder.domains.defined)) == (before, True)
    assert not hosts.birch.domains.live
    hosts.alder.domains.power_off(hosts.server.id)
    hosts.recover()
    hosts.check_whole()


def test_one_without_a_domain_moves_all_the_same(room):
    hosts = Hosts(room, runs=False)
    hosts.alder.domains.undefine(hosts.server.id)
    hosts.migrate()
    assert hosts.record.host == "birch"
    hosts.check_whole()


@pytest.mark.parametrize("runs", [False, True])
def test_one_whose_domain_goes_on_the_way_is_not_stuck(room, runs):
    hosts = Hosts(room, runs=runs)

    def lose(_verb: str, step: str, moment: StepMoment) -> None:
        if (step, moment) == ("copy", StepMoment.END):
            hosts.alder.domains.undefine(hosts.server.id)
            raise FAULTS["a call fails"](1).error

    hosts.alder.host.watch = lose
    with pytest.raises(type(FAULTS["a call fails"](1).error)):
        hosts.migrate()
    server = hosts.record
    assert (server.host, server.operation, hosts.birch.pool.names()) == ("alder", None, [])


@pytest.mark.parametrize("shared", [False, True])
def test_the_log_of_the_guest_that_runs_stays(room, shared):
    """Both hosts may have one directory, as two hosts of one machine do."""
    hosts = Left(room)
    places = {"alder": room / "alder", "birch": room / ("alder" if shared else "birch")}
    for name, world in hosts.worlds.items():
        world.host.consoles = ConsoleFiles(places[name])  # type: ignore[misc]
        log = world.host.consoles.make(hosts.server.id)
        log.write_bytes(f"printed at {name}".encode())
    hosts.sweep()
    printed = places["birch"] / hosts.server.id / CONSOLE_LOG
    assert printed.read_bytes() == b"printed at birch"
    assert (places["alder"] / hosts.server.id).exists() == shared


class Files(MemoryPool):
    """Whose volumes are files of this machine."""

    def __init__(self, directory: Path, *, local: bool) -> None:
        super().__init__("disks", local=local)
        self.path = str(directory)


@pytest.mark.parametrize("local", [True, False])
def test_what_was_verified_survives_a_power_failure(tmp_path, local):
    """A file of a remote host may have the same path here."""
    pool = Files(tmp_path, local=local)
    disk = Disk(
        role="disk",
        backend=Backend.RAW,
        pool="disks",
        volume="a",
        format=DiskFormat.RAW,
        size=MiB,
        target="vda",
    )
    sent = transfer.send([b"x" * MiB], MiB, pool, "a")
    (tmp_path / "a").write_bytes(b"x" * MiB)
    synced = []

    def notice(_frame, event, called):
        if event == "c_call" and called is os.fsync:
            synced.append(called)

    sys.setprofile(notice)
    try:
        transfer.verify(pool, disk, sent)
    finally:
        sys.setprofile(None)
    assert bool(synced) == local
