"""The services, each started by the first test that asks for it and running for the session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ceph import Ceph
from tests.support.openstack.barbican import Barbican
from tests.support.openstack.cinder import Cinder
from tests.support.openstack.environment import reason_to_skip
from tests.support.openstack.glance import Glance
from tests.support.openstack.iscsi import IscsiTarget
from tests.support.openstack.mariadb import MariaDb
from tests.support.openstack.nfs import NfsExport
from tests.support.openstack.placement import Placement


@pytest.fixture(scope="session")
def services_directory(session_directory: Path) -> Path:
    if reason := reason_to_skip():
        pytest.skip(reason)
    return session_directory


@pytest.fixture(scope="session")
def iscsi_target(services_directory: Path) -> Iterator[IscsiTarget]:
    with IscsiTarget(services_directory / "iscsi") as target:
        yield target


@pytest.fixture(scope="session")
def nfs_export(services_directory: Path) -> Iterator[NfsExport]:
    with NfsExport(services_directory / "nfs") as export:
        yield export


@pytest.fixture(scope="session")
def cinder(services_directory: Path, ceph: Ceph, nfs_export: NfsExport) -> Iterator[Cinder]:
    with Cinder(services_directory / "cinder", ceph=ceph, nfs=nfs_export) as service:
        yield service


@pytest.fixture(scope="session")
def glance(services_directory: Path) -> Iterator[Glance]:
    """Files alone: it is there in three seconds."""
    with Glance(services_directory / "glance") as service:
        yield service


@pytest.fixture(scope="session")
def barbican(services_directory: Path) -> Iterator[Barbican]:
    with Barbican(services_directory / "barbican") as service:
        yield service


@pytest.fixture(scope="session")
def glance_on_cinder(services_directory: Path, cinder: Cinder) -> Iterator[Glance]:
    """Files, volumes and Ceph."""
    with Glance(services_directory / "glance-on-cinder", cinder=cinder) as service:
        yield service


@pytest.fixture(scope="session")
def mariadb(services_directory: Path) -> Iterator[MariaDb]:
    with MariaDb(services_directory / "mariadb", "placement") as service:
        yield service


@pytest.fixture(scope="session")
def placement_service(services_directory: Path, mariadb: MariaDb) -> Iterator[Placement]:
    database = mariadb.url("placement")
    with Placement(services_directory / "placement", database=database) as service:
        yield service
