"""A snapshot of a server that runs: of one moment, the server goes on, and no byte is lost."""

import os
import pty
import subprocess
import time
from contextlib import suppress

import libvirt
import pytest
from lxml import etree

from millpond.errors import ConnectionLost, HostUnreachable, NotWrittenBack
from millpond.model.sizes import MiB
from millpond.records.journal import StepMoment
from tests.support.guest_ticks import (
    chains,
    disks,
    last_tick,
    tick_in,
    tick_on_disk,
    wait_for_ticks,
)
from tests.support.millpond import COMMAND, converted
from tests.support.snapshots import at, take
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
    """The server's id."""
    millpond.configure("images_type_mapping = qcow2:qcow2, raw:raw")
    path = converted(micro_guest, "qcow2", workdir) if kind == "qcow2" else micro_guest.path
    millpond.ok("image", "add", path, "--name", "guest", "--property", "hw_vif_model=e1000")
    return create(millpond, "web", "guest")


def create(millpond, name, image):
    words = ("--image", image, "--memory", "32M", "--network", "none")
    id = millpond.json("server", "create", name, *words)["id"]
    millpond.wait_for_console(id, "TICK 0001")
    return id


def volumes(millpond):
    """Without config drives, which no snapshot touches."""
    names = (each.name for each in millpond.disks.iterdir())
    return sorted(each for each in names if not each.endswith("_disk.config"))


def images(millpond):
    return [each["name"] for each in millpond.json("image", "list")]


# The image, and the server that goes on


@pytest.mark.parametrize(
    "options",
    [
        ("--compress",),
        *(pytest.param(each, marks=pytest.mark.full) for each in ((), ("--format", "raw"))),
    ],
    ids=["compressed", "qcow2", "raw"],
)
def test_a_server_goes_on_while_its_disk_becomes_an_image(
    millpond, guest, connection, micro_guest, options
):
    domain = connection.lookupByName("web")
    before, there = (chains(domain), domain.ID()), volumes(millpond)
    image = millpond.json("server", "snapshot", "web", "snap", *options)
    assert image["virtual_size"] == MiB
    assert image["properties"]["hw_vif_model"] == "e1000"
    assert (chains(domain), domain.ID()) == before
    assert volumes(millpond) == there
    assert millpond.server("web").operation is None
    wait_for_ticks(millpond, guest)
    assert "BOOTS 0002" not in millpond.console(guest)
    text = millpond.console(create(millpond, "again", "snap"))
    assert micro_guest.marker in text
    assert "BOOTS 0002" in text


def test_what_is_written_meanwhile_is_in_the_disk_and_not_in_the_image(
    millpond, guest, connection, workdir
):
    ticks = []

    def go_on():
        ticks.append(last_tick(millpond, guest))
        wait_for_ticks(millpond, guest)

    take(millpond, at("extract", StepMoment.BEGIN, go_on))
    millpond.ok("image", "save", "snap", workdir / "snap.qcow2")
    assert tick_in(workdir / "snap.qcow2") <= ticks[0] + 1
    wait_for_ticks(millpond, guest)
    connection.lookupByName("web").destroy()
    assert tick_on_disk(millpond, "web") >= last_tick(millpond, guest) > ticks[0] + 1


def test_a_terminal_shows_that_it_is_at_work(millpond, overlaid):
    screen, terminal = pty.openpty()
    words = [COMMAND, "--config-file", millpond.config, "server", "snapshot", "web", "snap"]
    done = subprocess.run(words, stderr=terminal, stdout=subprocess.PIPE, check=True)
    os.close(terminal)
    shown = os.read(screen, 1024**2)
    os.close(screen)
    assert b"snapshot of web" in shown
    assert b"snapshot of" not in done.stdout


def test_a_server_with_several_disks(millpond, overlaid, connection):
    """The others are not touched, and none gets an overlay of libvirt's own making."""
    millpond.ok("server", "disk", "add", "web", "--size", "4M")
    domain = connection.lookupByName("web")
    before, there = chains(domain), volumes(millpond)
    millpond.ok("server", "snapshot", "web", "snap")
    assert chains(domain) == before
    assert volumes(millpond) == there


def test_a_server_that_is_paused_stays_so(millpond, overlaid, connection):
    domain = connection.lookupByName("web")
    domain.suspend()
    before = chains(domain)
    millpond.ok("server", "snapshot", "web", "snap")
    assert chains(domain) == before
    assert millpond.json("server", "show", "web")["state"] == "paused"


def test_the_guest_stands_still_while_it_is_led_back_and_no_longer(
    millpond, overlaid, connection, workdir
):
    """Else a crash in that moment could leave a disk that is newer than its overlay, and nobody
    could tell."""
    domain = connection.lookupByName("web")
    said = workdir / "events"
    words = ["stdbuf", "-oL", "virsh", "-c", millpond.uri, "event", "--loop", "web", "lifecycle"]
    with open(said, "w") as file:
        listener = subprocess.Popen(words, stdout=file)
    try:
        wait_for(lambda: (domain.suspend(), domain.resume(), said.read_text())[-1], 30)
        time.sleep(1)  # what is on its way arrives
        before = said.read_text()
        millpond.ok("server", "snapshot", "web", "snap")
        wait_for(lambda: "Resumed" in said.read_text().removeprefix(before), 30)
    finally:
        listener.terminate()
        listener.wait()
    events = said.read_text().removeprefix(before).splitlines()
    assert [line.split()[-2] for line in events] == ["Suspended", "Resumed"]


def test_a_snapshot_of_linux_boots(millpond, linux_guest):
    """It has a journal to repair: the moment is that of a power failure."""
    millpond.ok("image", "add", linux_guest, "--name", "linux")
    words = ("--memory", "128M", "--network", "none", "--image")
    made = millpond.json("server", "create", "web", *words, "linux")
    millpond.wait_for_console(made["id"], "TICK: 1", 90)
    millpond.ok("server", "snapshot", "web", "snap")
    again = millpond.json("server", "create", "again", *words, "snap")
    assert "BOOTS: 2" in millpond.wait_for_console(again["id"], "TICK: 1", 90)


# Somebody else meanwhile


def test_others_are_told_that_it_is_under_way(millpond, overlaid):
    said = []

    def ask():
        said.append(millpond.fails("server", "stop", "web"))
        said.append(millpond.fails("server", "delete", "web"))
        said.append(millpond.run("doctor").stdout)

    take(millpond, at("extract", StepMoment.BEGIN, ask))
    *refusals, findings = said
    for code, message in refusals:
        assert code == 4
        assert "another operation is under way" in message
    assert "that no record names" not in findings
    assert millpond.json("server", "show", "web")["state"] == "running"


@pytest.mark.parametrize(
    ("step", "how"),
    [
        ("extract", "destroy"),
        ("thaw", "shutdown"),
        pytest.param("extract", "shutdown", marks=pytest.mark.full),
        pytest.param("thaw", "destroy", marks=pytest.mark.full),
    ],
)
def test_a_guest_that_goes_off_meanwhile_loses_nothing(millpond, guest, connection, step, how):
    domain = connection.lookupByName("web")
    before = disks(domain, libvirt.VIR_DOMAIN_XML_INACTIVE)

    def go_off():
        wait_for_ticks(millpond, guest)
        getattr(domain, how)()
        wait_for(lambda: not domain.isActive(), 60)

    take(millpond, at(step, StepMoment.BEGIN, go_off))
    assert millpond.json("server", "show", "web")["state"] == "stopped"
    assert disks(domain) == before
    assert len(volumes(millpond)) == 1
    assert tick_on_disk(millpond, "web") >= last_tick(millpond, guest)
    millpond.ok("server", "start", "web")
    millpond.wait_for_console(guest, "BOOTS 0002")


def test_libvirtd_is_restarted_meanwhile(millpond, overlaid, libvirtd, connection):
    before = chains(connection.lookupByName("web"))

    def restart():
        libvirtd.restart()
        wait_for_ticks(millpond, overlaid)

    take(millpond, at("extract", StepMoment.BEGIN, restart))
    with libvirtd.connect() as again:
        assert chains(again.lookupByName("web")) == before
    assert images(millpond) == ["guest", "snap"]
    wait_for_ticks(millpond, overlaid)


def test_libvirtd_is_gone_meanwhile(millpond, overlaid, libvirtd, connection):
    """What cannot be undone stays written down, and nothing is removed."""
    before = chains(connection.lookupByName("web"))
    with pytest.raises((ConnectionLost, HostUnreachable)):
        take(millpond, at("extract", StepMoment.BEGIN, libvirtd.kill))
    wait_for_ticks(millpond, overlaid)
    libvirtd.start()
    code, message = millpond.fails("server", "reboot", "web", "--hard")
    assert code == 4
    assert "in the middle of 'snapshot'" in message
    millpond.ok("doctor", "--mend")
    with libvirtd.connect() as again:
        assert chains(again.lookupByName("web")) == before
    assert len(volumes(millpond)) == 1
    assert images(millpond) == ["guest"]


# Failures


class _Interruption(BaseException):
    """As Ctrl-C or a signal would be."""


def interrupt():
    raise _Interruption


@pytest.mark.parametrize(
    "step",
    [
        "extract",
        *(pytest.param(each, marks=pytest.mark.full) for each in ("overlay", "freeze", "thaw")),
    ],
)
def test_an_interrupted_snapshot_is_undone(millpond, overlaid, connection, step):
    domain = connection.lookupByName("web")
    before = chains(domain)
    with pytest.raises(_Interruption):
        take(millpond, at(step, StepMoment.END, interrupt))
    assert chains(domain) == before
    assert millpond.server("web").operation is None
    assert len(volumes(millpond)) == 1
    assert images(millpond) == ["guest"]
    assert list((millpond.state / "images" / "incoming").iterdir()) == []
    wait_for_ticks(millpond, overlaid)


def test_a_disk_that_is_defined_otherwise_is_not_frozen(millpond, overlaid, connection):
    """What the guest writes would be forgotten when it is started from its definition."""
    xml = etree.fromstring(connection.lookupByName("web").XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    disk = xml.find("devices/disk")
    disk.set("type", "file")
    disk.find("source").attrib.clear()
    (volume,) = volumes(millpond)
    disk.find("source").set("file", str(millpond.disks.parent / volume))
    connection.defineXML(etree.tostring(xml, encoding="unicode"))
    code, message = millpond.fails("server", "snapshot", "web", "snap")
    assert code == 5
    assert "name different disks" in message
    assert volumes(millpond) == [volume]
    assert millpond.server("web").operation is None


def test_a_volume_of_somebody_else_is_not_taken_for_the_overlay(millpond, overlaid):
    mine = millpond.disks / f"{overlaid}_disk.snapshot"
    mine.write_bytes(b"precious")
    millpond.host().pools.ensure("nova-disks-pool").refresh()
    code, message = millpond.fails("server", "snapshot", "web", "snap")
    assert (code, "already exists in pool" in message) == (4, True)
    assert mine.read_bytes() == b"precious"
    assert millpond.server("web").operation is None


def test_a_guest_that_fills_the_overlays_pool_waits_and_goes_on(
    millpond, overlaid, make_filesystem, connection
):
    small = make_filesystem("ext4", 32 * MiB).path
    elsewhere = f"pool_by_disk_name = disk:small\npool_paths = small:{small}"
    millpond.configure(f"images_type_mapping = qcow2:qcow2\n{elsewhere}")
    domain = connection.lookupByName("web")
    before = chains(domain)

    def wait_until_it_is_stuck():
        wait_for(lambda: domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED, 60)

    def watch(*where):
        at("freeze", StepMoment.BEGIN, lambda: fill_up(small))(*where)
        at("extract", StepMoment.BEGIN, wait_until_it_is_stuck)(*where)

    take(millpond, watch)
    assert chains(domain) == before
    assert millpond.json("server", "show", "web")["state"] == "running"
    wait_for_ticks(millpond, overlaid)


def fill_up(directory):
    with suppress(OSError), open(directory / "filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_disk_that_cannot_take_what_was_written_loses_nothing(
    millpond, micro_guest, make_filesystem, connection
):
    """The overlay has room, the disk has none: the writes stay in the overlay."""
    small = make_filesystem("ext4", 32 * MiB).path
    elsewhere = f"pool_by_disk_name = disk:small\npool_paths = small:{small}"
    millpond.configure(f"images_type_mapping = raw:raw\n{elsewhere}")
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    guest = create(millpond, "web", "guest")
    millpond.configure("images_type_mapping = raw:raw")
    domain = connection.lookupByName("web")
    before = chains(domain)

    def fill():
        """The first cluster is in the overlay by now, so the disk's own is taken away."""
        wait_for_ticks(millpond, guest)
        words = ["fallocate", "-p", "-l", "64KiB", small / f"{guest}_disk"]
        subprocess.run(words, check=True)
        fill_up(small)

    with pytest.raises(NotWrittenBack):
        take(millpond, at("thaw", StepMoment.BEGIN, fill))
    wait_for_ticks(millpond, guest)
    assert millpond.run("doctor", "--mend").returncode == 1
    assert volumes(millpond) == [f"{guest}_disk.snapshot"]
    (small / "filler").unlink()
    millpond.ok("doctor", "--mend")
    assert chains(domain) == before
    assert volumes(millpond) == []
    domain.destroy()
    assert tick_on_disk(millpond, "web") >= last_tick(millpond, guest)
