"""One cluster, several hosts whose files are elsewhere: its pool counts once, and a template comes
into it once."""

import json
from collections.abc import Iterator

import pytest

from tests.ceph.conftest import POOL, shared_pool
from tests.support.ceph import Ceph
from tests.support.guests import MicroGuest
from tests.support.multi_host import MultiHost


@pytest.fixture
def in_ceph(multi_host: MultiHost, ceph: Ceph, micro_guest: MicroGuest) -> Iterator[MultiHost]:
    """Raw images go to Ceph on all hosts."""
    with shared_pool(multi_host, ceph) as options:
        mapping = "images_type_mapping = raw:rbd"
        multi_host.configure({each: f"{mapping}\n{own}" for each, own in options.items()})
        multi_host.ok("image", "add", micro_guest.path, "--name", "raw")
        yield multi_host


def test_the_pool_counts_once_and_the_template_comes_once(in_ceph: MultiHost, ceph: Ceph) -> None:
    for host in ("alder", "birch"):
        words = ("--image", "raw", "--memory", "32M", "--host", host)
        in_ceph.ok("server", "create", f"on-{host}", *words)
    deployment = in_ceph.deployment()
    disks = {deployment.server(f"on-{host}").disks[0].volume for host in ("alder", "birch")}
    images = set(json.loads(ceph.rbd("ls", POOL, "--format", "json")))
    assert disks < images
    assert len(images - disks) == 1
    rbd = {
        each["name"]: next(p for p in each["pools"] if p["name"] == "nova-disks-pool-rbd")
        for each in in_ceph.json("host", "list")
    }
    assert rbd["alder"]["shared_with"] == ["birch", "cedar"]
    shared = frozenset.intersection(
        *(host.all for host in deployment.scheduler.reporter.providers().values())
    )
    (provider,) = shared
    assert len(deployment.scheduler.placement.providers.consumers(provider)) == 2
    in_ceph.ok("server", "delete", "on-alder", "on-birch")
    assert in_ceph.ok("doctor", "--placement").endswith("no problem\n")
