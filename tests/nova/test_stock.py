"""Nova's own driver on the same cloud: what ours is compared with."""

import pytest

from tests.support.openstack.cloud import Cloud


@pytest.mark.timeout(900)
def test_starts(cloud: Cloud) -> None:
    cloud.compute.configure({})
    cloud.start_compute()
    print(list(cloud.keystone.admin().compute.services()))
    breakpoint_file = cloud.compute.directory / "wait"
