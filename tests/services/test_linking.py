"""Images that are volumes of Cinder's, or lie in Ceph: linked, and not copied (B41–B44)."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt
import pytest
from lxml import etree

from tests.ceph.conftest import make_secret, rbd_options
from tests.support.ceph import Ceph, RbdPool
from tests.support.guests import MicroGuest
from tests.support.image_files import MiB
from tests.support.loopfs import LoopFilesystem, MakeFilesystem
from tests.support.millpond import Millpond, converted
from tests.support.openstack import cinder as volume_types
from tests.support.openstack import glance as stores
from tests.support.openstack.cinder import Cinder
from tests.support.openstack.glance import Glance

GiB = 1024**3


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def rbd_pool(
    ceph: Ceph, glance_on_cinder: Glance, connection: libvirt.virConnect
) -> Iterator[RbdPool]:
    """Of the host's disks; its user may read the images' pool, and make snapshots of volumes."""
    name = "compute"
    if name not in ceph.rbd_pools():
        ceph.make_pool(name)
    key = ceph.make_user(name, name, volume_types.POOL, stores.POOL)
    secret = make_secret(connection, name, key)
    yield RbdPool(name=name, user=name, secret=secret)
    connection.secretLookupByUUIDString(secret).undefine()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """A host beside the services."""

    millpond: Millpond
    glance: Glance
    cinder: Cinder

    def upload(self, path: Path, name: str, disk_format: str, store: str) -> Any:
        named = path.with_name(name)
        path.rename(named)
        return self.glance.upload(named, disk_format, store)

    def create(self, name: str, image: str, *options: str) -> Any:
        words = ("--image", image, "--memory", "32M", "--network", "none")
        return self.millpond.json("server", "create", name, *words, *options)

    def templates(self) -> list[Any]:
        return [each["template"] for each in self.millpond.json("cache", "list")["templates"]]


def volume_of(image: Any) -> str:
    return str(image.locations[0]["url"]).rpartition("/")[2]


@pytest.fixture
def pond(millpond: Millpond, make_filesystem: MakeFilesystem) -> LoopFilesystem:
    """Where all that the host writes goes."""
    where = make_filesystem("ext4", 4 * GiB)
    return where


@pytest.fixture
def cloud(
    millpond: Millpond, glance_on_cinder: Glance, cinder: Cinder, ceph: Ceph, rbd_pool: RbdPool
) -> Iterator[Cloud]:
    cloud = Cloud(millpond=millpond, glance=glance_on_cinder, cinder=cinder)
    configure(cloud, ceph, rbd_pool, "images_type_mapping = raw:qcow2, qcow2:qcow2, iso:rbd")
    yield cloud
    for image in glance_on_cinder.api.images():
        glance_on_cinder.api.delete_image(image)


def configure(cloud: Cloud, ceph: Ceph, rbd_pool: RbdPool, *lines: str, default: str = "") -> None:
    cloud.millpond.configure(
        "\n".join(
            [
                "images_type = qcow2",
                *rbd_options(ceph, rbd_pool),
                *lines,
                f"[glance]\nauth_type = none\nendpoint_override = {cloud.glance.url}",
                f"[cinder]\nauth_type = none\nendpoint_template = {cloud.cinder.url}",
            ]
        ),
        default=f"image_source = glance\ntemplate_image_handler = volume-based-linking\n{default}",
    )


@pytest.fixture
def guest(micro_guest: MicroGuest, workdir: Path) -> Callable[[int], Path]:
    """The guest, with so many bytes behind it that are not zeros."""

    def guest(size: int) -> Path:
        path = workdir / "guest"
        shutil.copyfile(micro_guest.path, path)
        with path.open("r+b") as file:
            file.seek(0, os.SEEK_END)
            chunk = os.urandom(MiB)
            while file.tell() + len(chunk) <= size:
                file.write(chunk)
            file.truncate(size)
        return path

    return guest


def test_a_server_stands_on_the_volume_that_its_image_is(
    cloud: Cloud, guest: Callable[[int], Path], micro_guest: MicroGuest, connection: Any
) -> None:
    image = cloud.upload(guest(8 * MiB), "linked", "raw", stores.VOLUMES)
    volume = volume_of(image)
    made = cloud.create("a", "linked")
    assert micro_guest.marker in cloud.millpond.wait_for_console(made["id"], "READY")
    (held,) = cloud.cinder.attachments(volume)
    (template,) = cloud.templates()
    assert (template["prepared"], template["link"]["attachment"]) == ("link", held.id)
    disk = etree.fromstring(connection.lookupByName("a").XMLDesc()).find("devices/disk")
    base = disk.find("backingStore")
    assert (base.get("type"), base.find("format").get("type")) == ("network", "raw")
    assert base.find("source").get("name") == f"{volume_types.POOL}/volume-{volume}"
    assert base.find("source/slices/slice").get("size") == str(8 * MiB)
    assert base.find("backingStore") is not None
    assert list(cloud.millpond.bases.iterdir()) == []
    cloud.millpond.ok("server", "delete", "a")
    assert cloud.millpond.json("cache", "prune", "--all-unused")
    assert cloud.cinder.attachments(volume) == []
    assert cloud.cinder.api.get_volume(volume).status == "available"
