"""docs/operations.md: every operation on every kind of root disk of directory pools."""

import pytest

from tests.real.test_host_volumes import device_of
from tests.support import operations
from tests.support.linked import linked_host
from tests.support.operations import OPERATIONS, Column

ALWAYS = {
    ("resize, revert", Column.RAW),
    ("snapshot of one that runs", Column.PLOOP),
    ("migrate", Column.UEFI),
}
"""The rest is one of the long matrices."""
BACKENDS = {Column.RAW: "raw", Column.PLOOP: "ploop"}


COLUMNS = (Column.QCOW2, Column.RAW, Column.PLOOP, Column.UEFI)


def cells(*, moves):
    return [
        pytest.param(
            *(name, column),
            id=f"{name}-{column}",
            marks=[] if (name, column) in ALWAYS else [pytest.mark.full],
        )
        for column in COLUMNS
        for name in operations.names(column, moves=moves)
    ]


@pytest.mark.parametrize(("name", "column"), cells(moves=False))
def test_the_cell_is_true(millpond, micro_guest, workdir, name, column):
    backend = BACKENDS.get(column, "qcow2")
    millpond.configure(f"images_type = {backend}\nimages_type_mapping = raw:{backend}")
    operations.add_image(millpond, micro_guest, column, workdir)
    operations.create(millpond, column, OPERATIONS[name])
    operations.walk(millpond, column, OPERATIONS[name])


@pytest.mark.parametrize(("name", "column"), cells(moves=True))
def test_the_cell_of_a_move_is_true(multi_host, micro_guest, workdir, name, column):
    """Between hosts whose files are local, which ploop needs."""
    operation, backend = OPERATIONS[name], BACKENDS.get(column, "qcow2")
    mapping = f"images_type = {backend}\nimages_type_mapping = raw:{backend}"
    own = {}
    for each in multi_host.hosts:
        place = multi_host.directory / each
        place.mkdir(mode=0o755)
        disks = multi_host.directory / "shared" if operation.dead else place / "disks"
        paths = f"base_images_pool_path = {place}/base\ndisks_pool_path = {disks}"
        own[each] = f"{paths}\n{mapping}"
    multi_host.configure(own, default=f"instances_path = {multi_host.directory}/instances")
    multi_host.ok("host", "list", "--refresh")
    operations.add_image(multi_host, micro_guest, column, workdir)
    operations.create(multi_host, column, operation, "--host", "alder")
    operations.walk(multi_host, column, operation, multi_host.hosts["alder"].lose_power)


@pytest.mark.full
@pytest.mark.parametrize("name", operations.names(Column.LINKED, moves=False))
def test_the_cell_of_a_linked_template_is_true(millpond, micro_guest, workdir, monkeypatch, name):
    """The image is a volume that the host reaches as a device."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    content = micro_guest.path.read_bytes()
    (workdir / "volume").write_bytes(content)
    connection = {"driver_volume_type": "local", "device_path": str(workdir / "device")}
    with (
        device_of(workdir / "volume", workdir / "device"),
        linked_host(millpond, content, connection) as host,
    ):
        operation = OPERATIONS[name]
        host.create(operations.NAME, *(() if operation.runs else ("--no-start",)))
        assert host.templates()
        operations.walk(millpond, Column.LINKED, operation)
        millpond.ok("cache", "prune", "--all-unused")
