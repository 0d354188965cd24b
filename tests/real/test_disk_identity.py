"""Disks that a guest finds by their serial, and that leave it without being destroyed."""

import pytest
from lxml import etree

from millpond.model.sizes import MiB
from tests.support import own_init

INIT = """\
for each in /sys/block/vd?; do echo "SERIAL: $(cat $each/serial) $(cat $each/size)"; done
echo LISTED
while :; do sleep 1; done
"""


@pytest.fixture
def listing_guest(millpond, linux_ami, workdir):
    """A Linux that prints the serials of its disks."""
    own_init.add_image(millpond, linux_ami, workdir, INIT)
    words = ("--image", "linux", "--memory", "128M", "--network", "none", "--no-start")
    return millpond.json("server", "create", "lin", *words)


def test_a_guest_finds_its_disks_by_serials_that_stay(millpond, listing_guest):
    for size in ("8M", "12M"):
        millpond.ok("server", "disk", "add", "lin", "--size", size)
    millpond.ok("server", "disk", "remove", "lin", "disk.data0")
    millpond.ok("server", "start", "lin")
    text = millpond.wait_for_console(listing_guest["id"], "LISTED", 90)
    found = dict(line.split()[1:] for line in text.splitlines() if line.startswith("SERIAL: "))
    assert set(found) == {"disk", "disk.config", "disk.data1"}
    assert int(found["disk.data1"]) * 512 == 12 * MiB


@pytest.fixture
def web(millpond, micro_guest):
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    words = ("--image", "guest", "--memory", "32M", "--network", "none", "--no-config-drive")
    made = millpond.json("server", "create", "web", *words, "--no-start")
    millpond.ok("server", "disk", "add", "web", "--size", "8M")
    return made


def targets(connection, name="web"):
    xml = etree.fromstring(connection.lookupByName(name).XMLDesc())
    return {each.findtext("serial"): each.find("target").get("dev") for each in xml.iter("disk")}


def test_a_detached_disk_keeps_what_is_on_it(millpond, web, connection):
    volume = millpond.disks / f"{web['id']}_disk.data0"
    connection.storagePoolLookupByName("nova-disks-pool").refresh()
    before = volume.read_bytes()
    assert (
        millpond.ok("server", "disk", "detach", "web", "vdb") == "detached disk.data0 from web\n"
    )
    assert targets(connection) == {"disk": "vda"}
    (left,) = millpond.json("server", "disk", "list", "--detached")
    assert (left["server"], left["role"], left["attached"]) == ("web", "disk.data0", False)
    assert "no problem" in millpond.ok("doctor")
    millpond.ok("server", "start", "web")
    millpond.wait_for_console(web["id"], "READY")
    millpond.ok("server", "disk", "grow", "web", "disk.data0", "--size", "16M")
    attached = millpond.ok("server", "disk", "attach", "web", "disk.data0")
    assert attached == "disk.data0 (vdb)\n"
    assert targets(connection) == {"disk": "vda", "disk.data0": "vdb"}
    assert volume.read_bytes()[:4] == before[:4]
    assert millpond.json("server", "disk", "list", "--detached") == []


def test_a_detached_disk_leaves_its_target_free(millpond, web, connection):
    millpond.ok("server", "disk", "detach", "web", "disk.data0")
    assert millpond.ok("server", "disk", "add", "web", "--size", "4M") == "disk.data1 (vdb)\n"
    assert millpond.ok("server", "disk", "attach", "web", "disk.data0") == "disk.data0 (vdc)\n"
    assert targets(connection) == {"disk": "vda", "disk.data1": "vdb", "disk.data0": "vdc"}
    assert millpond.ok("server", "disk", "attach", "web", "disk.data0") == "disk.data0 (vdc)\n"


def test_a_detached_disk_is_removed_by_itself_and_with_its_server(millpond, web):
    millpond.ok("server", "disk", "detach", "web", "disk.data0")
    millpond.ok("server", "disk", "remove", "web", "disk.data0")
    millpond.ok("server", "disk", "add", "web", "--size", "4M")
    millpond.ok("server", "disk", "detach", "web", "disk.data0")
    millpond.ok("server", "delete", "web")
    assert list(millpond.disks.iterdir()) == []


def test_a_lost_record_is_rebuilt_with_its_detached_disk(millpond, web):
    millpond.ok("server", "disk", "detach", "web", "disk.data0")
    before = millpond.server("web")
    (millpond.state / "servers" / f"{web['id']}.json").unlink()
    millpond.ok("doctor", "--adopt")
    assert millpond.server("web") == before


def test_disks_are_listed(millpond, web):
    pool = f"nova-disks-pool/{web['id']}"
    listed = millpond.ok("server", "disk", "list", "web").splitlines()[1:]
    assert [each.split() for each in listed] == [
        ["web", "disk", "vda", "disk", "1", "MiB", "qcow2", f"{pool}_disk"],
        ["web", "disk.data0", "vdb", "disk.data0", "8", "MiB", "qcow2", f"{pool}_disk.data0"],
    ]
    code, message = millpond.fails("server", "disk", "detach", "web", "disk")
    assert (code, "only data disks" in message) == (5, True)
    assert millpond.fails("server", "disk", "attach", "web", "")[0] == 3
