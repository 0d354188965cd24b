"""Where Nova keeps disks on a host, with those in our pools to which it gives names like ours."""

from collections.abc import Callable
from contextlib import suppress

from millpond.errors import NeedsHostFiles, PoolNotFound
from millpond.hosts.host import Host
from millpond.legacy.layout import NovaLayout
from millpond.libvirt.pool import Pool
from millpond.model.formats import Backend


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
