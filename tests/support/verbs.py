"""The steps of the verbs, without a host."""

from typing import Any, cast

from millpond.model.operation import (
    DeleteDetails,
    Details,
    DiskDetails,
    GrowDetails,
    GrowMethod,
    NativeSnapshotDetails,
)
from millpond.servers.recover import VERBS

DETAILS: dict[str, Details] = {
    "delete": DeleteDetails(),
    "grow": GrowDetails(role="disk", size=1, method=GrowMethod.RESIZE),
    "disk add": DiskDetails(role="disk.data0"),
    "disk remove": DiskDetails(role="disk.data0"),
    "snapshot": NativeSnapshotDetails(),
}


def steps_of(verb: str) -> tuple[str, ...]:
    return VERBS[verb](cast(Any, None), DETAILS.get(verb)).step_names
