"""Hosts as they are reported, and requests for them."""

from collections.abc import Mapping
from uuid import UUID, uuid4, uuid5

from millpond.model.formats import ImageFormat
from millpond.model.sizes import GiB, MiB
from millpond.scheduling.placement import Placement
from millpond.scheduling.providers import HostReport, PoolReport, Ratio
from millpond.scheduling.request import SchedulingRequest
from millpond.scheduling.scheduler import HostView, Scheduler, SchedulingPolicy
from millpond.scheduling.traits import of_images
from millpond.scheduling.values import Inventory
from millpond.scheduling.weighers import Multipliers

POOL = "nova-disks-pool"
ONE = Ratio(stated=None, initial=1.0)
_PONDS = UUID("5b1d5d4e-6a0c-4f1c-9d5e-0c7a3f1e2b4d")


def uuid_of(name: str) -> str:
    return str(uuid5(_PONDS, name))


def pool(name: str = POOL, *formats: ImageFormat, **changes: object) -> PoolReport:
    values: dict[str, object] = {
        "name": name,
        "capacity": 100 * GiB,
        "reserved": 0,
        "ratio": ONE,
        "traits": of_images("KVM", formats or tuple(ImageFormat)),
        "takes_blank_disks": True,
    }
    return PoolReport(**(values | changes))  # type: ignore[arg-type]


def host(name: str, *formats: ImageFormat, **changes: object) -> HostReport:
    values: dict[str, object] = {
        "name": name,
        "uuid": uuid_of(name),
        "vcpus": 8,
        "reserved_vcpus": 0,
        "cpu_ratio": ONE,
        "memory": 16 * GiB,
        "reserved_memory": 0,
        "ram_ratio": ONE,
        "traits": of_images("KVM", formats or tuple(ImageFormat)),
        "pools": (pool(POOL, *formats),),
    }
    return HostReport(**(values | changes))  # type: ignore[arg-type]


def request(format: str | None = "qcow2", **changes: object) -> SchedulingRequest:
    values: dict[str, object] = {
        "server": str(uuid4()),
        "image_format": format,
        "vcpus": 1,
        "memory": 512 * MiB,
        "root": 5 * GiB,
    }
    return SchedulingRequest(**(values | changes))  # type: ignore[arg-type]


def view(gibibytes: int = 5, **changes: object) -> HostView:
    values: dict[str, object] = {"native": True, "cached": False, "plan": {POOL: gibibytes}}
    return HostView(**(values | changes))  # type: ignore[arg-type]


def scheduler(
    placement: Placement, *names: str, filters: bool = True, **multipliers: float
) -> Scheduler:
    policy = SchedulingPolicy(filters_image_types=filters, multipliers=Multipliers(**multipliers))
    return Scheduler(placement, policy, {name: uuid_of(name) for name in names})


def register(
    placement: Placement, name: str, *traits: str, amounts: Mapping[str, int] | None = None
) -> str:
    """A foreign host: one provider with everything, as Nova's are."""
    uuid = uuid_of(name)
    placement.providers.create(uuid, name)
    stocked = amounts or {"VCPU": 64, "MEMORY_MB": 65536, "DISK_GB": 1000}
    inventories = {each: Inventory(total=total) for each, total in stocked.items()}
    placement.providers.change_inventories(uuid, lambda _: inventories)
    if traits:
        placement.providers.change_traits(uuid, lambda now: now | set(traits))
    return uuid
