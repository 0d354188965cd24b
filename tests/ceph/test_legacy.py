"""RBD images that Nova made: adopted under the name that they have."""

import json

import pytest
from lxml import etree

from tests.ceph.conftest import rbd_options
from tests.support.nova_tree import NovaServer
from tests.support.waiting import wait_for


@pytest.fixture
def nova(millpond):
    made = NovaServer(instances=millpond.state / "instances")
    made.directory.mkdir(parents=True)
    for directory in (millpond.state, made.instances, made.directory):
        directory.chmod(0o755)
    return made


def network_disk(ceph, access, image):
    ((host, port),) = ceph.monitors
    return (
        "<disk type='network' device='disk'><driver name='qemu' type='raw' cache='none'/>"
        f"<auth username='{access.user}'><secret type='ceph' uuid='{access.secret}'/></auth>"
        f"<source protocol='rbd' name='{access.name}/{image}'>"
        f"<host name='{host}' port='{port}'/></source><target dev='vda' bus='virtio'/></disk>"
    )


def test_a_server_of_novas_in_ceph_is_adopted_with_its_image(
    millpond, ceph, rbd_pool, micro_guest, connection, nova
):
    millpond.configure("\n".join(rbd_options(ceph, rbd_pool)))
    image = f"{nova.id}_disk"
    ceph.rbd("import", "--no-progress", str(micro_guest.path), f"{rbd_pool.name}/{image}")
    domain = connection.defineXML(nova.domain(network_disk(ceph, rbd_pool, image)))
    domain.create()
    wait_for(lambda: "BOOTS 0001" in nova.console(), 60)

    made = millpond.json("server", "adopt", nova.id, "--yes")
    (root,) = made["disks"]
    assert (root["backend"], root["pool"], root["volume"], root["path"]) == (
        "rbd",
        "nova-disks-pool-rbd",
        image,
        "",
    )
    millpond.ok("server", "reboot", "web", "--hard")
    wait_for(lambda: "BOOTS 0002" in nova.console(), 60)
    xml = etree.fromstring(connection.lookupByName("web").XMLDesc())
    assert xml.find("devices/disk").get("type") == "network"
    millpond.ok("server", "stop", "web", "--force")
    millpond.ok("server", "snapshot", "web", "snap")
    millpond.ok("server", "delete", "web")
    assert json.loads(ceph.rbd("ls", rbd_pool.name, "--format", "json")) == []
