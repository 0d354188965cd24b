"""What a host can take: image types, and space in the pools of its disks; and what scheduling asks
of it."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from millpond.config import VirtTypeOption
from millpond.disks import image_types, space
from millpond.disks.selection import SOURCES
from millpond.hosts.cache import list_templates
from millpond.hosts.host import Host
from millpond.libvirt.facts import HostFacts, facts_of
from millpond.libvirt.libvirt_pool import LibvirtPool
from millpond.libvirt.pool import Pool
from millpond.libvirt.pools import PoolWanted
from millpond.model.formats import Backend, ImageFormat
from millpond.model.volume import PoolUsage


def supported_image_types(host: Host, hypervisor: str = "qemu") -> frozenset[ImageFormat]:
    """Of the images that it takes, if its hypervisor is really this."""
    compute, selection = host.settings.compute, host.settings.libvirt.selection
    is_asked = bool(selection.backends() & image_types.NEED_FILES)
    return image_types.supported_formats(
        selection,
        compute.image_type_exclude_list,
        converted=compute.report_converted_image_types,
        hypervisor=_hypervisor(host, hypervisor),
        local=not is_asked or host.seems_local,
    )


def disk_pools(host: Host) -> set[str]:
    """All that new disks may come to."""
    return host.pool_plan.of_disks(host.settings.libvirt.selection.backends())


def disk_space(host: Host) -> PoolUsage:
    return space.space(host.pools, disk_pools(host))


def _hypervisor(host: Host, found: str) -> str:
    """What libvirt found, under the name that decides which images are taken."""
    is_vz = found == "vz" or host.settings.libvirt.virt_type is VirtTypeOption.PARALLELS
    return "parallels" if is_vz else found


class Schedulable:
    """What scheduling asks of a host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.name = host.name
        self.uri = host.settings.libvirt.connection_uri
        self.capacity = host.settings.capacity

    @cached_property
    def settings_digest(self) -> str:
        return self._host.settings.digest()

    def facts(self) -> HostFacts:
        found = facts_of(self._host.libvirtd)
        return replace(found, hypervisor=_hypervisor(self._host, found.hypervisor))

    def disk_pools(self) -> Mapping[str, PoolWanted]:
        pools = self._host.pool_plan.all()
        return {name: pools[name] for name in disk_pools(self._host)}

    def server_pools(self) -> Mapping[str, PoolWanted]:
        plan = self._host.pool_plan
        names = disk_pools(self._host) | plan.of_disks({Backend.RAW})
        return {name: plan.all()[name] for name in names}

    def open_pool(self, name: str) -> Pool:
        return self._host.pools.ensure(name)

    def pools_by_image_type(self, hypervisor: str) -> Mapping[ImageFormat, str]:
        selection, plan = self._host.settings.libvirt.selection, self._host.pool_plan
        pools = {
            each: plan.for_disk(selection.choose(each).backend)
            if each in SOURCES
            else plan.for_disk(Backend.RAW, "kernel")
            for each in supported_image_types(self._host, hypervisor)
        }
        return {each: pool.name for each, pool in pools.items()}

    def blank_disk_pools(self) -> set[str]:
        backend = self._host.settings.libvirt.selection.blank_backend()
        plan, roles = self._host.pool_plan, ("disk.eph0", "disk.swap")
        return {plan.for_disk(backend, role).name for role in roles}


def volume_owners(host: Host, pool: LibvirtPool) -> Mapping[str, str]:
    """In words, by the volume's name."""
    keeps_templates = pool.ceph or pool.name == host.pool_plan.base.name
    templates = list_templates(host) if keeps_templates else ()
    servers, _ = host.shared.records.readable()  # of all hosts: they may share the pool
    disks = [(disk, server) for server in servers for disk in server.disks]
    overlays = [(each, server) for server in servers for each in server.overlays.values()]
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
        **{o.volume: f"server {s.name}" for o, s in overlays if o.pool == pool.name},
    }
