"""One cluster, several hosts whose files are elsewhere: its pool counts once, and a template comes
into it once."""

import json
from collections.abc import Iterator

import pytest

from tests.ceph.conftest import RBD_PACKAGE, knows_rbd, make_secret, rbd_options
from tests.support.ceph import Ceph, RbdPool
from tests.support.guests import MicroGuest
from tests.support.multi_host import MultiHost

POOL = "pond-of-many"


@pytest.fixture
def in_ceph(multi_host: MultiHost, ceph: Ceph, micro_guest: MicroGuest) -> Iterator[MultiHost]:
    """Raw images go to Ceph on all hosts, each of which has the key."""
    ceph.make_pool(POOL)
    key = ceph.make_user(POOL, POOL)
    own = {}
    for name, host in multi_host.hosts.items():
        with host.connect() as connection:
            if not knows_rbd(connection):
                pytest.skip(f"libvirt has no rbd pools: apt-get install {RBD_PACKAGE}")
            secret = make_secret(connection, POOL, key)
        access = RbdPool(name=POOL, user=POOL, secret=secret)
        own[name] = "\n".join(("images_type_mapping = raw:rbd", *rbd_options(ceph, access)))
    multi_host.configure(own)
    multi_host.ok("image", "add", micro_guest.path, "--name", "raw")
    yield multi_host
    for host in multi_host.hosts.values():
        host.clear()
        with host.connect() as connection:
            for secret in connection.listAllSecrets():
                secret.undefine()
    ceph.remove_pool(POOL)


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
