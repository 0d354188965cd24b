"""An image in a logical volume that another host exports: by the kernel's iSCSI and os-brick it
is a device here, linked and not copied. Cinder's part is told by pages of a web server."""

import json
import os
import socket

import libvirt
import pytest
from lxml import etree

from millpond.records.journal import StepMoment
from tests.lvm import iscsi
from tests.lvm.volume_group import EXTENT
from tests.support.glance_pages import ID
from tests.support.killer import kill_at
from tests.support.linked import linked_host

pytestmark = pytest.mark.timeout(600)

SECONDS = 120
"""A guest within a guest takes its time."""


@pytest.fixture(scope="session")
def _iscsi():
    iscsi.start_iscsi()


@pytest.fixture
def volume(_iscsi, volume_group, micro_guest):
    """Longer than the image in it."""
    path = volume_group.create("volume", EXTENT)
    image = micro_guest.path.read_bytes()
    with path.open("r+b") as device:
        device.write(image + b"\xaa" * (EXTENT - len(image)))
    return path


@pytest.fixture
def exported(volume, libvirtd):
    with iscsi.offered(volume) as connection:
        yield connection
        libvirtd.clear()  # or a guest would lose its disk


@pytest.fixture
def host(millpond, micro_guest, exported):
    with linked_host(millpond, micro_guest.path.read_bytes(), exported) as host:
        yield host


def chain(connection, name):
    """As it is defined: a running one has numbers in it."""
    text = connection.lookupByName(name).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    return etree.fromstring(text).find("devices/disk/backingStore")


def device_of(host):
    """The name that the kernel gave it this time."""
    return host.name.resolve()


def kept(host):
    files = [each for each in host.millpond.state.rglob("*") if each.is_file()]
    beside = host.millpond.bases.with_name("_base.millpond").rglob("*.json")
    return b"".join(each.read_bytes() for each in (*files, *beside))


def test_a_server_stands_on_a_volume_of_another_host(
    host, exported, volume, micro_guest, connection, volume_group
):
    before = volume.read_bytes()
    words = ("server", "create", "a", "--image", ID, "--memory", "32M", "--network", "none")
    done = host.millpond.run("-vvv", *words, "--json", seconds=200)
    assert (done.returncode, iscsi.PASSWORD in done.stdout + done.stderr) == (0, False)
    made = json.loads(done.stdout)
    assert micro_guest.marker in host.millpond.wait_for_console(made["id"], "READY", SECONDS)
    target = exported["target_iqn"]
    name = f"/dev/disk/by-path/ip-{iscsi.PORTAL}-iscsi-{target}-lun-1"
    assert (os.readlink(host.name), iscsi.sessions()) == (name, [target])
    base = chain(connection, "a")
    assert (base.get("type"), base.find("source").get("dev")) == ("block", str(host.name))
    assert base.find("source/slices/slice").get("size") == str(len(micro_guest.path.read_bytes()))
    first, found = device_of(host), device_of(host).stat()
    assert (found.st_uid, found.st_mode & 0o7) == (0, 0)
    assert iscsi.PASSWORD.encode() not in kept(host)

    connection.lookupByName("a").destroy()
    comes_back_under_another_name(host, exported, connection, made, volume_group, first)

    host.millpond.ok("server", "delete", "a")
    host.millpond.ok("cache", "prune", "--all-unused")
    assert (iscsi.sessions(), target in iscsi.known()) == ([], False)
    assert (host.left(), host.cinder.attachments) == ([], {})
    assert volume.read_bytes() == before


def comes_back_under_another_name(host, exported, connection, made, volume_group, first):
    """Another device took its name, as it can when a host starts."""
    before = etree.tostring(chain(connection, "a"))
    iscsi.log_out(exported["target_iqn"])
    assert not host.name.exists()
    with iscsi.offered(volume_group.create("other", EXTENT)) as other:
        iscsi.log_in(other)
        host.millpond.ok("server", "start", "a")
        host.millpond.wait_for_console(made["id"], "BOOTS 0002", SECONDS)
        assert device_of(host) != first
        assert etree.tostring(chain(connection, "a")) == before
        assert len(host.cinder.attachments) == 1
        connection.lookupByName("a").destroy()


def test_what_somebody_else_on_this_host_uses_stays_connected(host, exported):
    host.millpond.ok("cache", "fetch", ID)
    host.cinder.attachments["nova's"] = {"host": socket.gethostname(), "mountpoint": "/dev/vdb"}
    host.millpond.ok("cache", "prune", "--all-unused")
    assert (host.left(), list(host.cinder.attachments)) == ([], ["nova's"])
    assert iscsi.sessions() == [exported["target_iqn"]]


@pytest.mark.full
def test_killed_before_it_has_a_record_the_device_goes(host):
    kill_at(host.millpond, "link", "enter", StepMoment.END, "create", "a", ID)
    assert len(iscsi.sessions()) == 1
    host.millpond.run("doctor", "--mend")
    host.millpond.ok("cache", "prune", "--all-unused")
    assert (iscsi.sessions(), host.left(), host.cinder.attachments) == ([], [], {})


@pytest.mark.full
def test_a_wrong_password_is_no_disaster(host):
    host.cinder.connection["auth_password"] = "something-else"
    done = host.millpond.run("cache", "fetch", ID, seconds=300)
    said = f"not linked: a volume of Cinder cannot be reached from this host: {iscsi.PORTAL}"
    assert (done.returncode, said in done.stderr) == (0, True), done.stderr
    assert "Traceback" not in done.stderr
    assert "something-else" not in done.stderr
    assert (iscsi.sessions(), iscsi.known(), host.cinder.attachments) == ([], "", {})
    assert [each["prepared"] for each in host.templates()] == ["download"]
