"""docs/operations.md: snapshots of a server with a linked template go to the Glance that its image
comes from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services.test_linking import Cloud, _no_proxy, cloud, guest, rbd_pool  # noqa: F401
from tests.support import operations
from tests.support.image_files import MiB
from tests.support.openstack import glance as stores
from tests.support.operations import OPERATIONS, WITH_GLANCE

pytestmark = pytest.mark.timeout(300)  # the services are started first


@pytest.mark.full
@pytest.mark.parametrize(("name", "column"), sorted(WITH_GLANCE))
def test_the_cell_is_true(
    cloud: Cloud,  # noqa: F811
    guest: Callable[[int], Path],  # noqa: F811
    name: str,
    column: operations.Column,
) -> None:
    cloud.upload(guest(8 * MiB), "linked", "raw", stores.VOLUMES)
    operations.create(cloud.millpond, column, OPERATIONS[name], image="linked")
    assert [each["prepared"] for each in cloud.templates()] == ["link"]
    operations.walk(cloud.millpond, column, OPERATIONS[name])
    assert {each.name for each in cloud.glance.api.images()} == {"linked", "kept"}
