"""How a disk is held for a snapshot: by its pool, or by an overlay that is written back."""

from dataclasses import replace
from functools import partial
from itertools import cycle
from types import SimpleNamespace

import pytest

from millpond.errors import (
    GuestWritesFaster,
    LibvirtFailed,
    NeedsHostFiles,
    NotQuiesced,
    OverlayUnclear,
    StillNeeded,
)
from millpond.model.formats import Backend
from millpond.model.layer import VolumeSource
from millpond.model.operation import NativeSnapshotDetails, OverlayDetails
from millpond.records import journal
from millpond.records.records import FileRecords, ServerJournal
from millpond.servers import snapshot_strategies
from millpond.servers.snapshot import snapshotting
from millpond.system.locks import Locks
from millpond.xml.domain import ChannelXml, DiskXml, DomainXml, SourceXml
from tests.support.few_disks import disks_of
from tests.support.host_with import host_with
from tests.unit.samples import server


class Pool:
    """It writes down what is asked of it."""

    def __init__(self):
        self.asked = []

    def exists(self, disk):
        return True

    def freeze(self, disk):
        self.asked.append(f"freeze {disk.role}")

    def thaw(self, disk):
        self.asked.append(f"thaw {disk.role}")

    def delete(self, disk):
        self.asked.append(f"delete {disk.role}")

    def tidy(self, disk):
        self.asked.append(f"tidy {disk.role}")


@pytest.fixture
def pool():
    return Pool()


@pytest.fixture
def host(pool, tmp_path):
    records = FileRecords(tmp_path, Locks(tmp_path / "locks"))
    off = SimpleNamespace(state=lambda _id: "stopped")
    return host_with(disks=disks_of({Backend.QCOW2: pool}), records=records, domains=off)


def take(host, extract):
    details = snapshot_strategies.plan_snapshot(host, server())
    verb = snapshotting(host, details, extract)
    return journal.run(verb, server(), ServerJournal(host.records, details))


def test_it_is_frozen_before_and_thawed_after(host, pool):
    taken = take(host, lambda _: pool.asked.append("extract"))
    assert pool.asked == ["freeze disk", "extract", "thaw disk"]
    assert taken.operation is None
    assert not taken.overlays


def test_it_is_thawed_when_the_copy_fails(host, pool):
    def fail(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(host, fail)
    assert pool.asked == ["freeze disk", "tidy disk", "thaw disk"]
    assert host.records.find(server().id).operation is None


def test_who_comes_after_a_crash_thaws_it(host, pool):
    entered = ServerJournal(host.records, NativeSnapshotDetails()).enter(
        server(), "snapshot", "extract"
    )
    verb = snapshotting(host, entered.operation.details)
    journal.recover(verb, "extract", entered, ServerJournal(host.records))
    assert pool.asked == ["tidy disk", "thaw disk"]


class Guest:
    """It runs; what is asked of it is written down where the pool writes."""

    def __init__(self, asked):
        self._asked = asked

    def state(self, _id):
        return "running"

    def description(self, _id):
        return DomainXml(type="qemu", name="web", uuid="0", memory=1, vcpus=1)

    def suspend(self, _id):
        self._asked.append("pause")

    def resume(self, _id):
        self._asked.append("resume")


TWO = (DISK := server().disks[0], replace(DISK, role="disk.data0", target="vdb"))


def test_several_disks_are_frozen_while_the_guest_does_nothing(host, pool):
    running = host_with(host, domains=Guest(pool.asked))
    each = replace(server(), disks=TWO)
    details = snapshot_strategies.plan_snapshot(running, each, TWO)
    assert details == NativeSnapshotDetails(roles=("disk", "disk.data0"), state="running")
    verb = snapshotting(running, details, lambda _: pool.asked.append("extract"))
    journal.run(verb, each, ServerJournal(host.records, details))
    frozen = ["pause", "freeze disk", "freeze disk.data0", "resume"]
    assert pool.asked == [*frozen, "extract", "thaw disk", "thaw disk.data0"]


def test_a_guest_that_was_left_paused_goes_on(host, pool):
    running = host_with(host, domains=Guest(pool.asked))
    each = replace(server(), disks=TWO)
    details = NativeSnapshotDetails(roles=("disk", "disk.data0"), state="running")
    entered = ServerJournal(host.records, details).enter(each, "snapshot", "freeze")
    journal.recover(snapshotting(running, details), "freeze", entered, ServerJournal(host.records))
    assert pool.asked == ["thaw disk", "thaw disk.data0", "resume"]


def test_who_insists_on_an_agent_is_refused_without_one(host, pool):
    running = host_with(host, domains=Guest(pool.asked))
    with pytest.raises(NotQuiesced, match="no guest agent"):
        snapshot_strategies.plan_snapshot(running, server(), quiesce=True)
    assert pool.asked == []


def test_who_insists_on_an_agent_is_refused_if_the_guest_does_not_run(host, pool):
    class Paused(Guest):
        def state(self, _id):
            return "paused"

    plan = partial(snapshot_strategies.plan_snapshot, host_with(host, domains=Paused(pool.asked)))
    with pytest.raises(NotQuiesced, match="it is paused"):
        plan(server(), quiesce=True)
    assert not plan(server()).quiesces
    off = snapshot_strategies.plan_snapshot(host, server(), quiesce=True)
    assert not off.quiesces, "what is off needs no agent"


@pytest.mark.parametrize("state", ["connected", "disconnected"])
def test_an_agent_that_is_there_is_asked(host, pool, state):
    class WithAgent(Guest):
        def description(self, _id):
            channel = ChannelXml(name="org.qemu.guest_agent.0", state=state)
            return replace(super().description(_id), channels=(channel,))

    running = host_with(host, domains=WithAgent(pool.asked))
    plan = partial(snapshot_strategies.plan_snapshot, running, server())
    assert plan().quiesces == (state == "connected")
    assert not plan(quiesce=False).quiesces


def test_a_disk_that_goes_is_thawed_first(host, pool):
    host.disks.delete(server().disks[0])
    assert pool.asked == ["thaw disk", "delete disk"]


SERVER = server()
OVERLAY = f"{SERVER.disks[0].volume}.snapshot"
DETAILS = OverlayDetails(
    overlays={"disk": VolumeSource(pool="nova-disks-pool", volume=OVERLAY)}, state="running"
)


class Volumes:
    """The pool of the overlay and of the disk, in a directory."""

    def __init__(self, directory):
        self.directory = directory
        self.left = {OVERLAY, SERVER.disks[0].volume}

    def ensure(self, _name):
        return self

    def find(self, name):
        path = str(self.directory / name)
        return SimpleNamespace(name=name, path=path) if name in self.left else None

    get = find

    def delete(self, name):
        self.left.remove(name)


class Machine:
    """One domain, and QEMU's jobs on it; it writes down what is asked of it."""

    def __init__(self, state, *, on_overlay, remaining=(), opened=()):
        self.now = state
        self.on_overlay = on_overlay
        self.asked = []
        self.job = None
        self._remaining = iter(remaining)
        self._opened = opened

    def state(self, _id):
        return self.now

    def description(self, _id, *, defined=False):
        disk = SERVER.disks[0]
        own = SourceXml(pool=disk.pool, volume=disk.volume)
        source = SourceXml(file=f"/pool/{OVERLAY}") if self.on_overlay else own
        ready = "yes" if self.job == "ready" else None
        disk = DiskXml(
            source=source,
            target="vda",
            job=self.job and "active-commit",
            job_ready=ready,
        )
        active = "7" if self.now != "stopped" and not defined else None
        return SimpleNamespace(id=active, disks=(disk,), disk=lambda _target: disk)

    def put(self, _id, _record):
        """The domain's copy of the record."""

    def is_stuck(self, _id):
        return False

    def start(self, _id, *, paused):
        self.asked.append("start paused" if paused else "start")
        self.now = "paused"

    def power_off(self, _id):
        self.asked.append("power off")
        self.now = "stopped"

    def resume(self, _id):
        if self.now == "paused":
            self.asked.append("resume")
            self.now = "running"

    def suspend(self, _id):
        self.asked.append("pause")
        self.now = "paused"

    def commit(self, *_words):
        self.asked.append("commit")
        self.job = "running"

    def remaining(self, *_words):
        left = next(self._remaining, 0)
        self.job = "running" if left else "ready"
        return left

    def pivot(self, *_words):
        self.asked.append("pivot")
        self.job, self.on_overlay = None, False

    def files(self, _id):
        if self._opened is None:
            raise LibvirtFailed("asking QEMU", 0, "it is not allowed")
        return frozenset(self._opened)


class Remote:
    """Storage whose files are not here: only a running server can merge."""

    def merge(self, disk, _overlay):
        raise NeedsHostFiles("merging", "it is remote", disk.volume)


@pytest.fixture
def overlaid(host, tmp_path):
    def make(machine, details=DETAILS, stalled=0.3):
        joined = host_with(
            host,
            domains=machine,
            domain_records=machine,
            block_jobs=machine,
            pools=Volumes(tmp_path),
            disks=disks_of({Backend.QCOW2: Remote()}),
        )
        return snapshot_strategies.Overlay(joined, details, stalled)

    return make


def test_a_guest_that_writes_as_fast_as_it_is_written_back_is_not_waited_for(overlaid):
    machine = Machine("running", on_overlay=True, remaining=cycle([5000, 4000, 4500]))
    way = overlaid(machine)
    for lead_back in (way.end, way.restore):  # what undoes it, too
        with pytest.raises(GuestWritesFaster, match="as fast as"):
            lead_back(SERVER)
    assert machine.asked == ["commit"]
    assert machine.on_overlay


def test_as_long_as_less_is_left_it_is_waited_for(overlaid):
    machine = Machine("running", on_overlay=True, remaining=range(20, -1, -1))
    overlaid(machine, stalled=0.2).end(SERVER)
    assert machine.asked == ["commit", "pause", "pivot", "resume"]


def test_a_server_that_went_off_is_off_again_after_it_was_started_to_merge(overlaid):
    machine = Machine("stopped", on_overlay=True)
    overlaid(machine).restore(SERVER)
    assert machine.asked == ["start paused", "commit", "pivot", "power off"]


@pytest.mark.parametrize("on_overlay", [True, False])
def test_a_server_that_was_started_to_merge_by_a_process_that_died_is_not_woken(
    overlaid, host, on_overlay
):
    """It ran when the snapshot began, and was off when it was to be merged."""
    entered = ServerJournal(host.records, DETAILS).enter(SERVER, "snapshot", "thaw")

    class Dying(Machine):
        def commit(self, *_words):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        overlaid(Dying("stopped", on_overlay=True)).end(entered)
    left = host.records.find(SERVER.id)
    machine = Machine("paused", on_overlay=on_overlay)
    overlaid(machine, left.operation.details).restore(left)
    assert "resume" not in machine.asked
    assert machine.now == "stopped"


@pytest.mark.parametrize(("opened", "stays"), [((OVERLAY,), True), ((), False)])
def test_of_an_overlay_that_libvirt_lost_track_of_qemu_is_asked(overlaid, tmp_path, opened, stays):
    """Nobody here has the disk open: QEMU is on another host, or in another PID namespace."""
    machine = Machine(
        "running", on_overlay=False, opened=[str(tmp_path / each) for each in opened]
    )
    if stays:
        with pytest.raises(StillNeeded):
            overlaid(machine).cleanup(SERVER)
    else:
        overlaid(machine).cleanup(SERVER)


def test_an_overlay_of_which_qemu_cannot_be_asked_stays(overlaid):
    machine = Machine("running", on_overlay=False, opened=None)
    with pytest.raises(OverlayUnclear, match="it is not allowed"):
        overlaid(machine).cleanup(SERVER)


def test_where_qemu_is_seen_at_work_it_is_not_asked(overlaid, tmp_path):
    machine = Machine("running", on_overlay=False, opened=None)
    with open(tmp_path / SERVER.disks[0].volume, "wb"):
        overlaid(machine).cleanup(SERVER)
        with open(tmp_path / OVERLAY, "wb"), pytest.raises(StillNeeded):
            overlaid(machine).cleanup(SERVER)


def test_nobody_writes_to_the_overlay_of_a_server_that_is_off(overlaid):
    overlaid(Machine("stopped", on_overlay=False, opened=None)).cleanup(SERVER)
