"""Logical volumes that Nova made: adopted under the name that they have."""

import subprocess

import pytest
from lxml import etree

from tests.lvm.volume_group import EXTENT
from tests.support.nova_tree import NovaServer, disk_xml
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full  # the same as in files and in Ceph, but minutes long here

SECONDS = 90
"""A guest within a guest takes its time."""


@pytest.fixture
def nova(millpond):
    made = NovaServer(instances=millpond.state / "instances")
    made.directory.mkdir(parents=True)
    for directory in (millpond.state, made.instances, made.directory):
        directory.chmod(0o755)
    return made


@pytest.mark.timeout(600)  # on a busy machine it took four minutes
def test_a_server_of_novas_on_lvm_is_adopted_with_its_volume(
    millpond, volume_group, micro_guest, connection, nova
):
    millpond.configure(f"images_volume_group = {volume_group.name}")
    assert millpond.json("transition", "status") == []  # now there is a pool
    device = volume_group.create(f"{nova.id}_disk", EXTENT)
    words = ["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", micro_guest.path, device]
    subprocess.run(words, check=True)
    drive = nova.flat(micro_guest.path, "disk.config")
    devices = disk_xml(device, "raw", kind="block") + disk_xml(
        drive, "raw", "hda", "ide", device="cdrom"
    )
    domain = connection.defineXML(nova.domain(devices))
    domain.create()
    wait_for(lambda: "BOOTS 0001" in nova.console(), SECONDS)

    (status,) = millpond.json("transition", "status")  # which libvirt had not seen yet
    assert (status["layout"], status["in_the_way"]) == ("lvm", [])
    made = millpond.json("server", "adopt", nova.id, "--yes")
    assert (made["name"], made["state"]) == ("web", "running")
    root, config = made["disks"]
    assert (root["backend"], root["pool"], root["volume"], root["path"], root["size"]) == (
        "lvm",
        "nova-disks-pool-lvm",
        f"{nova.id}_disk",
        "",
        EXTENT,
    )
    assert (config["role"], config["path"], config["bus"]) == ("disk.config", str(drive), "ide")

    millpond.ok("server", "reboot", "web", "--hard")
    wait_for(lambda: "BOOTS 0002" in nova.console(), SECONDS)
    xml = etree.fromstring(connection.lookupByName("web").XMLDesc())
    assert xml.find("devices/disk").get("type") == "volume"
    millpond.ok("server", "stop", "web", "--force")
    assert millpond.json("server", "snapshot", "web", "snap")["virtual_size"] == EXTENT
    millpond.ok("server", "delete", "web")
    assert volume_group.volumes() == {}
    assert not nova.directory.exists()
