"""The steps of the verbs, without a host."""

from dataclasses import replace
from typing import Any, cast

from millpond.model.formats import Backend, DiskFormat
from millpond.model.move import MigrateDetails
from millpond.model.operation import (
    DeleteDetails,
    Details,
    DiskDetails,
    GrowDetails,
    GrowMethod,
    InsertDetails,
    NativeSnapshotDetails,
    NicDetails,
    RebuildDetails,
    RenameDetails,
    RescueDetails,
    ResizeDetails,
    SettleDetails,
)
from millpond.model.server import Disk
from millpond.model.sizes import MiB
from millpond.model.transition import TransitionDetails, Way
from millpond.servers.recover import VERBS

_MOVE = MigrateDetails(migration="", source="alder", destination="birch", here=(), there=())

_VOLUME = Disk(
    role="disk",
    backend=Backend.RAW,
    pool="disks",
    volume="1_disk",
    format=DiskFormat.RAW,
    size=MiB,
    target="vda",
)
_LEGACY = replace(_VOLUME, pool="", volume="", path="/instances/1/disk")

DETAILS: dict[str, Details] = {
    "delete": DeleteDetails(),
    "grow": GrowDetails(role="disk", size=1, method=GrowMethod.RESIZE),
    "disk add": DiskDetails(role="disk.data0"),
    "disk remove": DiskDetails(role="disk.data0"),
    "migrate": _MOVE,
    "live migrate": _MOVE,
    "evacuate": _MOVE,
    "nic add": NicDetails(mac="52:54:00:00:00:50"),
    "nic remove": NicDetails(mac="52:54:00:00:00:50"),
    "rebuild": RebuildDetails(image="1", name="debian", format="raw", ran=True),
    "rescue": RescueDetails(ran=True),
    "unrescue": RescueDetails(ran=True),
    "cdrom insert": InsertDetails(),
    "rename": RenameDetails(before="db"),
    "resize": ResizeDetails(vcpus=1, memory=MiB),
    "settle": SettleDetails(overlays={}),
    "snapshot": NativeSnapshotDetails(),
    "transition": TransitionDetails(
        here=(_LEGACY,),
        there=(_VOLUME,),
        ways={"disk": Way.COPY},
        starts=True,
        prepares=True,
    ),
    "live transition": TransitionDetails(
        here=(_LEGACY,), there=(_VOLUME,), ways={"disk": Way.MIRROR}
    ),
}


def steps_of(verb: str) -> tuple[str, ...]:
    return VERBS[verb](cast(Any, None), DETAILS.get(verb)).step_names
