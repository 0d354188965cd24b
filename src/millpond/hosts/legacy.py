"""Where Nova keeps disks on a host, with those in our pools to which it gives names like ours."""

from collections.abc import Callable
from contextlib import suppress

from millpond.errors import HostProblem, NeedsHostFiles, PoolNotFound, Tool
from millpond.hosts.deployment import Deployment
from millpond.hosts.host import Host
from millpond.legacy.layout import NovaLayout, find_ids
from millpond.libvirt.pool import Pool
from millpond.model.formats import Backend


def find_legacy(deployment: Deployment) -> list[str]:
    """Names, or ids, of servers with disks in Nova's layout on this machine. None is looked
    into."""
    servers, _ = deployment.records.readable()
    names = {each.id: each.name for each in servers}
    recorded = {each.id for each in servers if any(disk.path for disk in each.disks)}
    found = {*recorded, *find_ids(deployment.settings.instances_path)}
    return sorted(names.get(each, each) for each in found)


def refuse_legacy_servers(host: Host) -> None:
    """For a host whose operator says that none is left: nobody looks for what their disks need."""
    images_type = host.settings.libvirt.selection.images_type
    servers = host.records.all()
    names = {each.id: each.name for each in servers}
    found = {each.id for each in servers if any(disk.path for disk in each.disks)}
    if host.probe_local_files():
        found.update(find_ids(host.shared.settings.instances_path))
    if found:
        named = ", ".join(sorted(names.get(each, each) for each in found))
        raise HostProblem(
            f"images_type = {images_type}, but servers on host {host.name!r} have disks in Nova's "
            f"legacy layout: {named}",
            f"set images_type to something else until '{Tool.LEGACY}' lists none",
        )


def find_layout(host: Host) -> NovaLayout:
    """With what was put into pools behind libvirt's back. Raises NeedsHostFiles."""
    if not host.probe_local_files():
        what, reason = "finding disks in Nova's legacy layout", "they lie in no pool"
        raise NeedsHostFiles(what, reason, str(host.shared.settings.instances_path))
    return look_at_layout(host, lambda name: _refresh(host.pools.ensure(name)))


def look_at_layout(host: Host, open_pool: Callable[[str], Pool]) -> NovaLayout:
    """A pool that is not there has none of Nova's disks (B25)."""
    volumes: dict[Backend, Pool] = {}
    for backend, pool in host.pool_plan.by_backend.items():
        with suppress(PoolNotFound):
            volumes[backend] = open_pool(pool.name)
    return host.nova_layout(volumes)


def _refresh(pool: Pool) -> Pool:
    pool.refresh()
    return pool
