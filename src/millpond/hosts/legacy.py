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
    require_files(host, "finding disks in Nova's legacy layout", "they lie in no pool")
    return look_at_layout(host, lambda name: _refresh(host.pools.ensure(name)))


def require_files(host: Host, what: str, reason: str) -> None:
    """Raises NeedsHostFiles with the pool's directory that is not the same here."""
    if host.probe_local_files():
        return
    pools = [host.pools.ensure(each.name) for each in (host.pool_plan.base, host.pool_plan.disks)]
    raise NeedsHostFiles(what, reason, next(each.path for each in pools if not each.local))


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
