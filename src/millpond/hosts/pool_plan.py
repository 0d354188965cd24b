"""The pools of a host, as its configuration names them."""

from millpond.config import LibvirtSettings
from millpond.libvirt.pool import PoolType
from millpond.libvirt.pools import PoolPlan, PoolWanted
from millpond.model.formats import Backend
from millpond.model.layer import CephAccess
from millpond.system import ceph_conf


def plan_pools(libvirt: LibvirtSettings) -> PoolPlan:
    pools = libvirt.pools
    own = {Backend.LVM: _lvm_pool(libvirt), Backend.RBD: _rbd_pool(libvirt)}
    return PoolPlan(
        base=PoolWanted(name=pools.base_images.name, path=str(pools.base_images.path)),
        disks=PoolWanted(name=pools.disks.name, path=str(pools.disks.path)),
        by_role={
            role: PoolWanted(name=pool.name, path=str(pool.path))
            for role, pool in pools.by_disk_name.items()
        },
        by_backend={backend: each for backend, each in own.items() if each},
    )


def _lvm_pool(libvirt: LibvirtSettings) -> PoolWanted | None:
    group = libvirt.volume_group
    if not group:
        return None
    return PoolWanted(
        name=libvirt.pools.lvm, path=f"/dev/{group}", type=PoolType.LOGICAL, source=group
    )


def _rbd_pool(libvirt: LibvirtSettings) -> PoolWanted | None:
    rbd = libvirt.rbd
    if rbd is None:
        return None
    access = CephAccess(
        pool=rbd.pool,
        monitors=ceph_conf.monitors(rbd.ceph_conf),
        user=rbd.user,
        secret=rbd.secret_uuid,
        conf=rbd.ceph_conf,
    )
    return PoolWanted(name=libvirt.pools.rbd, path="", type=PoolType.RBD, ceph=access)
