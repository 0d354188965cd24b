"""Thousands of hosts in a Placement's database, written there in a second: by its API it would
take a quarter of an hour."""

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from millpond.scheduling.providers import pool_provider
from millpond.scheduling.traits import BUSES, IMAGE_TYPES
from tests.support.openstack.environment import python
from tests.support.scheduling import POOL, uuid_of

_PROGRAM = Path(__file__).parent / "programs/run_sql.py"
_FIRST = 1000
_ROWS = 500
_QCOW2, _VMDK = IMAGE_TYPES["qcow2"], IMAGE_TYPES["vmdk"]


def name_of(number: int) -> str:
    return f"host-{number:05}"


def crowd(url: str, numbers: range, directory: Path) -> None:
    """Each host with one pool, and different amounts; every tenth takes vmdk images, the others
    qcow2 images."""
    file = directory / "crowd.sql"
    file.write_text("\n".join(_statements(numbers)))
    subprocess.run([python(), "-W", "ignore", _PROGRAM, url, file], check=True)


def _statements(numbers: range) -> Iterator[str]:
    rows = list(_providers(numbers))
    for start in range(0, len(rows), _ROWS):
        columns = "id, uuid, name, generation, root_provider_id, parent_provider_id"
        values = ", ".join(rows[start : start + _ROWS])
        yield f"INSERT INTO resource_providers ({columns}) VALUES {values}"
    new = f"p.id BETWEEN {_FIRST + 2 * numbers[0]} AND {_FIRST + 2 * numbers[-1] + 1}"
    yield _inventory("VCPU", "64 + p.id % 13", f"{new} AND p.parent_provider_id IS NULL")
    yield _inventory("MEMORY_MB", "65536 + p.id % 997", f"{new} AND p.parent_provider_id IS NULL")
    yield _inventory("DISK_GB", "1000 + p.id % 101", f"{new} AND p.parent_provider_id IS NOT NULL")
    most = sorted({*IMAGE_TYPES.values(), *BUSES.values(), "HW_ARCH_X86_64"} - {_QCOW2, _VMDK})
    yield _traits(most, new)
    yield _traits([_QCOW2], f"{new} AND p.id % 20 > 1")
    yield _traits([_VMDK], f"{new} AND p.id % 20 <= 1")


def _providers(numbers: range) -> Iterator[str]:
    for number in numbers:
        name, root = name_of(number), _FIRST + 2 * number
        host = uuid_of(name)
        yield f"({root}, '{host}', '{name}', 1, {root}, NULL)"
        child = f"'{pool_provider(host, POOL)}', '{name}:{POOL}'"
        yield f"({root + 1}, {child}, 1, {root}, {root})"


def _inventory(resource: str, total: str, condition: str) -> str:
    columns = "total, reserved, min_unit, max_unit, step_size, allocation_ratio"
    return (
        f"INSERT INTO inventories (resource_provider_id, resource_class_id, {columns}) "
        f"SELECT p.id, c.id, {total}, 0, 1, {total}, 1, 1.0 "
        "FROM resource_providers p, resource_classes c "
        f"WHERE c.name = '{resource}' AND {condition}"
    )


def _traits(names: Iterable[str], condition: str) -> str:
    listed = ", ".join(f"'{each}'" for each in names)
    return (
        "INSERT INTO resource_provider_traits (trait_id, resource_provider_id) "
        "SELECT t.id, p.id FROM traits t, resource_providers p "
        f"WHERE t.name IN ({listed}) AND {condition}"
    )
