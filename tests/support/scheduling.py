"""Hosts as they are reported, and requests for them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID, uuid4, uuid5

from millpond.model.formats import Backend, DiskFormat, ImageFormat
from millpond.model.names import ImageId, ServerId
from millpond.model.server import Disk, Flavor, Hardware, ImageRef, Server
from millpond.model.sizes import GiB, MiB
from millpond.scheduling.claims import PlacedClaims
from millpond.scheduling.decision import Decision
from millpond.scheduling.inventory import HostInventory, PoolInventory
from millpond.scheduling.placement import Inventory, Placement
from millpond.scheduling.providers import HostProviders, Ratio, pool_provider
from millpond.scheduling.query import SchedulingRequest
from millpond.scheduling.reporter import HostAnswer, Reporter
from millpond.scheduling.scheduler import HostPlan, Plan, Scheduler
from millpond.scheduling.traits import of_images
from millpond.scheduling.weigh import Multipliers

POOL = "nova-disks-pool"
ONE = Ratio(stated=None, initial=1.0)
_PONDS = UUID("5b1d5d4e-6a0c-4f1c-9d5e-0c7a3f1e2b4d")


def uuid_of(name: str) -> str:
    return str(uuid5(_PONDS, name))


def pool(name: str = POOL, *formats: ImageFormat, **changes: object) -> PoolInventory:
    values: dict[str, object] = {
        "name": name,
        "capacity": 100 * GiB,
        "reserved": 0,
        "ratio": ONE,
        "traits": of_images("KVM", formats or tuple(ImageFormat)),
        "takes_blank_disks": True,
    }
    return PoolInventory(**(values | changes))  # type: ignore[arg-type]


def host(name: str, *formats: ImageFormat, **changes: object) -> HostInventory:
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
    return HostInventory(**(values | changes))  # type: ignore[arg-type]


def request(format: str | None = "qcow2", **changes: object) -> SchedulingRequest:
    values: dict[str, object] = {
        "server": str(uuid4()),
        "image_format": format,
        "vcpus": 1,
        "memory": 512 * MiB,
        "root": 5 * GiB,
    }
    return SchedulingRequest(**(values | changes))  # type: ignore[arg-type]


def plan(gibibytes: int = 5, pools: Mapping[str, int] | None = None) -> HostPlan:
    """Of a small server, with a disk of so many GiB in each of the pools."""
    sizes = {POOL: gibibytes} if pools is None else pools
    return HostPlan(server=_server(sizes), native=True, cached=False)


def _server(sizes: Mapping[str, int]) -> Server:
    return Server(
        id=ServerId("any"),
        name="any",
        host="",
        image=ImageRef(id=ImageId("any"), name="any", format=ImageFormat.RAW),
        flavor=Flavor(vcpus=1, memory=512 * MiB),
        hardware=Hardware(),
        disks=tuple(
            Disk(
                role=f"disk{number}",
                backend=Backend.RAW,
                pool=name,
                volume=f"disk{number}",
                format=DiskFormat.RAW,
                size=gibibytes * GiB,
                target="",
            )
            for number, (name, gibibytes) in enumerate(sizes.items())
        ),
    )


def usual_plan(_host: str) -> HostPlan:
    return plan()


class _Reported(Reporter):
    """Hosts that were reported, and are not reported again."""

    def __init__(self, providers: Mapping[str, HostProviders]) -> None:
        self._reported = providers

    def providers(self) -> Mapping[str, HostProviders]:
        return self._reported

    def report_if_due(self) -> Mapping[str, HostProviders]:
        return self._reported

    def report(self, *, prove: bool = True) -> Mapping[str, HostAnswer]:
        return {}


class Hosts:
    """Hosts of ours: a server is placed and what it takes is claimed as when one is created."""

    def __init__(
        self,
        placement: Placement,
        *names: str,
        filters: bool = True,
        pools: Sequence[str] = (POOL,),
        shared: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        """``shared``: pools, with the UUIDs of the hosts that share them."""
        providers = {
            name: HostProviders(
                host=uuid_of(name),
                pools={
                    each: pool_provider(uuid_of(name), each, (shared or {}).get(each, ()))
                    for each in (*pools, *(shared or {}))
                },
            )
            for name in names
        }
        self.scheduler = Scheduler(
            placement, _Reported(providers), Multipliers(), filters_image_types=filters
        )
        self.claims = PlacedClaims(placement, lambda: providers)

    def decide(
        self, request: SchedulingRequest, plan: Plan = usual_plan, *, everything: bool = False
    ) -> Decision:
        return self.scheduler.decide(request, plan, everything=everything)

    def create(self, request: SchedulingRequest, plan: Plan = usual_plan) -> Server:
        plans: dict[str, HostPlan] = {}

        def plan_on(host: str) -> HostPlan:
            plans[host] = plan(host)
            return plans[host]

        def create_on(host: str) -> Server:
            server = replace(plans[host].server, id=ServerId(request.server), host=host)
            self.claims.hold(server)
            return server

        return self.scheduler.place(request, plan_on, create_on)


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
