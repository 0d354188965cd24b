"""Pools of the cluster that the private libvirtd may use."""

import base64
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import libvirt
import pytest
from lxml import etree
from lxml.builder import E

from tests.support.ceph import Ceph, RbdPool
from tests.support.libvirtd import PrivateLibvirtd
from tests.support.multi_host import MultiHost

RBD_PACKAGE = "libvirt-daemon-driver-storage-rbd"
POOL = "pond-of-many"
"""What several hosts share."""


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


@contextmanager
def shared_pool(hosts: MultiHost, ceph: Ceph) -> Iterator[dict[str, str]]:
    """Options of each host, all of which have the key to one pool."""
    ceph.make_pool(POOL)
    key = ceph.make_user(POOL, POOL)
    options = {}
    for name, host in hosts.hosts.items():
        with host.connect() as connection:
            if not knows_rbd(connection):
                pytest.skip(f"libvirt has no rbd pools: apt-get install {RBD_PACKAGE}")
            secret = make_secret(connection, POOL, key)
        access = RbdPool(name=POOL, user=POOL, secret=secret)
        options[name] = "\n".join(rbd_options(ceph, access))
    try:
        yield options
    finally:
        for host in hosts.hosts.values():
            host.start()  # one may be dead
            host.clear()
            with host.connect() as connection:
                for secret in connection.listAllSecrets():
                    secret.undefine()
        ceph.remove_pool(POOL)


def knows_rbd(connection: libvirt.virConnect) -> bool:
    known = etree.fromstring(connection.getStoragePoolCapabilities())
    return bool(known.xpath("pool[@type='rbd'][@supported='yes']"))


def make_secret(connection: libvirt.virConnect, name: str, key: str, uuid: str = "") -> str:
    """libvirt chooses its UUID, unless another host has done so before."""
    usage = E.usage(E.name(f"client.{name}"), type="ceph")
    described = E.secret(usage, *([E.uuid(uuid)] if uuid else []), ephemeral="no", private="yes")
    secret = connection.secretDefineXML(etree.tostring(described, encoding="unicode"))
    secret.setValue(base64.b64decode(key))
    return str(secret.UUIDString())
