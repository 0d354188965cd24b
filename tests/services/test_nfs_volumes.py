"""Volumes on an NFS share. Cinder's own driver allows one attachment of each, so none is linked
by itself (B43); here a stand-in allows more, and says of the volume what the real Cinder does."""

import os
from collections.abc import Callable
from typing import Any

import libvirt
import pytest
from lxml import etree

from tests.support.glance_pages import ID
from tests.support.guests import MicroGuest
from tests.support.image_files import MiB
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.linked import linked_host
from tests.support.millpond import COMMAND, Millpond
from tests.support.openstack import cinder as volume_types
from tests.support.openstack.cinder import Cinder
from tests.support.openstack.nfs import NfsExport


@pytest.fixture
def volume(cinder: Cinder, nfs_export: NfsExport, micro_guest: MicroGuest) -> Any:
    """A real one with the image in it, attached; what Cinder says of how it is reached."""
    made = cinder.make_volume(volume_types.NFS)
    attachment = cinder.attach(made, mode="ro")
    info = dict(attachment.connection_info)
    with (nfs_export.path / info["name"]).open("r+b") as file:
        file.write(micro_guest.path.read_bytes() + b"SECRET!!" * 1000)
    yield info
    cinder.detach(attachment)


@pytest.fixture
def run(
    millpond: Millpond, libvirtd: PrivateLibvirtd, nfs_export: NfsExport
) -> Callable[..., str]:
    """The command where the share can be mounted, and QEMU sees it."""
    nfs_export.offer_to(libvirtd)
    words = (str(COMMAND), "--config-file", str(millpond.config))
    return lambda *more: libvirtd.run(*words, *more, seconds=100).stdout


def test_a_server_stands_on_a_file_of_a_share(
    millpond: Millpond,
    libvirtd: PrivateLibvirtd,
    volume: Any,
    nfs_export: NfsExport,
    micro_guest: MicroGuest,
    run: Callable[..., str],
    connection: libvirt.virConnect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    file = nfs_export.path / volume["name"]
    before, owner = file.read_bytes()[: 4 * MiB], (file.stat().st_uid, file.stat().st_mode)
    with linked_host(millpond, micro_guest.path.read_bytes(), volume) as host:
        run("server", "create", "a", "--image", ID, "--memory", "32M", "--network", "none")
        domain = connection.lookupByName("a")
        millpond.wait_for_console(domain.UUIDString(), micro_guest.marker)
        target = os.readlink(host.name)
        assert target.startswith(f"{millpond.state}/mnt/{host.name.name}/")
        assert target.endswith(f"/{volume['name']}")
        base = etree.fromstring(domain.XMLDesc()).find("devices/disk/backingStore")
        assert (base.get("type"), base.find("source").get("file")) == ("file", str(host.name))
        assert base.find("source/slices/slice").get("size") == str(MiB)
        domain.destroy()
        libvirtd.run("umount", os.path.dirname(target))  # as after a restart of the host
        run("server", "start", "a")
        millpond.wait_for_console(domain.UUIDString(), "BOOTS 0002")
        run("server", "delete", "a")
        run("cache", "prune", "--all-unused")
        assert (host.left(), host.cinder.attachments) == ([], {})
        assert f"{millpond.state}/mnt" not in libvirtd.run("cat", "/proc/mounts").stdout
    assert file.read_bytes()[: 4 * MiB] == before
    assert (file.stat().st_uid, file.stat().st_mode) == owner
