"""Images that are volumes of Cinder's, or lie in Ceph: linked, and not copied (B41, B42, B43,
B44)."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import libvirt
import pytest
from lxml import etree
from openstack.exceptions import ConflictException

from millpond.disks.backend import ImageFile
from millpond.model.formats import DiskFormat
from millpond.model.template import Link
from millpond.records.journal import StepMoment
from millpond.templates.links.connections import AttachOptions, connect_link
from millpond.templates.links.linking import Linking
from tests.ceph.conftest import make_secret, rbd_options
from tests.support.ceph import Ceph, RbdPool
from tests.support.guests import MicroGuest
from tests.support.image_files import MiB
from tests.support.killer import kill_at
from tests.support.loopfs import MakeFilesystem
from tests.support.millpond import Millpond, converted
from tests.support.openstack import cinder as volume_types
from tests.support.openstack import glance as stores
from tests.support.openstack.cinder import Cinder
from tests.support.openstack.glance import Glance
from tests.support.openstack.iscsi import IscsiTarget
from tests.support.openstack.nfs import NfsExport
from tests.support.waiting import wait_for

GiB = 1024**3
PROJECT = "ponds"  # tests/support/openstack/programs/loopback_wsgi.py

pytestmark = pytest.mark.timeout(300)  # a dozen commands each, on a machine that may be busy


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
    """A host next to the services."""

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


def in_volume(image: Any) -> bool:
    return any(each["url"].startswith("cinder://") for each in image.locations or ())


def volume_of(image: Any) -> str:
    return str(image.locations[0]["url"]).rpartition("/")[2]


@pytest.fixture
def cloud(
    millpond: Millpond, glance_on_cinder: Glance, cinder: Cinder, ceph: Ceph, rbd_pool: RbdPool
) -> Iterator[Cloud]:
    cloud = Cloud(millpond=millpond, glance=glance_on_cinder, cinder=cinder)
    configure(cloud, ceph, rbd_pool, "images_type_mapping = raw:qcow2, qcow2:qcow2, iso:rbd")
    yield cloud
    configure(cloud, ceph, rbd_pool)
    millpond.run("doctor", "--mend")
    for server in millpond.json("server", "list"):
        millpond.ok("server", "delete", server["id"])
    millpond.run("cache", "prune", "--all-unused")
    for image in glance_on_cinder.api.images():
        for attachment in cinder.attachments(volume_of(image)) if in_volume(image) else ():
            cinder.detach(attachment)
        glance_on_cinder.api.delete_image(image)


def configure(
    cloud: Cloud,
    ceph: Ceph,
    rbd_pool: RbdPool,
    *lines: str,
    handler: str = "volume-based-linking",
) -> None:
    cloud.millpond.configure(
        "\n".join(
            [
                "images_type = qcow2",
                *rbd_options(ceph, rbd_pool),
                *lines,
                f"[glance]\nauth_type = none\nendpoint_override = {cloud.glance.url}",
                f"[cinder]\nauth_type = none\nendpoint_template = {cloud.cinder.url}",
                f"image_volume_project_id = {PROJECT}",
            ]
        ),
        default=f"image_source = glance\ntemplate_image_handler = {handler}",
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


@pytest.mark.timeout(400)
def test_a_large_image_is_not_copied_and_outlives_a_killed_process(
    cloud: Cloud,
    ceph: Ceph,
    rbd_pool: RbdPool,
    guest: Callable[[int], Path],
    make_filesystem: MakeFilesystem,
) -> None:
    """Less than a hundredth of it is written on the host, counted on the device of its pools."""
    where = make_filesystem("ext4", 4 * GiB)
    pools = (
        f"base_images_pool_path = {where.path}/_base",
        f"disks_pool_path = {where.path}/disks",
    )
    configure(cloud, ceph, rbd_pool, *pools, "images_type_mapping = raw:qcow2")
    image = cloud.upload(guest(2 * GiB), "large", "raw", stores.VOLUMES)
    volume = volume_of(image)
    before = where.bytes_written()
    kill_at(cloud.millpond, "link", "record", StepMoment.END, "create", "lost", "large")
    cloud.millpond.run("doctor", "--mend")
    first = cloud.create("first", "large")
    cloud.millpond.wait_for_console(first["id"], "READY")
    assert where.bytes_written() - before < image.size / 100
    kill_at(cloud.millpond, "create", "disks", StepMoment.END, "create", "lost", "large")
    assert cloud.millpond.json("server", "show", "first")["state"] == "running"
    cloud.millpond.ok("server", "reboot", "first", "--hard")
    cloud.millpond.wait_for_console(first["id"], "BOOTS 0002")
    second = cloud.create("second", "large")
    cloud.millpond.wait_for_console(second["id"], "READY")
    assert len(cloud.cinder.attachments(volume)) == 1
    cloud.millpond.run("doctor", "--mend")
    cloud.millpond.ok("server", "delete", "first")
    cloud.millpond.ok("server", "delete", "second")
    cloud.millpond.ok("cache", "prune", "--all-unused")
    assert cloud.cinder.attachments(volume) == []
    assert cloud.cinder.api.get_volume(volume).status == "available"
    assert where.bytes_written() - before < image.size / 100


def test_an_image_in_ceph_is_linked_and_kept_from_being_removed(
    cloud: Cloud,
    ceph: Ceph,
    rbd_pool: RbdPool,
    guest: Callable[[int], Path],
    micro_guest: MicroGuest,
) -> None:
    image = cloud.upload(guest(8 * MiB), "kept", "raw", stores.RBD)
    made = cloud.create("a", "kept")
    assert micro_guest.marker in cloud.millpond.wait_for_console(made["id"], "READY")
    assert list(cloud.millpond.bases.iterdir()) == []
    with pytest.raises(ConflictException):
        cloud.glance.api.delete_image(image)
    cloud.millpond.ok("server", "reboot", "a", "--hard")
    cloud.millpond.wait_for_console(made["id"], "BOOTS 0002")
    cloud.millpond.ok("server", "delete", "a")
    cloud.millpond.ok("cache", "prune", "--all-unused")
    assert ceph.rbd("ls", rbd_pool.name) == ""
    cloud.glance.api.delete_image(image)


def test_a_link_outlives_its_record_and_its_handler(
    cloud: Cloud, ceph: Ceph, rbd_pool: RbdPool, guest: Callable[[int], Path]
) -> None:
    """A domain that names it is enough; and whoever lets go is the one who can."""
    volume = volume_of(cloud.upload(guest(2 * MiB), "linked", "raw", stores.VOLUMES))
    made = cloud.create("a", "linked")
    record = cloud.millpond.state / "servers" / f"{made['id']}.json"
    aside = record.rename(cloud.millpond.directory / "aside")
    configure(cloud, ceph, rbd_pool, handler="downloading")
    assert cloud.millpond.json("cache", "prune", "--all-unused") == []
    aside.rename(record)
    cloud.millpond.ok("server", "reboot", "a", "--hard")
    cloud.millpond.ok("server", "delete", "a")
    cloud.millpond.ok("cache", "prune", "--all-unused")
    assert cloud.cinder.attachments(volume) == []


@pytest.mark.parametrize("store", [stores.VOLUMES, stores.RBD])
def test_a_qcow2_image_is_downloaded_and_that_is_said(
    cloud: Cloud, micro_guest: MicroGuest, workdir: Path, store: str
) -> None:
    """What lies there could be written over once it was inspected, and name files of the host."""
    cloud.upload(converted(micro_guest, "qcow2", workdir), "q", "qcow2", store)
    said = "it is qcow2, and only raw bytes are linked"
    assert f"downloaded, because {said}" in cloud.millpond.ok("explain", "q")
    done = cloud.millpond.run("cache", "fetch", "q")
    assert f"image q is downloaded, not linked: {said}" in done.stderr
    made = cloud.create("a", "q", "--disk", "1G")
    assert micro_guest.marker in cloud.millpond.wait_for_console(made["id"], "READY")
    (template,) = cloud.templates()
    assert (template["format"], template["prepared"]) == ("qcow2", "download")


def test_a_volume_of_a_project_that_is_not_glances_is_downloaded(
    cloud: Cloud, guest: Callable[[int], Path]
) -> None:
    volume = volume_of(cloud.upload(guest(2 * MiB), "foreign", "raw", stores.VOLUMES))
    text = cloud.millpond.config.read_text()
    owned = f"image_volume_project_id = {PROJECT}"
    cloud.millpond.config.write_text(text.replace(owned, "image_volume_project_id = other"))
    done = cloud.millpond.run("cache", "fetch", "foreign")
    assert f"belongs to project {PROJECT}, not to the one of Glance's store (other)" in done.stderr
    assert [each["prepared"] for each in cloud.templates()] == ["download"]
    assert cloud.cinder.attachments(volume) == []


def test_what_lies_behind_the_image_in_its_volume_is_not_seen(
    cloud: Cloud, ceph: Ceph, guest: Callable[[int], Path], workdir: Path
) -> None:
    """B44: a volume has whole GiB, and what was there before is somebody else's."""
    path = guest(2 * MiB)
    content = path.read_bytes()
    volume = volume_of(cloud.upload(path, "short", "raw", stores.VOLUMES))
    write_behind(ceph, volume, 2 * MiB, b"SECRET" * 1000)
    cloud.create("a", "short", "--disk", "4M", "--no-start")
    assert shown(cloud, "a", workdir) == content + bytes(2 * MiB)


def write_behind(ceph: Ceph, volume: str, offset: int, content: bytes) -> None:
    """Into Cinder's image of a volume, as only who runs the cluster can."""
    name = f"{volume_types.POOL}/volume-{volume}"
    url = f"rbd:{name}:id=admin:conf={ceph.conf}"
    pattern = content.ljust(-(-len(content) // 512) * 512, b"\0")
    path = ceph.directory / "behind"
    path.write_bytes(pattern)
    command = f"write -s {path} {offset} {len(pattern)}"
    subprocess.run(["qemu-io", "-f", "raw", "-c", command, url], check=True, capture_output=True)


def shown(cloud: Cloud, name: str, workdir: Path) -> bytes:
    """What the guest would see on its disk."""
    host = cloud.millpond.host()
    disk = host.shared.server(name).get_disk("disk")
    target = workdir / "shown"
    host.disks.extract(disk, ImageFile(path=target, format=DiskFormat.RAW))
    return target.read_bytes()


@pytest.mark.parametrize(
    "store", [pytest.param(stores.RBD, marks=pytest.mark.full), stores.VOLUMES]
)
def test_in_its_own_cluster_a_disk_is_a_clone_of_the_image(
    cloud: Cloud,
    ceph: Ceph,
    rbd_pool: RbdPool,
    guest: Callable[[int], Path],
    micro_guest: MicroGuest,
    store: str,
) -> None:
    configure(cloud, ceph, rbd_pool, "images_type_mapping = raw:rbd")
    image = cloud.upload(guest(32 * MiB), "cloned", "raw", store)
    cloud.millpond.ok("cache", "fetch", "cloned")
    copies = [each for each in ceph.rbd("ls", rbd_pool.name).split() if not is_hold(each)]
    assert copies == []  # it is where it is needed
    before = ceph.bytes_written()
    made = cloud.create("a", "cloned", "--disk", "64M", "--no-start")
    assert ceph.bytes_written() - before < 64 * 1024
    info = json.loads(
        ceph.rbd("info", f"{rbd_pool.name}/{made['disks'][0]['volume']}", "--format", "json")
    )
    assert (info["size"], info["parent"]["image"]) == (64 * MiB, parent_of(image, store))
    cloud.millpond.ok("server", "start", "a")
    assert micro_guest.marker in cloud.millpond.wait_for_console(made["id"], "READY")
    cloud.millpond.ok("cache", "prune", "--all-unused")
    assert len(cloud.templates()) == 1
    cloud.millpond.ok("server", "delete", "a")
    cloud.millpond.ok("cache", "prune", "--all-unused")
    assert ceph.rbd("ls", rbd_pool.name) == ""
    cloud.glance.api.delete_image(image)  # nothing of ours is in the way


def is_hold(name: str) -> bool:
    """An empty clone, which keeps Glance from removing what it is a clone of."""
    return name.endswith(".held")


def parent_of(image: Any, store: str) -> str:
    return image.id if store == stores.RBD else f"volume-{volume_of(image)}"


def test_a_qcow2_image_in_the_cluster_is_brought_into_the_pool_once(
    cloud: Cloud, ceph: Ceph, rbd_pool: RbdPool, micro_guest: MicroGuest, workdir: Path
) -> None:
    configure(cloud, ceph, rbd_pool, "images_type_mapping = qcow2:rbd")
    cloud.upload(converted(micro_guest, "qcow2", workdir), "q", "qcow2", stores.RBD)
    first = cloud.create("a", "q")
    assert micro_guest.marker in cloud.millpond.wait_for_console(first["id"], "READY")
    assert [each["prepared"] for each in cloud.templates()] != ["link"]
    before = ceph.bytes_written()
    cloud.create("b", "q", "--no-start")
    assert ceph.bytes_written() - before < 64 * 1024


def test_an_image_in_a_file_is_downloaded_and_that_is_said(
    cloud: Cloud, guest: Callable[[int], Path]
) -> None:
    """B44"""
    cloud.upload(guest(2 * MiB), "plain", "raw", stores.FILES)
    explained = cloud.millpond.ok("explain", "plain")
    assert "downloaded, because it lies in a store of the kind 'file'" in explained
    done = cloud.millpond.run("cache", "fetch", "plain")
    assert "image plain is downloaded, not linked: it lies in a store" in done.stderr
    assert [each["prepared"] for each in cloud.templates()] == ["download"]


def test_explain_says_that_nothing_is_copied(cloud: Cloud, guest: Callable[[int], Path]) -> None:
    image = cloud.upload(guest(2 * MiB), "linked", "raw", stores.VOLUMES)
    explained = cloud.millpond.json("explain", "linked")["hosts"][0]
    assert explained["location"] == image.locations[0]["url"]
    assert (explained["read"], explained["written"]) == (0, 0)
    assert "linked to cinder://" in cloud.millpond.ok("explain", "linked")


def test_a_volume_that_cannot_be_shared_is_downloaded_and_that_is_said(
    cloud: Cloud,
    ceph: Ceph,
    rbd_pool: RbdPool,
    nfs_export: NfsExport,
    guest: Callable[[int], Path],
    workdir: Path,
) -> None:
    """B43: held by us it could not be downloaded by others."""
    cinder = Cinder(workdir / "cinder", ceph=ceph, nfs=nfs_export, default_type=volume_types.NFS)
    with cinder, Glance(workdir / "glance", cinder=cinder) as glance:
        other = replace(cloud, glance=glance, cinder=cinder)
        configure(other, ceph, rbd_pool)
        volume = volume_of(other.upload(guest(2 * MiB), "alone", "raw", stores.VOLUMES))
        done = cloud.millpond.run("cache", "fetch", "alone")
        assert (done.returncode, cinder.attachments(volume)) == (0, [])
        assert "allows one attachment at a time" in done.stderr
        assert [each["prepared"] for each in cloud.templates()] == ["download"]


def left(cloud: Cloud) -> list[Path]:
    beside = cloud.millpond.bases.with_name("_base.millpond")
    return [
        path
        for path in beside.rglob("*")
        if path.is_file() and path.parent.name not in ("locks", "uses")
    ]


def test_unsafe_content_behind_a_link_is_refused(
    cloud: Cloud, ceph: Ceph, guest: Callable[[int], Path], workdir: Path
) -> None:
    """B46: Glance looked at it when it was uploaded, and it was written over since."""
    volume = volume_of(cloud.upload(guest(2 * MiB), "bad", "raw", stores.VOLUMES))
    overlay = workdir / "overlay"
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-u", "-F", "raw", "-b", "/etc/passwd"]
    subprocess.run([*words, str(overlay), "1M"], check=True)
    write_behind(ceph, volume, 0, overlay.read_bytes()[: 64 * 1024])
    status, said = cloud.millpond.fails("server", "create", "a", "--image", "bad")
    assert (status, "qcow2" in said) == (5, True)
    assert cloud.cinder.attachments(volume) == []
    assert (cloud.templates(), left(cloud)) == ([], [])


def test_a_volume_in_error_is_named(cloud: Cloud, guest: Callable[[int], Path]) -> None:
    volume = volume_of(cloud.upload(guest(2 * MiB), "broken", "raw", stores.VOLUMES))
    cloud.cinder.api.reset_volume_status(volume, "error", None, None)
    status, said = cloud.millpond.fails("server", "create", "a", "--image", "broken")
    assert (status, f"volume {volume} of Cinder" in said, "error" in said) == (4, True, True)
    assert (cloud.templates(), left(cloud)) == ([], [])
    cloud.cinder.api.reset_volume_status(volume, "available", None, None)
    cloud.millpond.ok("cache", "fetch", "broken")


def test_without_cinder_nothing_is_begun_and_nothing_forgotten(
    cloud: Cloud, guest: Callable[[int], Path]
) -> None:
    volume = volume_of(cloud.upload(guest(2 * MiB), "linked", "raw", stores.VOLUMES))
    cloud.cinder.stop()
    try:
        status, said = cloud.millpond.fails("cache", "fetch", "linked")
        assert (status, "Cinder, or Keystone, cannot be reached" in said) == (9, True)
        assert (cloud.templates(), left(cloud)) == ([], [])
    finally:
        cloud.cinder.start()
    cloud.millpond.ok("cache", "fetch", "linked")
    cloud.cinder.stop()
    try:
        assert cloud.millpond.fails("cache", "prune", "--all-unused")[0] == 9
        assert len(cloud.templates()) == 1
    finally:
        cloud.cinder.start()
    cloud.millpond.ok("cache", "prune", "--all-unused")
    assert cloud.cinder.attachments(volume) == []


def test_after_a_restart_links_are_made_again_and_dangling_ones_dropped(
    cloud: Cloud, guest: Callable[[int], Path]
) -> None:
    """B41"""
    image = cloud.upload(guest(2 * MiB), "used", "raw", stores.VOLUMES)
    other = cloud.upload(guest(2 * MiB), "unused", "raw", stores.VOLUMES)
    made = cloud.create("a", "used")
    cloud.millpond.ok("cache", "fetch", "unused")
    for volume in map(volume_of, (image, other)):
        for attachment in cloud.cinder.attachments(volume):
            cloud.cinder.detach(attachment)
    assert "2 linked templates cannot be read any more" in cloud.millpond.run("doctor").stdout
    cloud.glance.api.delete_image(other)
    wait_for(lambda: cloud.cinder.api.find_volume(volume_of(other)) is None, 60)
    cloud.millpond.host().handlers.chosen.init()
    (template,) = cloud.templates()
    (held,) = cloud.cinder.attachments(volume_of(image))
    assert (template["image"], template["link"]["attachment"]) == (image.id, held.id)
    cloud.millpond.ok("server", "reboot", "a", "--hard")
    cloud.millpond.wait_for_console(made["id"], "BOOTS 0002")


def test_a_cluster_that_does_not_answer_is_an_error_before_a_server_starts(
    cloud: Cloud, ceph: Ceph, guest: Callable[[int], Path]
) -> None:
    cloud.upload(guest(2 * MiB), "linked", "raw", stores.VOLUMES)
    cloud.create("a", "linked", "--no-start")
    ceph.stop()
    status, said = cloud.millpond.fails("server", "start", "a")
    assert (status, "Ceph" in said) == (6, True)
    ceph.start()
    cloud.millpond.ok("server", "start", "a")


FULL = pytest.mark.full


def moments(*steps: str, usual: str) -> list[Any]:
    """Each step's begin and end; the ordinary run has the end of one, or none."""
    return [
        pytest.param(step, moment, marks=() if (step, moment) == (usual, StepMoment.END) else FULL)
        for step in steps
        for moment in StepMoment
    ]


@pytest.mark.parametrize(
    ("step", "moment"), moments("look", "attach", "inspect", "enter", "record", usual="attach")
)
def test_killed_while_it_links_it_holds_nothing_for_long(
    cloud: Cloud, guest: Callable[[int], Path], step: str, moment: StepMoment
) -> None:
    volume = volume_of(cloud.upload(guest(2 * MiB), "linked", "raw", stores.VOLUMES))
    kill_at(cloud.millpond, "link", step, moment, "create", "a", "linked")
    assert cloud.create("b", "linked", "--no-start")
    assert len(cloud.cinder.attachments(volume)) == 1
    cloud.millpond.ok("server", "delete", "b")
    cloud.millpond.run("doctor", "--mend")
    cloud.millpond.ok("cache", "prune", "--all-unused")
    assert (cloud.templates(), cloud.cinder.attachments(volume)) == ([], [])
    assert left(cloud) == []


@pytest.mark.parametrize(("step", "moment"), moments("record", "detach", usual=""))
def test_killed_while_it_lets_go_the_next_one_does(
    cloud: Cloud, guest: Callable[[int], Path], step: str, moment: StepMoment
) -> None:
    volume = volume_of(cloud.upload(guest(2 * MiB), "linked", "raw", stores.VOLUMES))
    cloud.millpond.ok("cache", "fetch", "linked")
    kill_at(cloud.millpond, "unlink", step, moment, "prune")
    cloud.millpond.ok("cache", "prune", "--all-unused")
    assert (cloud.templates(), cloud.cinder.attachments(volume)) == ([], [])
    assert left(cloud) == []
    cloud.millpond.ok("cache", "fetch", "linked")
    assert len(cloud.cinder.attachments(volume)) == 1


def test_qemu_reaches_a_lun_by_itself(
    millpond: Millpond, iscsi_target: IscsiTarget, micro_guest: MicroGuest, workdir: Path
) -> None:
    """What Cinder would say of a volume that a target offers; no kernel has a part in it."""
    millpond.ok("image", "add", micro_guest.path, "--name", "guest")
    millpond.configure("images_type_mapping = raw:qcow2")
    host = millpond.host()
    image = host.images.get("guest")
    nowhere: Any = None
    offered = workdir / "lun"
    offered.write_bytes(micro_guest.path.read_bytes() + b"BEHIND" * MiB)
    with iscsi_target.offer(offered) as url:
        _, _, portal, target, lun = url.split("/")
        connection = {
            "driver_volume_type": "iscsi",
            "target_portal": portal,
            "target_iqn": target,
            "target_lun": lun,
        }
        options = AttachOptions(
            ceph=None, initiator="iqn.x:pond", connect=lambda _connection: nowhere
        )
        link = connect_link(Link(location=f"cinder://{image.id}"), connection, options)
        linked = Linking(
            image=image, format=DiskFormat.RAW, location="", target=nowhere, link=link
        )
        host.template_store.put(linked.make_record(host.pool_plan.base.name))
        words = ("--image", "guest", "--memory", "32M", "--network", "none", "--disk", "16M")
        made = millpond.json("server", "create", "a", *words)
        assert micro_guest.marker in millpond.wait_for_console(made["id"], "READY")
        millpond.ok("server", "snapshot", "a", "saved", "--format", "raw")  # while it runs
        millpond.ok("server", "stop", "a", "--force")
        saved = workdir / "saved"
        millpond.ok("image", "save", "saved", saved)
        assert b"BEHIND" not in saved.read_bytes()
        millpond.ok("server", "delete", "a")
