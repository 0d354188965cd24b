"""What the volumes of a host's pools belong to, from the records."""

from collections.abc import Mapping

from millpond.hosts.host import Host
from millpond.libvirt.libvirt_pool import LibvirtPool


def volume_owners(host: Host, pool: LibvirtPool) -> Mapping[str, str]:
    """In words, by the volume's name."""
    keeps_templates = pool.ceph or pool.name == host.pool_plan.base.name
    templates = host.cache.all() if keeps_templates else ()
    servers, _ = host.shared.records.readable()  # of all hosts: they may share the pool
    disks = [(disk, server) for server in servers for disk in server.disks]
    overlays = [(server.overlay, server) for server in servers]
    return {
        **{
            disk.template.volume: f"disk {disk.role} of server {server.name}, as its base"
            for disk, server in disks
            if disk.path and disk.template and disk.template.pool == pool.name
        },
        **{each.volume: f"image {each.image}" for each in templates},
        **{
            name: f"server {server.name}"
            for disk, server in disks
            if disk.pool == pool.name
            for name in server.volumes_of(disk)
        },
        **{o.volume: f"server {s.name}" for o, s in overlays if o and o.pool == pool.name},
    }
