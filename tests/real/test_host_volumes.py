"""Images in volumes that the host itself reaches: a device, under a lasting name in the base
pool. Here os-brick is told the device's path; that by the kernel's iSCSI is in tests/lvm."""

import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest
from lxml import etree

from millpond.disks.backend import ImageFile
from millpond.model.formats import DiskFormat
from millpond.model.names import template_name
from millpond.records.journal import StepMoment
from tests.support.cinder_pages import VOLUME
from tests.support.glance_pages import ID
from tests.support.image_files import MiB
from tests.support.killer import kill_at
from tests.support.linked import linked_host
from tests.support.millpond import COMMAND, converted

SECRET = b"SECRET!!"
FULL = pytest.mark.full


@pytest.fixture
def content(micro_guest, workdir):
    """Of the volume, which is longer than the image in it."""
    path = workdir / "volume"
    path.write_bytes(micro_guest.path.read_bytes() + SECRET * (MiB // 8))
    return path


@contextmanager
def device_of(path, node):
    """Whose node QEMU's user may not read; gone after the block, as after a restart."""
    words = ["losetup", "--find", "--show", str(path)]
    loop = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    os.mknod(node, 0o060600, os.stat(loop).st_rdev)
    try:
        yield node
    finally:
        node.unlink()
        subprocess.run(["losetup", "--detach", loop], check=True)


@pytest.fixture
def device(content, workdir):
    with device_of(content, workdir / "device") as device:
        yield device


@pytest.fixture
def host(millpond, micro_guest, workdir, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    connection = {"driver_volume_type": "local", "device_path": str(workdir / "device")}
    with linked_host(millpond, micro_guest.path.read_bytes(), connection) as host:
        yield host


def base_of(connection, name):
    disk = etree.fromstring(connection.lookupByName(name).XMLDesc()).find("devices/disk")
    return disk.find("backingStore")


def listed(connection):
    return connection.storagePoolLookupByName("nova-base-images-pool").listVolumes()


def test_a_server_stands_on_a_device_by_its_name_in_the_base_pool(
    host, device, content, micro_guest, connection
):
    before = content.read_bytes()
    made = host.create("a")
    assert micro_guest.marker in host.millpond.wait_for_console(made["id"], "READY")
    assert (host.name.is_symlink(), os.readlink(host.name)) == (True, str(device))
    base = base_of(connection, "a")
    assert (base.get("type"), base.find("format").get("type")) == ("block", "raw")
    assert base.find("source").get("dev") == str(host.name)
    assert base.find("source/slices/slice").get("size") == str(MiB)
    assert listed(connection) == [host.name.name]
    found = device.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7) == (0, 0, 0)
    assert "no problem" in host.millpond.ok("doctor")
    (shown,) = host.millpond.json("cache", "list")["templates"]
    assert (shown["space"], shown["template"]["prepared"]) == (0, "link")
    host.millpond.ok("server", "delete", "a")
    host.millpond.ok("cache", "prune", "--all-unused")
    assert (host.left(), host.cinder.attachments, listed(connection)) == ([], {}, [])
    assert (device.is_block_device(), content.read_bytes()) == (True, before)


def test_what_lies_behind_the_image_on_the_device_is_not_seen(host, device, workdir):
    """B44"""
    host.create("a", "--disk", "4M", "--no-start")
    there = host.millpond.host()
    disk = there.shared.server("a").get_disk("disk")
    target = workdir / "shown"
    there.disks.extract(disk, ImageFile(path=target, format=DiskFormat.RAW))
    assert (target.stat().st_size, SECRET in target.read_bytes()) == (4 * MiB, False)


@pytest.mark.parametrize("format", ["raw", "qcow2"])
def test_what_is_written_behind_a_link_later_is_bytes_and_names_no_file(
    millpond, micro_guest, workdir, monkeypatch, format
):
    """Whoever has the volume makes it a qcow2 image with a data file, long after its inspection:
    qemu-img would show that file of the host."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    image = converted(micro_guest, format, workdir)
    volume, hostile, secret = (workdir / each for each in ("volume", "hostile", "secret"))
    volume.write_bytes(image.read_bytes().ljust(2 * MiB, b"\0"))
    secret.write_bytes(SECRET * (MiB // 8))
    with_data = f"data_file={secret},data_file_raw=on"
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", with_data, str(hostile), "1M"]
    subprocess.run(words, check=True)
    secret.write_bytes(SECRET * (MiB // 8))  # qemu-img has made it
    connection = {"driver_volume_type": "local", "device_path": str(workdir / "device")}
    described = {"disk_format": format, "virtual_size": MiB}
    with (
        device_of(volume, workdir / "device") as device,
        linked_host(millpond, image.read_bytes(), connection, **described) as host,
    ):
        assert (format == "raw") == ("linked to cinder://" in millpond.ok("explain", ID))
        host.create("a", "--no-start")
        with device.open("r+b") as file:
            file.write(hostile.read_bytes()[:MiB])
        fresh = millpond.host()
        disk = fresh.shared.server("a").get_disk("disk")
        target = workdir / "shown"
        fresh.disks.extract(disk, ImageFile(path=target, format=DiskFormat.RAW))
        shown = target.read_bytes()
        if format == "raw":
            assert shown.startswith(hostile.read_bytes()[:512])
        else:
            assert shown == micro_guest.path.read_bytes()
            assert [each["prepared"] for each in host.templates()] == ["download"]
        assert SECRET not in shown
        assert "only raw bytes are linked" in millpond.ok("explain", ID) or format == "raw"


@pytest.mark.parametrize("project", ["4c8e2f6a0b1d3957", ""], ids=["a tenant's", "unknown"])
def test_a_volume_that_is_not_glances_is_not_linked(host, device, project):
    """Its owner says that it has the image, and that it is read-only: both can be set."""
    host.cinder.project = project
    said = host.millpond.ok("explain", ID)
    assert f"volume {VOLUME} of Cinder belongs to project {project}" in said
    host.millpond.ok("cache", "fetch", ID)
    assert [each["prepared"] for each in host.templates()] == ["download"]
    assert host.cinder.attachments == {}


def test_a_device_that_comes_back_under_another_name_changes_no_domain(
    host, content, workdir, connection
):
    with device_of(content, workdir / "device"):
        made = host.create("a")
        host.millpond.wait_for_console(made["id"], "READY")
        chain = etree.tostring(base_of(connection, "a"))
        connection.lookupByName("a").destroy()
    assert not host.name.exists()
    connection.storagePoolLookupByName("nova-base-images-pool").refresh()
    assert listed(connection) == []  # libvirt passes over a dangling link
    with device_of(content, workdir / "other") as device:
        host.cinder.connection["device_path"] = str(device)
        host.millpond.ok("server", "start", "a")
        host.millpond.wait_for_console(made["id"], "BOOTS 0002")
        assert os.readlink(host.name) == str(device)
        assert etree.tostring(base_of(connection, "a")) == chain
        assert len(host.cinder.attachments) == 1
        connection.lookupByName("a").destroy()
    with device_of(content, workdir / "third") as device:
        host.cinder.connection["device_path"] = str(device)
        host.millpond.host().handlers.chosen.init()
        assert os.readlink(host.name) == str(device)


def test_a_device_that_forgot_who_may_read_it_is_told_again(host, device):
    made = host.create("a", "--no-start")
    os.removexattr(device, "system.posix_acl_access")
    host.millpond.ok("server", "start", "a")
    host.millpond.wait_for_console(made["id"], "READY")


def test_without_the_device_nothing_is_lost(host, content, workdir):
    with device_of(content, workdir / "device"):
        made = host.create("a", "--no-start")
    assert host.millpond.run("server", "start", "a").returncode != 0
    assert (len(host.templates()), len(host.cinder.attachments)) == (1, 1)
    with device_of(content, workdir / "device"):
        host.millpond.ok("server", "start", "a")
        host.millpond.wait_for_console(made["id"], "READY")


def test_a_copy_is_made_of_a_device_that_came_back(host, content, workdir, micro_guest):
    host.millpond.config.write_text(
        host.millpond.config.read_text().replace("raw:qcow2,", "raw:raw,")
    )
    with device_of(content, workdir / "device"):
        host.millpond.ok("cache", "fetch", ID)
    with device_of(content, workdir / "other") as device:
        host.cinder.connection["device_path"] = str(device)
        host.create("a", "--no-start")
    (disk,) = host.millpond.disks.glob("*_disk")
    assert disk.read_bytes() == micro_guest.path.read_bytes()


def test_a_link_whose_volume_is_gone_is_dropped_with_its_name(host, content, workdir):
    """B41"""
    with device_of(content, workdir / "device"):
        host.millpond.ok("cache", "fetch", ID)
    host.cinder.is_gone = True
    host.millpond.host().handlers.chosen.init()
    assert (host.templates(), host.left()) == ([], [])


def test_without_os_brick_the_image_is_downloaded_and_that_is_said(
    host, device, workdir, monkeypatch
):
    (workdir / "os_brick.py").write_text("raise ModuleNotFoundError(name='os_brick')\n")
    monkeypatch.setenv("PYTHONPATH", str(workdir))
    words = [COMMAND, "--config-file", host.millpond.config, "cache", "fetch", ID]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert (done.returncode, "millpond[volumes]" in done.stderr) == (0, True)
    assert [each["prepared"] for each in host.templates()] == ["download"]
    assert (host.name.is_symlink(), host.cinder.attachments) == (False, {})


@pytest.mark.parametrize(
    ("connection", "reason"),
    [
        ({"driver_volume_type": "nfs", "format": "qcow2"}, "its volume is a qcow2 file"),
        ({"driver_volume_type": "nvmeof"}, "volumes of the kind 'nvmeof' are not linked"),
        ({"driver_volume_type": "local", "device_path": "/dev/nowhere"}, "/dev/nowhere"),
        ({"driver_volume_type": "local"}, "device_path"),
    ],
)
def test_a_volume_that_is_not_reached_is_downloaded_and_that_is_said(host, connection, reason):
    host.cinder.connection = connection
    done = host.millpond.run("cache", "fetch", ID)
    assert (done.returncode, reason in done.stderr) == (0, True), done.stderr
    assert [each["prepared"] for each in host.templates()] == ["download"]
    assert (host.name.is_symlink(), host.cinder.attachments) == (False, {})


@pytest.mark.skipif(bool(shutil.which("iscsiadm")), reason="this host could connect it")
def test_a_password_is_neither_told_nor_kept(host):
    host.cinder.connection = {
        "driver_volume_type": "iscsi",
        "target_portal": "127.0.0.1:1",
        "target_iqn": "iqn.2026-11.test.millpond:pond",
        "target_lun": 1,
        "auth_method": "CHAP",
        "auth_username": "pond",
        "auth_password": "water-lily",
    }
    done = host.millpond.run("-vvv", "cache", "fetch", ID)
    assert (done.returncode, "iscsiadm is not installed" in done.stderr) == (0, True)
    assert host.cinder.attachments == {}
    assert "water-lily" not in done.stderr + done.stdout
    kept = [each for each in host.millpond.state.rglob("*") if each.is_file()]
    assert not any(b"water-lily" in each.read_bytes() for each in kept)


def test_a_file_under_its_name_is_left_alone(host, device):
    name = host.millpond.bases / template_name(ID, DiskFormat.RAW)
    host.millpond.ok("cache", "list")
    name.parent.mkdir(parents=True, exist_ok=True)
    name.write_text("somebody else's")
    status, said = host.millpond.fails("cache", "fetch", ID)
    assert (status, name.name in said) == (4, True)
    assert (name.read_text(), host.cinder.attachments) == ("somebody else's", {})


def moments(*steps, usual):
    return [
        pytest.param(step, moment, marks=() if (step, moment) == (usual, StepMoment.END) else FULL)
        for step in steps
        for moment in StepMoment
    ]


@pytest.mark.parametrize(
    ("step", "moment"), moments("attach", "inspect", "enter", "record", usual="enter")
)
def test_killed_while_it_links_it_holds_nothing_for_long(host, device, step, moment):
    kill_at(host.millpond, "link", step, moment, "create", "a", ID)
    host.create("b", "--no-start")
    assert len(host.cinder.attachments) == 1
    host.millpond.ok("server", "delete", "b")
    host.millpond.run("doctor", "--mend")
    host.millpond.ok("cache", "prune", "--all-unused")
    assert (host.templates(), host.left(), host.cinder.attachments) == ([], [], {})


@pytest.mark.parametrize(("step", "moment"), moments("record", "detach", usual="record"))
def test_killed_while_it_lets_go_the_next_one_does(host, device, step, moment):
    host.millpond.ok("cache", "fetch", ID)
    kill_at(host.millpond, "unlink", step, moment, "prune")
    host.millpond.ok("cache", "prune", "--all-unused")
    assert (host.templates(), host.left(), host.cinder.attachments) == ([], [], {})
    host.millpond.ok("cache", "fetch", ID)
    assert len(host.cinder.attachments) == 1
