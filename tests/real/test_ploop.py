"""Servers whose disks are ploop images: one file each, written here and booted as volumes."""

import os
import signal
import subprocess

import pytest
from lxml import etree

from millpond.errors import NeedsHostFiles
from millpond.model.server import Flavor
from millpond.model.sizes import GiB, MiB
from millpond.records.journal import StepMoment
from millpond.servers import grow
from millpond.servers.create import ServerRequest
from millpond.servers.create import create as create_server
from tests.real.test_disks import blkid, disk
from tests.real.test_kill import kill_at, listed, moments
from tests.support.image_files import virtual_size
from tests.support.millpond import converted, without_files
from tests.support.ploop_directories import descriptor, image
from tests.support.waiting import wait_for


@pytest.fixture
def ploop(millpond, micro_guest, workdir):
    """images_type = ploop, with a ploop and a raw image of the same guest."""
    millpond.configure("images_type = ploop")
    hds = converted(micro_guest, "parallels", workdir).rename(workdir / "guest.hds")
    millpond.ok("image", "add", hds, "--name", "guest")
    millpond.ok("image", "add", micro_guest.path, "--name", "raw")
    return millpond


def create(millpond, *options, image="guest"):
    words = ("--image", image, "--memory", "32M", "--network", "none")
    return millpond.json("server", "create", "web", *words, *options)


def path_of(millpond, made, role="disk"):
    return millpond.disks / disk(made, role)["volume"]


def content(path, workdir):
    """What the guest sees, by the format that is stated."""
    flattened = workdir / f"{path.name}.raw"
    words = ["qemu-img", "convert", "-f", "parallels", "-O", "raw", path, flattened]
    subprocess.run(words, check=True)
    return flattened


def refresh(connection):
    """After it libvirt takes the files for ploop directories."""
    connection.storagePoolLookupByName("nova-disks-pool").refresh()


@pytest.mark.parametrize(("image", "native"), [("guest", True), ("raw", False)])
def test_a_ploop_disk_boots_as_a_volume_and_counts_its_boots(
    ploop, connection, micro_guest, image, native
):
    explained = ploop.json("explain", image)["hosts"][0]
    assert (explained["backend"], explained["template_format"]) == ("ploop", "ploop")
    assert (explained["native"], explained["written"]) == (native, 0 if native else 2 * MiB)
    made = create(ploop, image=image)
    assert micro_guest.marker in ploop.wait_for_console(made["id"], "READY")
    root = disk(made, "disk")
    assert (root["format"], root["size"], root["overlay"]) == ("ploop", MiB, False)
    xml = etree.fromstring(connection.lookupByName("web").XMLDesc()).find("devices/disk")
    assert (xml.get("type"), xml.find("driver").get("type")) == ("volume", "ploop")
    assert xml.find("source").get("volume") == root["volume"]
    refresh(connection)
    ploop.ok("server", "reboot", "web", "--hard")
    ploop.wait_for_console(made["id"], "BOOTS 0002")
    assert "1 MiB ploop by ploop: nova-disks-pool/" in ploop.ok("server", "show", "web")
    assert ploop.json("explain", image)["hosts"][0]["template_exists"]
    (base,) = ploop.bases.iterdir()
    assert base.stat().st_size == 2 * MiB
    ploop.ok("server", "delete", "web")
    assert os.listdir(ploop.disks) == []


def test_a_ploop_directory_is_added_and_boots(ploop, micro_guest, workdir):
    directory = workdir / "bundle.hdd"
    directory.mkdir()
    (workdir / "guest.hds").rename(directory / "root.hds")
    (directory / "DiskDescriptor.xml").write_text(descriptor(image()))
    added = ploop.json("image", "add", directory)
    assert (added["name"], added["format"], added["virtual_size"]) == ("bundle", "ploop", MiB)
    made = create(ploop, image="bundle")
    assert micro_guest.marker in ploop.wait_for_console(made["id"], "READY")
    (directory / "DiskDescriptor.xml").write_text(descriptor(image() + image("top.hds")))
    code, message = ploop.fails("image", "add", directory, "--name", "snapshots")
    assert code == 5
    assert "which spread its disk over 2 files" in message
    assert "merge them first: ploop snapshot-merge -A" in message


def test_a_ploop_image_is_its_own_template(ploop):
    create(ploop, "--no-start")
    (base,) = ploop.bases.iterdir()
    assert base.name.endswith(".ploop")
    assert base.stat().st_nlink == 2  # the catalogue's file and this one
    ploop.ok("server", "create", "second", "--image", "guest", "--no-start")
    assert [each.name for each in ploop.bases.iterdir()] == [base.name]
    ploop.ok("server", "delete", "web", "second")
    ploop.ok("image", "remove", "guest")
    assert list(ploop.bases.iterdir()) == []


@pytest.mark.parametrize("image", ["guest", "raw"])
def test_a_disk_larger_than_its_template_is_written_and_keeps_its_holes(ploop, workdir, image):
    made = create(ploop, "--disk", "4G", image=image)
    ploop.wait_for_console(made["id"], "READY")
    path = path_of(ploop, made)
    assert disk(made, "disk")["size"] == 4 * GiB
    assert path.stat().st_blocks * 512 < 8 * MiB
    ploop.ok("server", "stop", "web", "--force")
    assert virtual_size(path, "parallels") == 4 * GiB
    ploop.ok("server", "resize", "web", "--disk", "5G")
    assert virtual_size(path, "parallels") == 5 * GiB
    assert path.stat().st_blocks * 512 < 8 * MiB


def test_ephemeral_swap_and_data_disks_are_ploop_too(ploop, workdir):
    """B12"""
    made = create(ploop, "--ephemeral", "64M", "--swap", "32M")
    ploop.wait_for_console(made["id"], "READY")
    ploop.ok("server", "stop", "web", "--force")
    ploop.ok("server", "disk", "add", "web", "--size", "8M")
    shown = ploop.json("server", "show", "web")
    assert [(each["role"], each["format"], each["size"]) for each in shown["disks"]] == [
        ("disk", "ploop", MiB),
        ("disk.eph0", "ploop", 64 * MiB),
        ("disk.swap", "ploop", 32 * MiB),
        ("disk.config", "raw", MiB),
        ("disk.data0", "ploop", 8 * MiB),
    ]
    ephemeral = blkid(content(path_of(ploop, shown, "disk.eph0"), workdir))
    assert (ephemeral["TYPE"], ephemeral["LABEL"]) == ("ext4", "ephemeral0")
    assert blkid(content(path_of(ploop, shown, "disk.swap"), workdir))["TYPE"] == "swap"
    empty = content(path_of(ploop, shown, "disk.data0"), workdir)
    assert empty.read_bytes() == bytes(8 * MiB)
    ploop.ok("server", "disk", "grow", "web", "disk.data0", "--size", "16M")
    ploop.ok("server", "start", "web")
    ploop.wait_for_console(made["id"], "BOOTS 0002")
    ploop.ok("server", "delete", "web")
    assert os.listdir(ploop.disks) == []


def test_a_disk_grows_while_its_server_is_off_and_holds_what_it_held(ploop, connection, workdir):
    made = create(ploop)
    ploop.wait_for_console(made["id"], "READY")
    ploop.ok("server", "stop", "web", "--force")
    path = path_of(ploop, made)
    before, owner = content(path, workdir).read_bytes(), path.stat().st_uid
    ploop.ok("server", "resize", "web", "--disk", "16M")
    assert virtual_size(path, "parallels") == 16 * MiB
    assert content(path, workdir).read_bytes() == before.ljust(16 * MiB, b"\0")
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (owner, 0o600)
    assert disk(ploop.json("server", "show", "web"), "disk")["size"] == 16 * MiB
    assert sorted(os.listdir(ploop.disks)) == [path.name, f"{path.name}.config"]
    ploop.ok("server", "start", "web")
    ploop.wait_for_console(made["id"], "BOOTS 0002")
    ploop.ok("doctor")


def test_a_disk_never_grows_under_a_running_server_and_never_shrinks(ploop):
    made = create(ploop, "--disk", "4M")
    ploop.wait_for_console(made["id"], "READY")
    path = path_of(ploop, made)
    inode = path.stat().st_ino
    code, message = ploop.fails("server", "resize", "web", "--disk", "16M")
    assert code == 5
    assert "growing disk while the server runs is not possible here" in message
    assert "stop the server first: millpond server stop web" in message
    ploop.ok("server", "stop", "web", "--force")
    code, message = ploop.fails("server", "resize", "web", "--disk", "2M")
    assert code == 5
    assert "a disk only grows" in message
    shown = ploop.json("server", "show", "web")
    assert (shown["state"], disk(shown, "disk")["size"]) == ("stopped", 4 * MiB)
    assert sorted(os.listdir(ploop.disks)) == [path.name, f"{path.name}.config"]
    assert path.stat().st_ino == inode


def test_a_disk_that_finds_no_room_to_grow_stays_as_it_is(ploop, make_filesystem, workdir):
    small = make_filesystem("ext4", 32 * MiB)
    ploop.configure(f"images_type = ploop\ndisks_pool_path = {small.path}/disks")
    (workdir / "big.raw").write_bytes(b"!" * (14 * MiB))
    ploop.ok("image", "add", workdir / "big.raw")
    made = create(ploop, "--disk", "16M", "--no-start", image="big")
    path = small.path / "disks" / disk(made, "disk")["volume"]
    before = content(path, workdir).read_bytes()
    code, message = ploop.fails("server", "resize", "web", "--disk", "17M")
    assert code == 6
    assert "no space left in pool nova-disks-pool" in message
    assert content(path, workdir).read_bytes() == before
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}.config"]
    assert ploop.json("server", "show", "web")["state"] == "stopped"


@pytest.mark.parametrize(
    ("step", "moment"),
    [
        pytest.param(*each, marks=[] if each[0] == "extend" else [pytest.mark.full])
        for each in moments("grow")
    ],
)
def test_killed_while_a_disk_grows(ploop, connection, workdir, step, moment):
    made = create(ploop)
    ploop.wait_for_console(made["id"], "READY")
    ploop.ok("server", "stop", "web", "--force")
    path = path_of(ploop, made)
    before = content(path, workdir).read_bytes()
    kill_at(ploop, "grow", step, moment, "grow", "web", 8 * MiB)
    assert listed(ploop) == {"web": f"interrupted (grow: {step})"}
    half_made = path.with_name(f"{path.name}.grown")
    half_made.write_bytes(b"what a copy that was interrupted left")
    refresh(connection)
    ploop.ok("doctor", "--mend")
    assert content(path, workdir).read_bytes() == before.ljust(8 * MiB, b"\0")
    assert half_made.exists() == ((step, moment) not in COPIED_AFTER)
    ploop.ok("server", "start", "web")
    ploop.wait_for_console(made["id"], "BOOTS 0002")
    ploop.ok("server", "delete", "web")
    assert os.listdir(ploop.disks) == []


COPIED_AFTER = [
    *(("claim", each) for each in (StepMoment.BEGIN, StepMoment.END)),
    *(("copy", each) for each in (StepMoment.BEGIN, StepMoment.END)),
    ("extend", StepMoment.BEGIN),
]
"""Later no copy of ours can be there: what was put there is a stranger's."""


def test_killed_while_a_disk_grows_and_deleted_without_mending(ploop, connection):
    made = create(ploop, "--no-start")
    kill_at(ploop, "grow", "extend", StepMoment.BEGIN, "grow", "web", 8 * MiB)
    path_of(ploop, made).with_name(f"{path_of(ploop, made).name}.grown").write_bytes(b"half")
    refresh(connection)
    ploop.ok("server", "delete", "web")
    assert os.listdir(ploop.disks) == []
    refresh(connection)
    assert connection.storagePoolLookupByName("nova-disks-pool").listVolumes() == []


def test_a_server_whose_host_crashed_starts_again(ploop, libvirtd, connection):
    """QEMU leaves a mark in the image, and refuses to write to one that has it."""
    made = create(ploop)
    ploop.wait_for_console(made["id"], "READY")
    pid_file = libvirtd.directory / "run" / "libvirt" / "qemu" / "web.pid"
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    wait_for(lambda: not connection.lookupByName("web").isActive(), 30)
    ploop.ok("server", "start", "web")
    ploop.wait_for_console(made["id"], "BOOTS 0002")


@pytest.mark.parametrize("format", ["qcow2", "raw"])
def test_a_snapshot_of_a_ploop_disk_boots(ploop, format):
    made = create(ploop)
    ploop.wait_for_console(made["id"], "READY")
    ploop.ok("server", "stop", "web", "--force")
    image = ploop.json("server", "snapshot", "web", "snap", "--format", format)
    assert (image["format"], image["virtual_size"]) == (format, MiB)
    words = ("--image", "snap", "--memory", "32M", "--network", "none")
    again = ploop.json("server", "create", "again", *words)
    ploop.wait_for_console(again["id"], "BOOTS 0002")


# A host whose files cannot be opened here


def test_without_the_hosts_files_a_ploop_disk_is_refused_and_nothing_is_left(ploop):
    host = ploop.host()
    request = ServerRequest(name="web", image=host.shared.catalogue.get("guest"), flavor=Flavor())
    with pytest.raises(NeedsHostFiles, match=r"libvirt cannot make one, and .* cannot be opened"):
        create_server(without_files(host), request)
    assert os.listdir(ploop.disks) == []
    assert ploop.json("server", "list") == []


def test_without_the_hosts_files_a_ploop_disk_does_not_grow(ploop):
    made = create(ploop, "--no-start")
    host = ploop.host()
    with pytest.raises(NeedsHostFiles, match="cannot be opened here"):
        grow.grow(without_files(host), host.shared.server("web"), "disk", 8 * MiB)
    assert listed(ploop) == {"web": "stopped"}
    assert virtual_size(path_of(ploop, made), "parallels") == MiB
