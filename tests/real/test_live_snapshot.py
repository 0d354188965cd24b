"""A snapshot of a server that runs: of one moment, the server goes on, and no byte is lost."""

import re
import struct
import subprocess
import time

import libvirt
import pytest
from lxml import etree

from millpond.compute.snapshot import SnapshotRequest, snapshot
from millpond.engine import Engine
from millpond.errors import ConnectionLost, HostUnreachable, NotWrittenBack
from millpond.images.intake import Intake
from millpond.model.sizes import MiB
from millpond.records.journal import Moment
from tests.support.millpond import converted
from tests.support.waiting import wait_for


@pytest.fixture(params=["qcow2", "raw"])
def guest(request, millpond, micro_guest, workdir):
    """A server that runs, on an overlay of its template or on a raw copy."""
    return running(request.param, millpond, micro_guest, workdir)


@pytest.fixture
def overlaid(millpond, micro_guest, workdir):
    """The same, where one kind is as good as the other."""
    return running("qcow2", millpond, micro_guest, workdir)


def running(kind, millpond, micro_guest, workdir):
    millpond.configure("images_type_mapping = qcow2:qcow2, raw:raw")
    path = converted(micro_guest, "qcow2", workdir) if kind == "qcow2" else micro_guest.path
    millpond.ok("image", "add", path, "--name", "guest", "--property", "hw_vif_model=e1000")
    made = create(millpond, "web", "guest")
    millpond.wait_for_console(made["id"], "TICK 0001")
    return made


def create(millpond, name, image):
    words = ("--image", image, "--memory", "32M", "--network", "none")
    return millpond.json("server", "create", name, *words)


def disks(connection, flags=0):
    xml = etree.fromstring(connection.lookupByName("web").XMLDesc(flags))
    return [etree.tostring(each) for each in xml.findall("devices/disk")]


def chains(connection):
    """As the server runs and as it will be started."""
    return disks(connection), disks(connection, libvirt.VIR_DOMAIN_XML_INACTIVE)


def last_tick(millpond, guest):
    return int(re.findall(r"TICK ([0-9A-F]{4})", millpond.console(guest["id"]))[-1], 16)


def wait_for_ticks(millpond, guest, more=2):
    """Until the guest has written to its disk so many times."""
    end = last_tick(millpond, guest) + more
    wait_for(lambda: last_tick(millpond, guest) >= end, 30)


def tick_in(path, *options):
    """The last tick in an image of the guest's disk."""
    flat = path.with_name("flat.raw")
    words = ["qemu-img", "convert", *options, "-O", "raw", str(path), str(flat)]
    subprocess.run(words, check=True)
    return struct.unpack_from("<H", flat.read_bytes(), 3 * 512)[0]


def tick_on_disk(millpond, workdir):
    """Of a server that is off, as its record says what the disk is."""
    millpond.ok("server", "snapshot", "web", "off")
    millpond.ok("image", "save", "off", workdir / "off.qcow2")
    millpond.ok("image", "remove", "off")
    return tick_in(workdir / "off.qcow2", "-f", "qcow2")


def take(millpond, watch, name="snap", **options):
    """A snapshot in this process, with somebody watching the steps."""
    engine = Engine.load([millpond.config], watch)
    request = SnapshotRequest(name=name, **options)
    intake = Intake(engine.images_directory)
    return snapshot(engine.host, intake, engine.server("web"), request)


def at(step, moment, act):
    def watch(verb, *where):
        if (verb, *where) == ("snapshot", step, moment):
            act()

    return watch


def volumes(millpond):
    return sorted(each.name for each in millpond.disks.iterdir())


def images(millpond):
    return [each["name"] for each in millpond.json("image", "list")]


# The image, and the server that goes on


@pytest.mark.parametrize(
    "options",
    [(), ("--compress",), pytest.param(("--format", "raw"), marks=pytest.mark.full)],
    ids=["qcow2", "compressed", "raw"],
)
def test_a_server_goes_on_while_its_disk_becomes_an_image(
    millpond, guest, connection, micro_guest, options
):
    before, number = chains(connection), connection.lookupByName("web").ID()
    there = volumes(millpond)
    image = millpond.json("server", "snapshot", "web", "snap", *options)
    assert image["virtual_size"] == MiB
    assert image["properties"] == {"hw_vif_model": "e1000"}
    assert chains(connection) == before
    assert connection.lookupByName("web").ID() == number
    assert volumes(millpond) == there
    assert millpond.server("web").operation is None
    wait_for_ticks(millpond, guest)
    assert "BOOTS 0002" not in millpond.console(guest["id"])
    made = create(millpond, "again", "snap")
    text = millpond.wait_for_console(made["id"], "READY")
    assert micro_guest.marker in text
    assert "BOOTS 0002" in text


def test_what_is_written_meanwhile_is_in_the_disk_and_not_in_the_image(
    millpond, guest, connection, workdir
):
    ticks = []

    def go_on():
        ticks.append(last_tick(millpond, guest))
        wait_for_ticks(millpond, guest)

    take(millpond, at("extract", Moment.BEGIN, go_on))
    millpond.ok("image", "save", "snap", workdir / "snap.qcow2")
    assert tick_in(workdir / "snap.qcow2", "-f", "qcow2") in (ticks[0], ticks[0] + 1)
    connection.lookupByName("web").destroy()
    assert tick_on_disk(millpond, workdir) == last_tick(millpond, guest) >= ticks[0] + 2


def test_a_server_with_several_disks(millpond, overlaid, connection):
    """The others are not touched, and none gets an overlay of libvirt's own making."""
    millpond.ok("server", "disk", "add", "web", "--size", "4M")
    before, there = chains(connection), volumes(millpond)
    millpond.ok("server", "snapshot", "web", "snap")
    assert chains(connection) == before
    assert volumes(millpond) == there


def test_a_server_that_is_paused_stays_so(millpond, overlaid, connection):
    connection.lookupByName("web").suspend()
    before = chains(connection)
    millpond.ok("server", "snapshot", "web", "snap")
    assert chains(connection) == before
    assert millpond.json("server", "show", "web")["state"] == "paused"


def test_a_snapshot_of_linux_boots(millpond, linux_guest, connection):
    millpond.ok("image", "add", linux_guest, "--name", "linux")
    words = ("--image", "linux", "--memory", "128M", "--network", "none")
    made = millpond.json("server", "create", "web", *words)
    millpond.wait_for_console(made["id"], "TICK: 1", 60)
    millpond.ok("server", "snapshot", "web", "snap")
    words = ("--image", "snap", "--memory", "128M", "--network", "none")
    again = millpond.json("server", "create", "again", *words)
    assert "BOOTS: 2" in millpond.wait_for_console(again["id"], "TICK: 1", 60)


# Somebody else meanwhile


def test_others_are_told_that_it_is_under_way(millpond, overlaid, connection):
    said = []

    def ask():
        said.extend(millpond.fails("server", *words) for words in (("stop", "web"), ("delete", "web")))
        said.append(millpond.run("doctor").stdout)

    take(millpond, at("extract", Moment.BEGIN, ask))
    *refusals, findings = said
    for code, message in refusals:
        assert code == 4
        assert "another operation is under way" in message
    assert "that no record names" not in findings
    assert millpond.json("server", "show", "web")["state"] == "running"


@pytest.mark.parametrize("how", ["shutdown", "destroy"])
@pytest.mark.parametrize("step", ["extract", "thaw"])
def test_a_guest_that_goes_off_meanwhile_loses_nothing(
    millpond, guest, connection, workdir, step, how
):
    before = disks(connection, libvirt.VIR_DOMAIN_XML_INACTIVE)

    def go_off():
        wait_for_ticks(millpond, guest)
        domain = connection.lookupByName("web")
        getattr(domain, how)()
        wait_for(lambda: not domain.isActive(), 30)

    take(millpond, at(step, Moment.BEGIN, go_off))
    assert millpond.json("server", "show", "web")["state"] == "stopped"
    assert disks(connection) == before
    assert len(volumes(millpond)) == 1
    assert tick_on_disk(millpond, workdir) == last_tick(millpond, guest)
    millpond.ok("server", "start", "web")
    millpond.wait_for_console(guest["id"], "BOOTS 0002")


def test_libvirtd_is_restarted_meanwhile(millpond, overlaid, libvirtd, connection):
    before = chains(connection)

    def restart():
        libvirtd.restart()
        wait_for_ticks(millpond, overlaid)

    take(millpond, at("extract", Moment.BEGIN, restart))
    with libvirtd.connect() as again:
        assert chains(again) == before
    assert images(millpond) == ["guest", "snap"]
    wait_for_ticks(millpond, overlaid)


def test_libvirtd_is_gone_meanwhile(millpond, overlaid, libvirtd, connection):
    """What cannot be undone stays written down, and nothing is removed."""
    before = chains(connection)
    with pytest.raises((ConnectionLost, HostUnreachable)):
        take(millpond, at("extract", Moment.BEGIN, libvirtd.kill))
    wait_for_ticks(millpond, overlaid)
    libvirtd.start()
    code, message = millpond.fails("server", "reboot", "web", "--hard")
    assert code == 4
    assert "in the middle of 'snapshot'" in message
    millpond.ok("doctor", "--mend")
    with libvirtd.connect() as again:
        assert chains(again) == before
    assert len(volumes(millpond)) == 1
    assert images(millpond) == ["guest"]


# Failures


class _Interrupted(BaseException):
    """As Ctrl-C or a signal would be."""


def interrupt():
    raise _Interrupted


@pytest.mark.parametrize("step", ["overlay", "freeze", "extract", "thaw", "tidy"])
def test_an_interrupted_snapshot_is_undone(millpond, overlaid, connection, workdir, step):
    before = chains(connection)
    with pytest.raises(_Interrupted):
        take(millpond, at(step, Moment.END, interrupt))
    assert chains(connection) == before
    assert len(volumes(millpond)) == 1
    assert images(millpond) == ["guest"]
    assert list((millpond.state / "images" / "incoming").iterdir()) == []
    wait_for_ticks(millpond, overlaid)


def test_a_disk_that_is_defined_otherwise_is_not_frozen(millpond, overlaid, connection):
    """As after a live migration of local disks: what the guest writes would be forgotten when it
    is started from its definition."""
    domain = connection.lookupByName("web")
    xml = etree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    disk = xml.find("devices/disk")
    disk.set("type", "file")
    disk.find("source").attrib.clear()
    (volume,) = volumes(millpond)
    disk.find("source").set("file", str(millpond.disks / volume))
    connection.defineXML(etree.tostring(xml).decode())
    code, message = millpond.fails("server", "snapshot", "web", "snap")
    assert code == 5
    assert "name different disks" in message
    assert volumes(millpond) == [volume]
    assert millpond.server("web").operation is None


def test_a_disk_that_is_full_takes_nothing_and_nothing_is_lost(
    millpond, micro_guest, make_filesystem, connection, workdir
):
    """The overlay has room, the disk has none: the writes stay in the overlay."""
    small = make_filesystem("ext4", 32 * MiB).path
    millpond.configure(
        "images_type_mapping = raw:raw\n"
        f"pool_by_disk_name = disk:small\npool_paths = small:{small}"
    )
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    guest = create(millpond, "web", "guest")
    millpond.wait_for_console(guest["id"], "TICK 0001")
    millpond.configure("images_type_mapping = raw:raw")
    before = chains(connection)

    def fill():
        with open(small / "filler", "wb") as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(bytes(4096))
                file.flush()
        wait_for_ticks(millpond, guest)

    with pytest.raises(NotWrittenBack):
        take(millpond, at("extract", Moment.BEGIN, fill))
    wait_for_ticks(millpond, guest)
    assert millpond.run("doctor", "--mend").returncode == 1
    (small / "filler").unlink()
    millpond.ok("doctor", "--mend")
    assert chains(connection) == before
    assert volumes(millpond) == []
    connection.lookupByName("web").destroy()
    assert tick_on_disk(millpond, workdir) == last_tick(millpond, guest)
