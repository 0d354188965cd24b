"""libvirt's pools in a Ceph cluster: the contract of every pool."""

import pytest

from millpond.libvirt.pool import Pool, PoolType
from millpond.libvirt.pools import PoolWanted, ensure_pool
from millpond.model.layer import CephAccess
from millpond.model.sizes import MiB
from millpond.system.libvirtd import Libvirtd
from millpond.system.locks import Locks
from tests.contract.pool import PoolContract, spec

pytestmark = pytest.mark.full  # the backend's contract needs all of it


class TestRbdPool(PoolContract):
    @pytest.fixture
    def pool(self, libvirtd, ceph, rbd_pool, workdir) -> Pool:
        access = CephAccess(
            pool=rbd_pool.name,
            monitors=ceph.monitors,
            user=rbd_pool.user,
            secret=rbd_pool.secret,
            conf=ceph.client_conf(rbd_pool),
        )
        wanted = PoolWanted(name="nova-disks-pool-rbd", path="", type=PoolType.RBD, ceph=access)
        host = Libvirtd(libvirtd.uri)
        yield ensure_pool(host, wanted, Locks(workdir / "locks"))
        host.close()

    def test_a_small_image_grows_to_a_whole_object_at_least(self, pool):
        """libvirt takes anything less for shrinking: 4 MiB count as taken."""
        pool.create(spec("a"))
        pool.resize("a", 2 * MiB)
        assert pool.get("a").capacity == 4 * MiB
