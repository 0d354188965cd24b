"""A server that moves while it runs: what the other host is told, and by which route."""

import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import libvirt
import pytest

from millpond.errors import Conflict, ConnectionLost, HostUnreachable, UnfitHost
from millpond.libvirt import migration
from millpond.libvirt.migration import LiveOptions, Passage, Route
from millpond.model.formats import DiskFormat
from millpond.model.sizes import MiB
from millpond.model.volume import VolumeSpec
from millpond.records.records import ServerJournal
from millpond.servers.live_migrate import find_route
from millpond.servers.live_steps import LIVE_MIGRATE, LiveMove, live_migrating, watch_job
from millpond.system import libvirt_migration as names
from millpond.system.lifecycle import Lifecycle
from millpond.xml.domain import BackingStoreXml, DiskXml, DomainXml, SourceXml
from millpond.xml.migration import PlacesXml, find_cpu, move, put_layers
from tests.unit.test_migrate import Hosts

RUNNING = """
<domain type='kvm' id='3'>
  <name>web</name>
  <uuid>0770eeae-9ff9-40ab-8002-821d6ddded32</uuid>
  <memory>16384</memory>
  <vcpu>1</vcpu>
  <os>
    <type machine='pc-i440fx-7.2'>hvm</type><kernel>/here/kernel</kernel>
    <nvram template='/OVMF_VARS.fd'>/here/nvram</nvram>
  </os>
  <cpu mode='custom'><model>qemu64</model></cpu>
  <devices>
    <emulator>/here/qemu</emulator>
    <disk type='volume' device='disk'>
      <driver name='qemu' type='qcow2' cache='none'/>
      <source pool='disks' volume='one' index='2'/>
      <backingStore type='volume'>
        <format type='raw'/><source pool='base' volume='old'/><backingStore/>
      </backingStore>
      <target dev='vda' bus='virtio'/>
      <alias name='virtio-disk0'/>
    </disk>
    <disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk>
    <serial type='pty'><log file='/here/log' append='on'/></serial>
    <console type='pty'><log file='/here/log' append='on'/></console>
  </devices>
</domain>
"""
THERE = DiskXml(
    type="file",
    source=SourceXml(file="/there/one"),
    backing=BackingStoreXml(type="volume", source=SourceXml(pool="base", volume="new")),
    target="vda",
)


def test_what_lies_elsewhere_there_is_named_and_all_else_stays():
    places = PlacesXml(
        disks={"vda": THERE}, log="/there/log", nvram="/there/nvram", kernel="/there/kernel"
    )
    text = move(RUNNING, places)
    found = DomainXml.from_xml(text)
    disk = found.disk("vda")
    assert (disk.type, disk.source.file, disk.source.pool) == ("file", "/there/one", None)
    assert (disk.backing.source.volume, disk.driver_type) == ("new", "qcow2")
    assert "/here" not in text
    assert text.count("/there/log") == 2
    assert (found.nvram, found.kernel, found.initrd) == ("/there/nvram", "/there/kernel", None)
    assert "/OVMF_VARS.fd" in text
    assert "cache='none'" in text.replace('"', "'")
    assert found.disk("sda").source is None


def test_of_a_definition_only_the_layers_of_a_disk_are_changed():
    found = DomainXml.from_xml(put_layers(RUNNING, {"vda": THERE}))
    assert found.disk("vda").source == THERE.source
    assert found.kernel == "/here/kernel"


def test_the_cpu_of_the_running_guest_is_found():
    assert "qemu64" in find_cpu(RUNNING)
    assert find_cpu("<domain/>") is None


def passage(**said):
    told = {"mirrored": (), "shares": False, "route": Route(address="tcp://10.0.0.2:49200")}
    return Passage(running="<a/>", defined="<b/>", **{**told, "options": LiveOptions(), **said})


def test_libvirt_is_told_no_more_than_is_needed():
    found = passage()
    assert found.flags == names.MIGRATE | names.PAUSED
    assert found.parameters[names.LISTEN] == "10.0.0.2"
    assert names.DISKS not in found.parameters
    mirrored = passage(mirrored=("vda",), shares=True, options=LiveOptions(auto_converge=True))
    wanted = names.MIRROR_TOPS | names.SYNCHRONOUS_WRITES | names.UNSAFE | names.AUTO_CONVERGE
    assert mirrored.flags == names.MIGRATE | names.PAUSED | wanted
    assert mirrored.parameters[names.DISKS] == ["vda"]


def test_a_guest_in_its_post_copy_is_never_paused_there():
    """libvirt refuses both; it runs there before it has left the source."""
    flags = passage(options=LiveOptions(post_copy=True)).flags
    assert flags == names.MIGRATE | names.POST_COPY


def test_through_libvirts_connection_nothing_listens():
    found = passage(route=Route(peer="qemu+ssh://birch/system"))
    assert found.flags == names.MIGRATE | names.PAUSED | names.TUNNELLED
    assert {names.URI, names.LISTEN} & set(found.parameters) == set()


def host(name, uri, migration_uri=""):
    libvirt = SimpleNamespace(connection_uri=uri)
    settings = SimpleNamespace(libvirt=libvirt, migration_uri=migration_uri, migration_tls=False)
    return SimpleNamespace(name=name, settings=settings)


LOCAL, REMOTE = "qemu:///system", "qemu+ssh://birch/system"


@pytest.mark.parametrize(
    ("here", "there", "asked", "mirrored", "route"),
    [
        (LOCAL, LOCAL, "", ["disk"], Route(address="tcp://127.0.0.1")),
        (LOCAL, LOCAL, "tcp://10.0.0.2", ["disk"], Route(address="tcp://10.0.0.2")),
        (LOCAL, REMOTE, "tcp://10.0.0.2", ["disk"], Route(address="tcp://10.0.0.2")),
        (LOCAL, REMOTE, "", [], Route(peer=REMOTE)),
        (LOCAL, REMOTE, "qemu+tls://birch/system", [], Route(peer="qemu+tls://birch/system")),
    ],
)
def test_qemu_listens_at_no_address_that_nobody_named(here, there, asked, mirrored, route):
    assert find_route(host("alder", here), host("birch", there, asked), mirrored) == route


@pytest.mark.parametrize(
    ("here", "there", "asked", "mirrored"),
    [
        (LOCAL, REMOTE, "", ["disk"]),
        (LOCAL, REMOTE, "qemu+tls://birch/system", ["disk"]),
        (REMOTE, LOCAL, "", []),
    ],
)
def test_without_an_address_disks_are_not_received(here, there, asked, mirrored):
    with pytest.raises(UnfitHost, match="birch"):
        find_route(host("alder", here), host("birch", there, asked), mirrored)


PAUSED, RUNNING_STATE = libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_RUNNING
BY_MIGRATION = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION)
RUNS = (RUNNING_STATE, libvirt.VIR_DOMAIN_RUNNING_MIGRATED)
LOST = (
    (PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED),
    (RUNNING_STATE, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY_FAILED),
)


class Moving(Hosts):
    """The command that moved the server was killed, or is interrupted, when libvirt had brought
    all of it to birch; each host has it in this place, or as it usually is, or has it off."""

    def __init__(self, state, here, there, *, post_copy=True, step="migrate"):
        super().__init__(state, runs=True)
        self.id = self.server.id
        (definition,) = self.alder.domains.defined.values()
        self.birch.domains.define(definition)
        for disk in self.record.disks:
            volume = VolumeSpec(name=disk.volume, format=DiskFormat.RAW, capacity=MiB)
            path = self.birch.pool.create(volume).path
            self.birch.contents[path] = self.alder.holds(disk.volume)
        self.birch.domains.start(self.id)
        for world, place in ((self.alder, here), (self.birch, there)):
            if place is None:
                world.domains.power_off(self.id)
            else:
                world.domains.places[self.id] = place
                world.domains.paused |= {self.id} if place[0] == PAUSED else set()
        details = replace(self.details(), starts=False, post_copy=post_copy)
        self.move = LiveMove(host=self.alder.host, details=details, end_patience=0)
        notes = ServerJournal(self.alder.records, self.move.details)
        server = self.record
        if step != "migrate":
            server = self.move.details.at_destination(server)
        with self.alder.records.lock(server):
            notes.enter(server, LIVE_MIGRATE, step)

    def undo(self, name):
        (step,) = (each for each in live_migrating(self.move).steps if each.name == name)
        step.undo(self.record)

    @property
    def running(self):
        return [
            name
            for name, world in self.worlds.items()
            if self.id in world.domains.live and self.id not in world.domains.paused
        ]


def test_a_guest_that_libvirt_has_continued_at_the_destination_stays_there(room):
    """Its post-copy never began, or was done, and libvirt did not hear so at the source."""
    hosts = Moving(room, BY_MIGRATION, RUNS)
    hosts.recover()
    assert (hosts.record.host, hosts.running) == ("birch", ["birch"])
    hosts.check_whole()


@pytest.mark.parametrize("lost", LOST)
def test_a_guest_whose_post_copy_failed_is_off_with_the_disks_that_it_wrote_to(room, lost):
    hosts = Moving(room, None, lost)
    hosts.recover()
    hosts.runs = False
    assert (hosts.record.host, hosts.running) == ("birch", [])
    hosts.check_whole()


@pytest.mark.parametrize("post_copy", [False, True])
def test_a_guest_that_waits_at_both_continues_at_the_source(room, post_copy):
    hosts = Moving(room, BY_MIGRATION, BY_MIGRATION, post_copy=post_copy)
    hosts.recover()
    assert (hosts.record.host, hosts.running) == ("alder", ["alder"])
    hosts.check_whole()


def test_if_the_destination_is_silent_only_a_post_copy_leaves_it_open(room):
    hosts = Moving(room / "without", BY_MIGRATION, BY_MIGRATION, post_copy=False)
    hosts.birch.is_silent = True
    hosts.recover()
    assert (hosts.record.host, hosts.running) == ("alder", ["alder"])
    hosts = Moving(room / "with", BY_MIGRATION, RUNS)
    hosts.birch.is_silent = True
    with pytest.raises(HostUnreachable):
        hosts.recover()
    assert hosts.running == ["birch"]
    hosts.birch.is_silent = False
    hosts.recover()
    hosts.check_whole()


def test_interrupted_when_it_has_come_its_guest_runs_on_there(room):
    """By Ctrl-C, in the moment in which libvirt has ended."""
    hosts = Moving(room, None, (PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER), post_copy=False)
    with pytest.raises(Conflict, match="has come to host 'birch'"):
        hosts.undo("migrate")
    assert hosts.running == ["birch"]
    hosts.recover()
    hosts.check_whole()


def test_a_qemu_that_was_left_at_a_silent_source_ends_before_its_disks_go(room):
    hosts = Moving(room, BY_MIGRATION, RUNS, post_copy=False, step="domain")
    hosts.recover()
    assert (hosts.alder.domains.live, hosts.alder.pool.names()) == ({}, [])
    hosts.check_whole()


def test_a_post_copy_that_libvirt_keeps_is_for_a_person_to_end(room):
    hosts = Moving(room, LOST[0], LOST[1])
    hosts.alder.domains.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
    with pytest.raises(Conflict) as raised:
        hosts.undo("migrate")
    assert "virsh destroy web" in raised.value.advised
    assert [bool(each.domains.live) for each in hosts.worlds.values()] == [True, True]
    hosts.alder.domains.power_off(hosts.id)
    hosts.recover()
    hosts.runs = False
    hosts.check_whole()


class Migrating:
    """libvirt at both ends, and the domain: ``go`` is what the migration does."""

    def __init__(self, go, name="alder", *, lives=True):
        self.go, self.name, self.lives = go, name, lives
        self.began_post_copy = threading.Event()
        self.aborted = False
        self.lifecycle = Lifecycle(lambda: self.calling("listening to events"))

    @contextmanager
    def calling(self, doing, *, slow=False):
        try:
            yield self
        except libvirt.libvirtError as error:
            raise ConnectionLost(self.name, doing) from error

    def isAlive(self):  # noqa: N802
        return self.lives

    def lookupByUUIDString(self, _id):  # noqa: N802
        return self

    def connect(self):
        return self

    def domainEventRegisterAny(self, *_):  # noqa: N802
        return 1

    def domainEventDeregisterAny(self, _):  # noqa: N802
        pass

    def jobStats(self, _flags):  # noqa: N802
        return {names.MEMORY_ROUND: 2}

    def migrateStartPostCopy(self, _flags):  # noqa: N802
        self.began_post_copy.set()

    def abortJob(self):  # noqa: N802
        self.aborted = True

    def migrate3(self, *_):
        self.go(self)

    def migrate(self, watch, there=None, **options):
        told = passage(options=LiveOptions(**options))
        return migration.migrate(self, there or self, "id", told, watch)


def test_whatever_ends_libvirts_call_nobody_waits_for_it_any_more():
    def fail(_):
        raise TypeError("virDomainMigrate3() argument 2 must be a dict")

    with pytest.raises(TypeError, match="argument 2"):
        Migrating(fail).migrate(lambda _: None)


def test_once_its_post_copy_has_begun_no_time_is_too_long(room):
    def go(end):
        assert end.began_post_copy.wait(10)
        time.sleep(0.5)

    patience = 0.3
    end = Migrating(go)
    hosts = Hosts(room, runs=True)
    options = LiveOptions(post_copy=True, patience=patience)
    told = LiveMove(host=hosts.alder.host, details=hosts.details(), options=options)
    end.migrate(watch_job(told, hosts.server), post_copy=True)
    assert end.began_post_copy.is_set()
    assert not end.aborted


@pytest.mark.parametrize("lost", ["alder", "birch"])
def test_the_connection_that_was_lost_is_the_one_that_is_reported(lost):
    def go(_):
        raise libvirt.libvirtError("Cannot recv data: Connection reset by peer")

    there = Migrating(go, "birch", lives=lost != "birch")
    with pytest.raises(ConnectionLost) as raised:
        Migrating(go).migrate(lambda _: None, there)
    assert raised.value.uri == lost


@pytest.mark.parametrize(("taken", "comes"), [(2, True), (9, False)])
def test_where_another_host_of_this_machine_took_the_port_the_next_is_tried(taken, comes):
    tried = []

    def go(_):
        tried.append(1)
        if len(tried) <= taken:
            said = "'migrate-incoming': Failed to find an available port: Address already in use"
            raise libvirt.libvirtError(said)

    with nullcontext() if comes else pytest.raises(ConnectionLost):
        Migrating(go).migrate(lambda _: None)
    assert len(tried) == (3 if comes else 5)
