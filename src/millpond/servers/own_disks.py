"""The disks of a server that are its own, and not there for a while only."""

from millpond.model.server import RESCUE, SAVED, Disk, Server
from millpond.servers.steps import refuse_unsettled


def get_own_disk(server: Server, name: str) -> Disk:
    """To what a rescue or a resize that can be reverted has made, nothing is done alone."""
    disk = server.get_disk(name)
    if disk.role in (SAVED, RESCUE):
        refuse_unsettled(server)
    return disk
