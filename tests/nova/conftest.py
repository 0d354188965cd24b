"""One cloud for the session, started by the first test that asks for it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from openstack.compute.v2.server import Server

from tests.support.guests import MicroGuest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud, loopback_address
from tests.support.openstack.deployment import MILLPOND, NOVA, Deployment
from tests.support.openstack.environment import reason_to_skip
from tests.support.openstack.user import CloudUser


@pytest.fixture(scope="session")
def hypervisor(session_directory: Path) -> Iterator[PrivateLibvirtd]:
    """Not the one of other tests, which is cleared after each of them."""
    with new_hypervisor(session_directory, "weir") as libvirtd:
        yield libvirtd


def new_hypervisor(directory: Path, name: str) -> PrivateLibvirtd:
    """QEMU listens for guests that move in at the host's own address, and at no other one."""
    listens = f'migration_address = "{loopback_address(name)}"'
    return PrivateLibvirtd(directory / f"nova-{name}", name=name, qemu=(listens,))


@pytest.fixture(scope="session")
def cloud(session_directory: Path, hypervisor: PrivateLibvirtd) -> Iterator[Cloud]:
    if reason := reason_to_skip():
        pytest.skip(reason)
    with Cloud(session_directory / "cloud", hypervisor) as started:
        yield started


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the cloud's administrator offers; all by ids."""

    images: dict[str, str]
    """The micro guest by format."""
    flavor: str
    flavor_with_all_disks: str


@pytest.fixture(scope="session")
def offer(cloud: Cloud, micro_guest: MicroGuest, session_directory: Path) -> Offer:
    images = {}
    for format in ("raw", "qcow2", "vmdk"):
        path = session_directory / f"offered.{format}"
        words = ("qemu-img", "convert", "-f", "raw", "-O", format, micro_guest.path, path)
        subprocess.run(words, check=True)
        images[format] = cloud.offer_image(path, format)
    return Offer(
        images=images,
        flavor=cloud.offer_flavor(disk=1),
        flavor_with_all_disks=cloud.offer_flavor(disk=1, ephemeral=1, swap=64),
    )


def from_image(image: str) -> dict[str, object]:
    """A root disk of Cinder's, for block_device_mapping."""
    return {
        "boot_index": 0,
        "uuid": image,
        "source_type": "image",
        "destination_type": "volume",
        "volume_size": 1,
        "delete_on_termination": True,
    }


def create(user: CloudUser, offer: Offer, image: str, flavor: str = "") -> Server:
    """With disks of all kinds, unless the flavor says otherwise; its guest is up."""
    wanted = flavor or offer.flavor_with_all_disks
    made = user.create(offer.images[image], wanted, config_drive=True)
    user.await_console(made, "READY")
    return made


def create_at_weir(
    cloud: Cloud, user: CloudUser, offer: Offer, image: str, other: Deployment, flavor: str = ""
) -> Server:
    """Though the other host may have servers."""
    cloud.offer_host(other.compute, offered=False)
    made = create(user, offer, image, flavor)
    cloud.offer_host(other.compute)
    return made


@contextmanager
def evacuated(
    cloud: Cloud, user: CloudUser, server: Server, target: str, deployment: Deployment
) -> Iterator[None]:
    """In the block its own host is dead. After it that one is back, and taken for alive, which
    Nova refuses as long as it finds leftovers."""
    deployment.compute.kill()
    cloud.force_down(deployment.compute)
    try:
        cloud.admin.compute.evacuate_server(server, host=target)

        def has_arrived() -> bool:
            fault = cloud.fault(server.id, "evacuate").strip("; ")
            assert not fault, fault
            return cloud.host_of(server.id) == target

        user.await_truth(has_arrived)
        user.wait(server, "SHUTOFF")  # as Nova leaves it there
        user.start(server)
        yield
    finally:
        deployment.run()
        cloud.force_down(deployment.compute, forced=False)


@pytest.fixture(scope="session", params=[MILLPOND, NOVA])
def either(request: pytest.FixtureRequest, cloud: Cloud) -> Deployment:
    """Each of the two drivers."""
    made = Deployment(cloud, request.param)
    made.start()
    return made


@pytest.fixture(scope="module")
def millpond_driver(cloud: Cloud) -> Deployment:
    made = Deployment(cloud, MILLPOND)
    made.start()
    return made


@pytest.fixture(scope="module")
def other_host(
    cloud: Cloud, millpond_driver: Deployment, session_directory: Path
) -> Iterator[Deployment]:
    """A second one, to which Nova schedules nothing by itself."""
    with new_hypervisor(session_directory, "dam") as libvirtd:
        cloud.offer_volumes(libvirtd)
        deployment = Deployment(cloud, MILLPOND, cloud.new_compute(libvirtd))
        deployment.compute.directory.mkdir(exist_ok=True)
        deployment.start()
        cloud.offer_host(deployment.compute, offered=False)
        yield deployment
        deployment.compute.stop()


@pytest.fixture
def target(cloud: Cloud, other_host: Deployment) -> Iterator[str]:
    """The name of the other host, which may have servers."""
    cloud.offer_host(other_host.compute)
    yield other_host.compute.host
    cloud.offer_host(other_host.compute, offered=False)


@pytest.fixture
def there(other_host: Deployment) -> PrivateLibvirtd:
    return other_host.compute.hypervisor


@pytest.fixture(scope="module")
def larger(cloud: Cloud) -> str:
    """Than the flavor with all disks, in all of them."""
    return cloud.offer_flavor(disk=2, ephemeral=2, swap=128)


@pytest.fixture
def user(cloud: Cloud) -> Iterator[CloudUser]:
    """Whose servers and images are gone afterwards."""
    found = CloudUser(cloud.keystone.user())
    yield found
    found.clear()
