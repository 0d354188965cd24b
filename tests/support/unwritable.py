"""A state directory in which no record can be written."""

from millpond.errors import StateNotWritable
from millpond.hosts.host import Host
from millpond.model.server import Server
from millpond.records.records import FileRecords
from tests.support.host_with import host_with
from tests.support.millpond import Millpond


class Unwritable(FileRecords):
    def put(self, server: Server) -> None:
        raise StateNotWritable(self._path(server.id), "Input/output error")


def unwritable(millpond: Millpond, host: Host) -> Host:
    """The same host, for somebody who cannot write."""
    return host_with(host, records=Unwritable(millpond.state, millpond.host().shared.locks))
