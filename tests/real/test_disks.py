"""All disks of a server: root, ephemeral, swap, config drive."""

import io
import json
import os
import subprocess

import libvirt
import pycdlib
import pytest
from lxml import etree

from millpond.model.sizes import MiB
from tests.support.waiting import wait_for


@pytest.fixture(params=["default", pytest.param("raw", marks=pytest.mark.full)])
def guest(request, millpond, micro_guest):
    millpond.configure(f"images_type = {request.param}")
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    return request.param


def create(millpond, *options):
    words = ("--image", "guest", "--memory", "32M", "--network", "none")
    return millpond.json("server", "create", "web", *words, *options)


def disk(made, role):
    (found,) = [each for each in made["disks"] if each["role"] == role]
    return found


def flattened(millpond, made, role, workdir):
    """A disk's content as a raw file, by its stated format."""
    found = disk(made, role)
    target = workdir / f"{role}.raw"
    source = millpond.disks / found["volume"]
    words = ["qemu-img", "convert", "-U", "-f", found["format"], "-O", "raw", source, target]
    subprocess.run(words, check=True)
    return target


def blkid(path):
    words = ["blkid", "-p", "-o", "export", path]
    answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return dict(line.split("=", 1) for line in answer.splitlines())


def test_ephemeral_and_swap_disks_follow_images_type(
    millpond, guest, connection, workdir, micro_guest
):
    """B12"""
    made = create(millpond, "--ephemeral", "64M", "--swap", "32M")
    backend = "qcow2" if guest == "default" else "raw"
    assert [(each["role"], each["target"], each["backend"]) for each in made["disks"][1:-1]] == [
        ("disk.eph0", "vdb", backend),
        ("disk.swap", "vdc", backend),
    ]
    assert micro_guest.marker in millpond.wait_for_console(made["id"], "READY")
    xml = etree.fromstring(connection.lookupByName("web").XMLDesc())
    assert [each.find("target").get("dev") for each in xml.findall("devices/disk")] == [
        "vda",
        "vdb",
        "vdc",
        "vdd",  # the config drive
    ]
    millpond.ok("server", "stop", "web", "--force")
    ephemeral = flattened(millpond, made, "disk.eph0", workdir)
    assert ephemeral.stat().st_size == 64 * MiB
    assert (blkid(ephemeral)["TYPE"], blkid(ephemeral)["LABEL"]) == ("ext4", "ephemeral0")
    assert blkid(flattened(millpond, made, "disk.swap", workdir))["TYPE"] == "swap"
    millpond.ok("server", "delete", "web")
    assert os.listdir(millpond.disks) == []


def test_disks_of_one_size_share_one_template(millpond, guest):
    create(millpond, "--swap", "32M", "--no-start")
    before = set(os.listdir(millpond.bases))
    words = ("--image", "guest", "--memory", "32M", "--swap", "32M", "--no-start")
    millpond.ok("server", "create", "second", *words)
    assert set(os.listdir(millpond.bases)) == before
    assert "swap_32" in before


def test_a_config_drive_tells_the_guest_its_keys_and_data(millpond, guest, workdir):
    (workdir / "key.pub").write_text("ssh-ed25519 AAAAC3Nza me@here\n")
    (workdir / "data").write_text("#cloud-config\n")
    made = create(millpond, "--ssh-key", workdir / "key.pub", "--user-data", workdir / "data")
    drive = disk(made, "disk.config")
    assert (drive["backend"], drive["format"]) == ("raw", "raw")
    path = millpond.disks / drive["volume"]
    assert (blkid(path)["TYPE"], blkid(path)["LABEL"]) == ("iso9660", "config-2")
    described = json.loads(read_from(path, "meta_data.json"))
    assert described["hostname"] == "web"
    assert list(described["public_keys"].values()) == ["ssh-ed25519 AAAAC3Nza me@here"]
    assert read_from(path, "user_data") == b"#cloud-config\n"


def read_from(drive, name):
    """The kernel of a test machine may know no ISO 9660."""
    disc = pycdlib.PyCdlib()
    disc.open(str(drive))
    content = io.BytesIO()
    disc.get_file_from_iso_fp(content, rr_path=f"/openstack/latest/{name}")
    disc.close()
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("-----BEGIN OPENSSH PRIVATE KEY-----", "is a private key"), ("hello", "no public key")],
)
def test_a_file_that_is_no_public_key_is_refused(millpond, guest, workdir, content, sentence):
    (workdir / "key").write_text(content)
    words = ("--image", "guest", "--ssh-key", workdir / "key")
    code, message = millpond.fails("server", "create", "web", *words)
    assert code == 2
    assert sentence in message
    assert millpond.json("server", "list") == []


# Disks that grow, come and go


def capacity(connection, volume):
    pool = connection.storagePoolLookupByName("nova-disks-pool")
    return pool.storageVolLookupByName(volume).info()[1]


@pytest.mark.parametrize("format", ["qcow2", "parallels"])
def test_a_disk_grows_as_what_it_is_and_not_as_what_its_guest_wrote(
    millpond, micro_guest, connection, workdir, format
):
    """libvirt would grow the image that it takes the disk for, or call tools of ploop's."""
    millpond.configure("images_type = raw")
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    made = create(millpond, "--no-start")
    written = workdir / "written"
    subprocess.run(["qemu-img", "create", "-q", "-f", format, written, "1M"], check=True)
    path = millpond.disks / disk(made, "disk")["volume"]
    with open(path, "r+b") as file:
        file.write(written.read_bytes()[:MiB])
    connection.storagePoolLookupByName("nova-disks-pool").refresh()
    before = path.read_bytes()
    millpond.ok("server", "resize", "web", "--disk", "8M")
    assert path.read_bytes() == before.ljust(8 * MiB, b"\0")
    assert disk(millpond.json("server", "show", "web"), "disk")["size"] == 8 * MiB
    millpond.ok("server", "delete", "web")
    assert os.listdir(millpond.disks) == []


@pytest.mark.parametrize("running", [True, False], ids=["running", "off"])
def test_the_root_disk_grows(millpond, guest, connection, running):
    made = create(millpond, "--disk", "4M", *([] if running else ["--no-start"]))
    millpond.ok("server", "resize", "web", "--disk", "16M")
    volume = disk(made, "disk")["volume"]
    connection.storagePoolLookupByName("nova-disks-pool").refresh()
    assert capacity(connection, volume) == 16 * MiB
    assert disk(millpond.json("server", "show", "web"), "disk")["size"] == 16 * MiB
    millpond.ok("server", "reboot", "web", "--hard")
    millpond.wait_for_console(made["id"], "READY")


@pytest.mark.parametrize("running", [True, False], ids=["running", "off"])
def test_no_disk_shrinks(millpond, guest, connection, running):
    made = create(millpond, "--disk", "4M", *([] if running else ["--no-start"]))
    code, message = millpond.fails("server", "resize", "web", "--disk", "2M")
    assert code == 5
    assert "what lies behind would be lost" in message
    assert capacity(connection, disk(made, "disk")["volume"]) == 4 * MiB
    assert millpond.json("server", "show", "web")["state"] in ("running", "stopped")


def test_a_data_disk_comes_grows_and_goes_while_the_server_is_off(millpond, guest, connection):
    made = create(millpond, "--no-start")
    assert millpond.ok("server", "disk", "add", "web", "--size", "8M") == "disk.data0 (vdc)\n"
    assert millpond.ok("server", "disk", "add", "web", "--size", "8M") == "disk.data1 (vdd)\n"
    millpond.ok("server", "disk", "grow", "web", "disk.data1", "--size", "12M")
    millpond.ok("server", "disk", "remove", "web", "disk.data0")
    millpond.ok("server", "start", "web")
    millpond.wait_for_console(made["id"], "READY")
    xml = etree.fromstring(connection.lookupByName("web").XMLDesc())
    targets = [each.find("target").get("dev") for each in xml.findall("devices/disk")]
    assert targets == ["vda", "vdb", "vdd"]
    kept = {"disk", "disk.config", "disk.data1"}
    assert set(os.listdir(millpond.disks)) == {f"{made['id']}_{role}" for role in kept}


def test_a_data_disk_comes_and_goes_while_linux_runs(millpond, guest, linux_guest, connection):
    millpond.ok("image", "add", linux_guest, "--name", "linux")
    words = ("--image", "linux", "--memory", "128M", "--network", "none")
    made = millpond.json("server", "create", "lin", *words)
    millpond.wait_for_console(made["id"], "TICK", 60)
    millpond.ok("server", "disk", "add", "lin", "--size", "8M")
    xml = etree.fromstring(connection.lookupByName("lin").XMLDesc())
    added = xml.findall("devices/disk")[2]
    assert added.get("type") == "volume"
    assert len(added.find("backingStore")) == 0
    domain = connection.lookupByName("lin")
    domain.suspend()  # too slow to answer
    code, message = millpond.fails("server", "disk", "remove", "lin", "disk.data0")
    assert (code, "has not released disk vdc" in message) == (4, True)
    assert len(millpond.server("lin").disks) == 3
    domain.resume()
    wait_for(lambda: len(disks_of(domain, 0)) == 2, 30)  # however late: it was asked
    millpond.ok("server", "disk", "remove", "lin", "disk.data0")
    assert len(disks_of(domain, 0)) == len(disks_of(domain, libvirt.VIR_DOMAIN_XML_INACTIVE)) == 2
    assert millpond.json("server", "show", "lin")["state"] == "running"
    assert len(os.listdir(millpond.disks)) == 2


def disks_of(domain, flags):
    return etree.fromstring(domain.XMLDesc(flags)).findall("devices/disk")


@pytest.mark.full
def test_a_guest_that_holds_on_keeps_its_disk(millpond, guest, connection):
    made = create(millpond)
    millpond.wait_for_console(made["id"], "READY")
    millpond.ok("server", "disk", "add", "web", "--size", "8M")
    connection.lookupByName("web").suspend()  # it answers nobody
    code, message = millpond.fails("server", "disk", "remove", "web", "disk.data0")
    assert code == 4
    assert "has not released disk vdc" in message
    shown = millpond.json("server", "show", "web")
    assert (shown["state"], len(shown["disks"])) == ("interrupted (disk remove: detach)", 3)
    millpond.ok("server", "stop", "web", "--force")
    millpond.ok("server", "disk", "remove", "web", "disk.data0")
    shown = millpond.json("server", "show", "web")
    assert (shown["state"], len(shown["disks"])) == ("stopped", 2)


def test_only_data_disks_can_be_removed(millpond, guest):
    create(millpond, "--no-start")
    code, message = millpond.fails("server", "disk", "remove", "web", "disk")
    assert code == 5
    assert "goes with it" in message
    code, message = millpond.fails("server", "disk", "remove", "web", "disk.data7")
    assert code == 3
    assert "has no disk 'disk.data7'" in message


def test_a_damaged_template_of_ephemeral_disks_is_never_formatted_anew(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    create(millpond, "--ephemeral", "64M", "--no-start")
    base = millpond.bases / "ephemeral_64_ext4"
    before = base.read_bytes()
    record = millpond.bases.with_name("_base.millpond") / "records" / f"{base.name}.json"
    record.write_bytes(record.read_bytes()[:-5])
    words = ("--image", "guest", "--memory", "32M", "--ephemeral", "64M", "--no-start")
    code, message = millpond.fails("server", "create", "other", *words)
    assert code == 8
    assert "disks may be backed by this template" in message
    assert base.read_bytes() == before
    done = millpond.run("doctor", "--mend")
    assert "formatted again it would be another one" in done.stdout
    assert base.read_bytes() == before


def test_a_disk_that_grew_by_other_hands_is_not_cut_off(millpond, guest, connection):
    """trap 15: blockResize would shrink it without a word."""
    made = create(millpond, "--disk", "4M")
    millpond.wait_for_console(made["id"], "READY")
    domain = connection.lookupByName("web")
    domain.blockResize("vda", 32 * MiB, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
    code, message = millpond.fails("server", "resize", "web", "--disk", "16M")
    assert code == 5
    assert "it has 32 MiB" in message
    assert domain.blockInfo("vda")[0] == 32 * MiB
    millpond.ok("server", "resize", "web", "--disk", "64M")
    assert disk(millpond.json("server", "show", "web"), "disk")["size"] == 64 * MiB


def test_a_device_of_somebody_else_is_left_alone(millpond, guest, connection, workdir):
    made = create(millpond)
    millpond.wait_for_console(made["id"], "READY")
    path = workdir / "foreign.raw"
    path.write_bytes(bytes(MiB))
    path.chmod(0o666)
    xml = (
        "<disk type='file' device='disk'><driver name='qemu' type='raw'/>"
        f"<source file='{path}'/><target dev='vdc' bus='virtio'/></disk>"
    )
    domain = connection.lookupByName("web")
    domain.attachDeviceFlags(xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    assert millpond.ok("server", "disk", "add", "web", "--size", "8M") == "disk.data0 (vdd)\n"
    targets = [
        each.find("target").get("dev")
        for each in etree.fromstring(domain.XMLDesc()).findall("devices/disk")
    ]
    assert targets == ["vda", "vdb", "vdc", "vdd"]


def test_a_volume_that_no_record_names_is_not_overwritten(millpond, guest):
    made = create(millpond, "--no-start")
    stray = millpond.disks / f"{made['id']}_disk.data0"
    stray.write_bytes(b"somebody's")
    millpond.host().pools.ensure("nova-disks-pool").refresh()
    code, message = millpond.fails("server", "disk", "add", "web", "--size", "8M")
    assert code == 4
    assert "already exists" in message
    assert stray.read_bytes() == b"somebody's"


def test_what_changes_disks_prints_json(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    create(millpond)
    millpond.ok("server", "stop", "web", "--force")
    added = millpond.json("server", "disk", "add", "web", "--size", "8M")
    assert (added["role"], added["size"], added["target"]) == ("disk.data0", 8 * MiB, "vdc")
    grown = millpond.json("server", "disk", "grow", "web", "disk.data0", "--size", "16M")
    assert grown == {**added, "size": 16 * MiB}
    resized = millpond.json("server", "resize", "web", "--disk", "32M")
    assert (resized["state"], disk(resized, "disk")["size"]) == ("stopped", 32 * MiB)
    left = millpond.json("server", "disk", "remove", "web", "disk.data0")
    assert [each["role"] for each in left["disks"]] == ["disk", "disk.config"]
