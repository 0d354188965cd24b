"""Pools of the cluster that the private libvirtd may use."""

import base64
import uuid
from collections.abc import Iterator

import libvirt
import pytest
from lxml import etree
from lxml.builder import E

from tests.support.ceph import Ceph, RbdPool
from tests.support.libvirtd import PrivateLibvirtd

RBD_PACKAGE = "libvirt-daemon-driver-storage-rbd"


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
