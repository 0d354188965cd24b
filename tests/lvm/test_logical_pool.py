"""libvirt's pools in a volume group: the contract of every pool."""

import pytest

from millpond.libvirt.pool import Pool, PoolType
from millpond.libvirt.pools import PoolWanted, ensure_pool
from millpond.system.libvirtd import Libvirtd
from millpond.system.locks import Locks
from tests.contract.pool import PoolContract
from tests.lvm.volume_group import EXTENT

pytestmark = pytest.mark.full  # the backend's contract needs all of it


class TestLogicalPool(PoolContract):
    unit = EXTENT

    @pytest.fixture
    def pool(self, libvirtd, volume_group, workdir) -> Pool:
        group = volume_group.name
        wanted = PoolWanted(
            name="nova-disks-pool-lvm", path=f"/dev/{group}", type=PoolType.LOGICAL, source=group
        )
        host = Libvirtd(libvirtd.uri)
        yield ensure_pool(host, wanted, Locks(workdir / "locks"))
        host.close()
