"""What our driver does that Nova's own does not, on the real cloud."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nova.conftest import Offer
from tests.nova.domains import BASES, DISKS, chain, disks, volumes
from tests.support.guests import MicroGuest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import MILLPOND, NOVA, Deployment
from tests.support.openstack.user import CloudUser
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(600)

GiB = 1024**3


def test_a_server_is_made_and_lives_through_it_all(
    user: CloudUser, offer: Offer, millpond_driver: Deployment, hypervisor: PrivateLibvirtd
) -> None:
    """The one path for every change: two formats with different backends on one host."""
    made = {}
    for format, layers in {"qcow2": ["qcow2", "qcow2"], "raw": ["raw"]}.items():
        server = user.create(offer.images[format], offer.flavor_with_all_disks, config_drive=True)
        user.await_console(server, "BOOTS 0001")
        root, ephemeral, swap, config = disks(hypervisor, server)
        assert chain(root) == layers
        assert chain(ephemeral) == chain(swap) == ["qcow2", "raw"]
        assert chain(config) == ["raw"]
        made[format] = server
    millpond_driver.restart()
    for server in made.values():
        user.reboot(server, "HARD")
        user.await_console(server, "BOOTS 0002")
        image = user.snapshot(server)
        user.await_console(user.create(image.id, offer.flavor), "BOOTS 0003")
    user.clear()
    assert volumes(hypervisor) == set()


@pytest.mark.full
def test_a_changed_mapping_is_for_new_servers_alone(
    user: CloudUser, offer: Offer, millpond_driver: Deployment, hypervisor: PrivateLibvirtd
) -> None:
    old = user.create(offer.images["raw"], offer.flavor)
    user.await_console(old, "READY")
    millpond_driver.start("qcow2:raw, raw:qcow2")
    try:
        user.reboot(old, "HARD")
        user.await_console(old, "BOOTS 0002")
        new = user.create(offer.images["raw"], offer.flavor)
        user.await_console(new, "BOOTS 0001")
        assert chain(disks(hypervisor, old)[0]) == ["raw"]
        assert chain(disks(hypervisor, new)[0]) == ["qcow2", "raw"]
        user.reboot(new, "HARD")
        user.await_console(new, "BOOTS 0002")
    finally:
        millpond_driver.start()


@pytest.mark.full
def test_snapshots_are_compressed_if_the_operator_wants_that(
    cloud: Cloud, user: CloudUser, offer: Offer, millpond_driver: Deployment
) -> None:
    millpond_driver.start(extra={"libvirt": {"snapshot_compression": True}})
    server = user.create(offer.images["qcow2"], offer.flavor)
    user.await_console(server, "READY")
    running = user.snapshot(server)
    user.stop(server)
    for image in (running, user.snapshot(server)):
        words = (
            "qemu-img",
            "check",
            "--output=json",
            "-f",
            "qcow2",
            cloud.glance.files / image.id,
        )
        told = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        assert told["compressed-clusters"] > 0
        user.await_console(user.create(image.id, offer.flavor), "BOOTS 0002")
    millpond_driver.start()


@pytest.mark.full
class TestImageTypes:
    """vmdk is excluded on the host."""

    @pytest.fixture(scope="class", autouse=True)
    def excluding(self, millpond_driver: Deployment) -> Iterator[None]:
        millpond_driver.start(extra={"compute": {"image_type_exclude_list": "vmdk"}})
        yield
        millpond_driver.start()

    def test_the_host_reports_what_it_takes(self, cloud: Cloud) -> None:
        traits = cloud.traits()
        assert {"COMPUTE_IMAGE_TYPE_QCOW2", "COMPUTE_IMAGE_TYPE_VDI"} <= traits
        assert "COMPUTE_IMAGE_TYPE_VMDK" not in traits

    def test_placement_finds_no_host(self, cloud: Cloud, user: CloudUser, offer: Offer) -> None:
        cloud.reschedule({"scheduler": {"query_placement_for_image_type_support": True}})
        try:
            refused = user.create(offer.images["vmdk"], offer.flavor, "ERROR")
            assert "No valid host" in refused.fault["message"]
            user.create(offer.images["qcow2"], offer.flavor)
        finally:
            cloud.reschedule({})

    def test_without_placement_the_driver_refuses(self, user: CloudUser, offer: Offer) -> None:
        refused = user.create(offer.images["vmdk"], offer.flavor, "ERROR")
        assert "an image of the format vmdk" in refused.fault["message"]

    def test_a_server_is_not_harmed_by_a_rebuild_that_is_refused(
        self, user: CloudUser, offer: Offer
    ) -> None:
        server = user.create(offer.images["qcow2"], offer.flavor)
        user.await_console(server, "READY")
        user.rebuild(server, offer.images["vmdk"])
        user.await_end_of(server, "rebuild")
        user.wait(server, "ACTIVE")
        user.reboot(server, "HARD")
        user.await_console(server, "BOOTS 0002")


@pytest.mark.full
def test_a_format_that_is_not_excluded_any_more_is_reported_again(
    millpond_driver: Deployment, cloud: Cloud
) -> None:
    assert "COMPUTE_IMAGE_TYPE_VMDK" in cloud.traits()


@pytest.mark.full
def test_images_are_cached_ahead_and_removed_when_nothing_uses_them(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    user.clear()
    never = {"remove_unused_original_minimum_age_seconds": 0, "manager_interval": 5}
    base = millpond_driver.instances / "_base" / hashlib.sha1(b"an image of before").hexdigest()
    base.write_bytes(b"cached by Nova's own driver")
    extra = {"image_cache": never, "libvirt": {"images_type": "qcow2"}}
    millpond_driver.start(extra=extra)
    wait_for(lambda: volumes(hypervisor, BASES) == set() and not base.exists(), 60)
    millpond_driver.start()
    cloud.precache(offer.images["vmdk"])
    wait_for(lambda: len(volumes(hypervisor, BASES)) == 1, 60)


@pytest.mark.full
def test_the_disk_space_of_the_host_is_what_its_pools_may_use(
    cloud: Cloud, millpond_driver: Deployment
) -> None:
    """Without what the file system keeps for root."""
    found = os.statvfs(millpond_driver.instances)
    usable = found.f_frsize * (found.f_blocks - found.f_bfree + found.f_bavail)
    assert cloud.inventory()["DISK_GB"] == usable // GiB


@pytest.mark.full
def test_what_the_disks_may_still_come_to_occupy_is_not_offered(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    millpond_driver.start(extra={"DEFAULT": {"update_resources_interval": 5}})
    flavor = cloud.offer_flavor(disk=10)
    for format in ("qcow2", "raw"):
        user.create(offer.images[format], flavor)

    def is_true() -> bool:
        """A GiB more or less is written meanwhile, and rounded."""
        free, promised = _space(hypervisor, millpond_driver.instances)
        assert promised > 19 * GiB
        return abs(cloud.disk_available_least() - (free - promised) // GiB) <= 1

    wait_for(is_true, 60)


def _space(hypervisor: PrivateLibvirtd, directory: Path) -> tuple[int, int]:
    """What is free there, where the pool is, and what its volumes are short of their full size."""
    with hypervisor.connect() as connection:
        pool = connection.storagePoolLookupByName(DISKS)
        pool.refresh()
        sizes = [volume.info() for volume in pool.listAllVolumes()]
    promised = sum(capacity - taken for _, capacity, taken in sizes)
    return shutil.disk_usage(directory).free, promised


@pytest.mark.full
def test_a_host_that_ran_novas_own_driver_goes_on_with_what_that_has_left(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    session_directory: Path,
) -> None:
    """Its servers, and its bases: one is the image itself, Nova has converted the other."""
    images = [
        cloud.offer_image(session_directory / f"offered.{each}", each) for each in ("raw", "qcow2")
    ]
    nova = Deployment(cloud, NOVA, place=MILLPOND)
    nova.start()
    flavor = cloud.offer_flavor(disk=1, swap=32)
    old = [user.create(image, flavor) for image in images]
    for server in old:
        user.await_console(server, "READY")
    names = [*(hashlib.sha1(image.encode()).hexdigest() for image in images), "swap_32"]
    before = [(nova.instances / "_base" / name).stat() for name in names]
    as_it_was = {"libvirt": {"images_type": "qcow2"}}
    millpond_driver.start("qcow2:raw, raw:raw", extra=as_it_was)
    new = [user.create(image, flavor) for image in images]
    for server in (*old, *new):
        user.await_console(server, "READY")
        user.reboot(server, "HARD")
        user.await_console(server, "BOOTS 0002")
    for name, was in zip(names, before, strict=True):
        now = (nova.instances / "_base" / name).stat()
        assert (now.st_ino, now.st_mtime) == (was.st_ino, was.st_mtime)
        record = nova.instances / f"_base.millpond/records/{name}.json"
        assert '"adoption"' in record.read_text()
    user.clear()
    millpond_driver.start()
    status, found = millpond_driver.doctor("--mend")
    assert status == 0
    mended = [each["what"] for each in found if each["level"] == "repaired"]
    assert len(mended) == len(names), mended  # libvirt gave them to QEMU's user


@pytest.mark.full
def test_what_glance_did_not_look_into_boots_and_comes_back(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    micro_guest: MicroGuest,
    tmp_path: Path,
) -> None:
    """Images of an AMI's server are qcow2 in a container ami, whose size Glance does not state."""
    millpond_driver.start("qcow2:qcow2, raw:raw, ploop:raw")
    try:
        ploop = tmp_path / "micro.ploop"
        words = ("qemu-img", "convert", "-f", "raw", "-O", "parallels", micro_guest.path, ploop)
        subprocess.run(words, check=True)
        user.await_console(user.create(cloud.offer_image(ploop, "ploop"), offer.flavor), "READY")

        ami = cloud.offer_image(micro_guest.path, "ami", container="ami")
        server = user.create(ami, offer.flavor)
        user.await_console(server, "BOOTS 0001")
        image = user.snapshot(server)
        made = cloud.glance.api.get_image(image.id)
        assert (made.container_format, made.disk_format, made.virtual_size) == (
            "ami",
            "qcow2",
            None,
        )
        user.await_console(user.create(image.id, offer.flavor), "BOOTS 0002")
        user.shelve(server)
        user.unshelve(server)
        user.await_console(server, "BOOTS 0002")
    finally:
        millpond_driver.start()


@pytest.mark.full
def test_an_unshelving_that_fails_leaves_nothing_on_the_host(
    cloud: Cloud,
    user: CloudUser,
    offer: Offer,
    millpond_driver: Deployment,
    hypervisor: PrivateLibvirtd,
) -> None:
    server = user.create(offer.images["qcow2"], offer.flavor_with_all_disks)
    user.await_console(server, "BOOTS 0001")
    user.shelve(server)
    (shelved,) = cloud.glance.api.images(name="pike-shelved")
    content = cloud.glance.files / shelved.id
    whole = content.read_bytes()
    content.write_bytes(whole[:-1] + b"X")
    user.begin_to_unshelve(server)
    user.await_end_of(server, "unshelve")
    user.wait(server, "SHELVED_OFFLOADED")
    assert not (millpond_driver.instances / server.id).exists()
    assert not {each for each in volumes(hypervisor) if each.startswith(server.id)}
    content.write_bytes(whole)
    user.unshelve(server)
    user.await_console(server, "BOOTS 0002")
