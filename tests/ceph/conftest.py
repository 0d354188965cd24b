"""A cluster, and pools of it that the private libvirtd may use."""

import base64
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest
from lxml import etree
from lxml.builder import E

from tests.support.ceph import Ceph, RbdPool, reason_to_skip
from tests.support.libvirtd import PrivateLibvirtd

RBD_PACKAGE = "libvirt-daemon-driver-storage-rbd"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Until there is a backend on it, the cluster is started by make test-ceph alone."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and not os.environ.get(
            "MILLPOND_TEST_FULL"
        ):
            item.add_marker(pytest.mark.skip(reason="Ceph is tested by itself: make test-ceph"))


@pytest.fixture(scope="session")
def ceph(session_directory: Path) -> Iterator[Ceph]:
    """One cluster for the session; a test that stopped it leaves it running for the next."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    with Ceph(session_directory / "ceph") as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _restarted_ceph(request: pytest.FixtureRequest) -> Iterator[None]:
    # Before libvirtd is cleared, which would wait for a cluster that does not answer.
    yield
    if "ceph" in request.fixturenames:
        request.getfixturevalue("ceph").start()


@pytest.fixture
def rbd_pool(ceph: Ceph, libvirtd: PrivateLibvirtd) -> Iterator[RbdPool]:
    """A fresh pool of the cluster, which libvirt has the key for; it knows no pool of it yet."""
    name = f"pond-{uuid.uuid4().hex[:8]}"
    with libvirtd.connect() as connection:
        if not knows_rbd(connection):
            pytest.skip(f"libvirt has no rbd pools: apt-get install {RBD_PACKAGE}")
        ceph.make_pool(name)
        secret = make_secret(connection, name, ceph.make_user(name, name))
    yield RbdPool(name=name, user=name, secret=secret)
    ceph.start()
    libvirtd.clear()  # guests before their disks
    with libvirtd.connect() as connection:
        connection.secretLookupByUUIDString(secret).undefine()
    ceph.remove_pool(name)


def rbd_options(ceph: Ceph, access: RbdPool) -> tuple[str, ...]:
    """Of group [libvirt]."""
    return (
        f"images_rbd_pool = {access.name}",
        f"images_rbd_ceph_conf = {ceph.client_conf(access)}",
        f"rbd_user = {access.user}",
        f"rbd_secret_uuid = {access.secret}",
    )


def knows_rbd(connection: libvirt.virConnect) -> bool:
    known = etree.fromstring(connection.getStoragePoolCapabilities())
    return bool(known.xpath("pool[@type='rbd'][@supported='yes']"))


def make_secret(connection: libvirt.virConnect, name: str, key: str) -> str:
    usage = E.usage(E.name(f"client.{name}"), type="ceph")
    described = E.secret(usage, ephemeral="no", private="yes")
    secret = connection.secretDefineXML(etree.tostring(described, encoding="unicode"))
    secret.setValue(base64.b64decode(key))
    return str(secret.UUIDString())
