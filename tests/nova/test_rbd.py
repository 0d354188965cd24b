"""Disks of raw images in a real Ceph cluster, next to qcow2 files on the same host."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from openstack.compute.v2.server import Server

from millpond.model.sizes import MiB
from tests.ceph.conftest import make_secret
from tests.nova.conftest import Offer
from tests.nova.domains import chain, disks, volumes
from tests.support.ceph import Ceph, RbdPool
from tests.support.guests import MicroGuest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack import cinder as volume_types
from tests.support.openstack import glance as stores
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import MILLPOND, NOVA, Deployment
from tests.support.openstack.user import CloudUser

pytestmark = [pytest.mark.timeout(600), pytest.mark.full]

POOL = "vms"

NEVER: Mapping[str, int] = {}
AT_ONCE = {"remove_unused_original_minimum_age_seconds": 0, "manager_interval": 5}
"""When the cache manager removes what nothing uses."""


@pytest.fixture(scope="module")
def rbd_pool(
    cloud: Cloud, ceph: Ceph, hypervisor: PrivateLibvirtd, micro_guest: MicroGuest
) -> RbdPool:
    """Whose user may use the pools of Glance and Cinder, too."""
    cloud.cinder.add_ceph(ceph)
    cloud.glance.add_ceph(ceph, cloud.cinder)
    ceph.make_pool(POOL)
    key = ceph.make_user(POOL, POOL, stores.POOL, volume_types.POOL)
    with hypervisor.connect() as connection:
        secret = make_secret(connection, POOL, key)
    return RbdPool(name=POOL, user=POOL, secret=secret)


@pytest.fixture(scope="module")
def access(ceph: Ceph, rbd_pool: RbdPool) -> dict[str, object]:
    """Options of [libvirt]."""
    return {
        "images_rbd_pool": rbd_pool.name,
        "images_rbd_ceph_conf": ceph.client_conf(rbd_pool),
        "rbd_user": rbd_pool.user,
        "rbd_secret_uuid": rbd_pool.secret,
    }


@pytest.fixture(scope="module")
def restart(
    millpond_driver: Deployment, access: dict[str, object]
) -> Iterator[Callable[..., None]]:
    """restart(mapping, options of [image_cache], **options of [DEFAULT])"""

    def restart(mapping: str, cache: Mapping[str, int] = NEVER, **default: str) -> None:
        extra = {"libvirt": access, "image_cache": cache, "DEFAULT": default}
        millpond_driver.start(mapping, extra=extra)

    yield restart
    millpond_driver.start()


def test_a_server_lives_through_it_all(
    user: CloudUser,
    offer: Offer,
    restart: Callable[..., None],
    ceph: Ceph,
    hypervisor: PrivateLibvirtd,
    millpond_driver: Deployment,
) -> None:
    restart("qcow2:qcow2, raw:rbd")
    beside = user.create(offer.images["qcow2"], offer.flavor)
    server = user.create(offer.images["raw"], offer.flavor_with_all_disks, config_drive=True)
    user.await_console(server, "BOOTS 0001")
    root, ephemeral, *_ = disks(hypervisor, server)
    assert (root.get("type"), root.find("source").get("protocol")) == ("network", "rbd")
    assert chain(ephemeral) == ["qcow2", "raw"]
    assert _parent(ceph, server)["pool"] == POOL
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    live = user.snapshot(server)
    user.await_console(user.create(live.id, offer.flavor), "BOOTS 0003")
    user.stop(server)
    cold = user.snapshot(server)
    user.await_console(user.create(cold.id, offer.flavor), "BOOTS 0003")
    user.start(server)
    user.await_console(server, "BOOTS 0003")
    user.rescue(server, offer.images["raw"])
    user.await_console(server, "BOOTS 0001")
    user.unrescue(server)
    user.await_console(server, "BOOTS 0004")
    assert millpond_driver.problems() == []
    user.delete(server)
    assert [each for each in _images(ceph) if each.startswith(server.id)] == []
    user.await_console(beside, "BOOTS 0001")
    user.clear()
    assert volumes(hypervisor) == set()


@pytest.mark.parametrize("backend", ["qcow2", "rbd"])
def test_a_linked_image_is_not_copied(
    user: CloudUser,
    offer: Offer,
    cloud: Cloud,
    restart: Callable[..., None],
    ceph: Ceph,
    hypervisor: PrivateLibvirtd,
    millpond_driver: Deployment,
    micro_guest: MicroGuest,
    backend: str,
) -> None:
    restart(f"raw:{backend}", template_image_handler="volume-based-linking")
    image = cloud.offer_image(micro_guest.path, "raw", stores.RBD)
    before = volumes(hypervisor, "nova-base-images-pool")
    server = user.create(image, offer.flavor)
    user.await_console(server, "BOOTS 0001")
    root = disks(hypervisor, server)[0]
    if backend == "rbd":
        assert (_parent(ceph, server)["pool"], _parent(ceph, server)["image"]) == ("images", image)
    else:
        base = root.find("backingStore")
        assert base.get("type") == "network"
        assert base.find("source").get("name").startswith(f"{stores.POOL}/{image}")
    assert volumes(hypervisor, "nova-base-images-pool") == before
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    made = user.snapshot(server)
    user.await_console(user.create(made.id, offer.flavor), "BOOTS 0003")
    assert millpond_driver.problems() == []
    user.clear()


@pytest.mark.parametrize("backend", ["qcow2", "rbd"])
def test_an_image_in_a_volume_is_linked_and_let_go(
    user: CloudUser,
    cloud: Cloud,
    offer: Offer,
    restart: Callable[..., None],
    ceph: Ceph,
    hypervisor: PrivateLibvirtd,
    millpond_driver: Deployment,
    image_with_data: Path,
    backend: str,
) -> None:
    """With the credentials of nova.conf's [cinder], for no server of Nova's."""
    restart(f"raw:{backend}", template_image_handler="volume-based-linking")
    image = cloud.offer_image(image_with_data, "raw", stores.VOLUMES)
    volume = _volume_of(cloud, image)
    bases = volumes(hypervisor, "nova-base-images-pool")
    written = ceph.bytes_written()
    server = user.create(image, offer.flavor)
    user.await_console(server, "BOOTS 0001")
    (held,) = _attachments(cloud, volume)
    assert (held["instance"], held["attach_mode"]) == (None, "ro")
    assert held["connection_info"]["name"] == f"{volume_types.POOL}/volume-{volume}"
    root = disks(hypervisor, server)[0]
    if backend == "rbd":
        assert _parent(ceph, server)["image"] == f"volume-{volume}"
    else:
        base = root.find("backingStore")
        assert base.get("type") == "network"
        name = f"{volume_types.POOL}/volume-{volume}"
        assert base.find("source").get("name") == name
    assert volumes(hypervisor, "nova-base-images-pool") == bases
    assert ceph.bytes_written() - written < image_with_data.stat().st_size / 8
    again = user.create(image, offer.flavor)
    user.await_console(again, "BOOTS 0001")
    millpond_driver.restart()
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    assert [each["id"] for each in _attachments(cloud, volume)] == [held["id"]]
    made = user.snapshot(server)
    user.await_console(user.create(made.id, offer.flavor), "BOOTS 0003")
    assert millpond_driver.problems() == []
    user.delete(server)

    restart(f"raw:{backend}", AT_ONCE, template_image_handler="volume-based-linking")
    user.reboot(again, "HARD")  # the cache manager has left it its base
    user.await_console(again, "BOOTS 0002")
    assert [each["id"] for each in _attachments(cloud, volume)] == [held["id"]]
    user.clear()
    user.await_truth(lambda: cloud.cinder.attachments(volume) == [])
    user.await_truth(lambda: cloud.cinder.api.get_volume(volume).status == "available")
    cloud.glance.api.delete_image(image)


@pytest.fixture
def image_with_data(micro_guest: MicroGuest, workdir: Path) -> Path:
    """The guest, and bytes behind it that are not zeros: whoever copies it writes them."""
    path = workdir / "with-data"
    path.write_bytes(micro_guest.path.read_bytes() + os.urandom(64 * MiB))
    return path


def _volume_of(cloud: Cloud, image: str) -> str:
    (location,) = cloud.glance.api.get_image(image).locations
    assert location["url"].startswith("cinder://")
    return str(location["url"]).rpartition("/")[2]


def _attachments(cloud: Cloud, volume: str) -> list[Any]:
    """With all that an administrator is shown."""
    api = cloud.cinder.api
    found = api.get(f"/attachments?volume_id={volume}&all_tenants=1", microversion="3.27")
    return [
        api.get(f"/attachments/{each['id']}", microversion="3.27").json()["attachment"]
        for each in found.json()["attachments"]
    ]


def test_a_server_from_before_goes_on(
    user: CloudUser,
    offer: Offer,
    cloud: Cloud,
    access: dict[str, object],
    restart: Callable[..., None],
    ceph: Ceph,
    millpond_driver: Deployment,
) -> None:
    """Nova's own driver has made it in the same pool."""
    as_it_was = {"libvirt": {**access, "images_type": "rbd"}}
    nova = Deployment(cloud, NOVA, place=MILLPOND)
    nova.start(extra=as_it_was)
    old = user.create(offer.images["raw"], offer.flavor_with_all_disks, config_drive=True)
    user.await_console(old, "BOOTS 0001")
    disks_before = {each for each in _images(ceph) if each.startswith(old.id)}
    assert f"{old.id}_disk" in disks_before
    millpond_driver.start("raw:rbd", extra=as_it_was)
    new = user.create(offer.images["raw"], offer.flavor)
    user.await_console(new, "READY")
    _, told = millpond_driver.transition("status")
    assert [each["server"] for each in told] == [old.id]
    user.reboot(old, "HARD")
    user.await_console(old, "BOOTS 0002")
    assert millpond_driver.transition("status") == (0, [])
    user.stop(old)
    user.start(old)
    user.await_console(old, "BOOTS 0003")
    user.rescue(old, offer.images["raw"])
    user.await_console(old, "BOOTS 0001")
    user.unrescue(old)
    user.await_console(old, "BOOTS 0004")
    assert {each for each in _images(ceph) if each.startswith(old.id)} == disks_before
    user.stop(old)
    status, (told,) = millpond_driver.transition("revert", old.id)
    assert (status, told["disks"]) == (0, len(disks_before))
    nova.start(extra=as_it_was)
    user.start(old)
    user.await_console(old, "BOOTS 0005")
    assert {each for each in _images(ceph) if each.startswith(old.id)} == disks_before
    millpond_driver.start("raw:rbd", extra=as_it_was)
    user.reboot(old, "HARD")
    user.await_console(old, "BOOTS 0006")
    user.delete(old)
    assert [each for each in _images(ceph) if each.startswith(old.id)] == []
    user.reboot(new, "HARD")
    user.await_console(new, "BOOTS 0002")
    user.clear()


def test_killed_while_an_image_is_made_of_a_running_server(
    user: CloudUser,
    offer: Offer,
    restart: Callable[..., None],
    ceph: Ceph,
    millpond_driver: Deployment,
) -> None:
    restart("raw:rbd")
    server = user.create(offer.images["raw"], offer.flavor)
    user.await_console(server, "READY")
    millpond_driver.run_until("disk", "extract", "end")
    user.connection.compute.create_server_image(server, "perch")
    millpond_driver.compute.await_end()
    assert _moments(ceph, server)
    millpond_driver.run()
    user.wait(server, "ACTIVE")
    assert _moments(ceph, server) == []
    user.await_console(user.create(user.snapshot(server).id, offer.flavor), "BOOTS 0002")
    user.clear()


def _moments(ceph: Ceph, server: Server) -> list[Any]:
    """What Ceph keeps of the root disk besides what it holds now."""
    told: list[Any] = json.loads(
        ceph.rbd("snap", "ls", "--format", "json", f"{POOL}/{server.id}_disk")
    )
    return told


def _parent(ceph: Ceph, server: Server) -> dict[str, Any]:
    """What the root disk is a clone of."""
    told = json.loads(ceph.rbd("info", "--format", "json", f"{POOL}/{server.id}_disk"))
    parent: dict[str, Any] = told["parent"]
    return parent


def _images(ceph: Ceph) -> list[str]:
    names: list[str] = json.loads(ceph.rbd("ls", "--format", "json", POOL))
    return names
