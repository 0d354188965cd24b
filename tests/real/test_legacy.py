"""Servers that Nova made, in Nova's legacy layout: adopted, and then as good as any other."""

import os
import re
import shutil
import subprocess

import pytest
from lxml import etree

from millpond.model.sizes import MiB
from tests.support.guest_ticks import chains
from tests.support.nova_tree import BASE, IMAGE_ID, NovaServer, disk_xml
from tests.support.waiting import wait_for

SECONDS = 30


@pytest.fixture
def instances(millpond):
    path = millpond.state / "instances"
    path.mkdir(parents=True)
    for directory in (millpond.state, path):
        directory.chmod(0o755)
    return path


class OnLibvirt:
    """A server of Nova's with a domain."""

    def __init__(self, nova: NovaServer, connection, devices: str, **names: str) -> None:
        self.nova = nova
        self.domain = connection.defineXML(nova.domain(devices, **names))

    def boot(self) -> "OnLibvirt":
        self.domain.create()
        wait_for(lambda: "READY" in self.nova.console(), SECONDS)
        return self


def flat(nova, guest):
    return disk_xml(nova.flat(guest.path), "raw")


def qcow2(nova, guest):
    return disk_xml(nova.overlay(guest.path), "qcow2")


def ploop(nova, guest):
    return disk_xml(nova.ploop(guest.path) / "root.hds", "ploop")


def adopt(millpond, nova):
    return millpond.json("server", "adopt", nova.id, "--yes")


def disk_element(connection, name):
    return etree.fromstring(connection.lookupByName(name).XMLDesc()).find("devices/disk")


def boots(text):
    return [int(found, 16) for found in re.findall(r"BOOTS ([0-9A-F]+)", text)]


def tree(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def create(millpond, name, image):
    words = ("--image", image, "--memory", "32M", "--network", "none")
    return millpond.json("server", "create", name, *words)


@pytest.mark.parametrize("layout", [flat, qcow2, ploop], ids=lambda each: each.__name__)
def test_a_server_of_novas_lives_on_as_one_of_ours(
    millpond, connection, micro_guest, instances, layout
):
    other = NovaServer(instances=instances)
    other.overlay(micro_guest.path)
    before = tree(instances)
    nova = NovaServer(instances=instances)
    vnc = "<graphics type='vnc' port='-1' listen='127.0.0.1'/>"
    server = OnLibvirt(nova, connection, layout(nova, micro_guest) + vnc).boot()
    process = server.domain.ID()
    _base = (instances / "_base" / BASE).stat()

    made = adopt(millpond, nova)
    assert (made["name"], made["state"], made["id"]) == ("web", "running", nova.id)
    assert server.domain.ID() == process  # it was not restarted
    assert made["image"]["id"] == IMAGE_ID
    assert (made["flavor"]["name"], made["flavor"]["memory"]) == ("m1.nano", 32 * MiB)
    (disk,) = made["disks"]
    assert (disk["path"], disk["pool"]) == (str(nova.directory / "disk"), "")
    assert (disk["size"], disk["target"], disk["bus"]) == (MiB, "vda", "virtio")
    assert [each["name"] for each in millpond.json("server", "list")] == ["web"]

    done = millpond.run("server", "reboot", "web", "--hard")
    assert (done.returncode, done.stderr) == (0, "")
    wait_for(lambda: boots(nova.console())[-1:] == [2], SECONDS)
    element = disk_element(connection, "web")  # the domain has the server's name now
    assert element.getparent().find("graphics").get("listen") == "127.0.0.1"
    assert element.get("type") == "volume"  # and its disk is in a pool (test_transition)
    assert element.find("driver").get("type") == disk["format"]
    _assert_that_the_chain_is_stated(element, overlay=layout is qcow2)

    millpond.ok("server", "stop", "web", "--force")
    image = millpond.json("server", "snapshot", "web", "snap")
    assert image["virtual_size"] == MiB
    again = create(millpond, "again", "snap")
    assert "BOOTS 0003" in millpond.wait_for_console(again["id"], "READY")
    millpond.ok("server", "start", "web")
    wait_for(lambda: boots(nova.console())[-1:] == [3], SECONDS)
    domain = connection.lookupByName("web")
    running = chains(domain)
    millpond.ok("server", "snapshot", "web", "live")
    assert chains(domain) == running

    millpond.ok("server", "delete", "web", "again")
    millpond.ok("image", "remove", "snap", "live")
    assert [
        each for each in tree(instances) if not each.startswith(("disks", "_base.mill"))
    ] == before
    after = (instances / "_base" / BASE).stat()
    assert (after.st_ino, after.st_mtime) == (_base.st_ino, _base.st_mtime)


def _assert_that_the_chain_is_stated(element, *, overlay):
    below = element.find("backingStore")
    if overlay:
        assert below.get("type") == "volume"
        assert below.find("format").get("type") == "raw"
        assert below.find("source").get("volume") == BASE
        assert below.find("source/seclabel").get("relabel") == "no"
        below = below.find("backingStore")
    assert below is not None
    assert len(below) == 0


def test_all_the_disks_that_nova_gives_a_server(millpond, connection, micro_guest, instances):
    nova = NovaServer(instances=instances)
    blank = instances / "blank"
    blank.write_bytes(bytes(MiB))
    disks = (
        disk_xml(nova.overlay(micro_guest.path), "qcow2"),
        disk_xml(nova.overlay(blank, "disk.eph0", base="ephemeral_1_0706d66"), "qcow2", "vdb"),
        disk_xml(nova.overlay(blank, "disk.swap", base="swap_1"), "qcow2", "vdc"),
        disk_xml(nova.flat(blank, "disk.config"), "raw", "sda", "sata", device="cdrom"),
    )
    blank.unlink()
    ahci = "<controller type='sata'/>"
    OnLibvirt(nova, connection, "".join(disks) + ahci)
    code, message = millpond.fails("server", "adopt", nova.id)
    assert (code, "nobody is here to ask" in message) == (2, True)
    made = adopt(millpond, nova)
    assert made["state"] == "stopped"
    found = [
        (each["role"], each["target"], each["bus"], each["content"]) for each in made["disks"]
    ]
    assert found == [
        ("disk", "vda", "virtio", "image"),
        ("disk.eph0", "vdb", "virtio", "ephemeral"),
        ("disk.swap", "vdc", "virtio", "swap"),
        ("disk.config", "sda", "sata", "config"),
    ]
    assert made["flavor"]["ephemeral"] == made["flavor"]["swap"] == MiB

    millpond.ok("server", "resize", "web", "--disk", "2M")  # off: by qemu-img
    millpond.ok("server", "start", "web")
    wait_for(lambda: "READY" in nova.console(), SECONDS)
    xml = etree.fromstring(connection.lookupByName("web").XMLDesc())
    devices = {each.find("target").get("dev"): each for each in xml.findall("devices/disk")}
    assert devices["sda"].get("device") == "cdrom"
    assert devices["sda"].find("readonly") is not None
    millpond.ok("server", "resize", "web", "--disk", "3M")  # on: by QEMU itself
    millpond.ok("server", "disk", "grow", "web", "disk.eph0", "--size", "2M")
    sizes = {
        each["role"]: each["size"] for each in millpond.json("server", "show", "web")["disks"]
    }
    assert (sizes["disk"], sizes["disk.eph0"]) == (3 * MiB, 2 * MiB)
    assert connection.lookupByName("web").blockInfo("vda")[0] == 3 * MiB
    millpond.ok("server", "disk", "add", "web", "--size", "1M")  # a new one is a volume
    assert f"{nova.id}_disk.data0" in os.listdir(millpond.disks)
    code, message = millpond.fails("server", "disk", "grow", "web", "disk.config", "--size", "2M")
    assert (code, "it is the config drive" in message) == (5, True)

    millpond.ok("server", "delete", "web")
    assert not nova.directory.exists()
    assert sorted(os.listdir(instances / "_base")) == [BASE, "ephemeral_1_0706d66", "swap_1"]
    assert os.listdir(millpond.disks) == []


def test_what_a_guest_wrote_on_its_raw_disk_is_never_followed(
    millpond, connection, micro_guest, instances, workdir
):
    """trap 2, trap 3: a qcow2 header that names a file of the host, on a disk of Nova's."""
    secret = workdir / "secret"
    secret.write_bytes(b"the content of a file of the host".ljust(MiB, b"!"))
    evil = workdir / "evil"
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", secret, evil]
    subprocess.run(words, check=True)
    nova = NovaServer(instances=instances)
    disk = nova.flat(micro_guest.path)
    with open(disk, "r+b") as file:
        file.write(evil.read_bytes()[: 256 * 1024])
    OnLibvirt(nova, connection, disk_xml(disk, "raw"))
    before = secret.stat()

    (status,) = millpond.json("transition", "status")
    assert (status["disks"][0]["format"], status["disks"][0]["base"]) == ("raw", None)
    adopt(millpond, nova)
    millpond.ok("server", "start", "web")
    element = disk_element(connection, "web")
    assert element.find("driver").get("type") == "raw"
    assert len(element.find("backingStore")) == 0
    millpond.ok("server", "reboot", "web", "--hard")
    millpond.ok("server", "stop", "web", "--force")
    millpond.ok("server", "snapshot", "web", "snap")
    millpond.ok("server", "resize", "web", "--disk", "2M")
    after = secret.stat()
    assert (before.st_uid, before.st_gid, before.st_mode) == (
        after.st_uid,
        after.st_gid,
        after.st_mode,
    )
    millpond.ok("image", "save", "snap", workdir / "out.qcow2")
    out = workdir / "out.raw"
    words = ["qemu-img", "convert", "-f", "qcow2", "-O", "raw", workdir / "out.qcow2", out]
    subprocess.run(words, check=True)
    assert b"a file of the host" not in out.read_bytes()
    volume = millpond.disks / f"{nova.id}_disk"
    assert out.read_bytes() == volume.read_bytes()[:MiB]
    assert len(volume.read_bytes()) == 2 * MiB


def test_a_disk_that_the_domain_states_otherwise_than_novas_record_is_refused(
    millpond, connection, micro_guest, instances
):
    """Were the record lost and images_type followed, a guest could choose its format."""
    nova = NovaServer(instances=instances)
    disk = nova.overlay(micro_guest.path)
    (nova.directory / "disk.info").unlink()
    OnLibvirt(nova, connection, disk_xml(disk, "raw"))
    code, message = millpond.fails("server", "adopt", nova.id, "--yes")
    assert code == 4
    assert "disk: it is qcow2 on record, but raw in the domain" in message


_OVS = (
    "<interface type='bridge'><mac address='fa:16:3e:00:00:01'/><source bridge='br-int'/>"
    "<virtualport type='openvswitch'/><model type='virtio'/></interface>"
)


def test_what_cannot_be_adopted_is_said_and_left_alone(
    millpond, connection, micro_guest, instances, workdir
):
    volume = workdir / "volume"
    shutil.copyfile(micro_guest.path, volume)
    nova = NovaServer(instances=instances)
    disk = nova.flat(micro_guest.path)
    nova.flat(micro_guest.path, "disk.rescue")
    devices = disk_xml(disk, "raw") + disk_xml(volume, "raw", "vdb") + _OVS
    server = OnLibvirt(nova, connection, devices)
    without_host = NovaServer(instances=instances)
    without_host.flat(micro_guest.path)
    before, definition = tree(millpond.state), server.domain.XMLDesc()

    code, message = millpond.fails("server", "adopt", nova.id, "--yes")
    assert code == 4
    for sentence in (
        f"its disk vdb, {volume}, is not in Nova's legacy layout",
        "disk.rescue: it is not attached to the domain",
        "is of the kind 'bridge openvswitch'",
    ):
        assert sentence in message
    for code, sentence, words in (
        (4, "there is no domain of this UUID here", (without_host.id, "--yes")),
        (3, "has disks in Nova's legacy layout", ("1234", "--yes")),
        (3, "has disks in Nova's legacy layout", (IMAGE_ID, "--yes")),
        (4, "is of the kind 'bridge openvswitch'", (nova.id,)),  # before anybody is asked
    ):
        found, message = millpond.fails("server", "adopt", *words)
        assert (found, sentence in message) == (code, True), message
    assert server.domain.XMLDesc() == definition
    assert millpond.json("server", "list") == []
    left = [each for each in tree(millpond.state) if each.startswith("instances/")]
    kept = [each for each in before if each.startswith("instances/")]
    assert [
        each for each in left if not each.startswith(("instances/disks", "instances/_base"))
    ] == kept


def test_a_name_that_is_taken_leaves_the_domain_its_own(
    millpond, connection, micro_guest, instances
):
    names = []
    for number in (1, 2):
        nova = NovaServer(instances=instances)
        OnLibvirt(nova, connection, flat(nova, micro_guest), domain=f"instance-{number}")
        names.append(adopt(millpond, nova)["name"])
    assert names == ["web", "instance-2"]
    code, message = millpond.fails("server", "adopt", nova.id, "--yes")
    assert (code, "is Millpond's already" in message) == (4, True)


def test_status_and_doctor_count_what_is_legacy(millpond, connection, micro_guest, instances):
    assert millpond.ok("transition", "status") == "no server has disks in Nova's legacy layout\n"
    nova = NovaServer(instances=instances)
    OnLibvirt(nova, connection, qcow2(nova, micro_guest))
    torn = NovaServer(instances=instances)
    disk = torn.flat(micro_guest.path)
    millpond.disks.mkdir(exist_ok=True)
    shutil.copyfile(disk, millpond.disks / f"{torn.id}_disk")

    found = {each["id"]: each for each in millpond.json("transition", "status")}
    assert (found[nova.id]["name"], found[nova.id]["layout"]) == ("instance-0000002a", "qcow2")
    assert found[nova.id]["in_the_way"] == []
    assert found[nova.id]["disks"][0]["base"]["volume"] == BASE
    assert any("it is in two places" in each for each in found[torn.id]["in_the_way"])
    text = millpond.ok("transition", "status")
    assert re.search(rf"Disk disk +1 MiB qcow2: {nova.directory}/disk, backed by {BASE}", text)
    done = millpond.run("doctor")
    assert "2 servers with disks in Nova's legacy layout" in done.stdout
    assert BASE not in done.stdout  # a base that is needed is no stray

    adopt(millpond, nova)
    (mine,) = [each for each in millpond.json("transition", "status") if each["adopted"]]
    assert (mine["name"], mine["in_the_way"]) == ("web", [])
    assert "disk disk of server web, as its base" in _pool_of_bases(millpond)
    assert "cannot be used" not in millpond.run("doctor").stdout
    (instances / "_base" / BASE).unlink()
    done = millpond.run("doctor")
    assert f"cannot be used: {instances}/_base/{BASE} is missing" in done.stdout
    millpond.configure("images_type = libvirt-storage")
    done = millpond.run("doctor")
    assert "have disks in Nova's legacy layout: " in done.stdout
    for words in (("cache", "prune"), ("server", "create", "new", "--image", "none")):
        code, message = millpond.fails(*words)
        assert code in (3, 6), message
    assert "have disks in Nova's legacy layout" in millpond.fails("cache", "prune")[1]


def _pool_of_bases(millpond):
    subprocess.run(
        ["virsh", "-c", millpond.uri, "pool-refresh", "nova-base-images-pool"], check=True
    )
    return millpond.ok("pool", "show", "nova-base-images-pool")
