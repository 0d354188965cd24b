"""A server's root disk as a new image."""

import logging
from dataclasses import dataclass

from millpond.compute.host import Host
from millpond.compute.power import ON, unoccupied
from millpond.compute.resize import disk_of
from millpond.errors import BadOption, WrongState
from millpond.images.intake import Intake
from millpond.model.formats import ImageFormat
from millpond.model.image import Image
from millpond.model.server import Server

LOG = logging.getLogger(__name__)

FORMATS = (ImageFormat.QCOW2, ImageFormat.RAW)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    name: str
    format: ImageFormat = ImageFormat.QCOW2
    compress: bool = False


def snapshot(host: Host, intake: Intake, server: Server, request: SnapshotRequest) -> Image:
    """While the server is off. It keeps the properties of the image that the server came from."""
    if request.compress and request.format is not ImageFormat.QCOW2:
        raise BadOption(
            "--compress", f"a {request.format} image cannot be compressed", "use qcow2"
        )
    with host.records.lock(server):
        current = unoccupied(host, server)
        state = host.domains.state(server.id)
        if state in ON:
            raise WrongState(server.name, state or "", "stopped")
        disk = disk_of(current, "disk")
        backend = host.storage_of(disk)
        image = intake.make(
            lambda part: backend.extract(
                disk, part, request.format.content, compress=request.compress
            ),
            name=request.name,
            format=request.format,
            properties=_properties(intake, current),
        )
    LOG.info("made image %s of server %s", image.name, server.name)
    return image


def _properties(intake: Intake, server: Server) -> dict[str, str]:
    source = intake.find(server.image.id)
    return dict(source.properties) if source else {}
