"""Snapshots in this process, with somebody who watches the steps."""

from collections.abc import Callable

from millpond.hosts.deployment import Deployment
from millpond.images.intake import Intake
from millpond.model.image import Image
from millpond.records.journal import StepMoment, Watch
from millpond.servers.snapshot import SnapshotRequest, snapshot
from tests.support.millpond import Millpond


def take(millpond: Millpond, watch: Watch) -> Image:
    """Of the server "web", as image "snap"."""
    host = Deployment.load([millpond.config], watch).host()
    intake = Intake(host.shared.images_directory)
    request = SnapshotRequest(name="snap")
    return snapshot(host, intake, host.shared.server("web"), request).images[0]


def at(step: str, moment: StepMoment, act: Callable[[], object]) -> Watch:
    """Do something else at this point of the snapshot."""

    def watch(*where: object) -> None:
        if where == ("snapshot", step, moment):
            act()

    return watch
