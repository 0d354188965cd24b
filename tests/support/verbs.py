"""The steps of the verbs, without a host."""

from typing import Any, cast

from millpond.model.operation import (
    DeleteDetails,
    Details,
    DiskDetails,
    GrowDetails,
    GrowMethod,
    NativeSnapshotDetails,
    NicDetails,
    RenameDetails,
    ResizeDetails,
)
from millpond.model.sizes import MiB
from millpond.servers.recover import VERBS

DETAILS: dict[str, Details] = {
    "delete": DeleteDetails(),
    "grow": GrowDetails(role="disk", size=1, method=GrowMethod.RESIZE),
    "disk add": DiskDetails(role="disk.data0"),
    "disk remove": DiskDetails(role="disk.data0"),
    "nic add": NicDetails(mac="52:54:00:00:00:50"),
    "nic remove": NicDetails(mac="52:54:00:00:00:50"),
    "rename": RenameDetails(before="db"),
    "resize": ResizeDetails(vcpus=1, memory=MiB),
    "snapshot": NativeSnapshotDetails(),
}


def steps_of(verb: str) -> tuple[str, ...]:
    return VERBS[verb](cast(Any, None), DETAILS.get(verb)).step_names
