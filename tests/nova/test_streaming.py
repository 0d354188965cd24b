"""Instances that start before their image has left Glance."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from millpond.images.index import make_index
from millpond.model.formats import DiskFormat, ImageFormat
from millpond.model.image import Image
from millpond.model.names import ImageId, template_name
from millpond.model.sizes import MiB
from millpond.templates.known_indexes import KnownIndexes
from millpond.templates.streams.plan import StreamDirectory
from tests.nova.conftest import Offer
from tests.nova.domains import disks
from tests.support.guests import MicroGuest
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.openstack.cloud import Cloud
from tests.support.openstack.deployment import Deployment
from tests.support.openstack.user import CloudUser
from tests.support.streaming import with_tail
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.timeout(600), pytest.mark.full]


@pytest.fixture
def streams(millpond_driver: Deployment) -> Iterator[Deployment]:
    cache = {"fill_rate": "2M", "fill_delay": 20, "manager_interval": -1}
    extra = {"image_cache": cache, "DEFAULT": {"template_image_handler": "streaming"}}
    millpond_driver.start("raw:qcow2", extra=extra)
    yield millpond_driver
    millpond_driver.start()


def test_an_instance_boots_from_a_stream_that_outlives_nova_compute(
    user: CloudUser,
    offer: Offer,
    cloud: Cloud,
    streams: Deployment,
    hypervisor: PrivateLibvirtd,
    micro_guest: MicroGuest,
    workdir: Path,
) -> None:
    path = with_tail(micro_guest.path, workdir / "streamed.raw", 32 * MiB)
    content = path.read_bytes()
    image = Image(
        id=ImageId(cloud.offer_image(path, "raw")),
        name="streamed",
        format=ImageFormat.RAW,
        size=len(content),
        virtual_size=len(content),
        digest=hashlib.sha512(content).hexdigest(),
        created="",
    )
    sidecar = streams.instances / "_base.millpond"
    KnownIndexes(sidecar).note(replace(image), make_index([content]))
    server = user.create(image.id, offer.flavor)
    user.await_console(server, "BOOTS 0001")
    name = template_name(image.id, DiskFormat.RAW)
    stream = StreamDirectory(sidecar / "streams" / name)
    assert stream.status().percent < 90
    root = disks(hypervisor, server)[0]
    assert root.find("backingStore/source").get("protocol") == "nbd"

    streams.compute.kill()
    assert stream.is_served
    streams.run()
    wait_for((streams.instances / "_base" / name).exists, 180)
    assert (streams.instances / "_base" / name).read_bytes() == content
    user.reboot(server, "HARD")
    user.await_console(server, "BOOTS 0002")
    assert disks(hypervisor, server)[0].find("backingStore").get("type") == "volume"
    assert streams.problems() == []
