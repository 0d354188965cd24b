"""What libvirt says of a server's disks."""

from lxml import etree
from openstack.compute.v2.server import Server

from millpond.libvirt.sharing import is_sharing_probe
from tests.support.libvirtd import PrivateLibvirtd

DISKS = "nova-disks-pool"
BASES = "nova-base-images-pool"
ALL = {"disk", "disk.config", "disk.eph0", "disk.swap"}
"""The roles of a server's disks that has all kinds."""


def disks(hypervisor: PrivateLibvirtd, server: Server) -> list[etree._Element]:
    with hypervisor.connect() as connection:
        xml = connection.lookupByUUIDString(server.id).XMLDesc()
    return etree.fromstring(xml).findall("devices/disk")


def chain(disk: etree._Element) -> list[str]:
    """The formats of its layers, all of them volumes, the top first."""
    assert disk.get("type") == "volume"
    formats = [disk.find("driver").get("type")]
    layer = disk.find("backingStore")
    while len(layer):
        assert layer.get("type") == "volume"
        assert layer.find("source").get("pool") == BASES
        formats.append(layer.find("format").get("type"))
        layer = layer.find("backingStore")
    return formats


def volumes(hypervisor: PrivateLibvirtd, pool: str = DISKS) -> set[str]:
    with hypervisor.connect() as connection:
        found = connection.storagePoolLookupByName(pool)
        found.refresh()
        names = {volume.name() for volume in found.listAllVolumes()}
    return {each for each in names if not is_sharing_probe(each)}


def roles(hypervisor: PrivateLibvirtd, server: Server) -> set[str]:
    """Of the server's volumes."""
    prefix = f"{server.id}_"
    return {each.removeprefix(prefix) for each in volumes(hypervisor) if each.startswith(prefix)}


def has_domain(hypervisor: PrivateLibvirtd, server: Server) -> bool:
    with hypervisor.connect() as connection:
        return server.id in [each.UUIDString() for each in connection.listAllDomains()]


def forget_pools(hypervisor: PrivateLibvirtd) -> None:
    """For a configuration that has them elsewhere. What is in them stays."""
    with hypervisor.connect() as connection:
        for pool in connection.listAllStoragePools():
            if pool.isActive():
                pool.destroy()
            pool.undefine()
