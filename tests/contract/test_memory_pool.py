"""The pool in memory, as each type of pool."""

import pytest

from millpond.errors import NoSpace
from millpond.libvirt.memory_pool import MemoryPool
from millpond.libvirt.pool import Pool, PoolType
from millpond.model.sizes import MiB
from tests.contract.pool import PoolContract, spec


class TestMemoryPool(PoolContract):
    @pytest.fixture(params=list(PoolType))
    def pool(self, request) -> Pool:
        return MemoryPool("nova-disks-pool", type_=request.param)

    def test_a_full_pool_says_so(self):
        pool = MemoryPool("small", size=MiB)
        base = pool.create(spec("base", capacity=2 * MiB))
        with pytest.raises(NoSpace, match="no space left in pool small"):
            pool.create_from(spec("copy"), base)
