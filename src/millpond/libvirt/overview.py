"""The pools of the plan as they are on the host, without making any."""

from dataclasses import dataclass

from millpond.libvirt.ensure import PoolWanted, place_of
from millpond.libvirt.pools import PoolPlan
from millpond.model.volume import PoolUsage
from millpond.system.libvirtd import Connection, Libvirtd
from millpond.xml.storage import PoolXml


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOverview:
    name: str
    keeps: str
    state: str
    """``missing`` (it is made when it is first needed), ``inactive`` or ``active``."""
    type: str
    path: str
    """Or where its volumes are otherwise, in words."""
    volumes: int
    usage: PoolUsage | None


def overview(host: Libvirtd, plan: PoolPlan) -> list[PoolOverview]:
    with host.calling("listing pools") as connection:
        wanted = [_pool(connection, each, plan.keeps(each)) for each in plan.all().values()]
        remote = [_pool(connection, each, plan.keeps(each)) for each in plan.remote().values()]
    return [*wanted, *(each for each in remote if each.state != "missing")]


def _pool(connection: Connection, wanted: PoolWanted, keeps: str) -> PoolOverview:
    found = next((p for p in connection.listAllStoragePools(0) if p.name() == wanted.name), None)
    xml = PoolXml.from_xml(found.XMLDesc(0)) if found else None
    active = bool(found and found.isActive())
    return PoolOverview(
        name=wanted.name,
        keeps=keeps,
        state="active" if active else "inactive" if found else "missing",
        type=xml.type if xml else wanted.type,
        path=place_of(xml) if xml else wanted.place,
        volumes=found.numOfVolumes() if found and active else 0,
        usage=_usage(xml) if xml and active else None,
    )


def _usage(xml: PoolXml) -> PoolUsage:
    return PoolUsage(
        capacity=xml.capacity or 0, allocation=xml.allocation or 0, available=xml.available or 0
    )
